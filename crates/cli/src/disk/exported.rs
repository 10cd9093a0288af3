//! A disk served as a file until it is unmounted: for loop devices.

use crate::daemon::control::{End, socket_directory_beside};
use crate::daemon::control_server::{Answers, ControlServer, ControlSocket, no_control};
use crate::daemon::mount_helper::{EstablishedMount, MountHelper};
use crate::daemon::privileges::{self, kept_rights};
use crate::daemon::{StartNotifier, ended_at_once, mount_table, not_home};
use crate::disk::front_end::DiskFrontEnd;
use crate::error::CliError;
use device::Disk;
use fuse_session::{MountKind, MountOptions, Session, Transport};
use runtime::{Either, RealWorld, Signals, race, spawn_with_result};
use rustix::process::{getegid, geteuid};
use std::path::Path;
use std::rc::Rc;

/// The kernel's default, in bytes. A disk reads ahead by itself, or the file system above does.
const READ_AHEAD: u64 = 128 << 10;

/// State of the service before it runs.
struct PreparedService {
    session: Rc<Session<DiskFrontEnd>>,
    signals: Signals,
    control: ControlSocket,
    device: (u32, u32),
    warnings: Vec<String>,
}

fn prepare(
    world: &RealWorld,
    disk: &Rc<dyn Disk>,
    (directory, helper): (&Path, &MountHelper),
) -> Result<PreparedService, CliError> {
    let signals = world.signals().map_err(|error| CliError::system("signals", error))?;
    let control = ControlSocket::bind(&socket_directory_beside(directory)).map_err(no_control)?;
    let kind = MountKind::Plain { name: disk.name().to_owned() };
    let options = MountOptions {
        kind,
        subtype: mount_table::subtype(None),
        flags: libc::MS_NOSUID | libc::MS_NODEV,
        allow_other: false,
    };
    let EstablishedMount { connection, device } = helper.mount(&options, READ_AHEAD)?;
    // From here on it reads requests, and bytes of the disk that it acts upon.
    let kept = privileges::give_up().err();
    let warnings: Vec<String> = kept.map(|error| kept_rights(&error)).into_iter().collect();
    world.ring().renew_threads();
    let owner = (geteuid().as_raw(), getegid().as_raw());
    let front_end = DiskFrontEnd::new(disk.clone(), owner);
    let session = Session::new(world.clone(), connection, front_end, Transport::Auto);
    Ok(PreparedService { session, signals, control, device, warnings })
}

/// Serves until the directory is unmounted, or a signal comes, or `failure` returns: the disk is
/// then of no use any more, and the error is returned. The caller has settled in before. `close`
/// runs when no more requests come, and returns whether all went well.
pub async fn serve(
    world: &RealWorld,
    disk: &Rc<dyn Disk>,
    at: (&Path, &MountHelper),
    notifier: StartNotifier,
    answers: Box<Answers>,
    failure: impl Future<Output = CliError>,
    close: impl AsyncFnOnce() -> bool,
) -> Result<(), CliError> {
    let helper = at.1;
    let PreparedService { session, signals, control, device, warnings } =
        match prepare(world, disk, at) {
            Ok(up) => up,
            Err(error) => {
                close().await;
                return notifier.failed(error);
            }
        };
    let serving = session.clone();
    let mut session_over = spawn_with_result(world, async move { serving.serve().await });
    let begun = race(&mut session_over, session.until_started()).await;
    if let Either::Left(ended) = &begun {
        if session.negotiated().is_none() {
            helper.unmount();
            close().await;
            return notifier.failed(ended_at_once(ended));
        }
    }
    let control = match ControlServer::start(world, control, device, answers) {
        Ok(control) => control,
        Err(error) => {
            helper.end(world, &session, session_over, signals).await;
            close().await;
            return notifier.failed(no_control(error));
        }
    };
    notifier.up(&warnings);
    let (result, failed) = match begun {
        Either::Left(result) => (result, None),
        Either::Right(_) => {
            helper.until_over_or(world, &session, (session_over, signals), failure).await
        }
    };
    let result = match result {
        Some(Ok(())) => Ok(()),
        Some(Err(error)) => Err(CliError::new(error.to_string())),
        None => Err(CliError::new("the disk's session was lost")),
    };
    let is_home = close().await;
    control.end(End { clean: is_home && result.is_ok() });
    // Without `detach`, which waits for the answer, the exit code alone shows it.
    match failed {
        Some(error) => Err(error),
        None if is_home || result.is_err() => result,
        None => Err(not_home(disk.name())),
    }
}
