//! `okeanos blocks attach`.

use super::place::Place;
use super::serve::{self, AttachPlan};
use super::{AttachArguments, Via};
use crate::daemon::{self, Side, StartNotifier};
use crate::error::CliError;
use crate::mount::loop_device::{LoopDevice, Stands};
use crate::mount::options::{Barrier, MountSettings};
use crate::text::output::print;
use blocks::Persistence;
use disks::DiskAccess;

pub fn run(arguments: AttachArguments) -> Result<(), CliError> {
    let settings = settings_of(&arguments.options)?;
    let absolute = |path: &std::path::Path| {
        path.canonicalize().map_err(|error| CliError::system(path.display(), error))
    };
    let source = absolute(&arguments.source)?;
    let place = Place::of(&source)?;
    let plan = AttachPlan {
        log: arguments.log.as_deref().map(absolute).transpose()?,
        words: arguments.options.clone(),
        read_only: arguments.read_only || settings.read_only,
        settings,
        persistence: match arguments.write_through {
            true => Persistence::WriteThrough,
            false => Persistence::WriteBack,
        },
        source,
    };
    if let (Via::Nbd, Some(socket)) = (arguments.via, &arguments.socket) {
        return serve::over_nbd(plan, socket);
    }
    place.clean_up()?;
    place.make()?;
    if arguments.foreground {
        return serve::as_file(plan, place.0, StartNotifier::foreground());
    }
    let read_only = plan.read_only;
    match daemon::detach()? {
        Side::Starter(starter) => {
            starter.wait()?;
            attach_loop(&place, read_only)
        }
        Side::Daemon(notifier) => serve::as_file(plan, place.0, notifier),
    }
}

fn attach_loop(place: &Place, read_only: bool) -> Result<(), CliError> {
    let access = if read_only { DiskAccess::ReadOnly } else { DiskAccess::ReadWrite };
    match LoopDevice::attach_so(&place.file(), access, Stands::UntilDetached) {
        Ok(device) => print(&format_args!("{}\n", device.path.display())),
        Err(error) => {
            // The device cannot be used.
            let _ = super::detach::run_at(place);
            Err(error)
        }
    }
}

/// Parses the options, and refuses those that a block volume does not support.
fn settings_of(words: &[String]) -> Result<MountSettings, CliError> {
    let settings = MountSettings::parse(words, false)?;
    let wrong = match &settings {
        it if it.barrier == Barrier::Coerce => {
            Some("barrier=coerce: a block volume has no flush zone")
        }
        it if it.durable_only.is_some() => Some("durable_only: a block volume knows no files"),
        it if it.journal_device.is_some() => Some("journal_dev=: name the journal with --log"),
        it if it.without_journal => Some("noload: a block volume is read through its log"),
        _ => None,
    };
    match wrong {
        Some(why) => Err(CliError::new(why)),
        None => Ok(settings),
    }
}
