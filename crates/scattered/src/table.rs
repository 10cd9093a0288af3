//! The mapping table: home -> place in a log, with the sectors that lie there.
//!
//! Invariants: homes ascend within a run and from run to run; no run is empty or has more than `RUN_MAX` entries; neighbours that fit one
//! run are merged where entries leave. An entry takes 16 bytes, and with all around it at most 32 on average of a table with more than a few entries
//! (`an_entry_takes_at_most_32_bytes`).

use crate::BLOCK;
use std::collections::BTreeMap;

const RUN_MAX: usize = 128;
/// How many entries' memory a run asks for at once.
const GROWTH: usize = 8;

/// Where a block's newest content lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapped {
    /// In blocks of the disk beneath.
    pub place: u64,
    /// One bit for each sector of 512 bytes that lies there; the others are at home.
    pub mask: u8,
    /// Home has the same content: the next snapshot leaves the entry out.
    pub clean: bool,
}

impl Mapped {
    fn pack(self) -> u64 {
        self.place << 9 | u64::from(self.clean) << 8 | u64::from(self.mask)
    }
    fn unpack(packed: u64) -> Mapped {
        Mapped { place: packed >> 9, mask: packed as u8, clean: packed & 0x100 != 0 }
    }
}

type Run = Vec<(u64, u64)>;

#[derive(Default)]
pub struct Table {
    /// By the first home of each.
    runs: BTreeMap<u64, Run>,
    length: usize,
}

impl Table {
    pub fn len(&self) -> usize {
        self.length
    }
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    pub fn get(&self, home: u64) -> Option<Mapped> {
        let (_, run) = self.runs.range(..=home).next_back()?;
        let at = run.binary_search_by_key(&home, |entry| entry.0).ok()?;
        Some(Mapped::unpack(run[at].1))
    }

    /// Gives what was there before.
    pub fn insert(&mut self, home: u64, mapped: Mapped) -> Option<Mapped> {
        let Some((first, run)) = self.runs.range_mut(..=home).next_back() else {
            return self.insert_first(home, mapped);
        };
        let at = match run.binary_search_by_key(&home, |entry| entry.0) {
            Ok(at) => return Some(Mapped::unpack(std::mem::replace(&mut run[at].1, mapped.pack()))),
            Err(at) => at,
        };
        if run.len() == run.capacity() {
            run.reserve_exact(GROWTH);
        }
        run.insert(at, (home, mapped.pack()));
        self.length += 1;
        if run.len() > RUN_MAX {
            let first = *first;
            self.split(first);
        }
        None
    }

    /// Before all others.
    fn insert_first(&mut self, home: u64, mapped: Mapped) -> Option<Mapped> {
        let mut run = match self.runs.first_entry() {
            Some(first) if first.get().len() < RUN_MAX => first.remove(),
            _ => Run::new(),
        };
        run.reserve_exact(1);
        run.insert(0, (home, mapped.pack()));
        self.runs.insert(home, run);
        self.length += 1;
        None
    }

    fn split(&mut self, first: u64) {
        let Some(run) = self.runs.get_mut(&first) else { return };
        let upper: Run = run[RUN_MAX / 2..].to_vec();
        run.truncate(RUN_MAX / 2);
        run.shrink_to_fit();
        self.runs.insert(upper[0].0, upper);
    }

    pub fn remove(&mut self, home: u64) -> Option<Mapped> {
        let (first, run) = self.runs.range_mut(..=home).next_back()?;
        let at = run.binary_search_by_key(&home, |entry| entry.0).ok()?;
        let (_, packed) = run.remove(at);
        self.length -= 1;
        let first = *first;
        self.tidy(first);
        Some(Mapped::unpack(packed))
    }

    /// After an entry left the run that began with `first`.
    fn tidy(&mut self, first: u64) {
        let Some(mut run) = self.runs.remove(&first) else { return };
        let before = self.runs.range_mut(..first).next_back();
        if let Some((_, before)) = before
            && before.len() + run.len() <= RUN_MAX / 2
        {
            before.reserve_exact(run.len());
            before.append(&mut run);
        }
        if let Some((home, _)) = run.first().copied() {
            if run.capacity() > run.len() + 2 * GROWTH {
                run.shrink_to(run.len() + GROWTH);
            }
            self.runs.insert(home, run);
        }
    }

    /// The entries of `from..until` in ascending order.
    pub fn range(&self, from: u64, until: u64) -> impl Iterator<Item = (u64, Mapped)> + '_ {
        let begin = self.runs.range(..=from).next_back().map_or(from, |(first, _)| *first);
        let runs = self.runs.range(begin..until.max(begin)).flat_map(|(_, run)| run);
        runs.filter(move |entry| (from..until).contains(&entry.0))
            .map(|(home, packed)| (*home, Mapped::unpack(*packed)))
    }
    pub fn iter(&self) -> impl Iterator<Item = (u64, Mapped)> + '_ {
        self.range(0, u64::MAX)
    }
    /// Whether any block of the bytes is mapped.
    pub fn touches(&self, at: u64, length: u64) -> bool {
        let block = BLOCK as u64;
        self.range(at / block, (at + length).div_ceil(block)).next().is_some()
    }

    /// Bytes of memory: entries with the room kept for more, and what each run takes around them.
    pub fn memory(&self) -> usize {
        /// A run's key and its vector in the tree, with the tree's own nodes half full, and the allocator's own.
        const AROUND: usize = 2 * (8 + 24) + 16;
        self.runs.values().map(|run| run.capacity() * 16 + AROUND).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use runtime::SplitMix;

    fn mapped(place: u64) -> Mapped {
        Mapped { place, mask: 0xff, clean: false }
    }

    #[test]
    fn it_answers_as_a_plain_map_does() {
        for seed in 0..20 {
            let (dice, mut plain, mut table) = (SplitMix::new(seed), BTreeMap::new(), Table::default());
            let homes = [50, 400, 5000][seed as usize % 3];
            for step in 0..6000 {
                let home = dice.next() % homes;
                if dice.next() % 10 < if step < 3000 { 7 } else { 3 } {
                    assert_eq!(table.insert(home, mapped(step)), plain.insert(home, mapped(step)));
                } else {
                    assert_eq!(table.remove(home), plain.remove(&home), "seed {seed}");
                }
                assert_eq!(table.len(), plain.len());
                let (from, until) = (dice.next() % homes, dice.next() % homes);
                assert_eq!(table.get(from), plain.get(&from).copied());
                if step % 50 == 0 {
                    let range = plain.range(from.min(until)..until).map(|(home, mapped)| (*home, *mapped));
                    assert!(table.range(from.min(until), until).eq(range), "seed {seed}");
                }
            }
            assert!(table.iter().eq(plain.into_iter()));
        }
    }
    #[test]
    fn an_entry_takes_at_most_32_bytes() {
        let orders: [fn(u64) -> u64; 3] =
            [|n| n, |n| u64::MAX / 1024 - n, |n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20];
        for (number, order) in orders.into_iter().enumerate() {
            let mut table = Table::default();
            for n in 0..200_000 {
                table.insert(order(n), mapped(n));
            }
            let each = table.memory() as f64 / table.len() as f64;
            assert!(each <= 32.0, "order {number}: {each} bytes");
            // Three quarters leave, here and there.
            for n in (0..200_000).filter(|n| n % 4 != 1) {
                table.remove(order(n));
            }
            let each = table.memory() as f64 / table.len() as f64;
            assert!(each <= 32.0, "order {number}, thinned: {each} bytes");
        }
    }
    #[test]
    fn an_entry_is_packed_and_unpacked() {
        let whole = Mapped { place: (1 << 44) - 1, mask: 0xa5, clean: true };
        assert_eq!(Mapped::unpack(whole.pack()), whole);
    }
}
