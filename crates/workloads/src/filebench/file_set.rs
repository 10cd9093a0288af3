//! The names that threads share. Whoever uses one has it for itself until it is given back.

use super::FilebenchOptions;
use crate::dice::Dice;
use std::sync::Mutex;

pub struct FileSet {
    directory_width: u64,
    state: Mutex<State>,
}

struct State {
    existing: Vec<u64>,
    missing: Vec<u64>,
}

impl FileSet {
    /// All names missing.
    pub fn new(options: &FilebenchOptions) -> FileSet {
        let state = State { existing: Vec::new(), missing: (0..options.files).rev().collect() };
        FileSet { directory_width: options.directory_width, state: Mutex::new(state) }
    }

    pub fn directories(&self, files: u64) -> impl Iterator<Item = String> {
        (0..files.div_ceil(self.directory_width)).map(|number| format!("d{number:05}"))
    }
    pub fn path(&self, file: u64) -> String {
        format!("d{:05}/{file:08}", file / self.directory_width)
    }

    /// Some file that exists and that nobody uses.
    pub fn take_existing(&self, dice: &Dice) -> Option<u64> {
        take(&mut self.lock().existing, dice)
    }
    /// Some name that no file has.
    pub fn take_missing(&self, dice: &Dice) -> Option<u64> {
        take(&mut self.lock().missing, dice)
    }
    pub fn give_existing(&self, file: u64) {
        self.lock().existing.push(file);
    }
    pub fn give_missing(&self, file: u64) {
        self.lock().missing.push(file);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().expect("nobody panics while holding it")
    }
}

fn take(names: &mut Vec<u64>, dice: &Dice) -> Option<u64> {
    match names.len() as u64 {
        0 => None,
        count => Some(names.swap_remove(dice.below(count) as usize)),
    }
}
