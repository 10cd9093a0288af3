use super::{LogFull, LogRun, LogRuns, LogSpace};
use units::LogBlock;

/// One ring of log blocks `first..end`, as JBD2 has it: used from tail to head. One block always stays free,
/// so that head = tail means empty.
#[derive(Clone, Debug)]
pub struct CircularLog {
    first: LogBlock,
    end: LogBlock,
    head: LogBlock,
    used: u32,
}

impl CircularLog {
    /// An empty log in blocks `first..end`, beginning at `first`.
    pub fn new(first: LogBlock, end: LogBlock) -> CircularLog {
        assert!(first < end && end.get() - first.get() >= 2, "a log of {first}..{end}");
        CircularLog { first, end, head: first, used: 0 }
    }

    pub fn tail(&self) -> LogBlock {
        let (length, offset) = (self.length(), self.head.get() - self.first.get());
        self.first.plus((offset + length - self.used) % length)
    }

    /// How many blocks lie from `from` forward to `to`, round the ring.
    pub fn distance(&self, from: LogBlock, to: LogBlock) -> u32 {
        (to.get() + self.length() - from.get()) % self.length()
    }

    fn length(&self) -> u32 {
        self.end.get() - self.first.get()
    }
}

impl LogSpace for CircularLog {
    fn capacity(&self) -> u32 {
        self.length() - 1
    }
    fn free(&self) -> u32 {
        self.capacity() - self.used
    }
    fn head(&self) -> LogBlock {
        self.head
    }
    fn allocate(&mut self, count: u32) -> Result<LogRuns, LogFull> {
        assert!(count > 0);
        if count > self.free() {
            return Err(LogFull { needed: count, free: self.free() });
        }
        let before_wrap = count.min(self.end.get() - self.head.get());
        let mut runs = vec![LogRun { start: self.head, count: before_wrap }];
        if count > before_wrap {
            runs.push(LogRun { start: self.first, count: count - before_wrap });
        }
        let offset = self.head.get() - self.first.get();
        self.head = self.first.plus((offset + count) % self.length());
        self.used += count;
        Ok(LogRuns(runs))
    }
    fn release_to(&mut self, tail: LogBlock) {
        assert!(self.first <= tail && tail < self.end, "{tail} is outside the log");
        let used = self.distance(tail, self.head);
        assert!(used <= self.used, "the tail moved backwards");
        self.used = used;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log() -> CircularLog {
        CircularLog::new(LogBlock(1), LogBlock(11))
    }

    #[test]
    fn a_run_that_passes_the_end_wraps_into_two() {
        let mut log = log();
        log.allocate(8).unwrap();
        log.release_to(LogBlock(9));
        let runs = log.allocate(5).unwrap();
        let expected = [LogRun { start: LogBlock(9), count: 2 }, LogRun { start: LogBlock(1), count: 3 }];
        assert_eq!(runs.0, expected);
        assert_eq!((log.head(), log.tail(), log.free()), (LogBlock(4), LogBlock(9), 4));
    }

    #[test]
    fn the_head_never_reaches_the_tail() {
        let mut log = log();
        assert_eq!(log.allocate(10), Err(LogFull { needed: 10, free: 9 }));
        log.allocate(9).unwrap();
        assert_eq!(log.free(), 0);
        assert_ne!(log.head(), log.tail());
        log.release_to(log.head());
        assert_eq!(log.free(), 9);
        // A run that ends exactly at the end of the log leaves the head at its first block.
        log.allocate(1).unwrap();
        assert_eq!(log.head(), LogBlock(1));
    }

    #[test]
    fn free_and_used_always_sum_to_the_capacity() {
        let (mut log, mut tail) = (log(), LogBlock(1));
        for step in 0..1000u32 {
            if log.allocate(1 + step % 4).is_err() {
                tail = if step % 2 == 0 { log.head() } else { LogBlock(1 + (tail.get() % 10)) };
                log.release_to(tail);
            }
            assert_eq!(log.distance(log.tail(), log.head()) + log.free(), log.capacity());
            assert_eq!(log.tail(), tail);
        }
    }
}
