//! Requests of a queue to calls of a disk, and results to replies. Each slot has a task.
//!
//! Invariant: a server that was stopped answers nothing. What it had begun is carried out, and the
//! driver sends it to the next daemon again, or fails it.

use crate::abi::Descriptor;
use crate::export::ExportedDisk;
use crate::queue::Queue;
use crate::request::{REQUEST_BYTES_MAX, UblkRequest};
use device::{Buffer, DeviceError, Durability, LocalFuture, World};
use std::cell::Cell;
use std::io;
use std::rc::Rc;

/// Bytes that a request for zeros writes at once: as many as another request holds.
const ZEROES: u32 = REQUEST_BYTES_MAX;

/// A handle of a server. Its tasks, and the queue, live until the device has ended.
pub struct Server(Rc<Cell<bool>>);

impl Server {
    /// Begins to serve. On return every slot has been submitted to the driver, which goes by the
    /// rights that the process has then.
    pub fn start(world: &Rc<dyn World>, queue: Rc<dyn Queue>, export: &ExportedDisk) -> Server {
        let stopped = Rc::new(Cell::new(false));
        for slot in 0..queue.depth() {
            let serving = Slot {
                queue: queue.clone(),
                slot,
                export: export.clone(),
                stopped: stopped.clone(),
            };
            let first = queue.next(slot, None);
            world.spawn(Box::pin(async move { serving.serve(first).await }));
        }
        Server(stopped)
    }

    /// Answers nothing from now on.
    pub fn stop(&self) {
        self.0.set(!units::fault!("ublk-answers-when-stopped"));
    }
}

struct Slot {
    queue: Rc<dyn Queue>,
    slot: u16,
    export: ExportedDisk,
    stopped: Rc<Cell<bool>>,
}

impl Slot {
    async fn serve(&self, first: LocalFuture<io::Result<Descriptor>>) {
        let mut next = first;
        while let Ok(descriptor) = next.await {
            if self.stopped.get() {
                break;
            }
            let result = self.carry_out(&descriptor).await;
            if self.stopped.get() {
                break;
            }
            next = self.queue.next(self.slot, Some(result));
        }
    }

    async fn carry_out(&self, descriptor: &Descriptor) -> i32 {
        let ExportedDisk { disk, read_only, .. } = &self.export;
        let request = match UblkRequest::parse(descriptor, &disk.geometry(), *read_only) {
            Ok(request) => request,
            Err(error) => return -error.code(),
        };
        let done = match request {
            UblkRequest::Read { at, length } => self.read(at, length).await,
            UblkRequest::Write { at, length, durable } => self.write(at, length, durable).await,
            UblkRequest::Flush => disk.flush().await.map_err(failed),
            UblkRequest::Discard { at, length } => self.discard(at, length).await,
            UblkRequest::WriteZeroes { at, length, durable } => {
                self.write_zeroes(at, length, durable).await
            }
        };
        match (done, request) {
            (Err(code), _) => -code,
            (Ok(()), UblkRequest::Read { length, .. } | UblkRequest::Write { length, .. }) => {
                length as i32
            }
            (Ok(()), _) => 0,
        }
    }

    async fn read(&self, at: u64, length: usize) -> Result<(), i32> {
        let data = self.export.disk.read(at, length).await.map_err(failed)?;
        self.queue.copy_to_request(self.slot, &data).map_err(gone)
    }

    async fn write(&self, at: u64, length: usize, durable: bool) -> Result<(), i32> {
        let mut data = Buffer::to_fill(length);
        self.queue.copy_from_request(self.slot, &mut data).map_err(gone)?;
        let durability = match durable && !units::fault!("ublk-fua-ignored") {
            true => Durability::Durable,
            false => Durability::Cached,
        };
        self.export.disk.write(at, vec![Rc::new(data)], durability).await.map_err(changing)
    }

    async fn discard(&self, at: u64, length: u64) -> Result<(), i32> {
        let disk = &self.export.disk;
        if !disk.geometry().discard {
            return Err(libc::EOPNOTSUPP);
        }
        disk.discard(at, length).await.map_err(changing)
    }

    async fn write_zeroes(&self, at: u64, length: u64, durable: bool) -> Result<(), i32> {
        let disk = &self.export.disk;
        let zeroes = |length: usize| Rc::new(Buffer::zeroed(length));
        let whole = zeroes(length.min(ZEROES.into()) as usize);
        let mut done = 0;
        // Those of a device that was stopped are asked for again.
        while done < length && !self.stopped.get() {
            let part = match (length - done) as usize {
                rest if rest < whole.len() => zeroes(rest),
                _ => whole.clone(),
            };
            let bytes = part.len() as u64;
            disk.write(at + done, vec![part], Durability::Cached).await.map_err(changing)?;
            done += bytes;
        }
        if durable { disk.flush().await.map_err(failed) } else { Ok(()) }
    }
}

/// Returns the errno of a failed read or flush.
fn failed(_: DeviceError) -> i32 {
    libc::EIO
}

/// Returns the errno of a failed change: the block layer knows full disks.
fn changing(error: DeviceError) -> i32 {
    match error {
        DeviceError::Failed { code: libc::ENOSPC | libc::EDQUOT, .. } => libc::ENOSPC,
        _ => libc::EIO,
    }
}

fn gone(_: io::Error) -> i32 {
    libc::EIO
}
