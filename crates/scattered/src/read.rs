//! Reads: from home, from logs, or from both, as the table says.

use crate::disk::DeviceResult;
use crate::state::State;
use crate::table::Mapped;
use crate::{BLOCK, SECTOR};
use device::Buffer;
use std::ops::Range;
use std::rc::Rc;

/// Bytes of the disk below, and where in the answer they belong.
type Run = (u64, Range<usize>);

impl State {
    /// The range was checked.
    pub async fn read(self: Rc<Self>, at: u64, length: usize) -> DeviceResult<Buffer> {
        self.inner.borrow_mut().statistics.reads += 1;
        let pieces = self.layout.pieces(at, length as u64);
        let mapped = self.inner.borrow().table.touches(at, length as u64);
        if !mapped {
            if let [(from, _)] = &pieces[..] {
                let result = self.beside_records(self.main.read(*from, length)).await;
                self.arm_is_at(from + length as u64);
                return result;
            }
        }
        let (logged, homes) = self.plan_read(at, length, &pieces);
        if !logged.is_empty() {
            self.inner.borrow_mut().statistics.redirected_reads += 1;
        }
        let pins: Vec<_> = logged.iter().map(|(from, _)| self.pin(from / BLOCK as u64)).collect();
        // Home first: where both have bytes of a piece, those of the log are newer.
        let runs: Vec<&Run> = homes.iter().chain(&logged).collect();
        let reads = runs
            .iter()
            .map(|(from, range)| self.beside_records(self.main.read(*from, range.len())))
            .collect();
        let mut whole = Buffer::zeroed(length);
        for ((_, range), read) in runs.iter().zip(runtime::join_all(reads).await) {
            whole[range.clone()].copy_from_slice(&read?);
        }
        drop(pins);
        if let Some((from, range)) = homes.last() {
            self.arm_is_at(from + range.len() as u64);
        }
        Ok(whole)
    }

    /// Runs that lie in logs; and of each piece at home what reaches from its first to its last
    /// sector that is there.
    fn plan_read(
        &self,
        at: u64,
        length: usize,
        pieces: &[(u64, Range<u64>)],
    ) -> (Vec<Run>, Vec<Run>) {
        let inner = self.inner.borrow();
        let mut logged: Vec<Run> = Vec::new();
        let mut homes = Vec::new();
        let block = BLOCK as u64;
        let mut entries =
            inner.table.range(at / block, (at + length as u64).div_ceil(block)).peekable();
        for (place, piece) in pieces {
            let mut home: Option<Range<u64>> = None;
            for offset in piece.clone().step_by(SECTOR) {
                let (of, sector) = ((at + offset) / block, (at + offset) % block / SECTOR as u64);
                while entries.peek().is_some_and(|(home, _)| *home < of) {
                    entries.next();
                }
                let entry =
                    entries.peek().filter(|(home, _)| *home == of).map(|(_, mapped)| *mapped);
                match entry {
                    Some(Mapped { place, mask, .. }) if mask & 1 << sector != 0 => {
                        let from = place * block + sector * SECTOR as u64;
                        add_sector(&mut logged, from, offset as usize);
                    }
                    _ => {
                        let end = offset + SECTOR as u64;
                        home = Some(home.map_or(offset..end, |range| range.start..end));
                    }
                }
            }
            if let Some(range) = home {
                let from = place + (range.start - piece.start);
                homes.push((from, range.start as usize..range.end as usize));
            }
        }
        (logged, homes)
    }

    /// Records where a request that is not logged ended, in bytes. Where the disk has several
    /// waiting, the one that is complete counts.
    pub fn arm_is_at(&self, end: u64) {
        self.inner.borrow_mut().head = end / BLOCK as u64;
    }
}

/// Adds a sector to the last run, if it continues there.
fn add_sector(runs: &mut Vec<Run>, from: u64, to: usize) {
    match runs.last_mut() {
        Some((begin, range)) if *begin + range.len() as u64 == from && range.end == to => {
            range.end += SECTOR
        }
        _ => runs.push((from, to..to + SECTOR)),
    }
}
