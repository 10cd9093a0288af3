//! A disk whose requests are observed, and may be delayed or changed. Wrappers that need no more
//! than that, also the lying disks of tests, are a [`Watch`].

use device::{Buffer, DeviceError, Disk, Durability, Geometry, LocalFuture, Operation};
use std::ops::Range;
use std::rc::Rc;

pub trait Watch: 'static {
    /// Replaces `request`, which covers these bytes and begins when it is polled.
    fn watch<T: 'static>(
        &self,
        _operation: Operation,
        _place: Range<u64>,
        request: LocalFuture<T>,
    ) -> LocalFuture<T> {
        request
    }
    /// The geometry to report.
    fn geometry(&self, disk: &dyn Disk) -> Geometry {
        disk.geometry()
    }
    fn physical_sector(&self, disk: &dyn Disk) -> u32 {
        disk.physical_sector()
    }
    /// The durability to request of the disk for a write.
    fn durability(&self, asked: Durability) -> Durability {
        asked
    }
    fn flush(&self, disk: &dyn Disk) -> LocalFuture<Result<(), DeviceError>> {
        disk.flush()
    }
}

pub struct Watched<W> {
    pub disk: Rc<dyn Disk>,
    pub watch: W,
}

impl<W: Watch> Disk for Watched<W> {
    fn name(&self) -> &str {
        self.disk.name()
    }
    fn geometry(&self) -> Geometry {
        self.watch.geometry(&*self.disk)
    }
    fn physical_sector(&self) -> u32 {
        self.watch.physical_sector(&*self.disk)
    }
    fn read(&self, at: u64, length: usize) -> LocalFuture<Result<Buffer, DeviceError>> {
        self.watch.watch(Operation::Read, at..at + length as u64, self.disk.read(at, length))
    }
    fn write(
        &self,
        at: u64,
        parts: Vec<Rc<Buffer>>,
        durability: Durability,
    ) -> LocalFuture<Result<(), DeviceError>> {
        let length: u64 = parts.iter().map(|part| part.len() as u64).sum();
        let durability = self.watch.durability(durability);
        self.watch.watch(Operation::Write, at..at + length, self.disk.write(at, parts, durability))
    }
    fn flush(&self) -> LocalFuture<Result<(), DeviceError>> {
        self.watch.watch(Operation::Flush, 0..0, self.watch.flush(&*self.disk))
    }
    fn discard(&self, at: u64, length: u64) -> LocalFuture<Result<(), DeviceError>> {
        self.watch.watch(Operation::Discard, at..at + length, self.disk.discard(at, length))
    }
}
