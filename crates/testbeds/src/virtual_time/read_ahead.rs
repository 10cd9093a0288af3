//! Reading ahead of a program that reads a file in order, as a kernel does.

use std::cell::Cell;
use std::ops::Range;

/// State of an open file: where a sequential reader continues, and the end of the read-ahead.
#[derive(Default)]
pub(crate) struct ReadAhead {
    next: Cell<u64>,
    until: Cell<u64>,
}

impl ReadAhead {
    /// Returns the range to read beside the `wanted` bytes; often empty. From the second read on a
    /// whole window lies after the one that the reader is in, as in Linux since 2.6.23
    /// (`ondemand_readahead`).
    pub fn beside(&self, wanted: &Range<u64>, window: u64) -> Range<u64> {
        let in_order = self.next.replace(wanted.end) == wanted.start;
        if !in_order || window == 0 {
            self.until.set(wanted.end);
            return 0..0;
        }
        let from = wanted.end.max(self.until.get());
        let until = match wanted.start {
            0 => window,
            _ => wanted.end.next_multiple_of(window) + window,
        };
        self.until.set(from.max(until));
        from..until.max(from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: u64 = 1 << 10;

    /// Returns the read-ahead of reads of 64 KiB, in KiB.
    fn read_beside(reads: &[u64]) -> Vec<Range<u64>> {
        let file = ReadAhead::default();
        let of = |at: &u64| {
            let beside = file.beside(&(at * KIB..(at + 64) * KIB), 128 * KIB);
            beside.start / KIB..beside.end / KIB
        };
        reads.iter().map(of).filter(|beside| !beside.is_empty()).collect()
    }

    #[test]
    fn a_window_is_read_behind_the_one_that_is_used() {
        assert_eq!(read_beside(&[0, 64, 128, 192, 256]), [64..128, 128..256, 256..384, 384..512]);
    }

    #[test]
    fn random_readers_have_nothing_read_ahead() {
        assert!(read_beside(&[512, 64, 640, 0]).is_empty());
        assert_eq!(read_beside(&[512, 576, 640]), [640..768, 768..896]);
    }
}
