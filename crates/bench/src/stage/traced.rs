//! A disk whose requests are written to a file, in a format that `okeanos disk replay` reads.

use device::{Buffer, DeviceError, Disk, Durability, Geometry, LocalFuture, Operation, World};
use std::cell::RefCell;
use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::rc::Rc;

/// MSR Cambridge's columns; a unit of time is 100 ns.
const HEADER: &str = "Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime";

pub(super) struct Traced {
    world: Rc<dyn World>,
    disk: Rc<dyn Disk>,
    out: Rc<RefCell<BufWriter<File>>>,
}

impl Traced {
    /// `append`: to what another disk wrote, before a power cut.
    pub fn new(world: Rc<dyn World>, disk: Rc<dyn Disk>, path: &Path, append: bool) -> io::Result<Traced> {
        let file = OpenOptions::new().create(true).write(true).truncate(!append).append(append).open(path)?;
        let mut out = BufWriter::new(file);
        if !append {
            writeln!(out, "{HEADER}")?;
        }
        Ok(Traced { world, disk, out: Rc::new(RefCell::new(out)) })
    }

    /// One line when the request is done; none if nobody waits for it any more. A trace that cannot be written ends the run: it was asked for.
    fn watch<T: 'static>(
        &self,
        operation: Operation,
        at: u64,
        length: u64,
        request: LocalFuture<T>,
    ) -> LocalFuture<T> {
        let (world, out) = (self.world.clone(), self.out.clone());
        let watched = async move {
            let begin = world.now();
            let result = request.await;
            let took = world.now().since(begin).as_nanos() / 100;
            let line = writeln!(out.borrow_mut(), "{},,,{operation:?},{at},{length},{took}", begin.0 / 100);
            line.expect("the trace of requests can be written");
            result
        };
        Box::pin(watched)
    }
}

impl Disk for Traced {
    fn name(&self) -> &str {
        self.disk.name()
    }
    fn geometry(&self) -> Geometry {
        self.disk.geometry()
    }
    fn read(&self, at: u64, length: usize) -> LocalFuture<Result<Buffer, DeviceError>> {
        self.watch(Operation::Read, at, length as u64, self.disk.read(at, length))
    }
    fn write(
        &self,
        at: u64,
        parts: Vec<Rc<Buffer>>,
        durability: Durability,
    ) -> LocalFuture<Result<(), DeviceError>> {
        let length = parts.iter().map(|part| part.len() as u64).sum();
        self.watch(Operation::Write, at, length, self.disk.write(at, parts, durability))
    }
    fn flush(&self) -> LocalFuture<Result<(), DeviceError>> {
        self.watch(Operation::Flush, 0, 0, self.disk.flush())
    }
    fn discard(&self, at: u64, length: u64) -> LocalFuture<Result<(), DeviceError>> {
        self.watch(Operation::Discard, at, length, self.disk.discard(at, length))
    }
}
