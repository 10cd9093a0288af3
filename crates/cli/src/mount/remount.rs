//! `-o remount`: changes while a volume is mounted. The VFS keeps most settings. The daemon keeps
//! whether and how the volume is written, when a read changes the access time, and the reaction to
//! damage. All other settings stay as they were.

use crate::daemon::control::{About, AccessTimes, Ask, Changed, Client, Live};
use crate::daemon::mount_table::{self, Mount};
use crate::daemon::reporter;
use crate::error::CliError;
use crate::mount::options::{Barrier, MountSettings};
use engine::EngineOptions;
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
    let Some(live) = about.live else {
        return Err(CliError::new(format!(
            "{} is served by an older okeanos",
            directory.display()
        ))
        .with_remedy(anew(directory)));
    };
    let mounted = MountSettings::parse(&about.options, true)?;
    let before = now(&mounted, &about, live, &mount)?;
    let after = MountSettings::parse_onto(before.clone(), words, sloppy)?;
    refuse_what_stays(&mounted, &before, &after, directory)?;
    after
        .warnings()
        .iter()
        .for_each(|warning| reporter::complain(&format!("okeanos: warning: {warning}")));
    let wanted = live_of(&after);
    // The kernel is the first to stop changes, and the last to admit them.
    if after.read_only {
        // Fails while files are open for writing; then nothing has changed.
        change_mount(&mount, &after)?;
        return change(&mut client, wanted, directory);
    }
    if live.read_only && mount.is_write_protected() {
        return Err(CliError::new(format!("{} is write-protected", mount.source.display()))
            .with_remedy("Make it writable, unmount it, and mount it anew."));
    }
    change(&mut client, wanted, directory)?;
    change_mount(&mount, &after).inspect_err(|_| {
        // The first failure is reported.
        let _ = change(&mut client, live, directory);
    })
}

fn change(client: &mut Client, live: Live, directory: &Path) -> Result<(), CliError> {
    let changed = client
        .ask(Ask::Change(live))
        .map_err(|error| CliError::system(directory.display(), error))?;
    match changed {
        Changed::Done(_) => Ok(()),
        Changed::Refused { error } => {
            let what =
                if live.read_only { "could not be written back" } else { "cannot become writable" };
            let why = format!("{} {what}: {error}", directory.display());
            Err(CliError::new(why).with_remedy(anew(directory)))
        }
    }
}

fn anew(directory: &Path) -> String {
    format!("Unmount it and mount it anew: okeanos umount {}.", directory.display())
}

fn live_of(settings: &MountSettings) -> Live {
    Live {
        read_only: settings.read_only,
        atime: match settings.atime {
            Atime::Never => AccessTimes::Never,
            Atime::Relative => AccessTimes::Relative,
            Atime::Always => AccessTimes::Always,
        },
        stop_on_error: settings.on_error == OnError::Stop,
        commit: settings.commit.unwrap_or(EngineOptions::default().commit),
        barrier: settings.barrier != Barrier::None,
    }
}

/// Returns the settings of the mount as it is now: flags and live settings may have changed since
/// it was made.
fn now(
    mounted: &MountSettings,
    about: &About,
    live: Live,
    mount: &Mount,
) -> Result<MountSettings, CliError> {
    let mut settings = mounted.clone();
    settings.data = about.data.parse().ok();
    settings.read_only = false;
    settings.without_journal = false;
    settings.not_done.clear();
    settings.commit = Some(live.commit);
    settings.on_error = if live.stop_on_error { OnError::Stop } else { OnError::Continue };
    if settings.barrier != Barrier::Coerce {
        settings.barrier = if live.barrier { Barrier::Flush } else { Barrier::None };
    }
    // The table shows these for the file system, not for the mount.
    settings.flags &= libc::MS_SYNCHRONOUS | libc::MS_LAZYTIME;
    let words: Vec<String> = mount.options.split(',').map(String::from).collect();
    let mut settings = MountSettings::parse_onto(settings, &words, true)?;
    // Always is shown by the absence of an option.
    if live.atime == AccessTimes::Always
        && !words.iter().any(|word| word == "relatime" || word == "noatime")
    {
        settings.atime = Atime::Always;
    }
    Ok(settings)
}

fn refuse_what_stays(
    mounted: &MountSettings,
    before: &MountSettings,
    after: &MountSettings,
    directory: &Path,
) -> Result<(), CliError> {
    if mounted.without_journal && !after.read_only {
        let why = format!(
            "{} was mounted with noload and cannot become writable: its journal was not replayed",
            directory.display()
        );
        return Err(CliError::new(why).with_remedy(anew(directory)));
    }
    let coerces = |settings: &MountSettings| settings.barrier == Barrier::Coerce;
    let stays: [(&str, bool); 35] = [
        ("data", before.data == after.data),
        ("threshold", before.threshold == after.threshold),
        ("threshold_per", before.threshold_per_block == after.threshold_per_block),
        ("order_overwrites", before.order_overwrites == after.order_overwrites),
        ("barrier=coerce", coerces(before) == coerces(after)),
        ("writeback", before.writeback == after.writeback),
        ("expire", before.expire == after.expire),
        ("checkpoint", before.checkpoint == after.checkpoint),
        ("logged_write_size", before.logged_write_size == after.logged_write_size),
        ("swap_above", before.swap_above == after.swap_above),
        ("mtl", before.run_table == after.run_table),
        ("durable_only", before.durable_only == after.durable_only),
        ("cache", before.cache == after.cache),
        ("journal_dev", before.journal_device == after.journal_device),
        ("journal_checksum", before.journal_checksum == after.journal_checksum),
        ("records", before.records == after.records),
        ("log_unit", before.log_unit == after.log_unit),
        ("log_gap", before.log_gap == after.log_gap),
        ("commits_in_flight", before.commits_in_flight == after.commits_in_flight),
        ("log", before.log == after.log),
        ("transaction_checksum", before.transaction_checksum == after.transaction_checksum),
        ("transport", before.transport == after.transport),
        ("poll", before.poll == after.poll),
        ("keep_awake", before.keep_awake == after.keep_awake),
        ("readahead", before.read_ahead == after.read_ahead),
        ("loop", before.loop_device == after.loop_device),
        ("allow_other", before.allow_other == after.allow_other),
        ("dirsync", before.synchronous_directories == after.synchronous_directories),
        ("sync", (before.flags ^ after.flags) & libc::MS_SYNCHRONOUS == 0),
        ("noopen", before.without_open == after.without_open),
        ("noxattr, nouser_xattr, noacl", before.attributes == after.attributes),
        ("grpid", before.group_of_directory == after.group_of_directory),
        ("log_level", before.log_level == after.log_level),
        ("log_file", before.log_file == after.log_file),
        ("noload", !after.without_journal || mounted.without_journal),
    ];
    match stays.iter().find(|(_, same)| !same) {
        None => Ok(()),
        Some((name, _)) => {
            let why = format!("{name} cannot change while {} is mounted", directory.display());
            Err(CliError::new(why).with_remedy(anew(directory)))
        }
    }
}

/// Calls mount(2). The kernel syncs a volume before it makes it read-only.
fn change_mount(mount: &Mount, settings: &MountSettings) -> Result<(), CliError> {
    let subject = || format!("remount {}", mount.directory.display());
    let path = CString::new(mount.directory.as_os_str().as_bytes())
        .map_err(|_| CliError::new(format!("{}: a zero byte in the path", subject())))?;
    let read_only = if settings.read_only { libc::MS_RDONLY } else { 0 };
    let access_times = if settings.atime == Atime::Always { libc::MS_STRICTATIME } else { 0 };
    let flags = libc::MS_REMOUNT | settings.flags | read_only | access_times;
    // SAFETY: the path ends with a zero byte; a remount looks at neither source nor type, and no
    // data is given.
    let result = unsafe {
        libc::mount(std::ptr::null(), path.as_ptr(), std::ptr::null(), flags, std::ptr::null())
    };
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
