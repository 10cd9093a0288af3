//! Times of change that were reported of files before they went to the store. There the kernel sets
//! its own, which no program can set: without this a file that nobody has changed would look
//! changed, to git or to a backup. They are kept in memory for some files, and in
//! `.okeanos/changes` from one mount to the next.
//!
//! Only what is shown depends on them, no version. They count as long as the kernel's time is the
//! one of the flush; where they are lost, as after a crash, the kernel's is shown. Where times have
//! whole seconds, a change past okeanos within the second of a flush is not shown.

use super::own_directory::OwnDirectory;
use crate::attributes::FileId;
use crate::event::Identity;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, Write as _};
use units::Timestamp;

const FILES_MAX: usize = 1 << 16;
/// Longer than the lines of `FILES_MAX` files.
const BYTES_MAX: u64 = FILES_MAX as u64 * 128;

/// The kernel's time behind a flush, and the reported one.
type Times = (Timestamp, Timestamp);

pub(super) struct ChangeTimes {
    kept: OwnDirectory,
    name: String,
    times: RefCell<BTreeMap<FileId, Times>>,
}

impl ChangeTimes {
    /// Reads what the last mount of this host has left. A line that is none is passed over.
    pub fn open(kept: OwnDirectory, identity: &Identity) -> ChangeTimes {
        let name = identity.0.clone();
        let left = kept.read(&name, BYTES_MAX).unwrap_or_default();
        let times = left.lines().take(FILES_MAX).filter_map(of_line).collect();
        ChangeTimes { kept, name, times: RefCell::new(times) }
    }
    pub fn note(&self, file: FileId, kernel: Timestamp, reported: Timestamp) {
        let mut times = self.times.borrow_mut();
        times.insert(file, (kernel, reported));
        if times.len() > FILES_MAX {
            times.pop_first();
        }
    }
    /// Returns the time of change to show of a file that has `kernel`.
    pub fn shown(&self, file: FileId, kernel: Timestamp) -> Timestamp {
        let mut times = self.times.borrow_mut();
        match times.get(&file) {
            Some((flushed, reported)) if *flushed == kernel => *reported,
            Some(_) => {
                times.remove(&file);
                kernel
            }
            None => kernel,
        }
    }
    /// Writes them down for the next mount.
    pub fn keep(&self) -> io::Result<()> {
        let mut text = String::new();
        for (file, (kernel, reported)) in &*self.times.borrow() {
            let [kernel, reported] =
                [kernel, reported].map(|time| (time.seconds, time.nanoseconds));
            let _ = writeln!(
                text,
                "{} {} {} {} {}",
                file.0, kernel.0, kernel.1, reported.0, reported.1
            );
        }
        let fresh = format!("{}.new", self.name);
        let _ = self.kept.remove(&fresh);
        self.kept.make_new(&fresh)?.write_all(text.as_bytes())?;
        self.kept.rename(&fresh, &self.name)
    }
}

fn of_line(line: &str) -> Option<(FileId, Times)> {
    let mut words = line.split(' ');
    let file = FileId(words.next()?.parse().ok()?);
    let mut time = || {
        let seconds = words.next()?.parse().ok()?;
        let nanoseconds = words.next()?.parse().ok().filter(|part| *part < 1_000_000_000)?;
        Some(Timestamp { seconds, nanoseconds })
    };
    let times = (time()?, time()?);
    words.next().is_none().then_some((file, times))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_are_none_are_passed_over() {
        let time = |seconds| Timestamp { seconds, nanoseconds: 5 };
        assert_eq!(of_line("7 -1 5 2 5"), Some((FileId(7), (time(-1), time(2)))));
        for damaged in ["", "7", "7 1 5 2", "7 1 5 2 5 6", "7 1 5 2 1000000000", "x 1 5 2 5"] {
            assert_eq!(of_line(damaged), None, "{damaged:?}");
        }
    }
}
