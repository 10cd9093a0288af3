//! Overwrites of blocks whose old content memory holds: only the bytes that differ are logged.
//!
//! Invariants
//! 1. The bytes that are compared are those that a replay finds beneath the record: the log holds
//!    them, or this transaction or an earlier one does, or home holds them durably. Data that was
//!    written home past the log and may still be in a disk's cache is none of these: a crash would
//!    leave old bytes beneath the difference.
//! 2. The policy decides as for the whole update. Only where it would log the block is there
//!    anything to spare.
//! 3. All parts of a block take no more of the log than the credit of one block.

use crate::cache::block::CachedBlock;
use crate::interface::error::EngineError;
use crate::interface::update::{Base, FileUpdate};
use crate::transaction::differing::differing;
use crate::transaction::handle::Handle;
use commit::Durability;
use journal::{Decision, Policy, UpdateSequence};
use smallvec::SmallVec;
use units::BlockRange;

/// Parts of a block that are logged by themselves. With more of them, or if they are longer than a
/// [`SHARE`] of the block, the block is logged whole.
const PARTS_MAX: usize = 8;
/// A third of a block and eight tags take less than a block in every record format, with blocks of
/// 1 KiB too: 1024 / 3 + 8 * 20 bytes.
const SHARE: usize = 3;
/// Parts with no more bytes between them are one: a tag takes as many.
const GAP_MAX: u32 = 16;

type Parts = SmallVec<[BlockRange; PARTS_MAX]>;

impl Handle {
    /// [`Handle::try_write_file_data`] for a caller that rewrites a block whatever part of it
    /// changes. If memory holds what the log or home will hold beneath the update, only bytes that
    /// differ are logged, and none if none does.
    ///
    /// # Errors
    /// As [`Handle::try_write_file_data`].
    pub fn try_overwrite(&mut self, update: &FileUpdate<'_>) -> Result<Option<bool>, EngineError> {
        let engine = self.engine().clone();
        engine.reader().check_range(update.home, 1)?;
        let block = engine.cache.borrow_mut().get(update.home).cloned();
        let Some(block) = block
            .filter(|block| may_log_difference(&*engine.policy, &engine.durability, block, update))
        else {
            return self.try_write_file_data(update);
        };
        let (decision, sequence) = engine.data_updates().decide(&block, update);
        let parts = parts_that_differ(update, &block.bytes());
        let Some(parts) = parts.filter(|_| decision.is_logged()) else {
            return self.try_write_file_data(update);
        };
        if !parts.is_empty() {
            self.log_parts(&block, update, &parts, sequence)?;
        }
        Ok(Some(true))
    }

    fn log_parts(
        &mut self,
        block: &std::rc::Rc<CachedBlock>,
        update: &FileUpdate<'_>,
        parts: &[BlockRange],
        sequence: UpdateSequence,
    ) -> Result<(), EngineError> {
        let engine = self.engine().clone();
        self.note_logged(update, sequence)?;
        for range in parts {
            let from = (range.start - update.range.start) as usize;
            let bytes = &update.bytes[from..from + range.len()];
            let part = FileUpdate { range: *range, bytes, ..*update };
            engine.data_updates().note_data(block, &part, Decision::LogBytes);
            engine.data_updates().write_data(block, &part, false);
        }
        Ok(())
    }
}

fn may_log_difference(
    policy: &dyn Policy,
    durability: &Durability,
    block: &CachedBlock,
    update: &FileUpdate<'_>,
) -> bool {
    let is_past_log = block.unordered_owner().is_some()
        || block.is_ordered()
        || durability.wants_flush_of_unordered(None);
    policy.logs_bytes()
        && update.base == Base::Home
        && block.is_whole()
        && (!is_past_log || units::fault!("difference-over-volatile-home"))
}

/// Returns the parts that differ; `None` if there are too many.
fn parts_that_differ(update: &FileUpdate<'_>, old: &[u8]) -> Option<Parts> {
    let mut parts = Parts::new();
    let range = update.range;
    // The new bytes are compared at the place of the range within a block.
    let found =
        differing(BlockRange::new(0, range.len() as u32), &old[range.as_usize()], update.bytes);
    for part in found {
        let part = BlockRange::new(part.start + range.start, part.end + range.start);
        let is_full = parts.len() == PARTS_MAX;
        match parts.last_mut() {
            Some(last) if part.start - last.end <= GAP_MAX => last.end = part.end,
            _ if is_full => return None,
            _ => parts.push(part),
        }
    }
    let bytes: usize = parts.iter().map(|part| part.len()).sum();
    (bytes <= old.len() / SHARE).then_some(parts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use units::{HomeBlock, Owner};

    fn parts(old: &[u8], range: BlockRange, bytes: &[u8]) -> Option<Vec<(u32, u32)>> {
        let update = FileUpdate {
            owner: Owner(1),
            home: HomeBlock(1),
            range,
            bytes,
            base: Base::Home,
            request: bytes.len() as u64,
            sequential: false,
            in_place: true,
            durable_only: false,
        };
        let parts = parts_that_differ(&update, old)?;
        Some(parts.iter().map(|part| (part.start, part.end)).collect())
    }

    #[test]
    fn near_parts_are_one_and_too_many_are_none() {
        let old = vec![0; 4096];
        let changed = |places: &[usize]| {
            let mut new = old.clone();
            places.iter().for_each(|at| new[*at] = 1);
            parts(&old, BlockRange::new(0, 4096), &new)
        };
        assert_eq!(changed(&[]), Some(vec![]));
        assert_eq!(changed(&[7, 24, 41, 100]), Some(vec![(7, 42), (100, 101)]));
        let eight: Vec<usize> = (0..8).map(|part| part * 500).collect();
        assert_eq!(changed(&eight).map(|parts| parts.len()), Some(8));
        assert_eq!(changed(&[eight, vec![4095]].concat()), None);
        assert_eq!(changed(&(0..1365).collect::<Vec<_>>()), Some(vec![(0, 1365)]));
        assert_eq!(changed(&(0..1366).collect::<Vec<_>>()), None);
        let part =
            parts(&old, BlockRange::new(512, 1024), &[&[0; 8][..], &[1; 4], &[0; 500]].concat());
        assert_eq!(part, Some(vec![(520, 524)]));
    }
}
