//! A disk whose requests somebody sees, and may hold up.

use device::{Buffer, DeviceError, Disk, Durability, Geometry, LocalFuture, Operation};
use std::ops::Range;
use std::rc::Rc;

pub trait Watch: 'static {
    /// Stands for `request`, which concerns these bytes and begins when it is polled.
    fn watch<T: 'static>(
        &self,
        operation: Operation,
        place: Range<u64>,
        request: LocalFuture<T>,
    ) -> LocalFuture<T>;
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
        self.disk.geometry()
    }
    fn physical_sector(&self) -> u32 {
        self.disk.physical_sector()
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
        self.watch.watch(Operation::Write, at..at + length, self.disk.write(at, parts, durability))
    }
    fn flush(&self) -> LocalFuture<Result<(), DeviceError>> {
        self.watch.watch(Operation::Flush, 0..0, self.disk.flush())
    }
    fn discard(&self, at: u64, length: u64) -> LocalFuture<Result<(), DeviceError>> {
        self.watch.watch(Operation::Discard, at..at + length, self.disk.discard(at, length))
    }
}
