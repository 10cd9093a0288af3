//! `-o remount`: what may change while a volume is mounted. The VFS keeps most of it; the daemon keeps when a read changes
//! the access time and what happens about damage. All else stays as it was at the mount.

use crate::daemon::control::{About, AccessTimes, Ask, Client};
use crate::daemon::mount_table::{self, Mount};
use crate::error::CliError;
use crate::mount::options::MountSettings;
use ext4::{Atime, OnError};
use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

pub fn run(directory: &Path, words: &[String], sloppy: bool) -> Result<(), CliError> {
    let system = |error| CliError::system(directory.display(), error);
    let mount = match mount_table::mount_on(directory).map_err(system)? {
        Some(mount) if mount.is_okeanos() => mount,
        _ => {
            return Err(CliError::new(format!(
                "{}: no okeanos volume is mounted there",
                directory.display()
            )));
        }
    };
    let mut client = Client::connect(&mount)?;
    let about: About = client.ask(Ask::About).map_err(system)?;
    let mounted = MountSettings::parse(&about.options, true)?;
    let before = now(&mounted, &about, &mount)?;
    let after = MountSettings::parse_onto(before.clone(), words, sloppy)?;
    refuse_what_stays(&mounted, &before, &after, directory)?;
    // Fails while files are open for writing; then nothing has changed.
    if after.read_only {
        change_mount(&mount, &after)?;
    }
    let change = Ask::Change {
        atime: match after.atime {
            Atime::Never => AccessTimes::Never,
            Atime::Relative => AccessTimes::Relative,
            Atime::Always => AccessTimes::Always,
        },
        stop_on_error: after.on_error == OnError::Stop,
    };
    let _: About = client.ask(change).map_err(system)?;
    if after.read_only { Ok(()) } else { change_mount(&mount, &after) }
}

/// The settings of the mount as it is now: flags may have changed since it was made.
fn now(mounted: &MountSettings, about: &About, mount: &Mount) -> Result<MountSettings, CliError> {
    let mut settings = mounted.clone();
    settings.data = about.data.parse().ok();
    settings.read_only = false;
    settings.without_journal = false;
    // These are not told of the mount, but of the file system.
    settings.flags &= libc::MS_SYNCHRONOUS | libc::MS_LAZYTIME;
    let words: Vec<String> = mount.options.split(',').map(String::from).collect();
    let atime = settings.atime;
    let mut settings = MountSettings::parse_onto(settings, &words, true)?;
    // Always is told by nothing being told.
    if atime == Atime::Always && !words.iter().any(|word| word == "relatime" || word == "noatime") {
        settings.atime = atime;
    }
    Ok(settings)
}

fn refuse_what_stays(
    mounted: &MountSettings,
    before: &MountSettings,
    after: &MountSettings,
    directory: &Path,
) -> Result<(), CliError> {
    let anew = || format!("Unmount it and mount it anew: okeanos umount {}.", directory.display());
    if mounted.read_only && !after.read_only {
        let why = format!("{} was mounted read-only and cannot become writable", directory.display());
        return Err(CliError::new(why).with_remedy(anew()));
    }
    let stays: [(&str, bool); 21] = [
        ("data", before.data == after.data),
        ("threshold", before.threshold == after.threshold),
        ("barrier", before.barrier == after.barrier),
        ("commit", before.commit == after.commit),
        ("writeback", before.writeback == after.writeback),
        ("expire", before.expire == after.expire),
        ("cache", before.cache == after.cache),
        ("journal_dev", before.journal_device == after.journal_device),
        ("journal_checksum", before.journal_checksum == after.journal_checksum),
        ("records", before.records == after.records),
        ("log_unit", before.log_unit == after.log_unit),
        ("transaction_checksum", before.transaction_checksum == after.transaction_checksum),
        ("transport", before.transport == after.transport),
        ("poll", before.poll == after.poll),
        ("readahead", before.read_ahead == after.read_ahead),
        ("loop", before.loop_device == after.loop_device),
        ("allow_other", before.allow_other == after.allow_other),
        ("dirsync", before.synchronous_directories == after.synchronous_directories),
        ("sync", (before.flags ^ after.flags) & libc::MS_SYNCHRONOUS == 0),
        ("grpid", before.group_of_directory == after.group_of_directory),
        ("noload", !after.without_journal || mounted.without_journal),
    ];
    match stays.iter().find(|(_, same)| !same) {
        None => Ok(()),
        Some((name, _)) => {
            let why = format!("{name} cannot change while {} is mounted", directory.display());
            Err(CliError::new(why).with_remedy(anew()))
        }
    }
}

/// mount(2). The kernel syncs a volume before it makes it read-only.
fn change_mount(mount: &Mount, settings: &MountSettings) -> Result<(), CliError> {
    let subject = || format!("remount {}", mount.directory.display());
    let path = CString::new(mount.directory.as_os_str().as_bytes())
        .map_err(|_| CliError::new(format!("{}: a zero byte in the path", subject())))?;
    let read_only = if settings.read_only { libc::MS_RDONLY } else { 0 };
    let access_times = if settings.atime == Atime::Always { libc::MS_STRICTATIME } else { 0 };
    let flags = libc::MS_REMOUNT | settings.flags | read_only | access_times;
    // SAFETY: the path ends with a zero byte; a remount looks at neither source nor type, and no data is given.
    let result =
        unsafe { libc::mount(std::ptr::null(), path.as_ptr(), std::ptr::null(), flags, std::ptr::null()) };
    if result == 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    let remedy = match error.raw_os_error() {
        Some(libc::EBUSY) => "Files are open for writing: see fuser -vm DIR.",
        _ => "Only root may remount.",
    };
    Err(CliError::system(subject(), error).with_remedy(remedy))
}
