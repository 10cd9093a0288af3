//! Carries plans out: block cache, handles, commit, write-back, checkpoint, recovery. One thread, no locks.
//!
//! What the floor above sees: [`Engine`], [`Block`], [`Handle`], [`FileUpdate`], [`Credits`].
#![forbid(unsafe_code)]

mod error;
mod update;

pub use error::EngineError;
pub use update::{Base, Contents, Credits, FileUpdate};

// Everything below is the walking skeleton: a cache without bound that writes home on sync, no journal.
use device::{Buffer, Disk, Durability, World};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use units::{BlockRange, BlockSize, HomeBlock, InodeNumber, TransactionId};

struct CachedBlock {
    number: HomeBlock,
    content: RefCell<Rc<Buffer>>,
    verified: Cell<bool>,
    dirty: Cell<bool>,
}

/// A block held in the cache: as long as one of these lives, it stays there.
#[derive(Clone)]
pub struct Block(Rc<CachedBlock>);

impl Block {
    pub fn number(&self) -> HomeBlock {
        self.0.number
    }
    /// The content now. A later [`Handle::change`] does not alter what was returned; drop it before changing
    /// the block, or the change has to copy the block first.
    pub fn bytes(&self) -> Rc<Buffer> {
        self.0.content.borrow().clone()
    }
    /// Whether the floor above has checked this content (checksum, magic, bounds) since it was read.
    pub fn is_verified(&self) -> bool {
        self.0.verified.get()
    }
    pub fn set_verified(&self) {
        self.0.verified.set(true)
    }
}

pub struct Engine {
    world: Rc<dyn World>,
    home: Rc<dyn Disk>,
    block_size: BlockSize,
    cache: RefCell<BTreeMap<HomeBlock, Block>>,
    transaction: Cell<TransactionId>,
}

impl Engine {
    /// An engine that journals nothing: for volumes without a journal, and for tests.
    pub fn without_journal(world: Rc<dyn World>, home: Rc<dyn Disk>, block_size: BlockSize) -> Rc<Engine> {
        Rc::new(Engine {
            world,
            home,
            block_size,
            cache: RefCell::default(),
            transaction: Cell::new(TransactionId(1)),
        })
    }
    pub fn world(&self) -> &Rc<dyn World> {
        &self.world
    }
    pub fn block_size(&self) -> BlockSize {
        self.block_size
    }

    /// A metadata block, from the cache or the home disk.
    pub async fn metadata(&self, at: HomeBlock) -> Result<Block, EngineError> {
        if let Some(block) = self.cache.borrow().get(&at) {
            return Ok(block.clone());
        }
        let size = self.block_size.bytes();
        let content = self.home.read(at.get() << self.block_size.shift(), size).await?;
        // Another task may have read it meanwhile; the first copy stays the only one.
        Ok(self.insert(at, content))
    }

    /// `count` file-data blocks from `at` on, one buffer a block, as last written by anyone (committed or not).
    pub async fn read_data(&self, at: HomeBlock, count: u32) -> Result<Vec<Rc<Buffer>>, EngineError> {
        let mut blocks = Vec::with_capacity(count as usize);
        for index in 0..u64::from(count) {
            blocks.push(self.metadata(at.plus(index)).await?.bytes());
        }
        Ok(blocks)
    }

    fn insert(&self, at: HomeBlock, content: Buffer) -> Block {
        let fresh = || {
            Block(Rc::new(CachedBlock {
                number: at,
                content: RefCell::new(Rc::new(content)),
                verified: Cell::new(false),
                dirty: Cell::new(false),
            }))
        };
        self.cache.borrow_mut().entry(at).or_insert_with(fresh).clone()
    }

    /// Joins the running transaction. Waits while it is being locked or the log is short of space.
    /// Call it after taking inode locks, never while holding another handle.
    pub async fn start(self: &Rc<Self>, _credits: Credits) -> Result<Handle, EngineError> {
        Ok(Handle { engine: self.clone(), transaction: self.transaction.get() })
    }

    /// Waits until `transaction` and all before it are durable, starting a commit if need be.
    pub async fn commit(&self, _transaction: TransactionId) -> Result<(), EngineError> {
        self.sync().await
    }

    /// Makes the data of one file durable as well as `transaction`, its latest change: `fsync`. Modes that log
    /// data, or send it home before each commit, need no more than the commit; `writeback` sends it home now.
    pub async fn sync_file(
        &self,
        _inode: InodeNumber,
        transaction: TransactionId,
    ) -> Result<(), EngineError> {
        self.commit(transaction).await
    }

    /// Makes all that was done before the call durable: `sync`, `syncfs`.
    pub async fn sync(&self) -> Result<(), EngineError> {
        let dirty: Vec<Block> =
            self.cache.borrow().values().filter(|block| block.0.dirty.get()).cloned().collect();
        for block in dirty {
            block.0.dirty.set(false);
            let at = block.number().get() << self.block_size.shift();
            self.home.write(at, vec![block.bytes()], Durability::Cached).await?;
        }
        self.transaction.set(self.transaction.get().next());
        Ok(self.home.flush().await?)
    }

    /// The latest transaction that is durable. Blocks freed by later ones must not be allocated again.
    pub fn committed(&self) -> TransactionId {
        self.transaction.get().previous()
    }

    /// Commits, sends everything home and empties the log: unmount. No handle may be open.
    pub async fn shutdown(&self) -> Result<(), EngineError> {
        self.sync().await
    }
}

/// One atomic change of the volume: all of it is in one transaction or none. Ends when dropped or stopped.
pub struct Handle {
    engine: Rc<Engine>,
    transaction: TransactionId,
}

impl Handle {
    pub fn engine(&self) -> &Rc<Engine> {
        &self.engine
    }
    pub fn transaction(&self) -> TransactionId {
        self.transaction
    }

    /// Changes a metadata block: `change` gets the whole block and writes only within `range`.
    /// (get_write_access, change and dirty_metadata of JBD2 in one, so that no order can be wrong.)
    pub fn change<T>(&mut self, block: &Block, range: BlockRange, change: impl FnOnce(&mut [u8]) -> T) -> T {
        assert!(!range.is_empty() && range.end as usize <= self.engine.block_size.bytes());
        block.0.dirty.set(true);
        let mut content = block.0.content.borrow_mut();
        change(Rc::<Buffer>::make_mut(&mut content))
    }

    /// A newly allocated metadata block: zeros, whatever the disk holds. Counts as verified.
    pub fn create(&mut self, at: HomeBlock) -> Block {
        let block = self.engine.insert(at, Buffer::zeroed(self.engine.block_size.bytes()));
        self.change(&block, self.engine.block_size.whole(), |bytes| bytes.fill(0));
        block.set_verified();
        block
    }

    /// Writes within one block of file data. The policy of the mount decides what is logged; it may have to
    /// read the rest of the block first.
    pub async fn file_data(&mut self, update: FileUpdate<'_>) -> Result<(), EngineError> {
        let block = match update.base {
            Base::Zero => self.create(update.home),
            Base::Home => self.engine.metadata(update.home).await?,
        };
        self.change(&block, update.range, |bytes| {
            bytes[update.range.as_usize()].copy_from_slice(update.bytes)
        });
        Ok(())
    }

    /// The blocks `at .. at + count` are free from this transaction on: their content is worthless, must not
    /// be written home any more, and old log records of them must not be replayed (revoke).
    pub fn forget(&mut self, at: HomeBlock, count: u64, _contents: Contents) {
        for index in 0..count {
            self.engine.cache.borrow_mut().remove(&at.plus(index));
        }
    }

    /// Makes room for `credits` more in the same transaction; false when it is too full, and the caller must
    /// bring the volume into a consistent state, stop, and start anew (truncate of a large file).
    #[must_use]
    pub fn extend(&mut self, _credits: Credits) -> bool {
        true
    }

    /// Ends the change. What it did is durable once [`Engine::commit`] of the returned transaction is done.
    pub fn stop(self) -> TransactionId {
        self.transaction
    }
}
