//! Changes that are written home: large writes, small ones for which no log has space, and trims.
//!
//! Invariants: the caller holds a claim on the blocks. Entries leave the table when the change at
//! home is complete, and a drop says so until it is durably recorded. A block of which some logged
//! sectors are not overwritten is written home whole.

use crate::claims::{Change, Claim, sectors_of, whole_blocks};
use crate::disk::DeviceResult;
use crate::policy::NearHome;
use crate::state::{State, mask_of};
use crate::{BLOCK, SECTOR};
use device::{Buffer, Durability};
use std::ops::Range;
use std::rc::Rc;

impl State {
    /// `bytes` of the logical disk from `at` on; whole sectors.
    pub async fn write_home(
        self: &Rc<Self>,
        at: u64,
        parts: Vec<Rc<Buffer>>,
        durability: Durability,
    ) -> DeviceResult<()> {
        let length: u64 = parts.iter().map(|part| part.len() as u64).sum();
        let (at, parts) = self.with_logged_edges(at, length, parts).await?;
        let length: u64 = parts.iter().map(|part| part.len() as u64).sum();
        let pieces = self.layout.pieces(at, length);
        let writes = if let [(place, _)] = &pieces[..] {
            vec![self.beside_records(self.main.write(*place, parts, durability))]
        } else {
            let whole = gather(&parts);
            let part = |range: &Range<u64>| {
                Rc::new(Buffer::copy_of(&whole[range.start as usize..range.end as usize]))
            };
            pieces
                .iter()
                .map(|(place, range)| {
                    self.beside_records(self.main.write(*place, vec![part(range)], durability))
                })
                .collect()
        };
        for result in runtime::join_all(writes).await {
            result?;
        }
        if let Some((place, range)) = pieces.last() {
            self.arm_is_at(place + (range.end - range.start));
        }
        self.newer_at_home(blocks_of(at, length));
        Ok(())
    }

    /// Returns whether a small write of these blocks is written home, as no log is nearer to the
    /// arm. Blocks that logs have are logged again: home would need the rest of them, and a drop.
    pub fn home_is_near(&self, homes: &Range<u64>) -> bool {
        let log = self.near_head(1 + (homes.end - homes.start) as u32);
        let inner = self.inner.borrow();
        let is_logged = inner.table.range(homes.start, homes.end).next().is_some()
            || homes.clone().any(|home| inner.pending.newest(home).is_some());
        let place = self.layout.place_of(homes.start).0;
        self.settings.near_home == NearHome::WrittenHome
            && !is_logged
            && log.is_some_and(|log| {
                let end = self.layout.log_begin(log) + u64::from(inner.logs[log as usize].fill);
                place.abs_diff(inner.head) <= end.abs_diff(inner.head)
            })
    }

    /// Claims a write's sectors, but whole blocks where those at its ends have other sectors in
    /// logs.
    pub async fn claim_home(&self, at: u64, length: u64) -> Claim {
        let sectors = at / SECTOR as u64..(at + length) / SECTOR as u64;
        let claim = self.claims.claim(Change::Home, sectors.clone()).await;
        if self.logged_edges(at, length) == (false, false) {
            return claim;
        }
        drop(claim);
        self.claims.claim(Change::Home, whole_blocks(&sectors)).await
    }

    /// Returns whether the first and the last block have sectors in logs that the range does not
    /// cover.
    fn logged_edges(&self, at: u64, length: u64) -> (bool, bool) {
        let (block, end) = (BLOCK as u64, at + length);
        let uncovered = |home: u64| {
            let (begin, until) =
                (at.max(home * block) - home * block, end.min((home + 1) * block) - home * block);
            let written = mask_of(begin as usize, until as usize);
            self.inner.borrow().table.get(home).is_some_and(|mapped| mapped.mask & !written != 0)
        };
        (uncovered(at / block), uncovered((end - 1) / block))
    }

    /// Returns the range and bytes with the first or last block whole, if it is written in part and
    /// has other sectors in a log.
    async fn with_logged_edges(
        self: &Rc<Self>,
        at: u64,
        length: u64,
        parts: Vec<Rc<Buffer>>,
    ) -> DeviceResult<(u64, Vec<Rc<Buffer>>)> {
        let block = BLOCK as u64;
        let end = at + length;
        let (first, last) = (at / block, (end - 1) / block);
        let (extend_first, extend_last) = self.logged_edges(at, length);
        if !extend_first && !extend_last {
            return Ok((at, parts));
        }
        let from = if extend_first { first * block } else { at };
        let until = if extend_last { (last + 1) * block } else { end };
        let mut whole = Buffer::zeroed((until - from) as usize);
        for (home, extend) in [(first, extend_first), (last, extend_last)] {
            if extend {
                let content = self.clone().read(home * block, BLOCK).await?;
                let to = (home * block - from) as usize;
                whole[to..to + BLOCK].copy_from_slice(&content);
            }
        }
        let to = (at - from) as usize;
        whole[to..to + length as usize].copy_from_slice(&gather(&parts));
        Ok((from, vec![Rc::new(whole)]))
    }

    /// Home has newer content of these blocks than any log: reads go there, and a restart must
    /// learn of it.
    pub fn newer_at_home(&self, homes: Range<u64>) {
        let mut inner = self.inner.borrow_mut();
        let mapped: Vec<u64> =
            inner.table.range(homes.start, homes.end).map(|(home, _)| home).collect();
        if mapped.is_empty() {
            return;
        }
        mapped.into_iter().for_each(|home| inner.unmap(&self.layout, home));
        let as_of = inner.assigned + 1;
        inner.drops.push(homes, as_of);
    }

    pub fn is_dropped(&self, homes: &Range<u64>) -> bool {
        self.inner.borrow().drops.concern(homes)
    }

    /// Trims whole blocks only.
    pub async fn trim(self: &Rc<Self>, at: u64, length: u64) -> DeviceResult<()> {
        let block = BLOCK as u64;
        let homes = at.div_ceil(block)..(at + length) / block;
        if homes.is_empty() {
            return Ok(());
        }
        let claim = self.claims.claim(Change::Alone, sectors_of(&homes)).await;
        self.newer_at_home(homes.clone());
        if self.main.geometry().discard {
            for (place, range) in
                self.layout.pieces(homes.start * block, (homes.end - homes.start) * block)
            {
                self.main.discard(place, range.end - range.start).await?;
            }
        }
        drop(claim);
        Ok(())
    }
}

pub fn gather(parts: &[Rc<Buffer>]) -> Vec<u8> {
    parts.iter().flat_map(|part| part.iter().copied()).collect()
}
/// The blocks that the bytes touch.
pub fn blocks_of(at: u64, length: u64) -> Range<u64> {
    at / BLOCK as u64..(at + length).div_ceil(BLOCK as u64)
}
