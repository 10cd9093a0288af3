//! `-o remount`: changes while a volume is mounted. The VFS keeps most settings. The daemon keeps
//! whether and how the volume is written, when a read changes the access time, and the reaction to
//! damage. All other settings stay as they were.

use crate::daemon::control::{About, AccessTimes, Ask, Changed, Client, HOST, Live, unanswered};
use crate::daemon::held_mount;
use crate::daemon::mount_table::{self, Mount};
use crate::daemon::reporter;
use crate::error::CliError;
use crate::mount::options::MountSettings;
use crate::mount::table::SECTIONS;
use crate::options::{self, MountOption};
use crate::text::shell::word;
use engine::BarrierKind;
use ext4::{Atime, OnError};
use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;

/// Changes what is mounted on `directory`. `source`: what the caller says is mounted there.
pub fn run(
    source: Option<&Path>,
    directory: &Path,
    words: &[String],
    sloppy: bool,
) -> Result<(), CliError> {
    let system = |error| CliError::system(directory.display(), error);
    let mount = match mount_table::mount_on(directory).map_err(system)? {
        Some(mount) if mount.is_okeanos() => mount,
        _ => {
            return Err(CliError::new(format!(
                "{}: no okeanos volume is mounted there",
                directory.display()
            ))
            .with_remedy("See what is mounted: okeanos list."));
        }
    };
    source.map_or(Ok(()), |source| refuse_other_source(source, &mount))?;
    let mut client = Client::connect(&mount)?;
    let about: About =
        client.ask_in_time(Ask::About).map_err(|error| unanswered(&mount, &error))?;
    let Some(live) = about.live else {
        if about.data == HOST {
            let name = directory.display();
            return Err(CliError::new(format!("{name}: a host's mount cannot be changed"))
                .with_remedy("Unmount it first."));
        }
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
    if after.session.read_only {
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

/// Refuses a source that exists, and is not what is mounted.
fn refuse_other_source(source: &Path, mount: &Mount) -> Result<(), CliError> {
    let Ok(named) = source.canonicalize() else { return Ok(()) };
    let is_it = |mounted: &Path| mounted.canonicalize().is_ok_and(|mounted| mounted == named);
    let (mounted, at) = (mount.image(), mount.directory.display());
    if is_it(&mounted) || is_it(&mount.source) || named == mount.directory {
        return Ok(());
    }
    Err(CliError::new(format!(
        "{} is not what is mounted on {at}: that is {}",
        source.display(),
        mounted.display()
    ))
    .with_remedy(format!(
        "Name the directory alone: okeanos mount -o remount,… {}.",
        word(&mount.directory)
    )))
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
    format!("Unmount it and mount it anew: okeanos umount {}.", word(directory))
}

fn live_of(settings: &MountSettings) -> Live {
    Live {
        read_only: settings.session.read_only,
        atime: match settings.volume.atime {
            Atime::Never => AccessTimes::Never,
            Atime::Relative => AccessTimes::Relative,
            Atime::Always => AccessTimes::Always,
        },
        stop_on_error: settings.volume.on_error == OnError::Stop,
        commit: settings.engine.commit,
        barrier: settings.engine.barrier != BarrierKind::None,
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
    settings.journal.data = about.data.parse().ok();
    settings.session.read_only = false;
    settings.volume.without_journal = false;
    settings.not_done.clear();
    settings.engine.commit = live.commit;
    settings.volume.on_error = if live.stop_on_error { OnError::Stop } else { OnError::Continue };
    if !settings.journal.coerces {
        settings.engine.barrier = if live.barrier { BarrierKind::Flush } else { BarrierKind::None };
    }
    // The table shows these for the file system, not for the mount.
    settings.session.flags &= libc::MS_SYNCHRONOUS | libc::MS_LAZYTIME;
    let words: Vec<String> = mount.options.split(',').map(String::from).collect();
    let mut settings = MountSettings::parse_onto(settings, &words, true)?;
    // Always is shown by the absence of an option.
    if live.atime == AccessTimes::Always
        && !words.iter().any(|word| word == "relatime" || word == "noatime")
    {
        settings.volume.atime = Atime::Always;
    }
    Ok(settings)
}

fn refuse_what_stays(
    mounted: &MountSettings,
    before: &MountSettings,
    after: &MountSettings,
    directory: &Path,
) -> Result<(), CliError> {
    if mounted.volume.without_journal && !after.session.read_only {
        let why = format!(
            "{} was mounted with noload and cannot become writable: its journal was not replayed",
            directory.display()
        );
        return Err(CliError::new(why).with_remedy(anew(directory)));
    }
    let (journal, reads_past_journal) = (&before.journal, mounted.volume.without_journal);
    let of_rule = [
        ("barrier=coerce", journal.coerces == after.journal.coerces),
        ("noload", !after.volume.without_journal || reads_past_journal),
    ];
    let is_same =
        |row: &MountOption<MountSettings>| row.is_live || (row.text)(before) == (row.text)(after);
    let of_table = options::rows(SECTIONS).map(|row| (row.name, is_same(row)));
    match of_rule.into_iter().chain(of_table).find(|(_, is_same)| !is_same) {
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
    let top = held_mount::open_top(mount).map_err(|error| CliError::system(subject(), error))?;
    let path = CString::new(held_mount::path_of(&top).into_os_string().into_vec())
        .expect("no zero byte in a number");
    let read_only = if settings.session.read_only { libc::MS_RDONLY } else { 0 };
    let access_times =
        if settings.volume.atime == Atime::Always { libc::MS_STRICTATIME } else { 0 };
    let flags = libc::MS_REMOUNT | settings.session.flags | read_only | access_times;
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
