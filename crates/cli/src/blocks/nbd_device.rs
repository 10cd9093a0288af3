//! An attached volume as a device of the kernel's NBD client: the daemon has the other end of its
//! connection.
//!
//! The kernel's list of devices is the same in all mount and network namespaces, and it knows
//! whether a connection lives. So no command relies on what its namespace shows of the daemon.

use super::PATIENCE;
use crate::daemon::control::{DriverDevice, Place};
use crate::disk::open_disk::NEEDS_ROOT;
use crate::error::CliError;
use device::{LocalFuture, World};
use nbd::{Backend, ConnectedDevice, Export, KernelConnection, NbdClient, NoNbdClient};
use runtime::RealWorld;
use rustix::process::geteuid;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::rc::Rc;
use std::time::{Duration, Instant};
use ublk::Remains;

/// Longest wait for the kernel to see that a dead daemon's connection has ended, where the daemon
/// has certainly ended, since its disk is free; and where it may live.
const RECONNECTION: Duration = Duration::from_secs(90);
const DEATH: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(50);
/// Bytes of the sectors in which the kernel counts.
const SECTOR: u64 = 512;

/// Returns why the kernel makes no device.
pub fn probe() -> Result<(), NoNbdClient> {
    NbdClient::open().map(drop)
}

/// Returns the error of a command that needs the kernel's NBD client.
pub fn unavailable(why: NoNbdClient) -> CliError {
    let error = CliError::new(format!("no NBD device: {why}"));
    error.with_remedy(match why {
        _ if !geteuid().is_root() => NEEDS_ROOT,
        NoNbdClient::NotLoaded(_) => {
            "Load it (modprobe nbd), attach it with --via loop, or name a --socket for other \
             clients."
        }
        NoNbdClient::Elsewhere(_) => {
            "Attach it in the machine's own network namespace (nsenter --net=/proc/1/ns/net), or \
             with --via loop. Before Linux 4.12 it answers nowhere."
        }
        NoNbdClient::TooOld => "Attach it with --via loop, or name a --socket for nbd-client.",
    })
}

fn client() -> Result<NbdClient, CliError> {
    NbdClient::open().map_err(unavailable)
}

fn failed(number: u32) -> impl Fn(io::Error) -> CliError {
    move |error| CliError::system(DriverDevice::Nbd(number).path().display(), error)
}

/// Returns the volume's device of this number, and what the kernel has of it, if it is connected.
pub fn remains(place: &Place, number: u32) -> Option<(ConnectedDevice, Remains)> {
    let device = ConnectedDevice::open(number)?;
    let backend = device.backend().filter(|backend| backend.volume == place.uuid())?;
    Some((device, if backend.waits { Remains::Waiting } else { Remains::Ended }))
}

fn is_waiting(place: &Place, number: u32) -> bool {
    remains(place, number).is_some_and(|(_, remains)| remains == Remains::Waiting)
}

/// Whether the device of this number is on this disk, and on no copy.
pub fn is_on(number: u32, disk: &str) -> bool {
    Backend::of_device(number).is_some_and(|backend| backend.is_on(disk))
}

/// Makes the volume's device, or takes up the one that waits unless that is refused, and begins to
/// serve it. The future returns if the connection breaks.
pub async fn serve(
    world: &RealWorld,
    (place, disk): (&Place, String),
    export: Export,
    waits: bool,
    refuse: impl Fn(DriverDevice) -> Result<(), CliError>,
) -> Result<(ConnectedDevice, KernelConnection, LocalFuture<CliError>), CliError> {
    let client = client()?;
    let (volume, read_only) = (place.uuid(), export.read_only);
    let backend = Backend { volume, disk, waits, read_only };
    let found = Backend::of_volume(&backend.volume);
    let waiting = found.filter(|number| is_waiting(place, *number));
    let (number, socket) = match waiting {
        Some(number) => {
            refuse_unlike(number, &backend, export.disk.geometry().size)?;
            refuse(DriverDevice::Nbd(number))?;
            let until = world.now().plus(RECONNECTION);
            let socket = loop {
                match client.take_up(number, &backend).map_err(not_taken_up(number))? {
                    Some(socket) => break socket,
                    None if world.now() > until => return Err(served(number)),
                    None => world.sleep_until(world.now().plus(PAUSE)).await,
                }
            };
            (number, socket)
        }
        None => {
            place.unmark_unchecked();
            client.connect(&export, &backend).map_err(not_made)?
        }
    };
    let disconnected = || failed(number)(io::ErrorKind::NotFound.into());
    let (device, _) = remains(place, number).ok_or_else(disconnected)?;
    let served = KernelConnection::serve(world, socket, Rc::new(export));
    let (connection, broken) = served.map_err(failed(number))?;
    let failure = async move {
        let name = DriverDevice::Nbd(number).path();
        CliError::system(format!("the connection of {} broke", name.display()), broken.await)
            .with_remedy("Attach the volume again.")
    };
    Ok((device, connection, Box::pin(failure)))
}

fn not_made(error: io::Error) -> CliError {
    let refused = error.kind() == io::ErrorKind::PermissionDenied;
    let error = CliError::system("cannot make an NBD device", error);
    if refused { error.with_remedy("Attach it as root.") } else { error }
}

/// Returns the error of a device that the kernel gives no other connection.
fn not_taken_up(number: u32) -> impl Fn(io::Error) -> CliError {
    move |error| match is_disconnected(&error) {
        true => still_open(number),
        false => failed(number)(error),
    }
}

/// Whether a device was disconnected, and is still open.
fn is_disconnected(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EINVAL)
}

/// Returns the error of a device that was disconnected, and whose last user has not closed it.
pub fn still_open(number: u32) -> CliError {
    let name = DriverDevice::Nbd(number).path();
    let name = name.display();
    CliError::new(format!("{name} was disconnected and is still open"))
        .with_remedy(format!("Close it; see who uses it: fuser -v {name}, lsblk {name}."))
}

/// Refuses to take up a device unlike the wanted one in what its users rely on.
fn refuse_unlike(number: u32, wanted: &Backend, bytes: u64) -> Result<(), CliError> {
    let path = DriverDevice::Nbd(number).path();
    let sectors = std::fs::read_to_string(format!("/sys/block/nbd{number}/size"));
    let sectors = sectors.ok().and_then(|text| text.trim().parse::<u64>().ok());
    let difference = match Backend::of_device(number) {
        Some(found) if found.to_string() != wanted.to_string() => {
            "was attached with another --write-through or --read-only"
        }
        _ if sectors != Some(bytes / SECTOR) => "has another size",
        _ => return Ok(()),
    };
    Err(CliError::new(format!("{} still waits for a daemon, and {difference}", path.display()))
        .with_remedy("Attach it as before, or detach it first: its I/O fails then."))
}

fn served(number: u32) -> CliError {
    let name = DriverDevice::Nbd(number).path();
    CliError::new(format!("a daemon serves {}, and is not seen from here", name.display()))
        .with_remedy(
            "Detach it in the mount namespace that it was attached in. Where its mount was taken \
             away, end the daemon when nobody uses the device, and detach it then: fuser -v names \
             the daemon at the volume's disk.",
        )
}

/// Refuses a device whose connection lives, wherever its daemon is: the kernel replaces only that
/// of a dead daemon.
///
/// The end of the new connection is closed at once. The kernel sends what waited over it and, when
/// the socket is full, waits for a reader without a time limit; a command that disconnects the
/// device would wait behind that, and all of generic netlink behind the command.
pub fn refuse_served(device: &ConnectedDevice) -> Result<(), CliError> {
    let (number, begun) = (device.number(), Instant::now());
    while let Some(backend) = device.backend() {
        match client()?.take_up(number, &backend) {
            Ok(Some(_closed)) => return Ok(()),
            Ok(None) if begun.elapsed() > DEATH => return Err(served(number)),
            Ok(None) => std::thread::sleep(PAUSE),
            Err(error) if is_disconnected(&error) => return Ok(()),
            Err(error) => return Err(failed(number)(error)),
        }
    }
    Ok(())
}

/// Waits until the device can be read and has the size of the volume's file. The kernel reads the
/// table of partitions for that, as whenever a new device is opened.
pub fn start(place: &Place, number: u32) -> Result<(), CliError> {
    let failed = failed(number);
    let begun = Instant::now();
    let bytes = std::fs::metadata(place.file()).map_err(&failed)?.len();
    loop {
        let mut device = File::open(DriverDevice::Nbd(number).path()).map_err(&failed)?;
        if device.seek(SeekFrom::End(0)).map_err(&failed)? == bytes {
            device.rewind().and_then(|()| device.read_exact(&mut [0])).map_err(&failed)?;
            if is_waiting(place, number) {
                nbd::look_often(number);
            }
            return Ok(());
        }
        if begun.elapsed() > PATIENCE {
            return Err(failed(io::Error::other("the kernel does not give it its size")));
        }
        std::thread::sleep(PAUSE);
    }
}

/// Fails the requests of a device, and those that come.
pub fn disconnect(device: &ConnectedDevice) -> Result<(), CliError> {
    client()?.disconnect(device).map_err(failed(device.number()))
}

/// Disconnects a device, which is held until then, and waits until its last user has closed it.
pub fn remove(device: &ConnectedDevice, held: Option<File>) -> Result<(), CliError> {
    disconnect(device)?;
    drop(held);
    let begun = Instant::now();
    while device.backend().is_some() {
        if begun.elapsed() > PATIENCE {
            return Err(still_open(device.number()));
        }
        std::thread::sleep(PAUSE);
    }
    Ok(())
}

/// Returns why an NBD device keeps its size while it is attached. From Linux 6.9 on, the kernel
/// waits for all requests in flight to change it, and has all commands of devices wait as long: a
/// daemon that dies then could be replaced by none.
pub fn refuse_to_grow(number: u32) -> CliError {
    let name = DriverDevice::Nbd(number).path();
    CliError::new(format!(
        "{} keeps its size while it is attached: a daemon that dies while Linux 6.9 or later \
         changes the size of an NBD device would leave it hanging",
        name.display()
    ))
    .with_remedy(
        "Detach it, grow it, and attach it again. A loop device (--via loop) grows while attached.",
    )
}
