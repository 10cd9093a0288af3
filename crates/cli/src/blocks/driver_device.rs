//! An attached volume as a block device whose driver passes the requests to the daemon: ublk, or
//! the kernel's NBD client. The daemon makes it and serves it; the command that started the daemon
//! starts it, and `detach` removes it.
//!
//! A device counts only where its driver shows the volume's mark: device numbers are used again.

use super::{CLEAR, PATIENCE, nbd_device, ublk_device};
use crate::daemon::control::{DriverDevice, Place};
use crate::daemon::holders::refuse_open_device;
use crate::daemon::mount_table;
use crate::daemon::mounted::{not_opened, refuse_mounted};
use crate::disk::block_volume::{VolumeOnDisk, volume_on};
use crate::disk::identity::identity;
use crate::disk::open_disk::hold_unlocked;
use crate::error::CliError;
use crate::recover;
use engine::RecoveryReport;
use nbd::ConnectedDevice;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use ublk::Remains;

/// The device of an earlier attachment. It is looked up once: a later connection of the same number
/// is another daemon's.
enum EarlierDevice {
    Ublk(u32),
    Nbd(ConnectedDevice),
}

impl EarlierDevice {
    fn device(&self) -> DriverDevice {
        match self {
            EarlierDevice::Ublk(number) => DriverDevice::Ublk(*number),
            EarlierDevice::Nbd(device) => DriverDevice::Nbd(device.number()),
        }
    }
    fn path(&self) -> PathBuf {
        self.device().path()
    }
}

/// Returns what is left of an earlier attachment: the device, and what its driver has of it.
fn remains(place: &Place) -> Result<Option<(EarlierDevice, Remains)>, CliError> {
    let Some(device) = place.driver_device() else { return Ok(None) };
    let number = match device {
        DriverDevice::Ublk(number) => number,
        DriverDevice::Nbd(number) => {
            let found = nbd_device::remains(place, number);
            return Ok(found.map(|(device, remains)| (EarlierDevice::Nbd(device), remains)));
        }
    };
    match ublk_device::remains(place, number)? {
        Remains::Nothing => {
            place.unlink_ublk();
            // The link hid it, unless it stays.
            match place.driver_device() {
                Some(hidden) if hidden != device => self::remains(place),
                _ => Ok(None),
            }
        }
        remains => Ok(Some((EarlierDevice::Ublk(number), remains))),
    }
}

/// Returns the device whose I/O waits for the next daemon.
pub fn waiting(place: &Place) -> Result<Option<DriverDevice>, CliError> {
    Ok(find_waiting(place)?.map(|left| left.device()))
}

fn find_waiting(place: &Place) -> Result<Option<EarlierDevice>, CliError> {
    let remains = remains(place)?.filter(|(_, remains)| *remains == Remains::Waiting);
    Ok(remains.map(|(left, _)| left))
}

/// Removes the device of a daemon that has ended, unless it waits for the next one.
///
/// A device that does not wait shows no difference whether its daemon lives. So the disk is asked:
/// a daemon holds it, also one whose mount is not visible from this namespace.
pub fn clean_up(place: &Place, source: &Path) -> Result<(), CliError> {
    match remains(place)? {
        Some((left, Remains::Ended)) => {
            let _held = hold_unlocked(source).map_err(not_opened)?;
            fail_requests(&left)?;
            refuse_mounted(&left.path())?;
            remove(place, &left, None)
        }
        _ => Ok(()),
    }
}

/// Removes the device of an attachment that failed, behind its daemon. One that another attachment
/// has made, or that `waited` before, stays.
pub fn remove_unstarted(place: &Place, source: &Path, waited: bool) {
    // The first error is the one to report.
    let _ = match find_waiting(place) {
        Ok(Some(left)) if !waited => hold_unlocked(source)
            .map_err(not_opened)
            .and_then(|_held| refuse_mounted(&left.path()).and(remove(place, &left, None))),
        _ => clean_up(place, source),
    };
}

/// Fails the requests that a daemon has left which has ended. A driver of ublk has done so.
fn fail_requests(left: &EarlierDevice) -> Result<(), CliError> {
    match left {
        EarlierDevice::Ublk(_) => Ok(()),
        EarlierDevice::Nbd(device) => nbd_device::disconnect(device),
    }
}

/// Refuses a disk other than the one behind the volume's device: a copy has the same UUID. What is
/// above the device would go on over the copy, without what was acknowledged since it was made.
pub fn refuse_copy(place: &Place, source: &Path) -> Result<(), CliError> {
    if place.driver_device().is_none() {
        return Ok(());
    }
    let Some((left, _)) = remains(place)? else { return Ok(()) };
    let device = left.device();
    if is_on(place, device, source)? {
        return Ok(());
    }
    let (name, device) = (source.display(), device.path());
    let device = device.display();
    Err(CliError::new(format!("{device} is the device of another disk, of which {name} is a copy"))
        .with_remedy(format!(
            "Attach that disk, or remove its device first: okeanos blocks detach {device}. I/O \
             that waits fails then."
        )))
}

/// Whether a device of the volume is on this disk, and on no copy.
fn is_on(place: &Place, device: DriverDevice, source: &Path) -> Result<bool, CliError> {
    let disk = disk_of(source)?;
    Ok(match device {
        DriverDevice::Ublk(_) => place.disk_of_ublk().is_none_or(|found| found == disk),
        DriverDevice::Nbd(number) => nbd_device::is_on(number, &disk),
    })
}

/// Refuses to leave anything out of the volume on a disk, or to clear the record of it, below a
/// device whose I/O waits: what is above the device has the acknowledgements, and would go on.
/// Call it while the disk is claimed, so that no daemon can die behind it.
pub fn refuse_to_leave_out(source: &Path) -> Result<(), CliError> {
    let found = volume_on(source).map_err(|error| CliError::system(source.display(), error))?;
    let VolumeOnDisk::Found(uuid) = found else { return Ok(()) };
    let place = Place::of_uuid(&uuid);
    let Some(device) = waiting(&place)? else { return Ok(()) };
    if !is_on(&place, device, source)? || units::fault!("waiting-left-behind") {
        return Ok(());
    }
    let device = device.path();
    let device = device.display();
    Err(CliError::new(format!(
        "{device} waits for its daemon: it may have acknowledged what would be left out, and what \
         is above it would go on"
    ))
    .with_remedy(format!(
        "Detach it first, with --force where it is mounted: okeanos blocks detach {device}. Its \
         I/O fails then."
    )))
}

/// Refuses to let I/O that waits at a device go on over a volume that lacks some of what was
/// committed, unless it did so already when the device was made.
pub fn refuse_incomplete(
    place: &Place,
    device: DriverDevice,
    report: &RecoveryReport,
) -> Result<(), CliError> {
    let was_so = || !report.is_incomplete() && place.is_marked_unchecked(device);
    if !recover::lacks_some(report) || was_so() || units::fault!("waiting-left-behind") {
        return Ok(());
    }
    let device = device.path();
    let device = device.display();
    Err(CliError::new(format!(
        "{device} waits for its daemon, and may have acknowledged what the volume lacks: damage \
         was found, or a recovery left out what was committed"
    ))
    .with_remedy(format!(
        "Detach it, with --force where it is mounted: okeanos blocks detach {device}. Its I/O \
         fails then. {CLEAR}"
    )))
}

/// Refuses to change a volume past a device whose I/O waits for the next daemon: its writes come
/// after the change.
pub fn refuse_waiting(place: &Place) -> Result<(), CliError> {
    waiting(place)?.map_or(Ok(()), |device| Err(waits(place, device)))
}

/// Returns the error that I/O waits for a daemon that attaches the volume as before.
pub fn waits(place: &Place, device: DriverDevice) -> CliError {
    let via = match device {
        DriverDevice::Ublk(_) => "ublk",
        DriverDevice::Nbd(_) => "nbd",
    };
    CliError::new(format!("I/O waits for its daemon{}", place.attached_as()))
        .with_remedy(format!("Attach it with --via {via}, or detach it first: its I/O fails then."))
}

/// Returns what distinguishes the disk from its copies.
pub fn disk_of(source: &Path) -> Result<String, CliError> {
    identity(source).map_err(|error| CliError::system(source.display(), error))
}

/// Makes the block device that the daemon serves, or lets its I/O go on. Returns its path.
pub fn start(place: &Place) -> Result<PathBuf, CliError> {
    let gone = || CliError::new("the daemon has ended");
    let device = place.driver_device().ok_or_else(gone)?;
    match device {
        DriverDevice::Ublk(number) => ublk_device::start(place, number)?,
        DriverDevice::Nbd(number) => nbd_device::start(place, number)?,
    }
    Ok(device.path())
}

/// Flushes a device if its daemon serves it, and removes it. `force`: one that waits, and may be in
/// use, has its I/O fail first.
pub fn take_away(place: &Place, force: bool) -> Result<(), CliError> {
    let Some((left, remains)) = remains(place)? else { return Ok(()) };
    let path = left.path();
    let mount = mount_table::mount_on(&place.0).ok().flatten();
    let is_served = mount.is_some_and(|mount| !mount.is_dead());
    if force && !is_served && remains == Remains::Waiting {
        refuse_served(&left)?;
        return remove(place, &left, None);
    }
    // The proof that the daemon of an NBD device is dead delays what waits.
    let is_proved_last = remains == Remains::Waiting && matches!(left, EarlierDevice::Nbd(_));
    if !is_served && !is_proved_last {
        refuse_served(&left)?;
    }
    if !is_served && remains == Remains::Ended {
        fail_requests(&left)?;
    }
    refuse_mounted(&path).map_err(|error| match is_served || remains == Remains::Ended {
        true => error,
        false => CliError::new(format!("{} waits for its daemon, and is mounted", path.display()))
            .with_remedy(
                "Attach the volume again as before, and unmount then. Where it cannot be attached, \
                 --force has the I/O fail.",
            ),
    })?;
    // Nobody mounts it any more from here on.
    let held = match open_exclusively(&path) {
        Some(Err(error)) if error.raw_os_error() == Some(libc::EBUSY) => return Err(in_use(&path)),
        // Whether another program has it open is not known, and nothing would be flushed.
        None if is_served => return Err(in_use(&path)),
        // One that has ended has no block device.
        held => held.and_then(Result::ok),
    };
    if !is_served && is_proved_last {
        refuse_served(&left)?;
    }
    if let Some(held) = held.as_ref().filter(|_| is_served) {
        refuse_open_device(&path, held, PATIENCE)?;
        held.sync_all().map_err(|error| CliError::system(path.display(), error))?;
    }
    remove(place, &left, held)
}

/// Opens a device that nobody else mounts. `None` if that lasts: a device that was never opened is
/// read for its partitions, and the reads of one that waits do not end before it is removed.
fn open_exclusively(path: &Path) -> Option<io::Result<File>> {
    let (path, (done, opened)) = (path.to_owned(), channel());
    std::thread::spawn(move || {
        let file = OpenOptions::new().read(true).custom_flags(libc::O_EXCL).open(path);
        // Nobody waits for it any more if it lasted.
        let _ = done.send(file);
    });
    opened.recv_timeout(PATIENCE).ok()
}

/// Refuses a device whose daemon lives, and is not seen from here.
fn refuse_served(left: &EarlierDevice) -> Result<(), CliError> {
    match left {
        EarlierDevice::Ublk(number) => ublk_device::refuse_served(*number),
        EarlierDevice::Nbd(device) => nbd_device::refuse_served(device),
    }
}

/// Removes a device, which is held until it is stopped.
fn remove(place: &Place, left: &EarlierDevice, held: Option<File>) -> Result<(), CliError> {
    match left {
        EarlierDevice::Ublk(number) => match ublk_device::remove(*number, held)? {
            true => place.unlink_ublk(),
            false => return Err(in_use(&left.path())),
        },
        EarlierDevice::Nbd(device) => nbd_device::remove(device, held)?,
    }
    place.unmark_unchecked();
    Ok(())
}

fn in_use(device: &Path) -> CliError {
    let name = device.display();
    CliError::new(format!("{name} is in use"))
        .with_remedy(format!("See who uses it: fuser -v {name}, lsblk {name}."))
}

/// Refuses to grow a device that keeps its size while it is in use.
pub fn refuse_to_grow(place: &Place) -> Result<(), CliError> {
    match place.driver_device() {
        Some(DriverDevice::Ublk(number)) => ublk_device::refuse_to_grow(number),
        Some(DriverDevice::Nbd(number)) => Err(nbd_device::refuse_to_grow(number)),
        None => Ok(()),
    }
}

/// Gives a device the size that its volume has now.
pub fn take_size(place: &Place, bytes: u64) -> Result<(), CliError> {
    match place.driver_device() {
        Some(DriverDevice::Ublk(number)) => ublk_device::take_size(number, bytes),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_goes_on_over_no_volume_that_went_back() {
        let directory = tempfile::tempdir().unwrap();
        let place = Place(directory.path().join("3d"));
        let (device, other) = (DriverDevice::Nbd(3), DriverDevice::Nbd(4));
        let sound = RecoveryReport { recorded_error: -5, ..RecoveryReport::default() };
        let was_left =
            RecoveryReport { recorded_error: engine::ERRNO_DAMAGED, ..RecoveryReport::default() };
        let leaves = RecoveryReport { gave_up: true, ..was_left.clone() };
        let skips = RecoveryReport { skipped_blocks: vec![7], ..was_left.clone() };
        let goes_on = |device, report| refuse_incomplete(&place, device, report).is_ok();
        assert!(goes_on(device, &sound));
        for lacking in [&was_left, &leaves, &skips] {
            assert!(!goes_on(device, lacking));
        }
        // It was made over a volume that lacked some.
        place.mark_unchecked(device).unwrap();
        assert!(goes_on(device, &was_left) && !goes_on(other, &was_left));
        assert!(!goes_on(device, &leaves) && !goes_on(device, &skips));
        place.unmark_unchecked();
        assert!(!goes_on(device, &was_left));
    }
}
