//! The near-head log: of the logs with space the one nearest the arm, which is where the last
//! request that was not logged ended.
//!
//! Invariant: the result has space for the record. It may lie in a region that is not on the open
//! list; where the list is full, only logs of its regions are considered.

use crate::layout::Layout;
use crate::logs::Log;

/// Returns the nearest log with space for `blocks` of those that `may` take a record. `head` is a
/// place.
pub fn near_head_log(
    layout: &Layout,
    logs: &[Log],
    head: u64,
    blocks: u32,
    may: impl Fn(u32) -> bool,
) -> Option<u32> {
    let near = layout.group_near(head);
    let distance =
        |log: u32| (layout.log_begin(log) + u64::from(logs[log as usize].fill)).abs_diff(head);
    let fits =
        |log: &u32| logs[*log as usize].free_blocks(layout.log_blocks()) >= blocks && may(*log);
    // The log of the arm's own group, or one on each side. Groups are of one size, so the first
    // found on a side is its nearest.
    let up = (near..layout.logs).find(fits);
    let down = (0..near).rev().find(fits);
    up.into_iter().chain(down).min_by_key(|log| distance(*log))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Sizes, Superblock};

    #[test]
    fn the_nearest_log_with_space_is_taken_on_either_side() {
        let sizes = Sizes { log: 64 << 10, group: 1 << 20 };
        let layout = Layout::new(Superblock::new(64 << 20, sizes, 3, false).unwrap()).unwrap();
        let mut logs = vec![Log::default(); layout.logs as usize];
        let head = layout.log_begin(20) - 10;
        assert_eq!(near_head_log(&layout, &logs, head, 4, |_| true), Some(20));
        // At the begin of a group, the log before is nearer than its own.
        assert_eq!(near_head_log(&layout, &logs, layout.log_begin(20) + 17, 4, |_| true), Some(20));
        logs[20].fill = 14;
        assert_eq!(near_head_log(&layout, &logs, head, 4, |_| true), Some(19));
        assert_eq!(near_head_log(&layout, &logs, head, 2, |_| true), Some(20));
        logs[19].closing = true;
        assert_eq!(near_head_log(&layout, &logs, head, 4, |_| true), Some(21));
        assert_eq!(near_head_log(&layout, &logs, head, 4, |log| log > 40), Some(41));
        assert_eq!(near_head_log(&layout, &logs, head, 17, |_| true), None);
        assert_eq!(near_head_log(&layout, &logs, u64::MAX, 4, |_| true), Some(layout.logs - 1));
    }
}
