//! Learns the gap between records of a log that follow each other at once, from their completion
//! times.
//!
//! A drive takes a while to begin with a request, and the platter turns during it. Where the gap
//! passes too soon, the record after it waits for a revolution and completes that much later. After
//! two in a row the gap is lengthened. When many came in time it is shortened by a block, down to
//! the first value. Where other requests wait, too, a late record is rarely noticed, as the drive
//! serves those before it. So records in time do not prove that a shorter gap would do.
//!
//! Invariant: no gap is longer than the superblock says, since a restart searches no farther.

use crate::BLOCK;
use std::time::Duration;
use units::Instant;

/// The initial and shortest gap, in blocks. It passes in a quarter to three quarters of a
/// millisecond (250 to 83 MB/s).
const FIRST: u32 = (64 << 10) / BLOCK as u32;
/// A lost revolution costs as much as some hundred blocks of gap: few are lost to find out whether
/// a shorter one does again.
const LENGTHENED: u32 = 4;
const IN_TIME: u32 = 128;
/// Half a revolution of the fastest disks. Less than this a drive takes for its overhead, and from
/// one track to the next.
const LATE: Duration = Duration::from_millis(2);
/// A block takes no longer than at 80 MB/s.
const BLOCK_TIME: Duration = Duration::from_nanos(BLOCK as u64 * 1_000_000_000 / 80_000_000);

/// A record: blocks of a log from `begin` up to `end`, and where the gap in front of them begins.
#[derive(Clone, Copy, Debug)]
pub struct Spaced {
    pub log: u32,
    pub gap_begin: u32,
    pub begin: u32,
    pub end: u32,
    /// Whether it was begun when the one before was in flight or had just ended, and there was
    /// space for a gap.
    pub at_once: bool,
}

pub struct Gap {
    most: u32,
    blocks: u32,
    /// Records in time since the last late one, or since the gap changed.
    in_time: u32,
    /// Whether the last record that counts was late, and the gap is not longer since.
    was_late: bool,
    /// The log and end of the record that the disk completed last, and when. `None`: it was no
    /// record.
    last: Option<(u32, u32, Instant)>,
}

impl Gap {
    pub fn new(most: u32) -> Gap {
        Gap { most, blocks: FIRST.min(most), in_time: 0, was_late: false, last: None }
    }
    pub fn blocks(&self) -> u32 {
        self.blocks
    }
    /// Records that the disk has completed something else: the next record does not count.
    pub fn interrupted(&mut self) {
        self.last = None;
    }
    /// The disk has completed a record. Whether it is known to have lost a revolution.
    pub fn completed(&mut self, record: Spaced, now: Instant) -> bool {
        let before = self.last.replace((record.log, record.end, now));
        let Some((_, _, ended)) = before.filter(|(log, end, _)| {
            record.at_once && (*log, *end) == (record.log, record.gap_begin)
        }) else {
            return false;
        };
        let is_late = now.since(ended) > LATE + BLOCK_TIME * (record.end - record.gap_begin);
        // Some were begun with a gap that has been changed since.
        let gap = record.begin - record.gap_begin;
        if is_late && gap >= self.blocks {
            // One alone may have lost it for another reason.
            if self.was_late {
                self.blocks = self.most.min(self.blocks + LENGTHENED);
            }
            self.was_late = !self.was_late;
            self.in_time = 0;
        } else if !is_late && gap <= self.blocks {
            self.was_late = false;
            self.in_time += 1;
            if self.in_time == IN_TIME {
                self.blocks = self.blocks.saturating_sub(1).max(FIRST.min(self.most));
                self.in_time = 0;
            }
        }
        is_late
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Completes consecutive records of two blocks; `milliseconds` has the time of each.
    fn completed(gap: &mut Gap, milliseconds: &[u64]) -> u32 {
        let (mut position, mut time, mut late) = (0, Instant(0), 0);
        gap.interrupted();
        for each in milliseconds {
            time = time.plus(Duration::from_millis(*each));
            let begin = position + gap.blocks();
            let record =
                Spaced { log: 1, gap_begin: position, begin, end: begin + 2, at_once: true };
            late += u32::from(gap.completed(record, time));
            position = record.end;
        }
        late
    }

    #[test]
    fn two_lost_revolutions_lengthen_the_gap_and_many_records_in_time_shorten_it() {
        let mut gap = Gap::new(32);
        assert_eq!((completed(&mut gap, &[1, 1, 9, 1, 9, 1]), gap.blocks()), (2, FIRST));
        assert_eq!((completed(&mut gap, &[1, 1, 9, 9, 1]), gap.blocks()), (2, 20));
        assert_eq!((completed(&mut gap, &[1; 1 + 2 * IN_TIME as usize]), gap.blocks()), (0, 18));
        assert_eq!(
            (completed(&mut gap, &[9; 100]), gap.blocks()),
            (99, 32),
            "never longer than a restart looks"
        );
        completed(&mut gap, &[1; 40 * IN_TIME as usize]);
        assert_eq!(gap.blocks(), FIRST);
        let mut none = Gap::new(0);
        assert_eq!(
            (completed(&mut none, &[1; 300]), completed(&mut none, &[9; 3]), none.blocks()),
            (0, 2, 0)
        );
    }

    #[test]
    fn only_records_that_follow_at_once_count() {
        let mut gap = Gap::new(32);
        let late = Instant(90_000_000);
        let record = Spaced { log: 1, gap_begin: 2, begin: 18, end: 20, at_once: true };
        for (other, interrupted) in [
            (Spaced { at_once: false, ..record }, false),
            (Spaced { log: 2, ..record }, false),
            (Spaced { gap_begin: 3, ..record }, false),
            (record, true),
        ] {
            gap.completed(Spaced { gap_begin: 0, begin: 0, end: 2, ..record }, Instant(0));
            if interrupted {
                gap.interrupted();
            }
            assert!(!gap.completed(other, late), "{other:?}");
        }
        assert_eq!(gap.blocks(), FIRST);
    }

    #[test]
    fn records_begun_with_the_gap_of_before_lengthen_it_once() {
        let mut gap = Gap::new(32);
        for record in 0..8 {
            let begin = 18 * record;
            let spaced = Spaced {
                log: 1,
                gap_begin: begin,
                begin: begin + 16,
                end: begin + 18,
                at_once: true,
            };
            gap.completed(spaced, Instant(u64::from(record) * 9_000_000));
        }
        assert_eq!(gap.blocks(), 20);
    }
}
