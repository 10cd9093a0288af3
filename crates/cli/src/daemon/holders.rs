//! Processes that hold files of a file system open, whether it is still mounted or not, or a block
//! device. The mount of a daemon that died keeps its device until the last of them has ended.

use crate::error::CliError;
use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// Maximum number listed; more would not help.
const LISTED_MAX: usize = 5;
/// Pause between two looks at a device.
const PAUSE: Duration = Duration::from_millis(100);

/// Returns the processes that this process may inspect and that hold a file whose `st_dev` is
/// `device`, as `sleep (1234)`. No file system is asked, so one that does not answer delays nobody.
pub fn holders_of(device: (u32, u32)) -> Vec<String> {
    processes_with(&|found| found.on == device)
}

/// Refuses to take a block device away that another program has open, not exclusively: its I/O
/// would fail. `device` is open itself, and `patience` the time limit for others to close it.
pub fn refuse_open_device(path: &Path, device: &File, patience: Duration) -> Result<(), CliError> {
    let metadata = device.metadata().map_err(|error| CliError::system(path.display(), error))?;
    let number = (libc::major(metadata.rdev()), libc::minor(metadata.rdev()));
    let begun = Instant::now();
    loop {
        let users = openers_of(number);
        if users.is_empty() {
            return Ok(());
        }
        if begun.elapsed() > patience {
            let (name, users) = (path.display(), users.join(", "));
            return Err(CliError::new(format!("{name} is in use by {users}"))
                .with_remedy("End that use first."));
        }
        std::thread::sleep(PAUSE);
    }
}

/// Returns the processes that this process may inspect and that have the block device with this
/// number open or mapped, this one left out. A file system on it is none of them, nor is another
/// device.
fn openers_of(block_device: (u32, u32)) -> Vec<String> {
    processes_with(&|found| found.block_device == Some(block_device))
}

fn processes_with(is_wanted: &dyn Fn(&Held) -> bool) -> Vec<String> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = processes.filter(|entry| entry.file_name().as_bytes()[0].is_ascii_digit());
    let ours = std::process::id().to_string();
    numbers
        .filter(|process| process.file_name().as_bytes() != ours.as_bytes())
        .filter(|process| holds(&process.path(), is_wanted))
        .take(LISTED_MAX)
        .map(|process| {
            let name = fs::read_to_string(process.path().join("comm")).unwrap_or_default();
            format!("{} ({})", name.trim_end(), process.file_name().to_string_lossy())
        })
        .collect()
}

/// A file that a process holds: the device that it is on, and its own number if it is a block
/// device.
struct Held {
    on: (u32, u32),
    block_device: Option<(u32, u32)>,
}

fn holds(process: &Path, is_wanted: &dyn Fn(&Held) -> bool) -> bool {
    let is_there = |path: &Path| held_at(path).is_ok_and(|found| is_wanted(&found));
    let open = fs::read_dir(process.join("fd")).into_iter().flatten().flatten();
    let mapped = fs::read_dir(process.join("map_files")).into_iter().flatten().flatten();
    is_there(&process.join("cwd"))
        || is_there(&process.join("root"))
        || open.chain(mapped).any(|entry| is_there(&entry.path()))
}

/// Returns numbers of what a link of `/proc` leads to, as the kernel has it in memory.
fn held_at(path: &Path) -> io::Result<Held> {
    // Nothing is wanted that a file system would have to be asked for.
    let flags = AtFlags::STATX_DONT_SYNC | AtFlags::NO_AUTOMOUNT;
    let found = statx(CWD, path, flags, StatxFlags::empty())?;
    let is_block = u32::from(found.stx_mode) & libc::S_IFMT == libc::S_IFBLK;
    let number = (found.stx_rdev_major, found.stx_rdev_minor);
    let on = (found.stx_dev_major, found.stx_dev_minor);
    Ok(Held { on, block_device: is_block.then_some(number) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_process_with_an_open_file_is_named() {
        let file = tempfile::tempfile().unwrap();
        let number = file.metadata().unwrap().dev();
        let device = (libc::major(number), libc::minor(number));
        let mut sleeper = Command::new("sleep").arg("1000").stdin(file).spawn().unwrap();
        let process = format!("/proc/{}", sleeper.id());
        let is_on_it = |found: &Held| found.on == device;
        let found = holds(Path::new(&process), &is_on_it);
        sleeper.kill().unwrap();
        sleeper.wait().unwrap();
        assert!(found);
        assert!(!holds(Path::new(&process), &is_on_it));
    }

    #[test]
    fn a_process_with_an_open_block_device_is_named() {
        let image = tempfile::NamedTempFile::new().unwrap();
        image.as_file().set_len(1 << 20).unwrap();
        let attached = crate::programs::TemporaryLoop::attach(image.path())
            .unwrap_or_else(|error| panic!("needs root: {error}"));
        let device = File::open(attached.path()).unwrap();
        let number = device.metadata().unwrap().rdev();
        let number = (libc::major(number), libc::minor(number));
        let mut sleeper = Command::new("sleep").arg("1000").stdin(device).spawn().unwrap();
        let wanted = format!("sleep ({})", sleeper.id());
        let (found, others) = (openers_of(number), openers_of((number.0, number.1 + 1)));
        let again = File::open(attached.path()).unwrap();
        let at_once = refuse_open_device(attached.path(), &again, Duration::ZERO);
        sleeper.kill().unwrap();
        sleeper.wait().unwrap();
        assert!(found.contains(&wanted), "{found:?}");
        assert!(at_once.unwrap_err().to_string().contains(&wanted));
        refuse_open_device(attached.path(), &again, Duration::ZERO)
            .unwrap_or_else(|error| panic!("{error}"));
        assert!(!others.contains(&wanted) && !openers_of(number).contains(&wanted));
    }
}
