//! Block devices of the kernel's NBD client: made, taken up again after a daemon that died,
//! removed. The kernel's end of a pair of sockets is passed to it, so nobody listens and nothing is
//! negotiated. Facts: `linux/nbd-netlink.h`, `linux/nbd.h`, and drivers/block/nbd.c.
//!
//! Numbers of devices are used again, by any program, and the kernel's command that disconnects one
//! names it by its number alone. So a device counts as ours only where the kernel shows our text
//! for it, which is read right before each command.

use crate::export::{DF, Export, FLUSH, FUA};
use crate::netlink::{Attributes, Family};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::fmt;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

const FAMILY: &str = "nbd";
const CONNECT: u8 = 1;
const DISCONNECT: u8 = 2;
const RECONFIGURE: u8 = 3;

const INDEX: u16 = 1;
const SIZE_BYTES: u16 = 2;
const BLOCK_SIZE_BYTES: u16 = 3;
const TIMEOUT: u16 = 4;
const SERVER_FLAGS: u16 = 5;
const SOCKETS: u16 = 7;
const DEAD_CONNECTION_TIMEOUT: u16 = 8;
/// Linux 5.14.
const BACKEND_IDENTIFIER: u16 = 10;
const SOCKET_ITEM: u16 = 1;
const SOCKET_DESCRIPTOR: u16 = 1;

/// Seconds for which requests wait for the next daemon: 20 days. The kernel counts them in a `long`
/// of ticks, of which a 32-bit machine has 24 days.
const WAIT: u64 = 20 * 24 * 3600;
/// Milliseconds between two looks for requests of a connection that was replaced.
const LOOK: u32 = 5000;

/// Reason why the kernel makes no devices of NBD.
#[derive(Debug, thiserror::Error)]
pub enum NoNbdClient {
    #[error("the kernel's NBD client is not loaded: {0}")]
    NotLoaded(io::Error),
    #[error(
        "the kernel's NBD client is loaded, and does not answer in this network namespace: {0}"
    )]
    Elsewhere(io::Error),
    #[error("the kernel's NBD client is older than that of Linux 5.14")]
    TooOld,
}

/// Identifies a device that this program has made: the disk, and what the device's users rely on.
/// The kernel shows it in sysfs, in every mount namespace, and takes another connection for the
/// device with the same text alone.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Backend {
    /// UUID of the exported volume.
    pub volume: String,
    /// Disk that the volume is on, among its copies.
    pub disk: String,
    /// Whether requests wait for the next daemon when this one dies, those that it had not answered
    /// included. Otherwise they fail. Only a disk without a volatile cache may have them wait: a
    /// write that was acknowledged from memory alone is not sent again, so that nobody would learn
    /// that it is lost.
    pub waits: bool,
    pub read_only: bool,
}

const PROGRAM: &str = "okeanos";
const WAITS: &str = "waits";
const READ_ONLY: &str = "read-only";

impl fmt::Display for Backend {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{PROGRAM} {} {}", self.volume, self.disk.replace(' ', "-"))?;
        let words = [(self.waits, WAITS), (self.read_only, READ_ONLY)];
        words.iter().filter(|(is_so, _)| *is_so).try_for_each(|(_, word)| write!(to, " {word}"))
    }
}

impl Backend {
    /// Reads what the kernel shows of a device; `None` if another program has made it.
    pub fn parse(text: &str) -> Option<Backend> {
        let mut words = text.split_whitespace();
        if words.next() != Some(PROGRAM) && !units::fault!("nbd-device-of-others") {
            return None;
        }
        let is_uuid = |word: &&str| word.bytes().all(|it| it.is_ascii_hexdigit() || it == b'-');
        let volume = words.next().filter(is_uuid)?.into();
        let disk = words.next()?.into();
        let mut found = Backend { volume, disk, waits: false, read_only: false };
        for word in words {
            match word {
                WAITS => found.waits = true,
                READ_ONLY => found.read_only = true,
                _ => return None,
            }
        }
        Some(found)
    }

    /// Returns what device `number` is connected to; `None` if it is not connected, or not by this
    /// program.
    pub fn of_device(number: u32) -> Option<Backend> {
        ConnectedDevice::open(number)?.backend()
    }

    /// Returns the number of the device that is connected to this volume, also if its daemon died.
    pub fn of_volume(volume: &str) -> Option<u32> {
        let devices = fs::read_dir("/sys/block").ok()?.flatten().map(|entry| entry.file_name());
        let mut numbers =
            devices.filter_map(|name| name.to_str()?.strip_prefix("nbd")?.parse().ok());
        numbers.find(|number| Backend::of_device(*number).is_some_and(|it| it.volume == volume))
    }

    /// Whether the volume is on this disk, and on no copy.
    pub fn is_on(&self, disk: &str) -> bool {
        self.disk.replace(' ', "-") == disk.replace(' ', "-")
    }
}

/// A connected device, by the file in which the kernel shows its text. A later connection of the
/// same number has another file: this one cannot be read any more then.
pub struct ConnectedDevice {
    number: u32,
    backend: File,
}

impl ConnectedDevice {
    /// Returns `None` if the device is not connected, or was not over netlink.
    pub fn open(number: u32) -> Option<ConnectedDevice> {
        let backend = File::open(device_directory(number).join("backend")).ok()?;
        Some(ConnectedDevice { number, backend })
    }

    /// Takes the file of another process's `ConnectedDevice`.
    pub fn received(number: u32, backend: OwnedFd) -> ConnectedDevice {
        ConnectedDevice { number, backend: backend.into() }
    }

    pub fn number(&self) -> u32 {
        self.number
    }

    /// Returns what the device is connected to, as long as it is, if this program has made it.
    pub fn backend(&self) -> Option<Backend> {
        let mut bytes = [0; 256];
        let length = self.backend.read_at(&mut bytes, 0).ok()?;
        Backend::parse(std::str::from_utf8(&bytes[..length]).ok()?)
    }
}

impl AsFd for ConnectedDevice {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.backend.as_fd()
    }
}

/// Has the kernel look every 5 s, not every 30 s, for requests of a connection that was replaced,
/// to send them again. Call it in another process than the server's: newer kernels wait for all
/// requests in flight before they change a number of a queue.
pub fn look_often(number: u32) {
    // Where sysfs is read-only, requests are sent again later.
    let _ = fs::write(device_directory(number).join("queue/io_timeout"), LOOK.to_string());
}

fn device_directory(number: u32) -> PathBuf {
    PathBuf::from(format!("/sys/block/nbd{number}"))
}

/// The kernel's NBD client. Each command takes CAP_SYS_ADMIN.
pub struct NbdClient(Family);

impl NbdClient {
    /// Whether it is there already, or built in.
    pub fn is_loaded() -> bool {
        Path::new("/sys/module/nbd").exists()
    }

    /// Opens it. Newer kernels load it for that.
    ///
    /// # Errors
    /// There is none, or it does not answer here, or is too old to identify devices.
    pub fn open() -> Result<NbdClient, NoNbdClient> {
        let family = Family::open(FAMILY).map_err(|error| match NbdClient::is_loaded() {
            true => NoNbdClient::Elsewhere(error),
            false => NoNbdClient::NotLoaded(error),
        })?;
        match family.attribute_max >= BACKEND_IDENTIFIER.into() {
            true => Ok(NbdClient(family)),
            false => Err(NoNbdClient::TooOld),
        }
    }

    /// Makes a device of a free number. Returns the number, and the server's end of the connection.
    ///
    /// # Errors
    /// The kernel's.
    pub fn connect(&self, export: &Export, backend: &Backend) -> io::Result<(u32, UnixStream)> {
        let (ours, theirs) = UnixStream::pair()?;
        let replied = self.0.ask(CONNECT, wanted(export, backend, &theirs))?;
        let number = replied.u32(INDEX).ok_or(io::ErrorKind::InvalidData)?;
        Ok((number, ours))
    }

    /// Gives a device whose connection has died another one. `None` if it has a living one, or the
    /// kernel has not noticed yet that it died.
    ///
    /// # Errors
    /// The kernel's; the device is not connected to this backend.
    pub fn take_up(&self, number: u32, backend: &Backend) -> io::Result<Option<UnixStream>> {
        // The kernel compares, too, but not where a device has no text.
        if Backend::of_device(number).is_none() {
            return Err(io::ErrorKind::NotFound.into());
        }
        let (ours, theirs) = UnixStream::pair()?;
        self.0.ask(RECONFIGURE, about(number, backend).nested(SOCKETS, socket(&theirs)))?;
        drop(theirs);
        // The kernel acknowledges, too, where it took no socket. Nobody has the other end then.
        let mut polled = [PollFd::new(&ours, PollFlags::RDHUP)];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        let was_taken = poll(&mut polled, Some(&at_once))? == 0;
        Ok(was_taken.then_some(ours))
    }

    /// Ends a connection that this program has made, unless it has ended: requests that wait fail.
    /// The number is free when its last user has closed the device.
    ///
    /// A caller that has the block device open keeps its number from others. Otherwise the device
    /// can be another program's between the look and the command, if within these microseconds
    /// another privileged program disconnects it, and one connects one.
    ///
    /// # Errors
    /// The kernel's.
    pub fn disconnect(&self, device: &ConnectedDevice) -> io::Result<()> {
        if device.backend().is_none() {
            return Ok(());
        }
        self.0.ask(DISCONNECT, Attributes::default().u32(INDEX, device.number)).map(drop)
    }
}

fn about(number: u32, backend: &Backend) -> Attributes {
    Attributes::default().u32(INDEX, number).text(BACKEND_IDENTIFIER, &backend.to_string())
}

fn socket(theirs: &UnixStream) -> Attributes {
    let descriptor = Attributes::default().u32(SOCKET_DESCRIPTOR, theirs.as_raw_fd() as u32);
    Attributes::default().nested(SOCKET_ITEM, descriptor)
}

fn wanted(export: &Export, backend: &Backend, theirs: &UnixStream) -> Attributes {
    // A request may take any time: with a timeout, the kernel would give up a connection whose disk
    // is slow.
    Attributes::default()
        .u64(SIZE_BYTES, export.size())
        .u64(BLOCK_SIZE_BYTES, export.sector().into())
        .u64(TIMEOUT, 0)
        .u64(DEAD_CONNECTION_TIMEOUT, if backend.waits { WAIT } else { 0 })
        .u64(SERVER_FLAGS, flags(export, backend).into())
        .text(BACKEND_IDENTIFIER, &backend.to_string())
        .nested(SOCKETS, socket(theirs))
}

/// The kernel sends no flushes to a disk without a volatile cache, and knows no structured replies.
fn flags(export: &Export, backend: &Backend) -> u16 {
    let has_cache = !backend.waits && !units::fault!("nbd-device-without-flushes");
    export.flags() & !DF & if has_cache { u16::MAX } else { !(FLUSH | FUA) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use device::World;
    use disks::MemoryDisk;
    use runtime::VirtualWorld;
    use std::rc::Rc;

    #[test]
    fn only_devices_of_this_program_are_recognised() {
        for (waits, read_only) in [(false, false), (true, false), (false, true), (true, true)] {
            let (volume, disk) = ("ab-cd".into(), "file-1-on-2".into());
            let backend = Backend { volume, disk, waits, read_only };
            // The kernel adds the end of a line.
            assert_eq!(Backend::parse(&format!("{backend}\n")), Some(backend));
        }
        let named = |disk: &str| Backend {
            volume: "ab-cd".into(),
            disk: disk.into(),
            waits: true,
            read_only: true,
        };
        assert_eq!(named("device 7").to_string(), "okeanos ab-cd device-7 waits read-only");
        let shown = Backend::parse(&named("device 7").to_string()).unwrap();
        assert!(shown.is_on("device 7") && !shown.is_on("device 8"));
        let others = ["", "\n", "okeanos", "other ab-cd d waits", "okeanos ab-cd d sleeps"];
        for others in others.into_iter().chain(["okeanos ab-cd", "okeanos ../ab d"]) {
            assert_eq!(Backend::parse(others), None, "{others:?}");
        }
    }

    #[test]
    fn a_disk_with_a_volatile_cache_is_sent_flushes() {
        let world: Rc<dyn World> = Rc::new(VirtualWorld::new(1));
        let disk = Rc::new(MemoryDisk::new(world, 1 << 20));
        let flags = |waits, read_only| {
            let export = Export { disk: disk.clone(), read_only, rotational: false };
            let (volume, disk) = ("ab".into(), "d".into());
            flags(&export, &Backend { volume, disk, waits, read_only })
        };
        // Has flags, flush, FUA, write-zeroes, several connections; trim, as the disk has it.
        assert_eq!(flags(false, false) & !(1 << 5), 0b1_0100_1101);
        assert_eq!(flags(true, false) & (FLUSH | FUA), 0);
        assert_eq!(flags(false, true) & 0b10, 0b10);
    }
}
