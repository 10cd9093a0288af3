//! Notes: the state of a file, where the kernel does not know it.

use super::in_flight::{InFlight, clocks};
use super::own_directory::OwnDirectory;
use crate::attributes::{FileId, Version};
use std::fs::{File, Metadata};
use std::io::{self, Write};
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// Length of the one line; anything longer is not a note.
const NOTE_BYTES_MAX: u64 = 256;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Note {
    pub version: Version,
    /// The file's modification time in this state: seconds and nanoseconds.
    pub modified: (i64, i64),
    /// Period in which the file is being brought to this state, or was when the writer ended.
    pub in_flight: Option<Period>,
    pub born: Born,
}

/// The times of change of a file that are its writer's, in nanoseconds since 1970. Later ones are
/// another client's, and so are earlier ones: the clock was set back since.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Period {
    /// The time of change that the file had before.
    pub before: u64,
    pub from: u64,
    pub until: u64,
}

impl Period {
    fn has(&self, changed: u64) -> bool {
        let is_later = changed >= self.from || units::fault!("store-clock-set-back");
        changed == self.before || (is_later && changed <= self.until)
    }
}

/// The time of birth that a note knows of its file, in nanoseconds since 1970. Another file may get
/// the number, with the same size and times, or while the note is in flight.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Born {
    /// The file system does not store it.
    Unknown,
    At(u64),
    /// Read from a note of an earlier release, without the time itself: not after the noted state,
    /// of which the same clock gave the time.
    NotAfter(u64),
}

impl Born {
    pub fn of(metadata: &Metadata) -> Born {
        let since = |born: SystemTime| born.duration_since(UNIX_EPOCH).ok();
        let born = metadata.created().ok().and_then(since);
        born.map_or(Born::Unknown, |born| Born::At(born.as_nanos() as u64))
    }
    /// Returns whether the note's file is this one.
    fn is_of(self, metadata: &Metadata) -> bool {
        match (self, Born::of(metadata)) {
            _ if units::fault!("store-note-of-another-file") => true,
            (Born::Unknown, _) | (Born::NotAfter(_), Born::Unknown | Born::NotAfter(_)) => true,
            (Born::NotAfter(noted), Born::At(found)) => found <= noted,
            (noted, found) => noted == found,
        }
    }
}

impl Note {
    /// Creates a note that has to be written again before `times` end.
    pub fn in_flight(version: Version, file: &Metadata, times: Range<SystemTime>) -> Note {
        let since = |time: SystemTime| time.duration_since(UNIX_EPOCH).unwrap_or_default();
        let [from, until] = [times.start, times.end].map(|time| since(time).as_nanos() as u64);
        let in_flight = Some(Period { before: changed_ns(file), from, until });
        Note { version, modified: (0, 0), in_flight, born: Born::of(file) }
    }
    fn to_line(self) -> String {
        let Version { number, ctime_ns, size } = self.version;
        let (seconds, nanoseconds) = self.modified;
        let born = if let Born::At(born) = self.born { born } else { 0 };
        let known = format!("{number} {ctime_ns} {size} {seconds} {nanoseconds}");
        match self.in_flight {
            // As earlier releases read it.
            None => format!("3 {known} 0 {born}\n"),
            Some(Period { before, from, until }) => {
                format!("4 {known} {until} {born} {from} {before}\n")
            }
        }
    }
    fn of_line(line: &str) -> Option<Note> {
        let mut words = line.strip_suffix('\n')?.split(' ');
        let format = words.next()?;
        matches!(format, "2" | "3" | "4").then_some(())?;
        let mut number = || words.next()?.parse::<u64>().ok();
        let version = Version { number: number()?, ctime_ns: number()?, size: number()? };
        let mut signed = || words.next()?.parse::<i64>().ok();
        let modified = (signed()?, signed()?);
        let until: u64 = words.next()?.parse().ok()?;
        let born = match format {
            "2" => Born::NotAfter(version.ctime_ns),
            _ => match words.next()?.parse().ok()? {
                0 => Born::Unknown,
                born => Born::At(born),
            },
        };
        let (from, before) = match format {
            "4" => (words.next()?.parse().ok()?, words.next()?.parse().ok()?),
            _ => (0, 0),
        };
        let in_flight = (until != 0).then_some(Period { before, from, until });
        words.next().is_none().then_some(Note { version, modified, in_flight, born })
    }
    fn holds(&self, metadata: &Metadata) -> bool {
        let is_in_flight = || self.in_flight.is_some_and(|times| times.has(changed_ns(metadata)));
        self.born.is_of(metadata) && (self.is_reached(metadata) || is_in_flight())
    }
    /// Returns whether the file has been brought to the noted state.
    fn is_reached(&self, metadata: &Metadata) -> bool {
        metadata.size() == self.version.size && modified_of(metadata) == self.modified
    }
}

#[derive(Clone)]
pub(super) struct Notes(pub OwnDirectory);

impl Notes {
    /// Reads a note. A damaged one counts as none: the file then has the kernel's version, and
    /// counts as changed by others.
    fn read(&self, file: FileId) -> Option<Note> {
        Note::of_line(&self.0.read(&file.0.to_string(), NOTE_BYTES_MAX)?)
    }
    pub fn version(&self, file: FileId, metadata: &Metadata) -> Version {
        match self.read(file).filter(|note| note.holds(metadata)) {
            Some(note) => note.version,
            None => version_of(metadata),
        }
    }
    /// Writes a note that keeps a file's present version if nothing but its time of change changes,
    /// at once; durable when this returns.
    pub fn keep(&self, file: FileId, found: &Metadata) -> io::Result<()> {
        match self.read(file).filter(|note| note.holds(found)) {
            Some(note) if note.is_reached(found) => Ok(()),
            // Its writer died amid that.
            Some(Note { version, .. }) => {
                let write = |times| self.write(file, Note::in_flight(version, found, times));
                InFlight::renewed(None, clocks, write).map(drop)
            }
            None => {
                let (version, modified) = (version_of(found), modified_of(found));
                let born = Born::of(found);
                self.write(file, Note { version, modified, in_flight: None, born })
            }
        }
    }
    /// Writes a note; durable when this returns.
    pub fn write(&self, file: FileId, note: Note) -> io::Result<()> {
        let fresh = format!("{}.new", file.0);
        let mut to = match self.0.make_new(&fresh) {
            // Left over from a crash.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                self.0.remove(&fresh)?;
                self.0.make_new(&fresh)?
            }
            made => made?,
        };
        to.write_all(note.to_line().as_bytes())?;
        to.sync_all()?;
        self.0.rename(&fresh, &file.0.to_string())?;
        self.0.sync()
    }
    /// Removes a note of a file that is about to change, or gone, if there is one.
    pub fn forget(&self, file: FileId) {
        let _ = self.0.remove(&file.0.to_string());
    }
    /// Removes a note of a file that stays as it is, if there is one; durable when this returns. If
    /// it came back with the next boot, it would name a version that nobody builds on.
    pub fn remove(&self, file: FileId) -> io::Result<()> {
        match self.0.remove(&file.0.to_string()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
            Ok(()) => self.0.sync(),
        }
    }
}

fn modified_of(metadata: &Metadata) -> (i64, i64) {
    (metadata.mtime(), metadata.mtime_nsec())
}

pub(super) fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

pub(super) fn changed_ns(metadata: &Metadata) -> u64 {
    (metadata.ctime() as u64).wrapping_mul(1_000_000_000) + metadata.ctime_nsec() as u64
}

/// Returns the version of a file without a note.
pub(super) fn version_of(metadata: &Metadata) -> Version {
    let ctime_ns = changed_ns(metadata);
    Version { number: ctime_ns, ctime_ns, size: metadata.size() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_come_back_and_damaged_ones_are_none() {
        let version = Version { number: 7, ctime_ns: 8, size: 9 };
        let times = Period { before: 3, from: 4, until: 5 };
        for (born, in_flight) in [(Born::Unknown, Some(times)), (Born::At(6), None)] {
            let note = Note { version, modified: (-3, 4), in_flight, born };
            assert_eq!(Note::of_line(&note.to_line()), Some(note));
        }
        let older = Note::of_line("2 7 8 9 -3 4 5\n").unwrap();
        assert_eq!((older.version, older.born), (version, Born::NotAfter(8)));
        for damaged in [
            "",
            "3 7 8 9 3 4 1 0",
            "1 7 8 9 3 4 1\n",
            "2 7 8 9 3 4\n",
            "2 7 8 9 3 4 1 1\n",
            "3 7 8 9 3 4 1\n",
            "3 7 8 9 3 4 1 1 1\n",
            "3 x 8 9 3 4 1 0\n",
            "4 7 8 9 3 4 1 1\n",
            "4 7 8 9 3 4 1 1 1 1 1\n",
        ] {
            assert_eq!(Note::of_line(damaged), None, "{damaged:?}");
        }
    }
}
