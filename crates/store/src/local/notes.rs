//! Notes: the state of a file, where the kernel does not know it.

use super::in_flight::{InFlight, clocks};
use super::own_directory::OwnDirectory;
use crate::attributes::{FileId, Version};
use std::fs::{File, Metadata};
use std::io;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// The first word of a note.
const FORMAT: &str = "6";
/// Length of the one line; anything longer is not a note.
const NOTE_BYTES_MAX: u64 = 256;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Note {
    pub version: Version,
    pub changed: Changed,
    pub born: Born,
}

/// The times of change, in nanoseconds since 1970, with which the file has the noted state. Every
/// change of a file sets it, and no program can.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Changed {
    /// The file was brought to the state, and had this time then.
    At(u64),
    /// Content is being brought there, or was when the writer ended.
    Within(Period),
    /// A name of it changes, and nothing else: it has this length and time of modification, in
    /// nanoseconds since 1970, or is another program's.
    Renamed { times: Period, size: u64, modified: u64 },
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
    fn of(file: &Metadata, times: Range<SystemTime>) -> Period {
        let since = |time: SystemTime| time.duration_since(UNIX_EPOCH).unwrap_or_default();
        let [from, until] = [times.start, times.end].map(|time| since(time).as_nanos() as u64);
        Period { before: changed_ns(file), from, until }
    }
    fn has(&self, changed: u64) -> bool {
        let is_later = changed >= self.from || units::fault!("store-clock-set-back");
        changed == self.before || (is_later && changed <= self.until)
    }
}

/// The time of birth that a note knows of its file, in nanoseconds since 1970. Another file may get
/// the number, and be changed while the note is in flight.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Born {
    /// The file system does not store it.
    Unknown,
    At(u64),
}

impl Born {
    pub fn of(metadata: &Metadata) -> Born {
        let since = |born: SystemTime| born.duration_since(UNIX_EPOCH).ok();
        let born = metadata.created().ok().and_then(since);
        born.map_or(Born::Unknown, |born| Born::At(born.as_nanos() as u64))
    }
    /// Returns the number that a note has of it.
    pub fn to_number(self) -> u64 {
        if let Born::At(born) = self { born } else { 0 }
    }
    pub fn of_number(born: u64) -> Born {
        if born == 0 { Born::Unknown } else { Born::At(born) }
    }
    /// Returns whether the note's file is this one.
    pub fn is_of(self, metadata: &Metadata) -> bool {
        let is_same = self == Born::Unknown || self == Born::of(metadata);
        is_same || units::fault!("store-note-of-another-file")
    }
}

impl Note {
    /// Creates a note that has to be written again before `times` end.
    pub fn in_flight(version: Version, file: &Metadata, times: Range<SystemTime>) -> Note {
        Note { version, changed: Changed::Within(Period::of(file, times)), born: Born::of(file) }
    }
    /// Creates a note of a file of which only names change until `times` end.
    fn renamed(version: Version, file: &Metadata, times: Range<SystemTime>) -> Note {
        let (times, size, modified) = (Period::of(file, times), file.size(), modified_ns(file));
        let changed = Changed::Renamed { times, size, modified };
        Note { version, changed, born: Born::of(file) }
    }
    /// Creates a note of a file that has been brought to a state, and is durable.
    pub fn reached(version: Version, file: &Metadata) -> Note {
        let changed = match units::fault!("store-time-as-asked") {
            true => version.ctime_ns,
            false => changed_ns(file),
        };
        Note { version, changed: Changed::At(changed), born: Born::of(file) }
    }
    fn to_line(self) -> String {
        let Version { number, ctime_ns, size } = self.version;
        let born = self.born.to_number();
        let known = format!("{FORMAT} {number} {ctime_ns} {size} {born}");
        match self.changed {
            Changed::At(changed) => format!("{known} {changed}\n"),
            Changed::Within(Period { before, from, until }) => {
                format!("{known} {before} {from} {until}\n")
            }
            Changed::Renamed { times: Period { before, from, until }, size, modified } => {
                format!("{known} {before} {from} {until} {size} {modified}\n")
            }
        }
    }
    fn of_line(line: &str) -> Option<Note> {
        let mut words = line.strip_suffix('\n')?.split(' ');
        (words.next()? == FORMAT).then_some(())?;
        let numbers: Vec<u64> = words.map(|word| word.parse().ok()).collect::<Option<_>>()?;
        let [number, ctime_ns, size, born, ref times @ ..] = numbers[..] else { return None };
        let changed = match *times {
            [changed] => Changed::At(changed),
            [before, from, until] => Changed::Within(Period { before, from, until }),
            [before, from, until, size, modified] => {
                Changed::Renamed { times: Period { before, from, until }, size, modified }
            }
            _ => return None,
        };
        let version = Version { number, ctime_ns, size };
        Some(Note { version, changed, born: Born::of_number(born) })
    }
    fn holds(&self, metadata: &Metadata) -> bool {
        let has = changed_ns(metadata);
        let is_in_it = match self.changed {
            Changed::At(changed) => has == changed && metadata.size() == self.version.size,
            Changed::Within(times) => times.has(has),
            Changed::Renamed { times, size, modified } => {
                times.has(has) && (metadata.size(), modified_ns(metadata)) == (size, modified)
            }
        };
        is_in_it && self.born.is_of(metadata)
    }
}

#[derive(Clone)]
pub(super) struct Notes(pub OwnDirectory);

impl Notes {
    /// Reads a note. A damaged one, or one of another format, counts as none: the file then has the
    /// kernel's version, and counts as changed by others.
    fn read(&self, file: FileId) -> Option<Note> {
        Note::of_line(&self.0.read(&file.0.to_string(), NOTE_BYTES_MAX)?)
    }
    pub fn version(&self, file: FileId, metadata: &Metadata) -> Version {
        match self.read(file).filter(|note| note.holds(metadata)) {
            Some(note) => note.version,
            None => version_of(metadata),
        }
    }
    /// Writes notes that keep the present versions of files if nothing but their times of change
    /// changes, at once; durable when this returns.
    pub fn keep(&self, files: &[Metadata]) -> io::Result<()> {
        let versions: Vec<(FileId, Version, &Metadata)> = files
            .iter()
            .map(|found| {
                let file = FileId(found.ino());
                (file, self.version(file, found), found)
            })
            .collect();
        let write = |times: Range<SystemTime>| {
            versions.iter().try_for_each(|(file, version, found)| {
                self.write(*file, Note::renamed(*version, found, times.clone()))
            })
        };
        InFlight::renewed(None, clocks, write).map(drop)
    }
    /// Writes a note; durable when this returns.
    pub fn write(&self, file: FileId, note: Note) -> io::Result<()> {
        self.0.put(&file.0.to_string(), &note.to_line())
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

pub(super) fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

pub(super) fn changed_ns(metadata: &Metadata) -> u64 {
    (metadata.ctime() as u64).wrapping_mul(1_000_000_000) + metadata.ctime_nsec() as u64
}

fn modified_ns(metadata: &Metadata) -> u64 {
    (metadata.mtime() as u64).wrapping_mul(1_000_000_000).wrapping_add(metadata.mtime_nsec() as u64)
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
        let renamed = Changed::Renamed { times, size: 6, modified: u64::MAX };
        for (born, changed) in [
            (Born::Unknown, Changed::Within(times)),
            (Born::At(6), Changed::At(8)),
            (Born::At(6), renamed),
        ] {
            let note = Note { version, changed, born };
            assert_eq!(Note::of_line(&note.to_line()), Some(note));
        }
        for damaged in [
            "",
            "6 7 8 9 6 8",
            "5 7 8 9 6 8\n",
            "6 7 8 9 6\n",
            "6 7 8 9 6 8 8\n",
            "6 7 8 9 6 8 8 8 8\n",
            "6 7 8 9 6 8 8 8 8 8 8\n",
            "6 7 x 9 6 8\n",
            "6 7 -8 9 6 8\n",
        ] {
            assert_eq!(Note::of_line(damaged), None, "{damaged:?}");
        }
    }
}
