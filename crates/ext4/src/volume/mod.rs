//! An open volume.

mod close;
mod damage;
mod flush_zone;
mod journal;
mod journal_copy;
mod label;
mod logs;
mod mmp;
mod open;
mod options;
mod owners;
mod protected_disk;
mod readable;
mod remount;
mod space;
mod superblock;
mod whole;

pub use flush_zone::{
    FLUSH_ZONE_NAME, FlushZoneResult, FoundFlushZone, find_flush_zones, make_journal_flush_zone,
};
pub use journal::{recover, replay_preview};
pub use logs::LOGS_NAME;
pub use mmp::check_unused;
pub use options::{Access, OnError, OpenParts, VolumeOptions};
pub use owners::BlockOwner;
pub use space::Statfs;
pub(crate) use space::kept_for_trees;
pub use superblock::{read as read_superblock, was_closed};

use self::damage::DamageMark;
use self::protected_disk::ProtectedDisk;
use crate::allocate::{FreesInProgress, Trims, Withheld};
use crate::groups::{Groups, SystemZone};
use crate::inode_table::{AccessTimes, InodeCache};
use crate::orphan::Orphans;
use crate::{Atime, Caller, OrphanReport, Result};
use device::Disk;
use engine::{BarrierKind, Block, Engine, RecoveryReport};
use format::ext4::{Feature, InodeLayout, VolumeSuperblock, feature};
use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};
use std::time::Duration;
use units::{BlockSize, GroupNumber, HomeBlock, InodeNumber, Timestamp};

/// An open ext4 volume.
pub struct Volume {
    /// The volume itself, for its own tasks.
    this: Weak<Volume>,
    pub(crate) engine: Rc<Engine>,
    home: Rc<dyn Disk>,
    pub(crate) options: VolumeOptions,
    pub(crate) superblock: RefCell<VolumeSuperblock>,
    /// The superblock's block, pinned so that it changes without await.
    superblock_block: Block,
    /// Home was written past the engine since the last change of that block: its content is older.
    superblock_is_behind: Cell<bool>,
    pub(crate) layout: InodeLayout,
    pub(crate) groups: Groups,
    pub(crate) zone: SystemZone,
    pub(crate) withheld: RefCell<Withheld>,
    pub(crate) frees: FreesInProgress,
    pub(crate) trims: Trims,
    pub(crate) inodes: RefCell<InodeCache>,
    pub(crate) access_times: AccessTimes,
    pub(crate) orphans: RefCell<Orphans>,
    /// Attributes' values that lost their last reference, to be freed.
    pub(crate) unreferenced: RefCell<Vec<Rc<crate::Inode>>>,
    /// Lock held for writing by every rename from one directory to another, before any inode's
    /// lock, so that the tree of directories is fixed while ancestry is examined.
    pub(crate) renames: Rc<runtime::sync::RwLock>,
    /// End of the hidden journal's last run.
    journal_end: Option<HomeBlock>,
    access: Cell<Access>,
    /// Lock held while changes are allowed or forbidden, or the volume is closed.
    access_changes: Rc<runtime::sync::RwLock>,
    /// Changes were allowed before: the orphans are known, and access times are stored.
    was_writable: Cell<bool>,
    /// The superblock said when the volume was opened that e2fsck need not run.
    was_valid: bool,
    /// The disk's superblock shows that the volume is in use, so changes may be logged.
    is_marked_in_use: Cell<bool>,
    damage_mark: Cell<DamageMark>,
    pub(crate) live: Cell<LiveOptions>,
    opened: RefCell<OpenReport>,
    /// The claim of multiple mount protection, with mmp.
    protection: RefCell<Option<Rc<mmp::Protection>>>,
    /// The home disk, whose writes check the claim, with mmp.
    protected: RefCell<Vec<Rc<ProtectedDisk>>>,
    /// The page size of the kernel that caches files, in bytes.
    pub(crate) kernel_page: Cell<u64>,
    closed: Cell<bool>,
}

/// Options that change while the volume is open.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LiveOptions {
    pub atime: Atime,
    pub on_error: OnError,
    pub commit: Duration,
    pub barrier: BarrierKind,
}

/// Findings of opening the volume.
#[derive(Clone, Debug, Default)]
pub struct OpenReport {
    pub recovery: RecoveryReport,
    pub orphans: OrphanReport,
    /// Whether the volume was opened without its journal, which holds something.
    pub journal_not_replayed: bool,
    /// Warnings for the user who mounts.
    pub warnings: Vec<String>,
}

impl Volume {
    pub fn engine(&self) -> &Rc<Engine> {
        &self.engine
    }
    pub fn options(&self) -> &VolumeOptions {
        &self.options
    }
    /// Sets the page size of the kernel that caches files, in bytes. Default: the largest of any
    /// machine.
    pub fn set_kernel_page(&self, bytes: u64) {
        self.kernel_page.set(bytes);
    }
    pub async fn set_live_options(&self, options: LiveOptions) -> Result<()> {
        self.live.set(options);
        self.engine.set_commit_age(options.commit);
        Ok(self.engine.set_barrier(options.barrier).await?)
    }
    pub fn live_options(&self) -> LiveOptions {
        self.live.get()
    }
    pub fn open_report(&self) -> OpenReport {
        self.opened.borrow().clone()
    }
    pub fn is_read_only(&self) -> bool {
        self.access.get() == Access::ReadOnly
    }
    pub fn block_size(&self) -> BlockSize {
        self.engine.block_size()
    }
    pub fn blocks_per_group(&self) -> u32 {
        self.superblock.borrow().blocks_per_group
    }
    pub fn has(&self, feature: Feature) -> bool {
        self.superblock.borrow().features.has(feature)
    }
    /// Whether group descriptors have checksums, which is when their flags and unused counts are
    /// valid.
    pub(crate) fn has_group_checksums(&self) -> bool {
        self.has(feature::METADATA_CSUM) || self.has(feature::GDT_CSUM)
    }
    /// Bytes of an inode in the table: 128 and more.
    pub fn inode_size(&self) -> u16 {
        self.layout.inode_size
    }
    /// A copy of the superblock as it is now.
    pub fn superblock(&self) -> VolumeSuperblock {
        self.superblock.borrow().clone()
    }
    /// The time, as inodes can keep it.
    pub fn now(&self) -> Timestamp {
        self.storable(self.engine.world().wall_clock())
    }
    /// The nearest time that an inode can keep, so that a time reported now is the same after the
    /// next mount. 128-byte inodes keep only seconds until 2038.
    pub fn storable(&self, time: Timestamp) -> Timestamp {
        let has_extra = self.layout.inode_size > 128;
        let last = if has_extra { (3 << 32) + i64::from(i32::MAX) } else { i64::from(i32::MAX) };
        let seconds = time.seconds.clamp(i64::from(i32::MIN), last);
        // As the kernel truncates: the first and the last second have no fraction.
        let is_bound = seconds == i64::from(i32::MIN) || seconds == last;
        Timestamp {
            seconds,
            nanoseconds: if has_extra && !is_bound { time.nanoseconds.min(999_999_999) } else { 0 },
        }
    }
    /// Seed of metadata checksums; `None` without metadata_csum.
    pub fn checksum_seed(&self) -> Option<u32> {
        self.layout.checksum_seed
    }
    /// Seed of checksums of an inode's own blocks (extents, directories); `None` without
    /// metadata_csum.
    pub fn inode_checksum_seed(&self, number: InodeNumber, generation: u32) -> Option<u32> {
        self.checksum_seed()
            .map(|seed| format::ext4::checksum::inode_seed(seed, number, generation))
    }
    pub fn group_of_inode(&self, number: InodeNumber) -> GroupNumber {
        self.superblock.borrow().group_of_inode(number).0
    }

    /// Whether files may own these blocks: inside the volume and free of superblocks, descriptors,
    /// bitmaps, inode tables and the journal. An extent that points elsewhere is corruption.
    pub fn block_is_usable(&self, start: HomeBlock, count: u64) -> bool {
        let superblock = self.superblock.borrow();
        let inside = start.get() > u64::from(superblock.first_data_block)
            && start.get() < superblock.blocks
            && count > 0
            && count <= superblock.blocks - start.get();
        inside && !self.zone.overlaps(start.get()..start.get() + count)
    }

    /// Whether the caller may take the blocks reserved for root.
    pub fn may_use_reserve(&self, caller: &Caller<'_>) -> bool {
        let superblock = self.superblock.borrow();
        caller.uid == 0
            || caller.uid == u32::from(superblock.reserved_uid)
            || superblock.reserved_gid != 0 && caller.gid == u32::from(superblock.reserved_gid)
    }

    /// Makes everything done before the call durable: `sync`, `syncfs`.
    pub async fn sync(self: &Rc<Self>) -> Result<()> {
        let stored = match self.store_access_times().await {
            Ok(()) => self.free_or_leave_values().await,
            error => error,
        };
        let recorded = self.record_damage().await;
        // After a failure every sync gets this error.
        self.engine.sync().await?;
        recorded?;
        stored
    }
}
