use runtime::sync::RwLock;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use units::{InodeNumber, TransactionId};

/// An inode in memory. There is at most one per number, so every holder of the `Rc` sees every
/// change.
///
/// Lock order: directories before files, ancestors before descendants, else lower numbers first;
/// the lock before a handle. Functions that front ends call take the lock; those below expect it
/// held.
pub struct Inode {
    pub number: InodeNumber,
    /// Write: to change the inode, its content or its mapping. Read: to look at them.
    pub lock: Rc<RwLock>,
    /// Fields of the inode; never borrowed across an await.
    pub fields: RefCell<format::ext4::RawInode>,
    /// The transaction of the latest change of anything that fsync promises. It includes what
    /// fdatasync promises and only a commit makes durable: size and mapping, and data that was
    /// overwritten in place and is logged.
    pub last_change: Cell<TransactionId>,
    pub last_data_change: Cell<TransactionId>,
    pub last_logged_data: Cell<TransactionId>,
    /// The transaction of the latest data that is written home.
    pub last_home_data: Cell<TransactionId>,
    /// Descriptors that front ends hold open. An inode without links is freed when this and
    /// `lookups` are zero.
    pub opens: Cell<u64>,
    /// References that the kernel holds (FUSE lookup count).
    pub lookups: Cell<u64>,
    pub mapping_cache: crate::MappingCache,
    pub(crate) listing: crate::directory::Listing,
    /// The access time in memory is newer than the one in the table.
    pub access_is_newer: Cell<bool>,
    /// The attributes were looked at, and there are no file capabilities among them.
    pub(crate) has_no_capabilities: Cell<bool>,
    /// Block of the table that has its slot, and its bytes there.
    pub(crate) table: RefCell<Option<(engine::KnownBlock, units::BlockRange)>>,
    /// Contents of the kernel's page cache for it.
    pub pages: crate::KernelPages,
    /// The addresses of its blocks were returned, and others may read or write them directly. All
    /// its data is home, and stays so until the last descriptor is closed, or the kernel forgets a
    /// file that is opened without a request.
    pub(crate) kept_home: Cell<bool>,
    /// Durability is enough for it, because of the place where it was found, or of an attribute
    /// once that was looked at.
    pub(crate) durable_by_name: Cell<bool>,
    pub(crate) durable_by_attribute: Cell<Option<bool>>,
    /// A truncate has stored the size, and blocks behind the end are still mapped: they must be
    /// freed before the file becomes longer. The inode is an orphan, also with links.
    pub(crate) cut_unfinished: Cell<bool>,
    /// A program has requested this for a descriptor: as long as `kept_home`.
    pub(crate) durable_by_request: Cell<bool>,
}

impl Inode {
    /// The transaction that makes durable what fdatasync promises and only a commit does.
    pub fn durable_with(&self) -> TransactionId {
        let (changed, logged) = (self.last_data_change.get(), self.last_logged_data.get());
        if logged.is_after(changed) { logged } else { changed }
    }

    /// An inode just read or made. `changed`: the transaction that changed it last, as far as
    /// known.
    pub(crate) fn new(
        number: InodeNumber,
        fields: format::ext4::RawInode,
        changed: TransactionId,
    ) -> Inode {
        Inode {
            number,
            lock: Rc::default(),
            fields: RefCell::new(fields),
            last_change: Cell::new(changed),
            last_data_change: Cell::new(changed),
            last_logged_data: Cell::new(changed),
            last_home_data: Cell::new(changed),
            opens: Cell::default(),
            lookups: Cell::default(),
            mapping_cache: Default::default(),
            listing: Default::default(),
            access_is_newer: Cell::default(),
            has_no_capabilities: Cell::default(),
            table: Default::default(),
            pages: Default::default(),
            kept_home: Cell::default(),
            durable_by_name: Cell::default(),
            durable_by_attribute: Cell::default(),
            cut_unfinished: Cell::default(),
            durable_by_request: Cell::default(),
        }
    }

    /// The type bits of the mode (`S_IFMT`).
    pub fn kind(&self) -> u16 {
        self.fields.borrow().mode & 0xf000
    }
    pub fn is_directory(&self) -> bool {
        self.kind() == 0x4000
    }
    pub fn is_regular(&self) -> bool {
        self.kind() == 0x8000
    }
    pub fn is_symlink(&self) -> bool {
        self.kind() == 0xa000
    }
    pub fn has_flag(&self, flag: u32) -> bool {
        self.fields.borrow().flags & flag != 0
    }
}
