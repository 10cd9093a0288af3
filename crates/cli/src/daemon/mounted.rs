//! Conflicts with mounts, alive or dead, and their error messages.

use super::control::{self, Ask, Client, Place};
use super::holders::holders_of;
use super::mount_table::{self, Mount};
use super::reporter::complain;
use crate::error::CliError;
use crate::text::shell::word;
use disks::DiskOpenError;
use serde_json::Value;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::process::ExitCode;

/// Refuses a dead mount: it would hide the new one's directory, or a second mount of its device
/// would attach to it.
pub fn refuse_dead(mount: Option<&Mount>) -> Result<(), CliError> {
    match mount {
        Some(mount) if mount.is_okeanos() && mount.is_dead() => Err(control::died(mount)),
        _ => Ok(()),
    }
}

/// Refuses a device on which a file system is mounted.
pub fn refuse_mounted(device: &Path) -> Result<(), CliError> {
    let mounts =
        mount_table::mounts().map_err(|error| CliError::system("/proc/self/mountinfo", error))?;
    let is_on = |mount: &&Mount| mount.source == device && !mount.is_of_another_user();
    let Some(mount) = mounts.iter().find(is_on) else { return Ok(()) };
    let (name, at) = (device.display(), mount.directory.display());
    Err(CliError::new(format!("{name} is mounted on {at}"))
        .with_remedy(format!("Unmount it first: umount {}.", word(&mount.directory))))
}

/// Refuses, for commands that need a volume to themselves, one whose daemon has died: `path` or its
/// mount's directory.
pub fn refuse_if_its_daemon_died(path: &Path) -> Result<(), CliError> {
    refuse_dead(mount_table::mount_of(path).as_ref())
}

/// Returns the error that `source` is in use by a mount, alive or dead.
pub fn is_mounted(mount: &Mount, source: &Path) -> CliError {
    if let Err(died) = refuse_dead(Some(mount)) {
        return died;
    }
    if let Some(place) = Place::of_mount(mount) {
        return place.in_use(source);
    }
    let at = mount.directory.display();
    let program = if mount.is_okeanos() { "okeanos umount" } else { "umount" };
    let named = word(&mount.directory);
    CliError::new(format!("{} is in use: it is mounted on {at}", source.display()))
        .with_remedy(format!("Unmount it first: {program} {named}."))
}

/// Adds the processes that keep a device busy though it is mounted nowhere: the kernel keeps a
/// detached mount, dead or alive, until its last file is closed.
pub fn kept_open(error: CliError, device: &Path, source: &Path) -> CliError {
    let found = std::fs::metadata(device).ok();
    let number = found.filter(|found| found.file_type().is_block_device()).map(|it| it.rdev());
    let holders = number.map_or_else(Vec::new, |it| holders_of((libc::major(it), libc::minor(it))));
    if holders.is_empty() {
        return error;
    }
    let (source, holders) = (source.display(), holders.join(", "));
    CliError::new(format!(
        "{source} is in use: its mount was taken away while files of it were open, by {holders}"
    ))
    .with_remedy("End these programs, or have them close their files; then mount again.")
}

/// Returns what to do about a process that has the disk locked and is stopped, as by SIGSTOP; it
/// keeps the disk until it goes on.
pub fn stopped_user_of(source: &Path) -> Option<String> {
    let Err(DiskOpenError::Locked { by, .. }) = disks::hold_unlocked(source) else { return None };
    let is_stopped = |process: &str| {
        let status = std::fs::read_to_string(format!("/proc/{process}/status"));
        status.is_ok_and(|text| text.contains("\nState:\tT"))
    };
    let number = |by: &String| Some(by.rsplit_once('(')?.1.trim_end_matches(')').to_owned());
    let process = by.iter().filter_map(number).find(|process| is_stopped(process))?;
    let name = source.display();
    Some(format!(
        "process {process}, which is stopped, has {name} still\n  Have it go on and end by itself \
         (kill -CONT {process}), or end it: kill -9 {process}."
    ))
}

/// Explains why a disk cannot be opened: names the Okeanos mount in the way, or the processes that
/// keep it.
pub fn not_opened(error: DiskOpenError) -> CliError {
    let plain = CliError::new(error.to_string());
    let (path, device) = match &error {
        DiskOpenError::Mounted { path, .. }
        | DiskOpenError::Busy { path, .. }
        | DiskOpenError::Locked { path, .. } => (path, path),
        DiskOpenError::Attached { path, device } => (path, device),
        _ => return plain,
    };
    if let Some(mount) = mount_table::mount_of(path) {
        return is_mounted(&mount, path);
    }
    let is_locked = matches!(error, DiskOpenError::Locked { .. });
    match is_locked.then(|| host_of(path)).flatten() {
        Some(host) => {
            let (journal, at) = (path.display(), host.directory.display());
            CliError::new(format!("{journal} is in use: it is the journal of {at}"))
                .with_remedy(format!("Unmount it first: okeanos umount {}.", word(&host.directory)))
        }
        None => kept_open(plain, device, path),
    }
}

/// Returns the mount of the host whose journal this is.
fn host_of(journal: &Path) -> Option<Mount> {
    let journal = mount_table::resolve(journal).ok()?;
    let is_its = |mount: &Mount| {
        let statistics = Client::look::<Value>(mount, Ask::Stats);
        statistics.is_ok_and(|found| found["journal"].as_str() == journal.to_str())
    };
    mount_table::mounts().ok()?.into_iter().find(|mount| mount.is_okeanos() && is_its(mount))
}

/// Runs a program of Okeanos, and reports a failure under its name. A failure on a mount whose
/// daemon has died is reported with that reason.
pub fn run_program(name: &str, run: fn(&[OsString]) -> Result<(), CliError>) -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    let mounts = mounts_named(&arguments);
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let error = match mounts.iter().find(|mount| mount.is_dead()) {
                Some(dead) if !error.is_specific() => control::died(dead).with_code_of(&error),
                _ => error,
            };
            complain(&format!("{name}: {error}"));
            error.exit_code()
        }
    }
}

/// Refuses a command line that names a mount, or something in one, whose daemon does not answer.
pub fn refuse_silent(arguments: &[OsString]) -> Result<(), CliError> {
    control::refuse_silent(&mounts_named(arguments))
}

/// Returns the mounts that a command line names, or names something in. Determined before it runs:
/// if the command's own mount ends, there is a better reason.
fn mounts_named(arguments: &[OsString]) -> Vec<Mount> {
    let mut words = arguments.iter().skip(1);
    if words.next().is_some_and(|command| command == "umount") {
        // This command removes dead mounts, and reports what prevents it.
        return Vec::new();
    }
    let around = |word| mount_table::mount_around(Path::new(word)).ok().flatten();
    let named = words.filter(|word| !word.as_bytes().starts_with(b"-"));
    named.filter_map(around).filter(Mount::is_okeanos).collect()
}
