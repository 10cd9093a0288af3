//! Calls of the engine, each carried out by the part that it names.

use crate::cache::block::{Block, CachedBlock};
use crate::engine::Engine;
use crate::interface::error::EngineError;
use crate::interface::update::Credits;
use crate::transaction::handle::{DATA_BLOCKS_ALWAYS, Handle};
use crate::transaction::range_check::Declared;
use crate::writeback::checkpoints::{CheckpointProgress, CheckpointReport};
use device::Buffer;
use std::collections::BTreeMap;
use std::panic::Location;
use std::rc::Rc;
use units::{BlockRange, HomeBlock, Owner, TransactionId};

impl Engine {
    /// Joins the running transaction. Waits while it is being locked or the log is short of space.
    /// Call it after taking inode locks, never while holding another handle.
    pub async fn start(self: &Rc<Self>, credits: Credits) -> Result<Handle, EngineError> {
        Handle::start(self.clone(), credits, DATA_BLOCKS_ALWAYS).await
    }

    /// [`Engine::start`] for a handle that writes up to `blocks` blocks of file data. No more than
    /// [`Engine::fits_handle`] allows.
    pub async fn start_writing(
        self: &Rc<Self>,
        credits: Credits,
        blocks: u32,
    ) -> Result<Handle, EngineError> {
        Handle::start(self.clone(), credits, blocks).await
    }

    /// Reads a metadata block, from the cache or the home disk.
    pub async fn metadata(&self, at: HomeBlock) -> Result<Block, EngineError> {
        let block = self.reader().look_up_metadata(at)?;
        // Nearly always known: then nothing is awaited.
        if !block.is_whole() {
            self.reader().load(&block, CachedBlock::is_whole).await?;
        }
        Ok(Block(block))
    }

    /// Reads `count` metadata blocks from `at` on. Those that are not cached are read together.
    pub async fn metadata_run(&self, at: HomeBlock, count: u32) -> Result<Vec<Block>, EngineError> {
        self.reader().metadata_run(at, count).await
    }

    /// Reads `count` file-data blocks from `at` on, one buffer a block, as last written by anyone
    /// (committed or not).
    pub async fn read_data(
        &self,
        at: HomeBlock,
        count: u32,
    ) -> Result<Vec<Rc<Buffer>>, EngineError> {
        self.reader().read_data(at, count).await
    }

    /// Reads as [`Engine::read_data`] does, for a caller that keeps the content: long runs of
    /// blocks that are not in the cache do not enter it. One buffer may hold several blocks.
    pub async fn read_data_past_cache(
        &self,
        at: HomeBlock,
        count: u32,
    ) -> Result<Vec<Rc<Buffer>>, EngineError> {
        self.reader().read_data_past_cache(at, count).await
    }

    /// The content of a block, if memory holds all of it.
    pub fn cached_data(&self, at: HomeBlock) -> Option<Rc<Buffer>> {
        self.reader().cached_data(at)
    }

    /// The first of the blocks `at .. at + count` that is in memory, or in the log alone. A freed
    /// block leaves both with the commit that frees it, so a block that is free to be allocated is
    /// never found here.
    pub fn first_in_memory(&self, at: HomeBlock, count: u64) -> Option<HomeBlock> {
        self.reader().first_in_memory(at, count)
    }

    /// Returns a metadata block if it needs no read.
    pub fn metadata_in_memory(&self, at: HomeBlock) -> Option<Block> {
        self.reader().metadata_in_memory(at)
    }

    /// Returns the credits for the revokes of a run that is freed as
    /// [`Engine::freeable_in_one_handle`] says.
    pub fn credits_revokes(&self) -> Credits {
        self.freeing().credits_revokes()
    }

    /// Returns how many of the `count` blocks from `start` on may be freed with
    /// [`Engine::credits_revokes`], and without a step that lasts: as many from either end.
    pub fn freeable_in_one_handle(&self, start: HomeBlock, count: u64) -> u64 {
        self.freeing().freeable_in_one_handle(start, count)
    }

    /// Whether one handle may reserve so much.
    pub fn fits_handle(&self, credits: Credits, blocks: u32) -> bool {
        self.admission().fits_handle(credits, blocks)
    }

    /// Aborts after a failed write or flush: what is durable is unknown, so nothing is written any
    /// more, and every present and later waiter gets this error. Also for a caller that has changed
    /// blocks and cannot finish its change: nothing of the running transaction will ever be
    /// committed.
    pub fn abort(&self, cause: &EngineError) {
        self.aborter().abort(cause)
    }

    /// Stops writing as [`Engine::abort`] does, but leaves the journal sound: the next mount
    /// replays it, and e2fsck need not run.
    pub fn stop_writing(&self, cause: &EngineError) {
        self.aborter().stop_writing(cause)
    }

    /// Waits until `transaction` and all before it are durable, starting a commit if need be.
    pub async fn commit(&self, transaction: TransactionId) -> Result<(), EngineError> {
        self.syncer().commit(transaction).await
    }

    /// Waits until all that is in flight to the disk now is durable; asks for nothing.
    pub async fn wait_for_commits_in_flight(&self) -> Result<(), EngineError> {
        self.syncer().wait_for_commits_in_flight().await
    }

    /// Makes the data of one owner durable as well as `transaction`, its latest change: `fsync`.
    /// What is logged, or is written home before the commit, needs no more than that; what is
    /// written home at any time is sent there now. Nobody else's is.
    pub async fn sync_owner(
        &self,
        owner: Owner,
        transaction: TransactionId,
    ) -> Result<(), EngineError> {
        self.syncer().sync_owner(owner, transaction).await
    }

    /// Makes durable what home holds of blocks that a committed transaction freed. A caller for
    /// which home holds their old content calls it before it writes them again: a log record of a
    /// part of a block relies on the rest. Nobody writes them before this returns.
    ///
    /// # Errors
    /// The flush failed, which aborts the engine, or an earlier write did.
    pub async fn settle_freed(&self, runs: &[(HomeBlock, u64)]) -> Result<(), EngineError> {
        let settled = self.home_writer().settle_freed(runs).await;
        settled.inspect_err(|error| self.aborter().abort(error))?;
        Ok(self.pipeline.check()?)
    }

    /// Makes all that was done before the call durable: `sync`, `syncfs`.
    pub async fn sync(&self) -> Result<(), EngineError> {
        self.syncer().sync().await
    }

    /// Notes that a sync comes for data of which [`Engine::sync_in_place`] could be asked, were
    /// none of it logged.
    pub fn note_sync_of_data(&self) {
        self.in_place_sync().note_sync_of_data()
    }

    /// Makes data of `owner` durable that is written home before the running transaction commits,
    /// or whenever: by home writes and one flush, or one durable write. The caller knows that
    /// whatever leads to it is committed already. False if it takes a commit all the same.
    pub async fn sync_in_place(&self, owner: Owner) -> Result<bool, EngineError> {
        self.in_place_sync().sync_in_place(owner).await
    }

    /// Reads what a coming update of part of a block will need of its home, so that no handle is
    /// held open for it. A commit waits for open handles, and everyone else for the commit. The
    /// update is right without it, too.
    pub async fn prepare_data(
        &self,
        home: HomeBlock,
        range: BlockRange,
        request: u64,
    ) -> Result<(), EngineError> {
        self.data_updates().prepare_data(home, range, request).await
    }

    /// Writes the runs back. On return home durably holds what these blocks held at the call, or
    /// newer. No replay writes to them what the log holds of them. `runs`: first block and count,
    /// in order and apart; no caller may change them before this returns.
    pub async fn write_back_range(&self, runs: &[(HomeBlock, u64)]) -> Result<(), EngineError> {
        self.ended_by(self.writeback().write_back_range(runs).await)
    }

    /// Checkpoints everything: on return all that was changed before the call is home, and the log
    /// no longer needs it. Files of which durability is enough are excepted.
    pub async fn checkpoint(&self) -> Result<CheckpointReport, EngineError> {
        self.ended_by(self.writeback().checkpoint().await)
    }

    /// Writes home all that was committed at the call, not necessarily durably; the log keeps it,
    /// too. So a checkpoint begins, and so Linux's sync(2) ends: it writes what its journal has
    /// committed.
    pub async fn write_back_committed(&self) -> Result<(), EngineError> {
        self.ended_by(self.writeback().write_back_committed().await)
    }

    /// Ends the engine if a write or a flush has failed: the caller alone would have the error, and
    /// an update of the log's superblock that was in flight would keep every later commit waiting.
    /// A block that cannot be read is the caller's affair.
    fn ended_by<T>(&self, result: Result<T, EngineError>) -> Result<T, EngineError> {
        result.inspect_err(|error| {
            if self.durability.check().is_err() && !units::fault!("checkpoint-failure-passed-on") {
                self.aborter().abort(error);
            }
        })
    }

    pub fn checkpoint_progress(&self) -> CheckpointProgress {
        self.writeback().checkpoint_progress()
    }

    /// Returns, for each line that changes metadata blocks, the bytes that it declared and those
    /// that it changed. Empty in release builds.
    pub fn declared(&self) -> BTreeMap<&'static Location<'static>, Declared> {
        self.range_checks.declared()
    }
}
