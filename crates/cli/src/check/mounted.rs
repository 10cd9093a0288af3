//! Check of a mounted volume through the mount: the daemon verifies what it reads.

use super::Findings;
use crate::daemon::control::{Ask, Client, unanswered};
use crate::daemon::mount_table::Mount;
use crate::error::CliError;
use crate::health::{self, HealthProblem};
use crate::text::progress::Progress;
use rustix::fs::{SeekFrom, llistxattr_query, seek};
use rustix::io::Errno;
use serde_json::Value;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Errors that mean damage; EUCLEAN is "Structure needs cleaning" in the C library.
const DAMAGE: [i32; 2] = [libc::EIO, libc::EUCLEAN];

/// Asks the daemon for its statistics.
pub fn ask(mount: &Mount) -> Result<Value, CliError> {
    let asked = Client::connect_to_look(mount)?.ask(Ask::Stats);
    asked.map_err(|error| unanswered(mount, &error))
}

/// Notes what the daemon knows of itself.
///
/// # Errors
/// What the mount shows is not what was synced: its journal is not replayed.
fn note_health(statistics: &Value, findings: &mut Findings) -> Result<(), CliError> {
    for problem in health::problems(statistics) {
        match problem {
            HealthProblem::Stopped(why) => {
                findings.note(format!("the volume has stopped writing: {why}"));
            }
            HealthProblem::NeedsCheck(_) => findings.note(health::MARKED),
            HealthProblem::FilesFailed(count) => {
                findings.note(format!("files that cannot go to the store: {count}"));
            }
            HealthProblem::JournalNotReplayed => {
                return Err(CliError::new(
                    "its journal is not replayed (noload): what only that holds was not looked at",
                )
                .with_remedy(
                    "Unmount it, and replay the journal: okeanos umount, okeanos recover.",
                ));
            }
        }
    }
    Ok(())
}

pub fn check(
    mount: &Mount,
    statistics: &Value,
    progress: &Progress,
    findings: &mut Findings,
) -> Result<String, CliError> {
    note_health(statistics, findings)?;
    let mut walk = MountedWalk {
        device: 0,
        files: 0,
        directories: 0,
        denied: 0,
        failed: None,
        findings,
        progress,
    };
    let top = fs::symlink_metadata(&mount.directory);
    let top = top.map_err(|error| CliError::system(mount.directory.display(), error))?;
    walk.device = top.dev();
    let mut waiting = vec![mount.directory.clone()];
    while let Some(directory) = waiting.pop() {
        walk.directory(&directory, &mut waiting);
    }
    let MountedWalk { files, directories, denied, failed, .. } = walk;
    failed.map_or(Ok(()), Err)?;
    if denied > 0 {
        return Err(CliError::new(format!(
            "files or directories that could not be looked into: {denied}"
        ))
        .with_remedy("Check it as root, or unmounted."));
    }
    let directories = counted(directories, "directory", "directories");
    let files = counted(files, "other file", "other files");
    Ok(format!("{directories} and {files} are readable"))
}

fn counted(count: u64, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

struct MountedWalk<'a> {
    device: u64,
    files: u64,
    directories: u64,
    /// Number of entries that this user may not read.
    denied: u64,
    /// The first error that says nothing of the volume: its daemon has died, for example.
    failed: Option<CliError>,
    findings: &'a mut Findings,
    progress: &'a Progress,
}

impl MountedWalk<'_> {
    fn directory(&mut self, path: &Path, waiting: &mut Vec<PathBuf>) {
        self.directories += 1;
        self.attributes(path);
        let Some(entries) = self.noted(path, fs::read_dir(path)) else { return };
        for entry in entries {
            let Some(entry) = self.noted(path, entry) else { return };
            let path = entry.path();
            let Some(metadata) = self.noted(&path, fs::symlink_metadata(&path)) else { continue };
            if metadata.dev() != self.device {
                // Another file system is mounted there.
                continue;
            }
            if metadata.is_dir() {
                waiting.push(path);
                continue;
            }
            self.files += 1;
            if self.files % 1000 == 0 {
                self.progress.show(format_args!("{} files", self.files));
            }
            self.attributes(&path);
            if metadata.is_symlink() {
                self.noted(&path, fs::read_link(&path));
            } else if metadata.is_file() {
                let opened =
                    OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW).open(&path);
                let mapped = opened.and_then(|file| read_mapping(&file));
                self.noted(&path, mapped);
            }
        }
    }

    /// Lists the extended attributes, which reads them all.
    fn attributes(&mut self, path: &Path) {
        self.noted(path, llistxattr_query(path).map_err(io::Error::from));
    }

    fn noted<T>(&mut self, path: &Path, result: io::Result<T>) -> Option<T> {
        match result {
            Ok(found) => return Some(found),
            Err(error) if error.raw_os_error().is_some_and(|errno| DAMAGE.contains(&errno)) => {
                self.findings.note(format!("{}: {error}", path.display()));
            }
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => self.denied += 1,
            // Removed since it was listed.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            // Attributes of something that has none.
            Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => {}
            Err(error) => {
                self.failed = self.failed.take().or(Some(CliError::system(path.display(), error)))
            }
        }
        None
    }
}

/// Asks where data ends and holes begin, to the file's end: answering requires reading the whole
/// mapping.
fn read_mapping(file: &File) -> io::Result<()> {
    // Neither data nor a hole: no more of the file.
    let find = |what| match seek(file, what) {
        Err(Errno::NXIO) => Ok(None),
        found => found.map(Some),
    };
    let (mut at, end) = (0, file.metadata()?.len());
    while at < end {
        let Some(data) = find(SeekFrom::Data(at))? else { break };
        let Some(hole) = find(SeekFrom::Hole(data))?.filter(|hole| *hole > data) else { break };
        at = hole;
    }
    Ok(())
}
