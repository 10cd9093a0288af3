//! A file or block device through the ring, past the page cache where the file system allows it.
//!
//! One process at a time ([`Claim`]). A flush is fdatasync. A durable write is one ring write with
//! RWF_DSYNC. On a file of which the file system may not honour that ([`dsync`]) it is a write and
//! a flush, and the disk reports no forced unit access.

mod abandoned;
mod claim;
mod claims;
mod dsync;
mod flushes;
mod lockers;
mod loops;
mod open;
mod refusal;
mod system;

pub use abandoned::{is_open_elsewhere, sees_all_processes};
pub use claim::{Claim, hold_unlocked};
pub use dsync::honours_dsync;
pub use loops::{loop_device_over, page_cache_under};
pub use refusal::DiskOpenError;
pub use system::{lock_range, next_data, range_lock_against};

use claim::BackingClaim;
use flushes::Flushes;

use crate::check::check;
use device::{Buffer, DeviceError, Disk, Durability, Geometry, LocalFuture, Operation, World};
use runtime::sync::Event;
use runtime::{File, Ring};
use std::cell::{Cell, RefCell};
use std::io;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

/// Pause before a file is looked at again that requests still hold.
const HELD_PAUSE: Duration = Duration::from_millis(1);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskAccess {
    /// Read-only; other processes cannot write.
    ReadOnly,
    /// Behaves as `ReadOnly` until [`FileDisk::begin_writing`], but opened for writing.
    ReadFirst,
    ReadWrite,
    /// Reads without any claim, also what is mounted: the bytes may change at any time.
    Inspect,
}

impl DiskAccess {
    fn opens_for_writing(self) -> bool {
        matches!(self, DiskAccess::ReadFirst | DiskAccess::ReadWrite)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Device,
    File,
}

struct State {
    ring: Ring,
    name: String,
    kind: Kind,
    access: DiskAccess,
    geometry: Cell<Geometry>,
    physical_sector: u32,
    direct: bool,
    /// Locked ([`claim`]).
    file: RefCell<File>,
    /// Kind of the locks: exclusive or not.
    locked_for: Cell<DiskAccess>,
    flushes: Rc<Flushes>,
    /// A durable write is forced unit access of the drive alone, and flushes nothing.
    forces_unit_access: bool,
    /// Whether the device is being opened anew: requests wait.
    reopens: Cell<bool>,
    /// Set when `reopens` is cleared.
    reopened: Event,
    /// Backing files of a loop device, locked as long as the disk is open.
    behind: Vec<BackingClaim>,
    /// Kernels before 6.12 have no discard through the ring; a hole of zeros replaces it.
    discards_by_hole: Cell<bool>,
}

/// Guard of a device whose claim was released: no other Okeanos process takes it as long as the
/// guard lives.
pub struct Handover {
    _node: Option<std::fs::File>,
}

/// Locks an image file, as long as the result is open, for a caller that attaches a loop device to
/// it.
pub fn lock_image(
    path: &Path,
    image: &std::fs::File,
    access: DiskAccess,
) -> Result<(), DiskOpenError> {
    claim::lock_file(path, image, &system::WHOLE, access)
}

/// A file or block device. Clones are the same disk.
#[derive(Clone)]
pub struct FileDisk(Rc<State>);

impl FileDisk {
    pub fn open(ring: &Ring, path: &Path, access: DiskAccess) -> Result<FileDisk, DiskOpenError> {
        FileDisk::open_over(ring, path, access, None)
    }

    /// Opens as [`FileDisk::open`] does; `behind` is the file behind a loop device, if the caller
    /// has locked it
    /// ([`lock_image`]).
    pub fn open_over(
        ring: &Ring,
        path: &Path,
        access: DiskAccess,
        behind: Option<&std::fs::File>,
    ) -> Result<FileDisk, DiskOpenError> {
        let opened = open::open(path, access, behind)?;
        let flushes = match opened.kind {
            Kind::Device => Flushes::of_device(opened.number),
            Kind::File => Rc::default(),
        };
        let is_direct_device = opened.kind == Kind::Device && opened.direct;
        // Threads write by pwritev2(2), which flushes the device besides.
        let is_asynchronous = ring.no_ring().is_none();
        let forces_unit_access =
            is_direct_device && is_asynchronous && claims::forces_unit_access(opened.number);
        Ok(FileDisk(Rc::new(State {
            ring: ring.clone(),
            name: path.display().to_string(),
            kind: opened.kind,
            access,
            geometry: Cell::new(opened.geometry),
            physical_sector: opened.physical_sector,
            direct: opened.direct,
            file: RefCell::new(Rc::new(opened.file.into())),
            locked_for: Cell::new(access),
            flushes,
            forces_unit_access,
            reopens: Cell::default(),
            reopened: Event::default(),
            behind: opened.behind,
            discards_by_hole: Cell::new(opened.kind == Kind::File),
        })))
    }

    /// Whether I/O goes past the page cache.
    pub fn is_direct(&self) -> bool {
        self.0.direct
    }

    pub fn is_block_device(&self) -> bool {
        self.0.kind == Kind::Device
    }

    /// Measures the size of the disk again, and takes one that has grown. Returns the size found.
    pub fn grow(&self) -> Result<u64, DiskOpenError> {
        let path = || self.0.name.clone().into();
        let examine = |source| DiskOpenError::Examine { path: path(), what: "the size", source };
        let size = system::size_of(&self.file()).map_err(examine)?;
        let geometry = self.0.geometry.get();
        let size = size - size % u64::from(geometry.logical_sector);
        self.0.geometry.set(Geometry { size: size.max(geometry.size), ..geometry });
        Ok(size)
    }

    /// Waits until no request is in flight.
    pub async fn until_idle(&self, world: &dyn World) {
        while Rc::strong_count(&self.0.file.borrow()) > 1 {
            world.sleep_until(world.now().plus(HELD_PAUSE)).await;
        }
    }

    /// Releases the exclusive claim on a block device and keeps it open, so that the kernel can
    /// claim it: a fuseblk mount. No other Okeanos process takes it before the result is dropped. A
    /// file's lock stays. Requests in flight hold the claim, too, and are waited for.
    pub async fn release_claim(&self, world: &dyn World) -> Result<Handover, DiskOpenError> {
        if self.0.kind == Kind::File {
            return Ok(Handover { _node: None });
        }
        let node = open::reopen(&self.0.file.borrow(), &self.0.name, DiskAccess::ReadOnly, 0)?;
        claim::lock_node_of(Path::new(&self.0.name), &node)?;
        self.reopen(world, 0).await?;
        Ok(Handover { _node: Some(node) })
    }

    /// Takes the claim again if the kernel did not. Fails if another process has it: then nothing
    /// may be written.
    pub async fn reclaim(&self, world: &dyn World) -> Result<(), DiskOpenError> {
        match self.0.kind {
            Kind::Device => self.reopen(world, libc::O_EXCL).await,
            Kind::File => Ok(()),
        }
    }

    /// Opens the device anew when no request is in flight: each holds the open file that it began
    /// with, and with it the claim and the lock.
    async fn reopen(&self, world: &dyn World, flags: i32) -> Result<(), DiskOpenError> {
        self.0.reopens.set(true);
        let _end = ReopenEnd(self);
        if !units::fault!("claim-left-to-requests") {
            self.until_idle(world).await;
        }
        self.open_anew(flags)
    }

    /// Opens the device anew, and moves the lock of its node to the new open file.
    fn open_anew(&self, flags: i32) -> Result<(), DiskOpenError> {
        let State { name, access, locked_for, .. } = &*self.0;
        let file = open::reopen(&self.file(), name, *access, flags)?;
        let failed = |source| DiskOpenError::Open { path: name.into(), source };
        system::lock_range(&*self.file(), None, &system::WHOLE).map_err(failed)?;
        claim::lock_opened_node(Path::new(name), &file, locked_for.get())?;
        *self.0.file.borrow_mut() = Rc::new(file.into());
        Ok(())
    }

    /// Allows writes to a disk opened with [`DiskAccess::ReadFirst`], or after
    /// [`FileDisk::end_writing`], and excludes readers. Fails if another process reads it.
    pub fn begin_writing(&self) -> Result<(), DiskOpenError> {
        match self.0.access {
            DiskAccess::ReadFirst | DiskAccess::ReadWrite => {
                let claimed = self.lock_all(DiskAccess::ReadWrite);
                if claimed.is_err() {
                    self.end_writing();
                }
                claimed
            }
            DiskAccess::ReadOnly | DiskAccess::Inspect => {
                let source = io::Error::from_raw_os_error(libc::EROFS);
                Err(DiskOpenError::Open { path: self.0.name.clone().into(), source })
            }
        }
    }

    /// Allows other readers until [`FileDisk::begin_writing`].
    pub fn end_writing(&self) {
        if self.0.access.opens_for_writing() {
            // Shrinking a lock that is held cannot fail.
            let _ = self.lock_all(DiskAccess::ReadFirst);
        }
    }

    fn lock_all(&self, access: DiskAccess) -> Result<(), DiskOpenError> {
        let path = Path::new(&self.0.name);
        match self.0.kind {
            Kind::File => claim::lock_file(path, &*self.file(), &system::WHOLE, access)?,
            Kind::Device => claim::lock_opened_node(path, &*self.file(), access)?,
        }
        self.0.locked_for.set(access);
        self.0.behind.iter().try_for_each(|behind| behind.lock(path, access))
    }

    fn file(&self) -> File {
        self.0.file.borrow().clone()
    }

    /// Returns the open file for a request, which holds it until the request ends.
    async fn request_file(&self) -> File {
        self.0.reopened.until(|| (!self.0.reopens.get()).then(|| self.file())).await
    }

    fn failed(&self, operation: Operation, at: u64, length: u64, error: io::Error) -> DeviceError {
        // No errno: an end in the middle of the disk, because the file was truncated.
        let code = error.raw_os_error().unwrap_or(libc::EIO);
        DeviceError::Failed { disk: self.0.name.clone(), operation, at, length, code }
    }

    async fn write_parts(
        &self,
        file: &File,
        at: u64,
        parts: &[Rc<Buffer>],
        durability: Durability,
    ) -> io::Result<()> {
        let ring = &self.0.ring;
        if durability == Durability::Cached || self.0.geometry.get().forced_unit_access {
            return ring.write(file, at, parts, durability).await;
        }
        ring.write(file, at, parts, Durability::Cached).await?;
        ring.sync_data(file).await
    }

    async fn discard_range(&self, at: u64, length: u64) -> io::Result<()> {
        let file = self.request_file().await;
        if !self.0.discards_by_hole.get() {
            match self.0.ring.discard(&file, at, length).await {
                Err(error) if is_unknown(&error) => self.0.discards_by_hole.set(true),
                result => return result,
            }
        }
        let hole = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        self.0.ring.allocate(&file, hole, at, length).await
    }
}

/// Lets requests go on when a device has been opened anew, or could not be.
struct ReopenEnd<'a>(&'a FileDisk);
impl Drop for ReopenEnd<'_> {
    fn drop(&mut self) {
        self.0.0.reopens.set(false);
        self.0.0.reopened.notify();
    }
}

fn is_unknown(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::EINVAL | libc::ENOTTY))
}

impl Disk for FileDisk {
    fn name(&self) -> &str {
        &self.0.name
    }
    fn geometry(&self) -> Geometry {
        self.0.geometry.get()
    }
    fn physical_sector(&self) -> u32 {
        self.0.physical_sector
    }
    fn read(&self, at: u64, length: usize) -> LocalFuture<Result<Buffer, DeviceError>> {
        let disk = self.clone();
        Box::pin(async move {
            check(disk.name(), disk.geometry(), Operation::Read, at, length as u64)?;
            let result = disk.0.ring.read(&disk.request_file().await, at, length).await;
            result.map_err(|error| disk.failed(Operation::Read, at, length as u64, error))
        })
    }
    fn write(
        &self,
        at: u64,
        parts: Vec<Rc<Buffer>>,
        durability: Durability,
    ) -> LocalFuture<Result<(), DeviceError>> {
        let disk = self.clone();
        Box::pin(async move {
            let length = parts.iter().map(|part| part.len() as u64).sum();
            check(disk.name(), disk.geometry(), Operation::Write, at, length)?;
            let file = disk.request_file().await;
            let write = async {
                let result = disk.write_parts(&file, at, &parts, durability).await;
                result.map_err(|error| disk.failed(Operation::Write, at, length, error))
            };
            match durability {
                Durability::Cached => write.await,
                // It reports on itself alone, and takes no flush's report. A log's commits wait for
                // no flush of home, then.
                Durability::Durable if disk.0.forces_unit_access => {
                    disk.0.flushes.after_write(write.await)
                }
                Durability::Durable => disk.0.flushes.carry_out(write).await,
            }
        })
    }
    fn flush(&self) -> LocalFuture<Result<(), DeviceError>> {
        let disk = self.clone();
        Box::pin(async move {
            let file = disk.request_file().await;
            let flush = async {
                let result = disk.0.ring.sync_data(&file).await;
                result.map_err(|error| disk.failed(Operation::Flush, 0, 0, error))
            };
            disk.0.flushes.carry_out(flush).await
        })
    }
    fn discard(&self, at: u64, length: u64) -> LocalFuture<Result<(), DeviceError>> {
        let disk = self.clone();
        Box::pin(async move {
            check(disk.name(), disk.geometry(), Operation::Discard, at, length)?;
            let result = disk.discard_range(at, length).await;
            result.map_err(|error| disk.failed(Operation::Discard, at, length, error))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use runtime::{Either, RealWorld, yield_now};

    #[test]
    fn only_forced_unit_access_waits_for_no_flush() {
        for forces_unit_access in [false, true] {
            let file = tempfile::NamedTempFile::new().unwrap();
            file.as_file().set_len(1 << 20).unwrap();
            let world = RealWorld::new().unwrap();
            let opened = FileDisk::open(world.ring(), file.path(), DiskAccess::ReadWrite);
            let mut disk = opened.unwrap();
            Rc::get_mut(&mut disk.0).unwrap().forces_unit_access = forces_unit_access;
            let within = world.clone();
            world.run(async move {
                let flushing = disk.clone();
                within.spawn(Box::pin(async move {
                    let _ = flushing.0.flushes.carry_out(std::future::pending()).await;
                }));
                yield_now().await;
                let block = || vec![Rc::new(Buffer::zeroed(4096))];
                let write = disk.write(0, block(), Durability::Durable);
                if forces_unit_access {
                    return write.await.unwrap();
                }
                let a_while = within.sleep_until(within.now().plus(Duration::from_millis(100)));
                assert!(matches!(runtime::race(write, a_while).await, Either::Right(())));
            });
        }
    }
}
