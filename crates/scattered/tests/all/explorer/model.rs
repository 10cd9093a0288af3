//! The versions that each sector may hold, since the last that was promised.

use std::collections::BTreeMap;
use std::ops::Range;

pub const SECTOR: u64 = 512;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    Written(u64),
    /// Anything may be read.
    Trimmed,
}

#[derive(Clone, Debug)]
struct Version {
    what: What,
    /// The whole block was written at once.
    whole: bool,
    /// When it was answered.
    answered: Option<u64>,
}

/// Versions by sector; the first is promised.
#[derive(Clone, Default)]
pub struct Model {
    sectors: BTreeMap<u64, Vec<Version>>,
    clock: u64,
    next: u64,
    busy: Vec<Range<u64>>,
}

pub struct Change {
    pub what: What,
    sectors: Range<u64>,
}

impl Model {
    /// Begins a change; `None` where another change of these sectors is in flight. Others of the
    /// same blocks may be.
    pub fn begin(&mut self, sectors: Range<u64>, trims: bool) -> Option<Change> {
        if self.is_busy(&sectors) {
            return None;
        }
        self.busy.push(sectors.clone());
        self.next += 1;
        let what = if trims { What::Trimmed } else { What::Written(self.next) };
        for sector in sectors.clone() {
            let block = sector / 8 * 8..sector / 8 * 8 + 8;
            let whole = sectors.start <= block.start && block.end <= sectors.end;
            self.versions(sector).push(Version { what, whole, answered: None });
        }
        Some(Change { what, sectors })
    }
    fn versions(&mut self, sector: u64) -> &mut Vec<Version> {
        let first = Version { what: What::Written(0), whole: true, answered: Some(0) };
        self.sectors.entry(sector).or_insert_with(|| vec![first])
    }
    pub fn answered(&mut self, change: Change, durable: bool) {
        self.clock += 1;
        let (clock, sectors) = (self.clock, change.sectors);
        for sector in sectors.clone() {
            let versions = self.versions(sector);
            if let Some(last) = versions.last_mut() {
                last.answered = Some(clock);
            }
            if durable {
                versions.drain(..versions.len() - 1);
            }
        }
        self.busy.retain(|other| *other != sectors);
    }
    pub fn flush_begins(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }
    pub fn flushed(&mut self, since: u64) {
        for versions in self.sectors.values_mut() {
            let promised =
                versions.iter().rposition(|version| version.answered.is_some_and(|at| at < since));
            versions.drain(..promised.unwrap_or(0));
        }
    }

    /// Checks a read that begins and ends without a change of these sectors in flight.
    pub fn check_read(&self, sector: u64, found: u64) -> Result<(), String> {
        let Some(versions) = self.sectors.get(&sector) else { return same(sector, 0, found) };
        match versions.last().map(|version| version.what) {
            Some(What::Written(id)) => same(sector, id, found),
            _ => Ok(()),
        }
    }
    /// The newest write of a sector: they rise.
    pub fn last(&self, sector: u64) -> u64 {
        let versions = self.sectors.get(&sector).into_iter().flatten();
        let written = versions.filter_map(|version| match version.what {
            What::Written(id) => Some(id),
            What::Trimmed => None,
        });
        written.max().unwrap_or(0)
    }
    pub fn is_busy(&self, sectors: &Range<u64>) -> bool {
        self.busy.iter().any(|other| other.start < sectors.end && sectors.start < other.end)
    }

    /// Checks a disk after a power cut: each sector holds a version not older than the last
    /// promised; a block that was written whole is not torn.
    pub fn check_crashed(
        &self,
        first: u64,
        found: &[u64],
        whole_blocks: bool,
    ) -> Result<(), String> {
        for (sector, id) in (first..).zip(found) {
            let Some(versions) = self.sectors.get(&sector) else {
                same(sector, 0, *id)?;
                continue;
            };
            let may = |version: &Version| {
                version.what == What::Trimmed || version.what == What::Written(*id)
            };
            if !versions.iter().any(may) {
                return Err(format!("sector {sector} holds write {id}; it may hold {versions:?}"));
            }
        }
        for (block, ids) in (first / 8..).zip(found.chunks_exact(8)) {
            let all = |sector| {
                self.sectors.get(&sector).is_none_or(|versions| {
                    versions.iter().all(|version| version.whole && version.what != What::Trimmed)
                })
            };
            if whole_blocks
                && (block * 8..block * 8 + 8).all(all)
                && ids.iter().any(|id| *id != ids[0])
            {
                return Err(format!("block {block} is torn: {ids:?}"));
            }
        }
        Ok(())
    }
    /// Takes the versions found as the present ones.
    pub fn settle(&mut self, first: u64, found: &[u64]) {
        self.sectors.clear();
        self.busy.clear();
        for (sector, id) in (first..).zip(found) {
            let block = ((sector - first) / 8 * 8) as usize;
            let whole = found[block..].iter().take(8).all(|other| other == id);
            let what = What::Written(*id);
            self.sectors.insert(sector, vec![Version { what, whole, answered: Some(0) }]);
        }
    }
}

fn same(sector: u64, wanted: u64, found: u64) -> Result<(), String> {
    if wanted == found {
        Ok(())
    } else {
        Err(format!("sector {sector} holds write {found} instead of {wanted}"))
    }
}
