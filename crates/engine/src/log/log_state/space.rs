//! Free space of the log, in log blocks.

use super::LogState;
use journal::Holdings;
use units::HomeBlock;

impl LogState {
    /// Returns the maximum number of log blocks of one transaction.
    pub fn transaction_limit(&self) -> u32 {
        self.space.transaction_max()
    }
    /// Converts log blocks to blocks of home, rounded up.
    pub fn home_blocks(&self, log_blocks: u32) -> u32 {
        log_blocks.div_ceil(self.superblock.on_disk().log_blocks_per_block())
    }
    /// Returns the maximum number of log blocks of a transaction with these `holdings`.
    pub fn bound(&self, holdings: &Holdings) -> u32 {
        self.records.log_blocks_bound(holdings)
    }
    /// The memory that is made for the log in the `bound` log blocks of a transaction that holds so
    /// much, in blocks of home.
    pub fn log_buffer_blocks(&self, bound: u32, holdings: &Holdings) -> usize {
        let shared = if self.records.logs_images() { holdings.blocks } else { 0 };
        let made = u64::from(bound).saturating_sub(shared) * self.records.block_memory() as u64;
        made.div_ceil(self.superblock.on_disk().block_size.bytes() as u64) as usize
    }
    /// Whether a transaction of `bound` log blocks could commit now, whatever its `handles` open
    /// handles revoke.
    pub fn fits_now(&self, bound: u32, handles: u64) -> bool {
        bound <= self.largest_now(handles)
    }
    /// Returns whether there is free space as for [`LogState::fits_now`], however long a
    /// transaction may be.
    pub fn has_free(&self, bound: u32, handles: u64) -> bool {
        if units::fault!("revokes-unreserved") || units::fault!("loose-without-admission") {
            return bound <= self.space.reservable_blocks();
        }
        bound + self.revoke_reserve(handles) <= self.space.reservable_blocks()
    }
    /// Returns the most log blocks that a transaction with `handles` open handles could take now.
    pub fn largest_now(&self, handles: u64) -> u32 {
        self.transaction_limit()
            .min(self.space.reservable_blocks().saturating_sub(self.revoke_reserve(handles)))
    }
    /// Time to write the oldest transactions home: less than three eighths are free, or less than
    /// the largest transaction takes with its revokes. It ends when half is free, or more behind
    /// gaps.
    pub fn is_short(&self) -> bool {
        self.is_full() || self.space.free() < self.space.capacity() / 8 * 3
    }
    /// Whether no log has space for the largest transaction. Files of which durability is enough
    /// are written home only then.
    pub fn is_full(&self) -> bool {
        self.space.reservable_blocks() < self.largest()
    }
    /// Log blocks that the largest transaction takes with its revokes.
    pub(super) fn largest(&self) -> u32 {
        self.transaction_limit() + self.usual_revoke_reserve()
    }
    /// The next blocks to write home so that half of the log becomes free or more, `max` at most;
    /// `None` when no more need be.
    pub fn checkpoint_batch(&self, max: usize) -> Option<Vec<HomeBlock>> {
        // Blocks of transactions that replay needs no longer are as good as free: the tail moves
        // past them.
        let needed = self.checkpoint.blocks_needed();
        // What is left holds the largest transaction with its revokes.
        let excess = self.space.to_free(needed, self.largest());
        let blocks = self.checkpoint.blocks_to_write(excess, max);
        (excess > 0 && !blocks.is_empty()).then_some(blocks)
    }
}
