//! Choice of the blocks written home with one request: neighbours, and dirty ones beside them that
//! have not expired.

use crate::cache::block::CachedBlock;
use crate::cache::block_cache::Cache;
use std::collections::VecDeque;
use std::rc::Rc;
use units::HomeBlock;

/// Maximum number of blocks of one home write.
pub(crate) const RUN_BLOCKS_MAX: usize = 256;

/// Whether dirty neighbours that have not expired go along.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Neighbours {
    /// Room is needed: a disk spends far less on them now than on coming back.
    GoAlong,
    /// Neighbours stay: there is time, and they may grow or change again before it is theirs.
    Stay,
}

/// Blocks to be written home, one beside the other.
pub(crate) type Run = Vec<Rc<CachedBlock>>;

/// The blocks of `numbers` (sorted) in runs of neighbours. Those that go along need no read and are
/// not being changed.
pub(crate) fn runs_of(cache: &Cache, numbers: &[HomeBlock], neighbours: Neighbours) -> Vec<Run> {
    let along = neighbours == Neighbours::GoAlong;
    let goes = |at: HomeBlock| {
        let block = cache.peek(at)?;
        let is_chosen = || numbers.binary_search(&at).is_ok();
        (block.may_be_written_home()
            && (is_chosen() || along && block.is_stable() && !block.is_durable_only()))
        .then(|| block.clone())
    };
    let mut runs: Vec<Run> = Vec::new();
    // Behind the last run.
    let mut end = HomeBlock(0);
    for block in numbers.iter().filter_map(|number| goes(*number)) {
        if block.number() < end {
            continue;
        }
        let mut run = VecDeque::from([block]);
        while run.len() < RUN_BLOCKS_MAX && run[0].number() > end {
            let Some(block) = goes(HomeBlock(run[0].number().get() - 1)) else { break };
            run.push_front(block);
        }
        end = run[run.len() - 1].number().plus(1);
        while run.len() < RUN_BLOCKS_MAX {
            let Some(block) = goes(end) else { break };
            run.push_back(block);
            end = end.plus(1);
        }
        runs.push(run.into());
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::block_cache::Temperature;
    use device::Buffer;
    use units::{BlockSize, Owner};

    fn runs(dirty: &[u64], chosen: &[u64], neighbours: Neighbours) -> Vec<Vec<u64>> {
        let mut cache = Cache::new(4 << 20, BlockSize::new(1024).unwrap());
        for at in dirty {
            let block = cache.get_or_insert(HomeBlock(*at), Temperature::Warm);
            block.replace(Buffer::zeroed(1024));
            block.mark_unordered(Owner(1));
        }
        let chosen: Vec<_> = chosen.iter().copied().map(HomeBlock).collect();
        let runs = runs_of(&cache, &chosen, neighbours);
        runs.iter().map(|run| run.iter().map(|block| block.number().get()).collect()).collect()
    }

    #[test]
    fn neighbours_go_along_only_where_room_is_needed() {
        let dirty = [0, 1, 2, 4, 6, 7];
        assert_eq!(runs(&dirty, &[1, 7], Neighbours::Stay), [[1], [7]]);
        assert_eq!(runs(&dirty, &[1, 7], Neighbours::GoAlong), [vec![0, 1, 2], vec![6, 7]]);
    }

    #[test]
    fn runs_have_no_duplicates_and_bounded_length() {
        let all: Vec<u64> = (0..600).collect();
        let runs = runs(&all, &[0, 1, 255, 256, 599], Neighbours::GoAlong);
        assert!(runs.iter().all(|run| run.len() <= RUN_BLOCKS_MAX));
        assert!(runs.concat().windows(2).all(|pair| pair[0] < pair[1]), "{runs:?}");
    }

    #[test]
    fn what_is_clean_stays() {
        assert_eq!(runs(&[3], &[2, 3, 4], Neighbours::GoAlong), [[3]]);
    }
}
