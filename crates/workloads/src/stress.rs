//! Many threads that carry out all kinds of operations in a few shared directories at once.
//!
//! The content of a directory is unpredictable, but invariants are known. Names may be missing,
//! taken, or of another kind when a call is made, so those errors are counted and ignored; any
//! other ends the run. Content is written, truncated and punched in whole records that name their
//! place. So a file may hold only whole records of its place, and zeros.

use crate::random::ActorRandom;
use rustix::fs::{
    CWD, FallocateFlags, RenameFlags, XattrFlags, fallocate, lremovexattr, lsetxattr, renameat_with,
};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Bytes of a record; every block size is a multiple.
const RECORD: u64 = 64;
/// Records of a file at most.
const RECORDS: u64 = 2048;
/// Records of one write at most.
const WRITE: u64 = 160;
const DIRECTORIES: u64 = 3;
/// Errors that calls may return, since other threads use the same names, and space may be short.
const FORESEEN: [i32; 14] = [
    libc::ENOENT,
    libc::EEXIST,
    libc::ENOTDIR,
    libc::EISDIR,
    libc::ENOTEMPTY,
    libc::EINVAL,
    libc::ELOOP,
    libc::EPERM,
    libc::ENOSPC,
    libc::EOPNOTSUPP,
    libc::ENODATA,
    libc::EMLINK,
    libc::EFBIG,
    libc::EXDEV,
];

#[derive(Clone, Copy, Debug)]
pub struct StressOptions {
    pub threads: u32,
    /// Operations of all threads together.
    pub operations: u64,
    pub seed: u64,
    /// Names in each directory: the fewer, the more the threads meet.
    pub names: u64,
}

/// Results of the threads.
#[derive(Clone, Debug, serde::Serialize)]
pub struct StressReport {
    pub threads: u32,
    pub seed: u64,
    pub operations: u64,
    /// Operations that met a name that was missing, taken, or of another kind.
    pub refused: u64,
}

/// Runs the threads below `directory`. Fails with the first impossible error and its operation.
pub fn stress(directory: &Path, options: StressOptions) -> io::Result<StressReport> {
    for number in 0..DIRECTORIES {
        fs::create_dir_all(directory.join(format!("d{number}")))?;
    }
    let (left, refused, stop) =
        (AtomicU64::new(options.operations), AtomicU64::new(0), AtomicBool::new(false));
    let results: Vec<io::Result<()>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..options.threads)
            .map(|number| {
                let (left, refused, stop) = (&left, &refused, &stop);
                let random = ActorRandom::new(options.seed, number.into());
                let mut worker = Worker { directory, names: options.names, random };
                scope.spawn(move || {
                    while !stop.load(Ordering::Relaxed) && take_one(left) {
                        match worker.step() {
                            Err(error)
                                if error
                                    .raw_os_error()
                                    .is_some_and(|code| FORESEEN.contains(&code)) =>
                            {
                                refused.fetch_add(1, Ordering::Relaxed);
                            }
                            Err(error) => {
                                stop.store(true, Ordering::Relaxed);
                                return Err(error);
                            }
                            Ok(()) => {}
                        }
                    }
                    Ok(())
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("no worker panics")).collect()
    });
    results.into_iter().collect::<io::Result<()>>()?;
    let StressOptions { threads, seed, operations, .. } = options;
    Ok(StressReport { threads, seed, operations, refused: refused.into_inner() })
}

fn take_one(left: &AtomicU64) -> bool {
    left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok()
}

/// Reads everything below `directory`, and fails with the first file whose content is impossible.
/// Returns how many files it read.
pub fn check_stressed(directory: &Path) -> io::Result<u64> {
    let mut files = 0;
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        let kind = fs::symlink_metadata(&path)?.file_type();
        if kind.is_dir() {
            files += check_stressed(&path)?;
        } else if kind.is_file() {
            check_content(&path, &fs::read(&path)?)?;
            files += 1;
        } else if kind.is_symlink() {
            fs::read_link(&path)?;
        }
    }
    Ok(files)
}

fn check_content(path: &Path, bytes: &[u8]) -> io::Result<()> {
    for (number, record) in bytes.chunks(RECORD as usize).enumerate() {
        let is_hole = record.iter().all(|&byte| byte == 0);
        if !is_hole && record_of(number as u64, record[8]) != *record {
            let at = number as u64 * RECORD;
            let text =
                format!("{}: at {at} is neither a record of this place nor zeros", path.display());
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
    }
    Ok(())
}

/// Creates a record: its place, its writer, and bytes that follow from both.
fn record_of(number: u64, writer: u8) -> [u8; RECORD as usize] {
    let mut record = [0; RECORD as usize];
    record[..8].copy_from_slice(&(number + 1).to_le_bytes());
    for (at, byte) in record.iter_mut().enumerate().skip(8) {
        *byte = if at == 8 { writer } else { writer ^ (number as u8).wrapping_mul(31) ^ at as u8 };
    }
    record
}

struct Worker<'a> {
    directory: &'a Path,
    names: u64,
    random: ActorRandom,
}

impl Worker<'_> {
    fn step(&mut self) -> io::Result<()> {
        let (path, other) = (self.path(), self.path());
        let what = self.random.below(100);
        let done = match what {
            0..10 => self.open(&path, libc::O_CREAT).map(drop),
            10..18 => fs::rename(&path, &other),
            18..21 => exchange(&path, &other),
            21..28 => fs::remove_file(&path),
            28..33 => fs::hard_link(&path, &other),
            33..36 => symlink(&other, &path),
            36..41 => fs::create_dir(&path),
            41..45 => fs::remove_dir(&path),
            45..58 => self.write(&path, 0),
            58..70 => self.write(&path, libc::O_SYNC),
            70..74 => self.write(&path, libc::O_DSYNC | libc::O_DIRECT),
            74..79 => self.open(&path, 0).and_then(|file| file.sync_all()),
            79..84 => self.cut(&path),
            84..89 => self.allocate(&path),
            89..93 => self.attribute(&path),
            93..96 => self.list(),
            96..99 => fs::read(&path).map(drop),
            _ => File::open(self.directory)?.sync_all(),
        };
        done.map_err(|error| match error.raw_os_error() {
            Some(code) if FORESEEN.contains(&code) => error,
            _ => io::Error::other(format!(
                "operation kind {what} on {}, {}: {error}",
                path.display(),
                other.display()
            )),
        })
    }

    fn path(&mut self) -> PathBuf {
        let mut path = self.directory.join(format!("d{}", self.random.below(DIRECTORIES)));
        // Some names are directories now and then: then this is a name in one.
        if self.random.below(5) == 0 {
            path.push(format!("n{}", self.random.below(self.names)));
        }
        path.push(format!("n{}", self.random.below(self.names)));
        path
    }

    fn open(&mut self, path: &Path, flags: i32) -> io::Result<File> {
        // Not through symbolic links: a cycle of them is no error of interest, a dangling one would
        // make files.
        OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(flags | libc::O_NOFOLLOW)
            .mode(0o644)
            .open(path)
    }

    fn write(&mut self, path: &Path, flags: i32) -> io::Result<()> {
        let file = self.open(path, flags | libc::O_CREAT)?;
        let end = file.metadata()?.len() / RECORD;
        let first =
            if self.random.below(2) == 0 { end.min(RECORDS) } else { self.random.below(RECORDS) };
        let (count, writer) = (1 + self.random.below(WRITE), 1 + self.random.below(255) as u8);
        let bytes: Vec<u8> =
            (first..first + count).flat_map(|number| record_of(number, writer)).collect();
        file.write_all_at(&bytes, first * RECORD)
    }

    fn cut(&mut self, path: &Path) -> io::Result<()> {
        let length = self.random.below(RECORDS) * RECORD;
        self.open(path, 0)?.set_len(length)
    }

    fn allocate(&mut self, path: &Path) -> io::Result<()> {
        let file = self.open(path, 0)?;
        let keep = FallocateFlags::KEEP_SIZE;
        let punch = FallocateFlags::PUNCH_HOLE | keep;
        let modes = [FallocateFlags::empty(), keep, punch, FallocateFlags::ZERO_RANGE];
        let mode = modes[self.random.below(4) as usize];
        let (start, length) = (self.random.below(RECORDS), 1 + self.random.below(RECORDS / 4));
        Ok(fallocate(file, mode, start * RECORD, length * RECORD)?)
    }

    fn attribute(&mut self, path: &Path) -> io::Result<()> {
        let name = format!("user.a{}", self.random.below(6));
        let value = vec![self.random.below(256) as u8; self.random.below(300) as usize];
        match self.random.below(3) == 0 {
            true => lremovexattr(path, name)?,
            false => lsetxattr(path, name, &value, XattrFlags::empty())?,
        }
        Ok(())
    }

    fn list(&mut self) -> io::Result<()> {
        let directory = self.directory.join(format!("d{}", self.random.below(DIRECTORIES)));
        for entry in fs::read_dir(directory)? {
            match fs::symlink_metadata(entry?.path()) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }
}

fn exchange(from: &Path, to: &Path) -> io::Result<()> {
    Ok(renameat_with(CWD, from, CWD, to, RenameFlags::EXCHANGE)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_leave_only_whole_records() {
        let directory = tempfile::tempdir().unwrap();
        let options = StressOptions { threads: 4, operations: 2000, seed: 1, names: 12 };
        let report = stress(directory.path(), options).unwrap();
        assert!(report.refused < report.operations, "{report:?}");
        assert!(check_stressed(directory.path()).unwrap() > 0);
    }

    #[test]
    fn a_misplaced_record_is_found() {
        let path = Path::new("file");
        let good = [record_of(0, 7), [0; 64], record_of(2, 9)].concat();
        check_content(path, &good).unwrap();
        check_content(path, &good[64..]).unwrap_err();
        check_content(path, &good[..150]).unwrap_err();
    }
}
