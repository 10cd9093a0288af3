//! The names that threads share. A thread that uses one has it exclusively until it returns it.

use super::FilebenchOptions;
use crate::random::ActorRandom;
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
    /// Creates a set in which every name is missing.
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

    /// Takes a file that exists and that no thread uses.
    pub fn take_existing(&self, random: &ActorRandom) -> Option<u64> {
        take(&mut self.lock().existing, random)
    }
    /// Takes a name that no file has.
    pub fn take_missing(&self, random: &ActorRandom) -> Option<u64> {
        take(&mut self.lock().missing, random)
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

fn take(names: &mut Vec<u64>, random: &ActorRandom) -> Option<u64> {
    match names.len() as u64 {
        0 => None,
        count => Some(names.swap_remove(random.below(count) as usize)),
    }
}
