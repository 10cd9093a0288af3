//! The running transaction: what handles changed, and the log blocks that committing it would take.

use super::{Holdings, LockedTransaction, Record};
use crate::home_data::HomeData;
use crate::ranges::RangeSet;
use units::{BlockMap, BlockRange, BlockSet, BlockSize, HomeBlock, Instant, Owner, TransactionId};

/// The one transaction that handles may join.
#[derive(Debug)]
pub struct RunningTransaction {
    id: TransactionId,
    started: Instant,
    block_size: BlockSize,
    open_handles: u32,
    /// Sum of the credits of open handles: metadata blocks they may still add.
    credits: u32,
    handles: u64,
    metadata: BlockMap<RangeSet>,
    data: BlockMap<Record>,
    durable_only: BlockSet,
    home_data: HomeData,
    home_written_early: bool,
    revoked: BlockSet,
    /// Upper bound of the fragments of all `Record::Bytes`, and of their bytes.
    fragments: u64,
    fragment_bytes: u64,
    /// Data blocks that are `Record::Whole`.
    whole_data: u64,
    payload: u64,
}

impl RunningTransaction {
    pub fn new(id: TransactionId, started: Instant, block_size: BlockSize) -> RunningTransaction {
        RunningTransaction {
            id,
            started,
            block_size,
            open_handles: 0,
            credits: 0,
            handles: 0,
            metadata: BlockMap::default(),
            data: BlockMap::default(),
            durable_only: BlockSet::default(),
            home_data: HomeData::default(),
            home_written_early: false,
            revoked: BlockSet::default(),
            fragments: 0,
            fragment_bytes: 0,
            whole_data: 0,
            payload: 0,
        }
    }
    pub fn id(&self) -> TransactionId {
        self.id
    }
    pub fn started(&self) -> Instant {
        self.started
    }
    pub fn open_handles(&self) -> u32 {
        self.open_handles
    }
    /// Returns the credits of open handles that are not used yet.
    pub fn credits(&self) -> u32 {
        self.credits
    }
    /// Returns the number of handles that have joined, open or stopped.
    pub fn handles(&self) -> u64 {
        self.handles
    }
    /// Whether there is nothing to commit.
    pub fn is_empty(&self) -> bool {
        self.metadata.is_empty()
            && self.data.is_empty()
            && self.home_data.is_empty()
            && !self.home_written_early
            && self.revoked.is_empty()
    }

    /// Whether its commit writes nothing but its log, as far as is known now.
    pub fn is_all_logged(&self) -> bool {
        (self.home_data.is_empty() && !self.home_written_early)
            || units::fault!("overlap-home-passes")
    }

    /// Adds a handle, which reserves `credits` metadata blocks.
    pub fn open_handle(&mut self, credits: u32) {
        self.open_handles += 1;
        self.handles += 1;
        self.credits += credits;
    }
    /// Reserves `credits` more for an open handle.
    pub fn extend_handle(&mut self, credits: u32) {
        self.credits += credits;
    }
    /// Removes a handle, which gives back the `credits` it reserved and has not used.
    pub fn close_handle(&mut self, credits: u32) {
        self.open_handles = self.open_handles.checked_sub(1).expect("an open handle");
        self.credits = self.credits.checked_sub(credits).expect("credits reserved by this handle");
    }
    /// Uses `credits` of an open handle's reservation (a metadata block is now counted by itself).
    pub fn use_credits(&mut self, credits: u32) {
        self.credits = self.credits.checked_sub(credits).expect("credits reserved by this handle");
    }

    /// Adds changed `ranges` of a metadata block. Returns true if the block was not yet part of
    /// this transaction.
    pub fn add_metadata(&mut self, block: HomeBlock, ranges: &[BlockRange]) -> bool {
        // Data of another owner, on a damaged volume: its changes are no longer logged as data.
        let all = [self.block_size.whole()];
        let ranges = if self.drop_data(block) { &all } else { ranges };
        // A revoke would hide this transaction's own copy as well. Older copies are replayed before
        // it.
        if !self.revoked.is_empty() {
            self.revoked.remove(&block);
        }
        let blocks = self.metadata.len();
        let changed = self.metadata.entry(block).or_default();
        ranges.iter().for_each(|range| changed.insert(*range));
        self.metadata.len() > blocks
    }

    /// Adds the changed `range` of a data block, to be logged as bytes. `base_zero`: every other
    /// byte of the block became zero by this very change, which voids what the transaction held of
    /// it before.
    pub fn add_data_bytes(&mut self, block: HomeBlock, range: BlockRange, base_zero: bool) {
        assert!(!range.is_empty() && self.block_size.whole().covers(range), "{block} {range:?}");
        self.payload += range.len() as u64;
        self.revoked.remove(&block);
        let whole = self.block_size.whole();
        // Metadata of another owner, on a damaged volume: the block is logged as of locking, with
        // these bytes.
        if let Some(changed) = self.metadata.get_mut(&block) {
            changed.insert(if base_zero { whole } else { range });
            return;
        }
        let record = self
            .data
            .entry(block)
            .or_insert_with(|| Record::Bytes { ranges: RangeSet::new(), base_zero: false });
        // A block that is logged whole stays so: its image at locking has these bytes as well.
        let Record::Bytes { ranges, base_zero: from_zero } = record else { return };
        self.fragments -= ranges.as_slice().len() as u64;
        self.fragment_bytes -= ranges.bytes() as u64;
        if base_zero {
            ranges.clear();
            *from_zero = true;
        }
        ranges.insert(range);
        if ranges.covers(whole) {
            *record = Record::Whole;
            self.whole_data += 1;
        } else {
            self.fragments += ranges.as_slice().len() as u64;
            self.fragment_bytes += ranges.bytes() as u64;
        }
    }

    /// Adds a changed data block (`bytes` of it), to be logged as it will be when the transaction
    /// is locked.
    pub fn add_data_block(&mut self, block: HomeBlock, bytes: u64) {
        self.drop_data(block);
        self.payload += bytes;
        self.revoked.remove(&block);
        if let Some(changed) = self.metadata.get_mut(&block) {
            changed.insert(self.block_size.whole());
            return;
        }
        self.data.insert(block, Record::Whole);
        self.whole_data += 1;
    }

    /// Sets whether durability is enough for the file of a data block that is to be logged.
    pub fn set_durable_only(&mut self, block: HomeBlock, durable_only: bool) {
        if durable_only {
            self.durable_only.insert(block);
        } else if !self.durable_only.is_empty() {
            self.durable_only.remove(&block);
        }
    }

    /// Adds a changed data block (`bytes` of it) of `owner`, which must be home before this
    /// transaction commits.
    pub fn add_home_data(&mut self, owner: Owner, block: HomeBlock, bytes: u64) {
        self.payload += bytes;
        self.home_data.insert(block, owner);
    }

    /// Adds `bytes` of new blocks that are being written home already; the commit waits for them.
    /// The plan gets its barrier.
    pub fn add_home_run(&mut self, bytes: u64) {
        self.payload += bytes;
        self.home_written_early = true;
    }

    /// Returns the blocks of a file to be written home before the commit, sorted; `None` if there
    /// are more than `most` of all files to look through.
    pub fn home_data_of(&self, owner: Owner, most: usize) -> Option<Vec<HomeBlock>> {
        self.home_data.of(owner, most)
    }

    /// Removes a block that was to be written home before the commit and is there already
    /// (write-back was faster), with all updates up to now. The plan keeps its barrier.
    pub fn home_data_written(&mut self, owner: Owner, block: HomeBlock) {
        if self.home_data.owner_of(block) == Some(owner) {
            self.home_data.remove(block);
            self.home_written_early = true;
        }
    }

    /// Whether anything of the block is logged.
    pub fn logs(&self, block: HomeBlock) -> bool {
        self.metadata.contains_key(&block) || self.data.contains_key(&block)
    }

    /// Frees the block from this transaction on. Drops what the transaction had to write of it.
    /// `logged`: records of it may be in the log, so revoke them; false only if there can be none
    /// since the block was allocated.
    pub fn free(&mut self, block: HomeBlock, logged: bool) {
        let was_metadata = self.metadata.remove(&block).is_some();
        let was_data = self.drop_data(block);
        self.home_data.remove(block);
        if logged || was_metadata || was_data {
            self.revoked.insert(block);
        }
    }

    /// Revokes older records of a block that home holds durably, where others may change it: they
    /// must not be replayed. What this transaction itself logs of it stays.
    pub fn revoke(&mut self, block: HomeBlock) {
        if !self.logs(block) {
            self.revoked.insert(block);
        }
    }

    /// Returns what committing would write to the log, with all credits of open handles used: for
    /// [`crate::Records::log_blocks_bound`].
    pub fn holdings(&self) -> Holdings {
        Holdings {
            blocks: self.metadata.len() as u64 + self.whole_data + u64::from(self.credits),
            fragments: self.fragments,
            fragment_bytes: self.fragment_bytes,
            revokes: self.revoked.len() as u64,
        }
    }

    /// Locks the transaction, in which no handle may be open. What was hashed is now sorted.
    pub fn lock(self) -> LockedTransaction {
        assert_eq!(
            self.open_handles, 0,
            "a transaction is locked only when its handles have stopped"
        );
        LockedTransaction {
            id: self.id,
            started: self.started,
            block_size: self.block_size,
            handles: self.handles,
            metadata: self.metadata.into_iter().collect(),
            data: self.data.into_iter().collect(),
            durable_only: self.durable_only.into_iter().collect(),
            home_data: self.home_data.sorted(),
            home_written_early: self.home_written_early,
            revoked: self.revoked.into_iter().collect(),
            payload: self.payload,
        }
    }

    /// Drops what was to be logged of a data block; returns whether there was anything.
    fn drop_data(&mut self, block: HomeBlock) -> bool {
        if self.data.is_empty() {
            return false;
        }
        match self.data.remove(&block) {
            None => return false,
            Some(Record::Whole) => self.whole_data -= 1,
            Some(Record::Bytes { ranges, .. }) => {
                self.fragments -= ranges.as_slice().len() as u64;
                self.fragment_bytes -= ranges.bytes() as u64;
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn running() -> RunningTransaction {
        RunningTransaction::new(TransactionId(3), Instant(0), BlockSize::new(1024).unwrap())
    }

    #[test]
    fn bytes_that_come_to_cover_a_block_make_it_whole() {
        let mut running = running();
        running.add_data_bytes(HomeBlock(5), BlockRange::new(0, 600), false);
        running.add_data_bytes(HomeBlock(5), BlockRange::new(512, 1024), false);
        running.add_data_bytes(HomeBlock(6), BlockRange::new(0, 1023), false);
        let locked = running.lock();
        let ranges = RangeSet::of(BlockRange::new(0, 1023));
        let expected = [
            (HomeBlock(5), Record::Whole),
            (HomeBlock(6), Record::Bytes { ranges, base_zero: false }),
        ];
        assert_eq!(
            locked.data().map(|(block, record)| (block, record.clone())).collect::<Vec<_>>(),
            expected
        );
        assert_eq!(locked.payload(), 600 + 512 + 1023);
    }

    #[test]
    fn a_block_that_became_zero_forgets_the_bytes_it_had() {
        let mut running = running();
        running.add_data_bytes(HomeBlock(5), BlockRange::new(0, 8), false);
        running.add_data_bytes(HomeBlock(5), BlockRange::new(100, 108), true);
        running.add_data_bytes(HomeBlock(5), BlockRange::new(200, 208), false);
        let mut ranges = RangeSet::of(BlockRange::new(100, 108));
        ranges.insert(BlockRange::new(200, 208));
        assert_eq!(running.data[&HomeBlock(5)], Record::Bytes { ranges, base_zero: true });
        assert_eq!((running.fragments, running.fragment_bytes), (2, 16));
    }

    #[test]
    fn a_freed_block_is_revoked_and_nothing_of_it_is_written() {
        let mut running = running();
        running.add_metadata(HomeBlock(1), &[BlockRange::new(0, 4)]);
        running.add_data_bytes(HomeBlock(2), BlockRange::new(0, 4), false);
        running.add_home_data(Owner(11), HomeBlock(3), 1024);
        for block in 1..=4 {
            running.free(HomeBlock(block), block == 4);
        }
        let locked = running.lock();
        assert_eq!(
            (locked.metadata().count(), locked.data().count(), locked.home_data().count()),
            (0, 0, 0)
        );
        // Block 3 bypassed the log and block 4 is said to be in it.
        assert_eq!(
            locked.revoked().collect::<Vec<_>>(),
            [HomeBlock(1), HomeBlock(2), HomeBlock(4)]
        );
    }

    /// Visiting every file for every block that is freed would take minutes.
    #[test]
    fn freeing_new_blocks_visits_no_other_file() {
        const FILES: u64 = 1000;
        let mut running = running();
        for file in 0..FILES {
            running.add_home_data(Owner(file), HomeBlock(file), 1024);
        }
        for file in 0..FILES {
            running.free(HomeBlock(file), false);
        }
        assert!(running.is_empty());
        assert_eq!(
            running.home_data.visits(),
            2 * FILES as usize,
            "each block is put in and taken out"
        );
    }

    #[test]
    #[should_panic(expected = "handles have stopped")]
    fn a_transaction_with_an_open_handle_is_not_locked() {
        let mut running = running();
        running.open_handle(3);
        running.lock();
    }
}
