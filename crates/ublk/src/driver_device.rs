//! Devices of the driver: made, taken up again after a daemon that died, started, removed.
//!
//! The daemon makes or takes up a device ([`Device::open`]) and serves it. Another process starts
//! it ([`start`]): the kernel reads the new block device before it returns, and the daemon may have
//! given up the rights by then.

use crate::abi::{
    BasicParameters, DeviceInfo, Parameters, STATE_DEAD, STATE_QUIESCED, UPDATE_SIZE, USER_COPY,
    USER_RECOVERY, USER_RECOVERY_REISSUE,
};
use crate::control::Control;
use crate::driver_queue::DriverQueue;
use crate::export::ExportedDisk;
use crate::request::REQUEST_BYTES_MAX;
use device::World;
use runtime::RealWorld;
use std::io;
use std::rc::Rc;
use std::time::Duration;

/// Requests in flight, at most. With [`REQUEST_BYTES_MAX`] each: 64 MiB.
pub const DEPTH: u16 = 128;
/// Longest wait for the driver to be done with a dead daemon: it may look for it once in 30 s.
const PATIENCE: Duration = Duration::from_secs(90);
const PAUSE: Duration = Duration::from_millis(50);

#[derive(Debug, thiserror::Error)]
pub enum UblkError {
    #[error("cannot {what} a ublk device: {error}")]
    Failed { what: &'static str, error: io::Error },
    #[error("/dev/ublkb{number} still waits for a daemon, and {difference}")]
    Differs { number: u32, difference: &'static str },
}

/// A device that is wanted.
///
/// Where the disk has no volatile cache, requests wait for the next daemon when this one dies,
/// those that it had not answered included. Otherwise they fail: a write that was acknowledged from
/// memory alone is not sent again, so that nobody would learn that it is lost.
pub struct WantedDevice<'a> {
    pub export: &'a ExportedDisk,
    /// Identifies the exported disk. A device with another mark is somebody else's.
    pub mark: u64,
}

/// Remains of a device of this disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Remains {
    Nothing,
    /// The next daemon takes the device up.
    Waiting,
    /// The device has ended, or was never started.
    Ended,
}

/// A device that is not started yet.
pub struct Device {
    pub number: u32,
    pub queue: Rc<DriverQueue>,
}

impl WantedDevice<'_> {
    fn info(&self, control: &Control) -> DeviceInfo {
        let recovery = match self.export.volatile_cache {
            true => 0,
            false => USER_RECOVERY | USER_RECOVERY_REISSUE,
        };
        let grows = if control.has(UPDATE_SIZE) { UPDATE_SIZE } else { 0 };
        DeviceInfo {
            queues: 1,
            depth: DEPTH,
            request_bytes_max: REQUEST_BYTES_MAX,
            flags: USER_COPY | recovery | grows,
            owner_mark: self.mark,
            ..DeviceInfo::default()
        }
    }
}

/// Looks at device `number`, which an earlier daemon of the disk `mark` has made.
///
/// # Errors
/// The driver's.
pub async fn look_at(control: &Control, number: u32, mark: u64) -> io::Result<Remains> {
    let info = match control.info(number).await {
        Ok(info) => info,
        Err(error) if error.raw_os_error() == Some(libc::ENODEV) => return Ok(Remains::Nothing),
        Err(error) => return Err(error),
    };
    Ok(remains_of(&info, mark))
}

fn remains_of(info: &DeviceInfo, mark: u64) -> Remains {
    let is_ours = info.owner_mark == mark || units::fault!("ublk-mark-ignored");
    match (is_ours, info.flags & USER_RECOVERY, info.state) {
        (false, ..) => Remains::Nothing,
        (true, 0, _) | (true, _, STATE_DEAD) => Remains::Ended,
        (true, ..) => Remains::Waiting,
    }
}

/// Makes the block device of a device that `process` serves, or lets requests come to it again.
///
/// # Errors
/// The driver's.
pub async fn start(control: &Control, number: u32, process: u32) -> io::Result<()> {
    match control.info(number).await?.state {
        STATE_QUIESCED => control.end_recovery(number, process).await,
        _ => control.start(number, process).await,
    }
}

impl Device {
    /// Makes a device, or takes up `waiting`.
    ///
    /// # Errors
    /// The driver's, or the waiting device is unlike the wanted one.
    pub async fn open(
        world: &RealWorld,
        control: &Control,
        wanted: &WantedDevice<'_>,
        waiting: Option<u32>,
    ) -> Result<Device, UblkError> {
        match waiting {
            Some(number) => Device::take_up(world, control, wanted, number).await,
            None => Device::make(world, control, wanted).await,
        }
    }

    async fn make(
        world: &RealWorld,
        control: &Control,
        wanted: &WantedDevice<'_>,
    ) -> Result<Device, UblkError> {
        let made = control.add(wanted.info(control)).await;
        let number = made.map_err(|error| UblkError::Failed { what: "make", error })?.device;
        let set = control.set_parameters(number, wanted.export.parameters()).await;
        match set.and_then(|()| DriverQueue::open(world, number, DEPTH)) {
            Ok(queue) => Ok(Device { number, queue: Rc::new(queue) }),
            Err(error) => {
                // The first error is the one to report.
                let _ = control.delete(number).await;
                Err(UblkError::Failed { what: "set up", error })
            }
        }
    }

    async fn take_up(
        world: &RealWorld,
        control: &Control,
        wanted: &WantedDevice<'_>,
        number: u32,
    ) -> Result<Device, UblkError> {
        let failed = |error| UblkError::Failed { what: "take up", error };
        let info = control.info(number).await.map_err(failed)?;
        let parameters = control.parameters(number).await.map_err(failed)?;
        let likeness = (wanted.info(control), wanted.export.parameters());
        if let Some(difference) = difference(&(info, parameters), &likeness) {
            return Err(UblkError::Differs { number, difference });
        }
        let until = world.now().plus(PATIENCE);
        loop {
            match control.start_recovery(number).await {
                Ok(()) => break,
                Err(error)
                    if error.kind() == io::ErrorKind::ResourceBusy && world.now() < until =>
                {
                    world.sleep_until(world.now().plus(PAUSE)).await;
                }
                Err(error) => return Err(failed(error)),
            }
        }
        let queue = DriverQueue::open(world, number, DEPTH).map_err(failed)?;
        Ok(Device { number, queue: Rc::new(queue) })
    }
}

/// Returns how a device differs from the wanted one in what its users rely on.
///
/// A device may be shorter than its volume: that has grown, and its daemon died before the kernel
/// took the new size. Growing it once more completes that.
fn difference(
    (found, has): &(DeviceInfo, Parameters),
    (wanted, wants): &(DeviceInfo, Parameters),
) -> Option<&'static str> {
    const FLAGS: u64 = USER_COPY | USER_RECOVERY | USER_RECOVERY_REISSUE;
    if units::fault!("ublk-unlike-taken-up") {
        return None;
    }
    if has.basic.attributes != wants.basic.attributes || (found.flags ^ wanted.flags) & FLAGS != 0 {
        Some("was attached with another --write-through or --read-only")
    } else if has.basic.device_sectors > wants.basic.device_sectors {
        Some("is longer than the volume")
    } else {
        let shape = |info: &DeviceInfo| (info.queues, info.depth, info.request_bytes_max);
        let grown = BasicParameters { device_sectors: wants.basic.device_sectors, ..has.basic };
        let is_alike =
            (shape(found), grown, has.discard) == (shape(wanted), wants.basic, wants.discard);
        (!is_alike).then_some("another version made it")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_device_of_the_disk_is_taken_up_or_removed() {
        let waiting = DeviceInfo {
            owner_mark: 7,
            flags: USER_RECOVERY,
            state: STATE_QUIESCED,
            ..DeviceInfo::default()
        };
        assert_eq!(remains_of(&waiting, 7), Remains::Waiting);
        assert_eq!(remains_of(&waiting, 8), Remains::Nothing);
        // The driver may not have noticed yet that the daemon died.
        assert_eq!(remains_of(&DeviceInfo { state: 1, ..waiting }, 7), Remains::Waiting);
        let never_started = DeviceInfo { state: STATE_DEAD, ..waiting };
        for ended in [never_started, DeviceInfo { flags: 0, ..waiting }] {
            assert_eq!(remains_of(&ended, 7), Remains::Ended);
            assert_eq!(remains_of(&ended, 8), Remains::Nothing);
        }
    }

    #[test]
    fn a_device_unlike_the_wanted_one_is_not_taken_up() {
        let info = DeviceInfo {
            queues: 1,
            depth: DEPTH,
            request_bytes_max: REQUEST_BYTES_MAX,
            flags: USER_COPY | USER_RECOVERY | USER_RECOVERY_REISSUE,
            ..DeviceInfo::default()
        };
        let mut parameters = Parameters::default();
        parameters.basic.device_sectors = 8;
        let wanted = (info, parameters);
        // The driver adds flags, and the parts that it fills in.
        let flags = info.flags | 1 << 1 | UPDATE_SIZE;
        let grown = DeviceInfo { flags, device: 3, state: STATE_QUIESCED, ..info };
        assert_eq!(difference(&(grown, Parameters { types: 7, ..parameters }), &wanted), None);
        let mut before_it_grew = parameters;
        before_it_grew.basic.device_sectors = 7;
        assert_eq!(difference(&(info, before_it_grew), &wanted), None);
        let cached = DeviceInfo { flags: USER_COPY, ..info };
        let (mut with_cache, mut longer, mut larger) = (parameters, parameters, parameters);
        with_cache.basic.attributes |= crate::abi::ATTRIBUTE_VOLATILE_CACHE;
        longer.basic.device_sectors = 9;
        larger.basic.logical_shift = 12;
        for (found, named) in [
            ((cached, parameters), "--write-through"),
            ((info, with_cache), "--write-through"),
            ((info, longer), "longer"),
            ((info, larger), "version"),
            ((DeviceInfo { depth: 1, ..info }, parameters), "version"),
        ] {
            let difference = difference(&found, &wanted).unwrap_or("nothing");
            assert!(difference.contains(named), "{found:?}: {difference}");
        }
    }
}
