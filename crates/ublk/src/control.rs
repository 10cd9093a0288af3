//! Control commands: devices are made, started, stopped and looked at.
//!
//! The driver carries them out in a worker of the ring, so that a command may wait for requests
//! that this thread serves.

use crate::abi::{
    self, ANY_DEVICE, COMMANDS_ENCODED, CONTROL_PATH, ControlCommand, DeviceInfo, NO_QUEUE,
    PARAMETERS_LENGTH, Parameters, USER_COPY,
};
use runtime::{File, RealWorld, Ring, command};
use std::cell::UnsafeCell;
use std::fs::OpenOptions;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use zerocopy::{FromBytes, IntoBytes};

/// Reason why there are no ublk devices.
#[derive(Debug, thiserror::Error)]
pub enum Unavailable {
    #[error("{CONTROL_PATH}: {0}")]
    NoDriver(io::Error),
    #[error("commands of the driver need an io_uring, and there is none: {0}")]
    NoRing(String),
    #[error("the driver is older than that of Linux 6.5")]
    TooOld,
}

/// Features without which there is no device.
const NEEDED: u64 = COMMANDS_ENCODED | USER_COPY;

/// The driver.
pub struct Control {
    ring: Ring,
    file: File,
    features: u64,
}

impl Control {
    /// Returns whether there is a driver, without a ring.
    ///
    /// # Errors
    /// `NoDriver`.
    pub fn exists() -> Result<(), Unavailable> {
        open_device().map(drop)
    }

    /// Opens the driver's control device, which takes CAP_SYS_ADMIN for each command.
    ///
    /// # Errors
    /// No driver is loaded, or the ring or the driver lacks what is needed.
    pub async fn open(world: &RealWorld) -> Result<Control, Unavailable> {
        let file = File::new(OwnedFd::from(open_device()?));
        if let Some(why) = world.ring().no_ring() {
            return Err(Unavailable::NoRing(why.to_string()));
        }
        let control = Control { ring: world.ring().clone(), file, features: 0 };
        let request = ControlCommand { length: size_of::<u64>() as u16, ..about(ANY_DEVICE) };
        // Older drivers do not know the command, and name various errors.
        let features = control.with_memory(abi::CONTROL_FEATURES, request, 0u64).await;
        match features {
            Ok(features) if features & NEEDED == NEEDED => Ok(Control { features, ..control }),
            Err(error) if error.raw_os_error() == Some(libc::EPERM) => {
                Err(Unavailable::NoDriver(error))
            }
            _ => Err(Unavailable::TooOld),
        }
    }

    /// Whether the driver has all of these features (`UBLK_F_…`).
    pub fn has(&self, features: u64) -> bool {
        self.features & features == features
    }

    /// Makes a device, which is not started yet; the driver chooses the number.
    pub async fn add(&self, wanted: DeviceInfo) -> io::Result<DeviceInfo> {
        let wanted = DeviceInfo { device: ANY_DEVICE, ..wanted };
        let request =
            ControlCommand { length: size_of::<DeviceInfo>() as u16, ..about(ANY_DEVICE) };
        self.with_memory(abi::CONTROL_ADD, request, wanted).await
    }
    pub async fn info(&self, device: u32) -> io::Result<DeviceInfo> {
        let request = ControlCommand { length: size_of::<DeviceInfo>() as u16, ..about(device) };
        self.with_memory(abi::CONTROL_INFO, request, DeviceInfo::default()).await
    }
    pub async fn set_parameters(&self, device: u32, parameters: Parameters) -> io::Result<()> {
        let request = ControlCommand { length: size_of::<Parameters>() as u16, ..about(device) };
        self.with_memory(abi::CONTROL_SET_PARAMETERS, request, parameters).await.map(drop)
    }
    pub async fn parameters(&self, device: u32) -> io::Result<Parameters> {
        let request = ControlCommand { length: size_of::<Parameters>() as u16, ..about(device) };
        let space = Parameters { length: PARAMETERS_LENGTH, ..Parameters::default() };
        self.with_memory(abi::CONTROL_PARAMETERS, request, space).await
    }
    /// Makes the block device of `process`, which must have given all slots to the driver. The
    /// kernel reads partitions before it returns.
    pub async fn start(&self, device: u32, process: u32) -> io::Result<()> {
        self.run(abi::CONTROL_START, ControlCommand { data: process.into(), ..about(device) }).await
    }
    /// Removes the block device: requests that wait fail.
    pub async fn stop(&self, device: u32) -> io::Result<()> {
        self.run(abi::CONTROL_STOP, about(device)).await
    }
    /// Deletes a device, when all of its files are closed.
    pub async fn delete(&self, device: u32) -> io::Result<()> {
        self.run(abi::CONTROL_DELETE, about(device)).await
    }
    /// Begins to take up a device whose daemon has died.
    ///
    /// # Errors
    /// `ResourceBusy` while the driver is not done with the dead daemon.
    pub async fn start_recovery(&self, device: u32) -> io::Result<()> {
        self.run(abi::CONTROL_START_RECOVERY, about(device)).await
    }
    /// Lets requests come again, to `process`.
    pub async fn end_recovery(&self, device: u32, process: u32) -> io::Result<()> {
        let request = ControlCommand { data: process.into(), ..about(device) };
        self.run(abi::CONTROL_END_RECOVERY, request).await
    }
    /// Sets the size of a block device that is in use, in sectors of 512 bytes.
    pub async fn update_size(&self, device: u32, sectors: u64) -> io::Result<()> {
        let request = ControlCommand { data: sectors, ..about(device) };
        self.run(abi::CONTROL_UPDATE_SIZE, request).await
    }

    async fn run(&self, operation: u32, request: ControlCommand) -> io::Result<()> {
        self.with_memory(operation, request, 0u8).await.map(drop)
    }

    /// Runs a command that reads and writes `memory`, of `request.length` bytes at most, and
    /// returns it as the command left it.
    async fn with_memory<T: FromBytes + Copy + 'static>(
        &self,
        operation: u32,
        request: ControlCommand,
        memory: T,
    ) -> io::Result<T> {
        assert!(usize::from(request.length) <= size_of::<T>());
        let memory = Rc::new(UnsafeCell::new(memory));
        let address = if request.length == 0 { 0 } else { memory.get() as u64 };
        let mut area = [0; 80];
        let request = ControlCommand { address, ..request };
        area[..size_of_val(&request)].copy_from_slice(request.as_bytes());
        let entry = command(&self.file, operation, &area, 0, 0);
        // SAFETY: the memory lies on the heap, is as long as the command says, and belongs to the
        // ring until completion; it is not read before. The file is open as long as `self`.
        let result = unsafe { self.ring.submit(entry, Box::new(memory.clone())) }.await;
        if result < 0 {
            return Err(io::Error::from_raw_os_error(-result));
        }
        // SAFETY: the command has completed, and every bit pattern is a value of the type.
        Ok(unsafe { *memory.get() })
    }
}

fn open_device() -> Result<std::fs::File, Unavailable> {
    let opened = OpenOptions::new().read(true).write(true).open(CONTROL_PATH);
    opened.map_err(Unavailable::NoDriver)
}

fn about(device: u32) -> ControlCommand {
    ControlCommand { device, queue: NO_QUEUE, ..ControlCommand::default() }
}
