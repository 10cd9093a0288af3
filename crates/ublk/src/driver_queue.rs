//! The queue of a real device: its slots are commands on the daemon's ring, its descriptors memory
//! that the driver shares.

use crate::abi::{
    DATA_MAX, Descriptor, SLOT_COMMIT_AND_FETCH, SLOT_FETCH, SlotCommand, data_position,
};
use crate::queue::Queue;
use crate::request::REQUEST_BYTES_MAX;
use device::LocalFuture;
use runtime::{File, RealWorld, Ring, command};
use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::NonNull;
use std::rc::Rc;
use zerocopy::IntoBytes;

const _: () = assert!(REQUEST_BYTES_MAX <= DATA_MAX);

/// Queue 0 of a device. The device's file is open until this is dropped.
pub struct DriverQueue {
    ring: Ring,
    file: File,
    descriptors: Rc<Descriptors>,
}

impl DriverQueue {
    /// Opens the queue of a device that was made with one queue of `depth` slots.
    ///
    /// # Errors
    /// `ResourceBusy` while another process has it open.
    pub fn open(world: &RealWorld, device: u32, depth: u16) -> io::Result<DriverQueue> {
        let path = format!("/dev/ublkc{device}");
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        let file = File::new(OwnedFd::from(file));
        let descriptors = Rc::new(Descriptors::map(&file, depth)?);
        Ok(DriverQueue { ring: world.ring().clone(), file, descriptors })
    }
}

impl Queue for DriverQueue {
    fn depth(&self) -> u16 {
        self.descriptors.count
    }

    fn next(&self, slot: u16, result: Option<i32>) -> LocalFuture<io::Result<Descriptor>> {
        let operation = if result.is_some() { SLOT_COMMIT_AND_FETCH } else { SLOT_FETCH };
        let mut area = [0; 80];
        let own = SlotCommand { slot, result: result.unwrap_or(0), ..SlotCommand::default() };
        area[..size_of_val(&own)].copy_from_slice(own.as_bytes());
        let entry = command(&self.file, operation, &area, 0, 0);
        // SAFETY: the command points to no memory, and completes once. The ring keeps the file.
        let fetched = unsafe { self.ring.submit(entry, Box::new(self.file.clone())) };
        let descriptors = self.descriptors.clone();
        Box::pin(async move {
            match fetched.await {
                0 => Ok(descriptors.read(slot)),
                error => Err(io::Error::from_raw_os_error(-error)),
            }
        })
    }

    fn copy_from_request(&self, slot: u16, bytes: &mut [u8]) -> io::Result<()> {
        let count = rustix::io::pread(&*self.file, &mut *bytes, data_position(slot))?;
        if count == bytes.len() { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }

    fn copy_to_request(&self, slot: u16, bytes: &[u8]) -> io::Result<()> {
        let count = rustix::io::pwrite(&*self.file, bytes, data_position(slot))?;
        if count == bytes.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
    }
}

/// The descriptors of a queue, mapped from the device's file.
struct Descriptors {
    start: NonNull<Descriptor>,
    count: u16,
    bytes: usize,
}

impl Descriptors {
    fn map(file: &File, count: u16) -> io::Result<Descriptors> {
        // SAFETY: sysconf has no preconditions.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
        let bytes = (usize::from(count) * size_of::<Descriptor>()).next_multiple_of(page);
        let (protection, kind) = (libc::PROT_READ, libc::MAP_SHARED);
        let (nowhere, number) = (std::ptr::null_mut(), file.as_raw_fd());
        // SAFETY: a new mapping at a place of the kernel's choice touches no memory of ours.
        let start = unsafe { libc::mmap(nowhere, bytes, protection, kind, number, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).expect("a mapping is nowhere at zero");
        Ok(Descriptors { start, count, bytes })
    }

    /// Copies a descriptor. The driver changes it again only after the slot's next command.
    fn read(&self, slot: u16) -> Descriptor {
        assert!(slot < self.count, "{slot} of {}", self.count);
        // SAFETY: within the mapping, which lives as long as this; every bit pattern is a
        // descriptor.
        unsafe { self.start.as_ptr().add(slot.into()).read_volatile() }
    }
}

impl Drop for Descriptors {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, as long as said, and nobody reads it any more.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}
