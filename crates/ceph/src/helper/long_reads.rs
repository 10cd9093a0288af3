//! Reads that the library would never answer.
//!
//! T11: where the end of a file moves, a read may wait until the library may keep no content of it any more. When that is so nobody
//! wakes it. What does is the next right that the servers give for the file. So a read that lasts is given one: the file is opened
//! for writing, which asks for more, and closed again.

use super::files::{File, lock};
use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A read that lasts longer may wait for servers, or for ever. Then twice as long, and so on.
const LONG: Duration = Duration::from_secs(1);
const LOOK: Duration = Duration::from_millis(250);
/// Looks at nothing before the watcher sleeps.
const QUIET: u32 = 40;

#[derive(Default)]
pub struct LongReads {
    state: Mutex<State>,
    begun: Condvar,
}

#[derive(Default)]
struct State {
    last: u64,
    under_way: BTreeMap<u64, UnderWay>,
    sleeps: bool,
}

struct UnderWay {
    file: Arc<File>,
    since: Instant,
    patience: Duration,
}

impl LongReads {
    pub fn start() -> Arc<LongReads> {
        let reads = Arc::new(LongReads::default());
        let watcher = reads.clone();
        std::thread::spawn(move || watcher.watch());
        reads
    }

    pub fn read<T>(&self, file: &Arc<File>, read: impl FnOnce() -> T) -> T {
        let number = {
            let mut state = lock(&self.state);
            state.last += 1;
            let number = state.last;
            let read = UnderWay { file: file.clone(), since: Instant::now(), patience: LONG };
            state.under_way.insert(number, read);
            if std::mem::take(&mut state.sleeps) {
                self.begun.notify_one();
            }
            number
        };
        let answer = read();
        lock(&self.state).under_way.remove(&number);
        answer
    }

    fn watch(&self) {
        let mut quiet = 0;
        loop {
            std::thread::sleep(LOOK);
            let mut state = lock(&self.state);
            quiet = if state.under_way.is_empty() { quiet + 1 } else { 0 };
            for read in state.under_way.values_mut() {
                if read.since.elapsed() > read.patience {
                    read.patience *= 2;
                    let file = read.file.clone();
                    // It may take as long. What goes wrong the read will tell.
                    std::thread::spawn(move || drop(file.inode.open(true)));
                }
            }
            if quiet > QUIET {
                state.sleeps = true;
                while state.sleeps {
                    state = self.begun.wait(state).unwrap_or_else(PoisonError::into_inner);
                }
                quiet = 0;
            }
        }
    }
}
