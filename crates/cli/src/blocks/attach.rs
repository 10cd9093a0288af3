//! `okeanos blocks attach`.

use super::device_kind::DeviceKind;
use super::serve::{self, AttachPlan};
use super::{AttachArguments, Via, driver_device};
use crate::daemon::control::Place;
use crate::daemon::{self, Side, StartNotifier};
use crate::error::CliError;
use crate::mount::options::MountSettings;
use crate::mount::table::{SECTIONS, is_of_engine};
use crate::options::{MountOption, row_of, rows};
use blocks::Persistence;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

pub fn run(arguments: AttachArguments) -> Result<(), CliError> {
    let settings = settings_of(&arguments.options)?;
    if arguments.socket.is_some() && arguments.via != Via::Nbd {
        return Err(
            CliError::new("--socket applies only with --via nbd").with_remedy("Add --via nbd.")
        );
    }
    let absolute = |path: &std::path::Path| {
        path.canonicalize().map_err(|error| CliError::system(path.display(), error))
    };
    let source = absolute(&arguments.source)?;
    let place = Place::of(&source)?;
    let plan = AttachPlan {
        log: arguments.log.as_deref().map(absolute).transpose()?,
        words: arguments.options.clone(),
        read_only: arguments.read_only || settings.session.read_only,
        settings,
        persistence: match arguments.write_through {
            true => Persistence::WriteThrough,
            false => Persistence::WriteBack,
        },
        source,
    };
    if let Some(socket) = &arguments.socket {
        driver_device::refuse_waiting(&place)?;
        return serve::over_nbd(plan, socket);
    }
    let waiting = driver_device::waiting(&place)?;
    let kind = DeviceKind::choose(arguments.via, waiting)?;
    place.clean_up()?;
    driver_device::clean_up(&place, &plan.source)?;
    if let Some(device) = waiting.filter(|device| !kind.is_of(*device)) {
        return Err(driver_device::waits(&place, device));
    }
    place.make()?;
    let (source, read_only) = (plan.source.clone(), plan.read_only);
    let waited = waiting.is_some();
    if arguments.foreground {
        return in_foreground(plan, &place, (kind, waited));
    }
    match daemon::detach()? {
        Side::Starter(starter) => {
            starter.wait().inspect_err(|_| kind.clean_up((&place, &source), waited))?;
            kind.attach((&place, &source), read_only, waited)
        }
        Side::Daemon(notifier) => serve::as_device(plan, place, kind, notifier),
    }
}

/// Serves in this process. A companion makes the block device, since the kernel reads the new
/// device before it returns, and this process has to answer.
fn in_foreground(
    plan: AttachPlan,
    place: &Place,
    (kind, waited): (DeviceKind, bool),
) -> Result<(), CliError> {
    let (source, read_only) = (plan.source.clone(), plan.read_only);
    let (mut from_companion, mut to_daemon) =
        UnixStream::pair().map_err(|error| CliError::system("cannot start the daemon", error))?;
    match daemon::accompany()? {
        Side::Starter(companion) => {
            drop(from_companion);
            // The daemon prints why it ended.
            match companion.wait() {
                Ok(()) => {
                    kind.attach((place, &source), read_only, waited)?;
                    let _ = to_daemon.write_all(ATTACHED);
                    StartNotifier::foreground().up(&[]);
                }
                Err(_) => kind.clean_up((place, &source), waited),
            }
            Ok(())
        }
        Side::Daemon(notifier) => {
            drop(to_daemon);
            serve::as_device(plan, Place(place.0.clone()), kind, notifier)?;
            let mut outcome = Vec::new();
            let _ = from_companion.read_to_end(&mut outcome);
            match outcome == ATTACHED {
                true => Ok(()),
                false => Err(CliError::new("the volume had no block device, and was taken away")),
            }
        }
    }
}

/// Message of the companion, once the block device exists.
const ATTACHED: &[u8] = b"attached";

/// Options of a volume's mount that a block volume refuses, and why.
const REFUSED: [(&str, &str); 3] = [
    ("durable_only", "a block volume knows no files"),
    ("journal_dev", "name the journal with --log"),
    ("noload", "a block volume is read through its log"),
];

/// Whether an option has a meaning for an attached volume.
pub fn is_of_blocks(row: &MountOption<MountSettings>) -> bool {
    is_of_engine(row) && !REFUSED.iter().any(|(name, _)| *name == row.name)
}

/// Parses the options, and refuses those that a block volume does not support.
fn settings_of(words: &[String]) -> Result<MountSettings, CliError> {
    let settings = MountSettings::parse(words, false)?;
    if settings.remount {
        return Err(CliError::new("remount: an attached block volume cannot be changed")
            .with_remedy("Detach it, and attach it with other options."));
    }
    let does_nothing = |word: &&String| {
        row_of(SECTIONS, word).is_some_and(|row| !is_of_engine(row) && row.name != "ro")
    };
    if let Some(word) = words.iter().find(does_nothing) {
        return Err(CliError::new(format!(
            "{word} is an option of a mount, not of a block volume"
        ))
        .with_remedy("See okeanos blocks attach --help for all options."));
    }
    let is_given = |name: &str| {
        let default = MountSettings::default();
        rows(SECTIONS).any(|row| row.name == name && (row.text)(&settings) != (row.text)(&default))
    };
    match REFUSED.iter().find(|(name, _)| is_given(name)) {
        Some((name, why)) => Err(CliError::new(format!("{name}: {why}"))),
        None => Ok(settings),
    }
}
