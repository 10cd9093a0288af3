//! Allowed content of each sector: the versions that no later promised one has replaced.
//!
//! Changes of a sector may be in flight together. One is *before* another if it was acknowledged
//! when the other began. Of two that met, either may have been carried out first.

use super::content;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

pub const SECTOR: u64 = 512;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// Written by the write of this number; 0 writes zeros.
    Written(u64),
    /// Discarded: any content may be read.
    Discarded,
}

/// Pairs of writes of a block, by its number, of which the second shows where both wrote.
type Passed = BTreeSet<(u64, u64, u64)>;

/// Kind of content that a change writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Fresh,
    /// Differs in few bytes from what the first sector holds, or held that number of writes ago.
    NearEqual(usize),
    Zeros,
    Discard,
}

#[derive(Clone, Debug)]
struct Version {
    what: What,
    begun: u64,
    acknowledged: Option<u64>,
    /// A durable write that was acknowledged, or what a crash left.
    is_durable: bool,
}

impl Version {
    fn is_before(&self, other: &Version) -> bool {
        self.acknowledged.is_some_and(|at| at < other.begun)
    }
}

#[derive(Clone, Default)]
pub struct Model {
    /// Versions by sector, in the order in which they began.
    sectors: BTreeMap<u64, Vec<Version>>,
    /// Sectors of writes, by number.
    writes: BTreeMap<u64, Range<u64>>,
    clock: u64,
    /// The latest begin of a flush that was answered: what was acknowledged before is promised.
    flushed: u64,
    next: u64,
    /// Sectors that the exported disk has at least.
    size: u64,
    /// A disk has failed, and the journal has recorded it: every later life must report that.
    pub error_is_recorded: bool,
    /// A drain of this life has failed.
    pub drain_failed: bool,
}

pub struct Change {
    pub what: What,
    sectors: Range<u64>,
    begun: u64,
}

/// Allowed remains of a partially applied write after a crash.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Atomic {
    /// Single sectors.
    Sector,
    /// Blocks of that number of sectors.
    Block(u64),
    /// Blocks of `block` sectors, and whole writes of at most `most` sectors.
    Write { block: u64, most: u64 },
}

impl Model {
    pub fn begin(&mut self, sectors: Range<u64>, kind: Kind) -> Change {
        let begun = self.now();
        self.next += 1;
        let what = match kind {
            Kind::Zeros => What::Written(0),
            Kind::Discard => What::Discarded,
            Kind::Fresh => What::Written(content::number(self.next, None)),
            Kind::NearEqual(ago) => {
                What::Written(content::number(self.next, self.written(sectors.start, ago)))
            }
        };
        if let What::Written(id) = what {
            self.writes.insert(id, sectors.clone());
        }
        let version = Version { what, begun, acknowledged: None, is_durable: false };
        for sector in sectors.clone() {
            self.versions(sector).push(version.clone());
        }
        Change { what, sectors, begun }
    }
    /// Returns the write of a sector that began `ago` writes ago.
    fn written(&self, sector: u64, ago: usize) -> Option<u64> {
        let versions = self.sectors.get(&sector)?.iter().rev();
        let ids = versions.filter_map(|version| match version.what {
            What::Written(id) if id != 0 => Some(id),
            _ => None,
        });
        ids.take(ago + 1).last()
    }
    fn versions(&mut self, sector: u64) -> &mut Vec<Version> {
        self.sectors.entry(sector).or_insert_with(|| vec![found(0)])
    }
    pub fn now(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }
    pub fn acknowledged(&mut self, change: Change, durable: bool) {
        let clock = self.now();
        for sector in change.sectors {
            let versions = self.versions(sector).iter_mut();
            for version in versions.filter(|version| version.begun == change.begun) {
                version.acknowledged = Some(clock);
                version.is_durable = durable;
            }
        }
    }
    /// A flush that began at `since` was answered.
    pub fn flushed(&mut self, since: u64) {
        self.flushed = self.flushed.max(since);
    }

    /// The disk has grown to that number of sectors: durably, once this was answered.
    pub fn grown(&mut self, sectors: u64) {
        self.size = self.size.max(sectors);
    }

    /// Checks what a read found that began at `since` and ends now.
    pub fn check_read(
        &self,
        first: u64,
        read: &[u64],
        since: u64,
        block: u64,
    ) -> Result<(), String> {
        let counts = |version: &Version| version.acknowledged.is_some_and(|at| at < since);
        self.check(first, read, Atomic::Block(block), counts)
    }
    /// Checks, after a power cut, that each sector holds a version that nothing promised has
    /// replaced. Where a write shows in one sector, it or a later one is in all of its sectors that
    /// `atomic` names.
    pub fn check_crashed(&self, all: &[u64], atomic: Atomic) -> Result<(), String> {
        match all.len() as u64 >= self.size {
            true => self.check(0, all, atomic, |version| self.is_promised(version)),
            false => Err(format!("{} sectors are left of {}", all.len(), self.size)),
        }
    }

    /// Checks what a read found after a failure of the disk: what a flush covered is there.
    pub fn check_unflushed(&self, first: u64, read: &[u64]) -> Result<(), String> {
        self.check(first, read, Atomic::Sector, |version| self.is_promised(version))
    }
    fn is_promised(&self, version: &Version) -> bool {
        version.is_durable || version.acknowledged.is_some_and(|at| at < self.flushed)
    }

    fn check(
        &self,
        first: u64,
        content: &[u64],
        atomic: Atomic,
        counts: impl Fn(&Version) -> bool,
    ) -> Result<(), String> {
        let mut shown = BTreeSet::new();
        for (sector, id) in (first..).zip(content) {
            let Some(versions) = self.sectors.get(&sector) else {
                same(sector, 0, *id)?;
                continue;
            };
            let kept = versions.iter().filter(|version| counts(version)).map(|it| it.begun).max();
            let is_left =
                |it: &&Version| it.acknowledged.is_none_or(|at| kept.is_none_or(|kept| at >= kept));
            let may = |it: &Version| it.what == What::Discarded || it.what == What::Written(*id);
            if !versions.iter().filter(is_left).any(may) {
                return Err(format!("sector {sector} holds write {id:#x} of {versions:x?}"));
            }
            shown.insert(*id);
        }
        let mut passed = Passed::new();
        for id in shown {
            let Some(written) = self.writes.get(&id).filter(|_| id != 0) else { continue };
            for (part, block) in parts(written, atomic) {
                self.check_part(id, &part, (first, content), block.map(|at| (at, &mut passed)))?;
            }
        }
        Ok(())
    }

    /// Checks that where the write `id` shows in one sector of a part, all others hold it or
    /// another that is not before it. `passed`, for the block of this number: pairs of writes of a
    /// block of which the second shows where both wrote.
    fn check_part(
        &self,
        id: u64,
        part: &Range<u64>,
        (first, content): (u64, &[u64]),
        mut passed: Option<(u64, &mut Passed)>,
    ) -> Result<(), String> {
        let there = first..first + content.len() as u64;
        let part = part.start.max(there.start)..part.end.min(there.end);
        let at = |sector: u64| content[(sector - first) as usize];
        if !part.clone().any(|sector| at(sector) == id) {
            return Ok(());
        }
        for sector in part.clone() {
            let (found, versions) = (at(sector), &self.sectors[&sector]);
            let Some(own) = versions.iter().find(|it| it.what == What::Written(id)) else {
                continue;
            };
            let is_left = |it: &&Version| !it.is_before(own);
            let mut left = versions.iter().filter(is_left);
            if found == id || left.clone().any(|it| it.what == What::Discarded) {
                continue;
            }
            let torn = |by: &str| {
                Err(format!("write {id:#x} is torn {by}: sector {sector} holds {found:#x}"))
            };
            if !left.any(|it| it.what == What::Written(found)) {
                return torn("by what was before");
            }
            if let Some((block, passed)) = passed.as_mut().filter(|_| found != 0) {
                passed.insert((*block, id, found));
                if passed.contains(&(*block, found, id)) {
                    return torn("by another in flight");
                }
            }
        }
        Ok(())
    }

    /// Takes what was found as the only version from now on.
    pub fn settle(&mut self, all: &[u64]) {
        self.sectors.clear();
        self.writes.clear();
        self.size = all.len() as u64;
        self.drain_failed = false;
        for (sector, id) in (0..).zip(all).filter(|(_, id)| **id != 0) {
            self.sectors.insert(sector, vec![found(*id)]);
        }
    }
}

/// The version of a sector that a life begins with.
fn found(id: u64) -> Version {
    Version { what: What::Written(id), begun: 0, acknowledged: Some(0), is_durable: true }
}

/// Parts of a write that a crash leaves whole or not at all, with the number of those in one block.
fn parts(written: &Range<u64>, atomic: Atomic) -> Vec<(Range<u64>, Option<u64>)> {
    let (block, most) = match atomic {
        Atomic::Sector => return Vec::new(),
        Atomic::Block(block) => (block, 0),
        Atomic::Write { block, most } => (block, most),
    };
    let cut = |at: u64| written.start.max(at * block)..written.end.min((at + 1) * block);
    let blocks = written.start / block..written.end.div_ceil(block);
    let whole = (written.end - written.start <= most).then(|| (written.clone(), None));
    blocks.map(|at| (cut(at), Some(at))).chain(whole).collect()
}

fn same(sector: u64, wanted: u64, found: u64) -> Result<(), String> {
    match wanted == found {
        true => Ok(()),
        false => Err(format!("sector {sector} holds write {found:#x} instead of {wanted:#x}")),
    }
}
