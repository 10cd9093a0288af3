//! The versions that each sector may hold, since the last that was promised.

use std::collections::BTreeMap;
use std::ops::Range;

pub const SECTOR: u64 = 512;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// By the write of this number; 0 writes zeros.
    Written(u64),
    /// Anything may be read.
    Discarded,
}

#[derive(Clone, Debug)]
struct Version {
    what: What,
    /// When it was acknowledged.
    acknowledged: Option<u64>,
}

/// Versions by sector; the first is promised.
#[derive(Clone, Default)]
pub struct Model {
    sectors: BTreeMap<u64, Vec<Version>>,
    /// Number of the last change of each sector.
    newest: BTreeMap<u64, u64>,
    /// Sectors of writes, by number.
    writes: BTreeMap<u64, Range<u64>>,
    clock: u64,
    next: u64,
    busy: Vec<Range<u64>>,
}

pub struct Change {
    pub what: What,
    sectors: Range<u64>,
}

/// Parts of an interrupted write that a crash may leave.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Atomic {
    /// Single sectors.
    Sector,
    /// Blocks of this many sectors.
    Block(u64),
    /// Blocks, and whole writes of at most `most` sectors.
    Write { block: u64, most: u64 },
}

impl Model {
    /// Begins a change; `None` where another change of these sectors is in flight. Other sectors of
    /// the same blocks may be.
    pub fn begin(&mut self, sectors: Range<u64>, what: fn(u64) -> What) -> Option<Change> {
        if self.is_busy(&sectors) {
            return None;
        }
        self.busy.push(sectors.clone());
        self.next += 1;
        let what = what(self.next);
        self.writes.insert(self.next, sectors.clone());
        for sector in sectors.clone() {
            self.versions(sector).push(Version { what, acknowledged: None });
            self.newest.insert(sector, self.next);
        }
        Some(Change { what, sectors })
    }
    fn versions(&mut self, sector: u64) -> &mut Vec<Version> {
        let first = Version { what: What::Written(0), acknowledged: Some(0) };
        self.sectors.entry(sector).or_insert_with(|| vec![first])
    }
    pub fn acknowledged(&mut self, change: Change, durable: bool) {
        self.clock += 1;
        let (clock, sectors) = (self.clock, change.sectors);
        for sector in sectors.clone() {
            let versions = self.versions(sector);
            if let Some(last) = versions.last_mut() {
                last.acknowledged = Some(clock);
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
                versions.iter().rposition(|it| it.acknowledged.is_some_and(|at| at < since));
            versions.drain(..promised.unwrap_or(0));
        }
    }

    /// Checks a read that begins and ends without a change of the sector in flight.
    pub fn check_read(&self, sector: u64, found: u64) -> Result<(), String> {
        let Some(versions) = self.sectors.get(&sector) else { return same(sector, 0, found) };
        match versions.last().map(|version| version.what) {
            Some(What::Written(id)) => same(sector, id, found),
            _ => Ok(()),
        }
    }
    pub fn is_busy(&self, sectors: &Range<u64>) -> bool {
        self.busy.iter().any(|other| other.start < sectors.end && sectors.start < other.end)
    }
    /// Returns the number of the last change of a sector.
    pub fn newest(&self, sector: u64) -> u64 {
        self.newest.get(&sector).copied().unwrap_or(0)
    }

    /// Checks a volume after a power cut: each sector holds a version not older than the last
    /// promised one. Where a write shows in one sector, it or a later one is in all of its sectors
    /// that `atomic` covers.
    pub fn check_crashed(&self, found: &[u64], atomic: Atomic) -> Result<(), String> {
        let mut shown = BTreeMap::new();
        for (sector, id) in (0..).zip(found) {
            let Some(versions) = self.sectors.get(&sector) else {
                same(sector, 0, *id)?;
                continue;
            };
            let may = |it: &Version| it.what == What::Discarded || it.what == What::Written(*id);
            if !versions.iter().any(may) {
                return Err(format!("sector {sector} holds write {id}; it may hold {versions:?}"));
            }
            shown.entry(*id).or_insert(sector);
        }
        if atomic == Atomic::Sector {
            return Ok(());
        }
        for id in shown.into_keys() {
            let Some(written) = self.writes.get(&id) else { continue };
            self.check_whole(id, written, found, atomic)?;
        }
        Ok(())
    }

    fn check_whole(
        &self,
        id: u64,
        written: &Range<u64>,
        found: &[u64],
        atomic: Atomic,
    ) -> Result<(), String> {
        let (block, whole) = match atomic {
            Atomic::Sector => return Ok(()),
            Atomic::Block(block) => (block, false),
            Atomic::Write { block, most } => (block, written.end - written.start <= most),
        };
        let is_of = |sector: &u64| found[*sector as usize] == id;
        let parts: Vec<Range<u64>> = match whole {
            true => vec![written.clone()],
            false => {
                let blocks = written.start / block..written.end.div_ceil(block);
                let cut =
                    |at: u64| written.start.max(at * block)..written.end.min((at + 1) * block);
                blocks.map(cut).collect()
            }
        };
        for part in parts {
            if !part.clone().any(|sector| is_of(&sector)) {
                continue;
            }
            for sector in part.clone() {
                if !self.is_at_or_after(sector, id, found[sector as usize]) {
                    return Err(format!(
                        "write {id} of sectors {written:?} is torn: sector {sector} holds {}",
                        found[sector as usize]
                    ));
                }
            }
        }
        Ok(())
    }

    /// Returns whether `found` is the write `id` of this sector or a later one.
    fn is_at_or_after(&self, sector: u64, id: u64, found: u64) -> bool {
        let Some(versions) = self.sectors.get(&sector) else { return found == id };
        let is = |it: &Version, id: u64| it.what == What::Written(id);
        // A later version was promised already: what is left is later.
        let from = versions.iter().position(|it| is(it, id)).unwrap_or(0);
        versions[from..].iter().any(|it| is(it, found) || it.what == What::Discarded)
    }

    /// Takes the versions found as the present ones.
    pub fn settle(&mut self, found: &[u64]) {
        self.sectors.clear();
        self.busy.clear();
        self.writes.clear();
        for (sector, id) in (0..).zip(found) {
            if *id != 0 {
                let version = Version { what: What::Written(*id), acknowledged: Some(0) };
                self.sectors.insert(sector, vec![version]);
            }
        }
    }
}

fn same(sector: u64, wanted: u64, found: u64) -> Result<(), String> {
    match wanted == found {
        true => Ok(()),
        false => Err(format!("sector {sector} holds write {found} instead of {wanted}")),
    }
}
