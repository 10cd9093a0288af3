//! The disks of a volume with multiple mount protection, its journal's included. Others believe the
//! owner gone when its block has not changed for a while, because the process was stopped, or
//! starved. So a write or discard after such a gap waits until the block was read again and is
//! still ours.

use super::mmp::Protection;
use super::options::OpenParts;
use device::{Buffer, DeviceError, Disk, Durability, Geometry, LocalFuture, Operation};
use format::ext4::{VolumeSuperblock, feature};
use std::cell::RefCell;
use std::rc::Rc;
use units::Refusal;

pub(crate) struct ProtectedDisk {
    disk: Rc<dyn Disk>,
    protection: RefCell<Option<Rc<Protection>>>,
}

impl ProtectedDisk {
    /// Wraps the disks of a volume with mmp, so that writes check `protection`, if there is one:
    /// those of a commit, too, which may touch the journal's disk alone. The home disk comes first.
    /// Empty without mmp.
    pub fn put_under(
        parts: &mut OpenParts,
        superblock: &VolumeSuperblock,
        protection: Option<&Rc<Protection>>,
    ) -> Vec<Rc<ProtectedDisk>> {
        if !superblock.features.has(feature::MMP) {
            return Vec::new();
        }
        let journal = parts.journal.as_mut().filter(|_| !units::fault!("journal-without-claim"));
        let mut protected = Vec::new();
        for disk in [&mut parts.home].into_iter().chain(journal) {
            let under = ProtectedDisk::new(disk.clone());
            protection.into_iter().for_each(|protection| under.protect(protection));
            *disk = under.clone();
            protected.push(under);
        }
        protected
    }

    fn new(disk: Rc<dyn Disk>) -> Rc<ProtectedDisk> {
        Rc::new(ProtectedDisk { disk, protection: RefCell::default() })
    }
    /// The wrapped disk, on which the block itself is read and written.
    pub fn beneath(&self) -> &Rc<dyn Disk> {
        &self.disk
    }
    /// Assigns later writes to this claim.
    pub fn protect(&self, protection: &Rc<Protection>) {
        *self.protection.borrow_mut() = Some(protection.clone());
    }

    /// The claim, if the block has to be read before anything is written.
    fn doubtful(&self) -> Option<Rc<Protection>> {
        let protection = self.protection.borrow();
        protection.as_ref().filter(|protection| protection.is_doubtful()).cloned()
    }

    fn when_sure(
        &self,
        protection: Rc<Protection>,
        operation: (Operation, u64, u64),
        change: impl FnOnce(&dyn Disk) -> LocalFuture<Result<(), DeviceError>> + 'static,
    ) -> LocalFuture<Result<(), DeviceError>> {
        let disk = self.disk.clone();
        Box::pin(async move {
            // The process may have been stopped again while the block was written.
            while protection.is_doubtful() {
                if protection.make_sure().await.is_err() {
                    let (operation, at, length) = operation;
                    let disk = disk.name().to_owned();
                    return Err(DeviceError::Failed {
                        disk,
                        operation,
                        at,
                        length,
                        code: Refusal::Stale.errno(),
                    });
                }
            }
            change(&*disk).await
        })
    }
}

impl Disk for ProtectedDisk {
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
        self.disk.read(at, length)
    }
    fn write(
        &self,
        at: u64,
        parts: Vec<Rc<Buffer>>,
        durability: Durability,
    ) -> LocalFuture<Result<(), DeviceError>> {
        let Some(protection) = self.doubtful() else {
            return self.disk.write(at, parts, durability);
        };
        let length = parts.iter().map(|part| part.len() as u64).sum();
        let write = move |disk: &dyn Disk| disk.write(at, parts, durability);
        self.when_sure(protection, (Operation::Write, at, length), write)
    }
    /// Needs no check: a flush changes nothing that others could have written.
    fn flush(&self) -> LocalFuture<Result<(), DeviceError>> {
        self.disk.flush()
    }
    fn discard(&self, at: u64, length: u64) -> LocalFuture<Result<(), DeviceError>> {
        let Some(protection) = self.doubtful() else { return self.disk.discard(at, length) };
        let discard = move |disk: &dyn Disk| disk.discard(at, length);
        self.when_sure(protection, (Operation::Discard, at, length), discard)
    }
}
