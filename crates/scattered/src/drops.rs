//! Homes that hold newer content than their log records: until a record or a snapshot durably says
//! so, a restart would use the records.
//!
//! Invariant: a range is listed from the completion of the change at home until it is durably
//! recorded; only then is that change acknowledged.

use std::collections::VecDeque;
use std::ops::Range;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dropped {
    pub number: u64,
    pub homes: Range<u64>,
    /// Records with this sequence or a later one are newer than the change.
    pub as_of: u64,
}

#[derive(Default)]
pub struct Drops {
    list: VecDeque<Dropped>,
    next: u64,
}

impl Drops {
    /// `as_of` never falls from call to call.
    pub fn push(&mut self, homes: Range<u64>, as_of: u64) {
        // A record's entry counts its blocks with 32 bits.
        for home in homes.clone().step_by(u32::MAX as usize) {
            self.next += 1;
            let homes = home..homes.end.min(home + u64::from(u32::MAX));
            self.list.push_back(Dropped { number: self.next, homes, as_of });
        }
    }
    pub fn all(&self) -> Vec<Dropped> {
        self.list.iter().cloned().collect()
    }
    /// The newest one's number: what is there now.
    pub fn mark(&self) -> u64 {
        self.next
    }
    pub fn concern(&self, homes: &Range<u64>) -> bool {
        self.list
            .iter()
            .any(|dropped| dropped.homes.start < homes.end && homes.start < dropped.homes.end)
    }
    /// Forgets the drops up to `mark`, which are durably recorded.
    pub fn recorded(&mut self, mark: u64) {
        self.list.retain(|dropped| dropped.number > mark);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drops_after_the_mark_stay_listed() {
        let mut drops = Drops::default();
        drops.push(5..9, 3);
        let mark = drops.mark();
        drops.push(20..21, 4);
        assert!(drops.concern(&(8..10)) && !drops.concern(&(9..20)));
        drops.recorded(mark);
        assert!(!drops.concern(&(5..9)) && drops.concern(&(0..100)));
        // 32 bits count a record's blocks.
        drops.push(0..u64::from(u32::MAX) + 5, 6);
        assert_eq!(drops.all().len(), 3);
    }
}
