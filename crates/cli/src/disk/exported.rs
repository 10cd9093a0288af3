//! A disk served as a file until it is unmounted: for loop devices.

use crate::daemon::control::{End, socket_directory_beside};
use crate::daemon::control_server::{Answers, ControlServer, ControlSocket, no_control};
use crate::daemon::porter::{Porter, Standing};
use crate::daemon::{self, Herald, ended_at_once, mount_table};
use crate::disk::door::DiskDoor;
use crate::error::CliError;
use device::Disk;
use fuse_session::{MountKind, MountOptions, Session, Transport};
use runtime::{Either, RealWorld, Signals, race, spawn_with_result};
use std::path::Path;
use std::rc::Rc;

/// The kernel's default, in bytes. A disk reads ahead by itself, or the file system above does.
const READ_AHEAD: u64 = 128 << 10;

/// State of the service before it runs.
struct Up {
    session: Rc<Session<DiskDoor>>,
    signals: Signals,
    control: ControlSocket,
    device: (u32, u32),
}

fn bring_up(
    world: &RealWorld,
    disk: &Rc<dyn Disk>,
    (directory, porter): (&Path, &Porter),
) -> Result<Up, CliError> {
    let signals = world.signals().map_err(|error| CliError::system("signals", error))?;
    let control = ControlSocket::bind(&socket_directory_beside(directory)).map_err(no_control)?;
    let kind = MountKind::Plain { name: disk.name().to_owned() };
    let options = MountOptions {
        kind,
        subtype: mount_table::subtype(None),
        flags: libc::MS_NOSUID | libc::MS_NODEV,
        allow_other: false,
    };
    daemon::settle_in();
    world.ring().renew_threads();
    let Standing { connection, device } = porter.mount(&options, READ_AHEAD)?;
    // SAFETY: these two calls have no preconditions.
    let owner = unsafe { (libc::geteuid(), libc::getegid()) };
    let door = DiskDoor::new(disk.clone(), owner);
    let session = Session::new(world.clone(), connection, door, Transport::Auto);
    Ok(Up { session, signals, control, device })
}

/// Serves until the directory is unmounted, or a signal comes. `close` runs when no more requests
/// come, and returns whether all went well.
pub async fn serve(
    world: &RealWorld,
    disk: &Rc<dyn Disk>,
    at: (&Path, &Porter),
    herald: Herald,
    answers: Box<Answers>,
    close: impl AsyncFnOnce() -> bool,
) -> Result<(), CliError> {
    let porter = at.1;
    let Up { session, signals, control, device } = match bring_up(world, disk, at) {
        Ok(up) => up,
        Err(error) => {
            close().await;
            return herald.failed(error);
        }
    };
    let serving = session.clone();
    let mut session_over = spawn_with_result(world, async move { serving.serve().await });
    let begun = race(&mut session_over, session.until_started()).await;
    if let Either::Left(ended) = &begun
        && session.negotiated().is_none()
    {
        porter.unmount();
        close().await;
        return herald.failed(ended_at_once(ended));
    }
    let control = match ControlServer::start(world, control, device, answers) {
        Ok(control) => control,
        Err(error) => {
            porter.end(world, &session, session_over, signals).await;
            close().await;
            return herald.failed(no_control(error));
        }
    };
    herald.up(&[]);
    let result = match begun {
        Either::Left(result) => result,
        Either::Right(_) => porter.until_over(world, &session, session_over, signals).await,
    };
    let result = match result {
        Some(Ok(())) => Ok(()),
        Some(Err(error)) => Err(CliError::new(error.to_string())),
        None => Err(CliError::new("the disk's session was lost")),
    };
    let clean = close().await && result.is_ok();
    control.end(End { clean });
    result
}
