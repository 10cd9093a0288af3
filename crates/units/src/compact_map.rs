//! A map by number that takes little more memory than its entries: sorted runs, indexed by the
//! first number of each.
//!
//! Invariants: numbers ascend within a run and from run to run. No run is empty or has more than
//! `RUN_MAX` entries. Neighbours that fit one run are merged where entries leave. An entry of up to
//! 24 bytes takes at most 32 with everything around it (`an_entry_takes_at_most_32_bytes`). That is
//! the average of a map with more than a few entries.

use std::collections::BTreeMap;

const RUN_MAX: usize = 128;
/// Entries for which a run allocates memory at a time.
const GROWTH: usize = 4;

type Run<V> = Vec<(u64, V)>;

pub struct CompactMap<V> {
    /// The runs by their first number.
    runs: BTreeMap<u64, Run<V>>,
    length: usize,
    /// Entries for which the runs have memory.
    capacity: usize,
}

impl<V> Default for CompactMap<V> {
    fn default() -> CompactMap<V> {
        CompactMap { runs: BTreeMap::new(), length: 0, capacity: 0 }
    }
}

impl<V: Copy> CompactMap<V> {
    pub fn len(&self) -> usize {
        self.length
    }
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    pub fn get(&self, number: u64) -> Option<V> {
        let (_, run) = self.runs.range(..=number).next_back()?;
        let at = run.binary_search_by_key(&number, |entry| entry.0).ok()?;
        Some(run[at].1)
    }

    /// Inserts an entry; returns the value before.
    pub fn insert(&mut self, number: u64, value: V) -> Option<V> {
        let Some((first, run)) = self.runs.range_mut(..=number).next_back() else {
            return self.insert_first(number, value);
        };
        let at = match run.binary_search_by_key(&number, |entry| entry.0) {
            Ok(at) => return Some(std::mem::replace(&mut run[at].1, value)),
            Err(at) => at,
        };
        let before = run.capacity();
        if run.len() == before {
            run.reserve_exact(GROWTH);
        }
        run.insert(at, (number, value));
        self.length += 1;
        self.capacity += run.capacity() - before;
        if run.len() > RUN_MAX {
            let first = *first;
            self.split(first);
        }
        None
    }

    /// Inserts an entry before all others.
    fn insert_first(&mut self, number: u64, value: V) -> Option<V> {
        let mut run = match self.runs.first_entry() {
            Some(first) if first.get().len() < RUN_MAX => first.remove(),
            _ => Run::new(),
        };
        self.capacity -= run.capacity();
        run.reserve_exact(1);
        run.insert(0, (number, value));
        self.capacity += run.capacity();
        self.runs.insert(number, run);
        self.length += 1;
        None
    }

    fn split(&mut self, first: u64) {
        let Some(run) = self.runs.get_mut(&first) else { return };
        self.capacity -= run.capacity();
        let upper: Run<V> = run[RUN_MAX / 2..].to_vec();
        run.truncate(RUN_MAX / 2);
        run.shrink_to_fit();
        self.capacity += run.capacity() + upper.capacity();
        self.runs.insert(upper[0].0, upper);
    }

    pub fn remove(&mut self, number: u64) -> Option<V> {
        let (first, run) = self.runs.range_mut(..=number).next_back()?;
        let at = run.binary_search_by_key(&number, |entry| entry.0).ok()?;
        let (_, value) = run.remove(at);
        self.length -= 1;
        let first = *first;
        self.tidy(first);
        Some(value)
    }

    /// Merges runs after an entry was removed from the run that begins with `first`.
    fn tidy(&mut self, first: u64) {
        let Some(mut run) = self.runs.remove(&first) else { return };
        self.capacity -= run.capacity();
        let before = self.runs.range_mut(..first).next_back();
        if let Some((_, before)) = before {
            if before.len() + run.len() <= RUN_MAX / 2 {
                self.capacity -= before.capacity();
                before.reserve_exact(run.len());
                before.append(&mut run);
                self.capacity += before.capacity();
            }
        }
        if let Some((number, _)) = run.first().copied() {
            if run.capacity() > run.len() + 2 * GROWTH {
                run.shrink_to(run.len() + GROWTH);
            }
            self.capacity += run.capacity();
            self.runs.insert(number, run);
        }
    }

    /// The entries of `from..until` in ascending order.
    pub fn range(&self, from: u64, until: u64) -> impl Iterator<Item = (u64, V)> + '_ {
        let begin = self.runs.range(..=from).next_back().map_or(from, |(first, _)| *first);
        let runs = self.runs.range(begin..until.max(begin)).flat_map(|(_, run)| run);
        runs.filter(move |entry| (from..until).contains(&entry.0)).copied()
    }
    pub fn iter(&self) -> impl Iterator<Item = (u64, V)> + '_ {
        self.range(0, u64::MAX)
    }

    /// Memory in bytes: entries with their spare capacity, and the overhead of each run.
    pub fn memory(&self) -> usize {
        /// Overhead of a run: its key and vector in the tree, with the tree's own nodes half full,
        /// and the allocator's.
        const AROUND: usize = 2 * (8 + 24) + 16;
        self.capacity * size_of::<(u64, V)>() + self.runs.len() * AROUND
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SplitMix;

    #[test]
    fn it_answers_as_a_plain_map_does() {
        for seed in 0..20 {
            let (random, mut plain, mut map) =
                (SplitMix::new(seed), BTreeMap::new(), CompactMap::default());
            let numbers = [50, 400, 5000][seed as usize % 3];
            for step in 0..6000u64 {
                let number = random.next() % numbers;
                if random.next() % 10 < if step < 3000 { 7 } else { 3 } {
                    assert_eq!(map.insert(number, step), plain.insert(number, step));
                } else {
                    assert_eq!(map.remove(number), plain.remove(&number), "seed {seed}");
                }
                assert_eq!(map.len(), plain.len());
                let (from, until) = (random.next() % numbers, random.next() % numbers);
                assert_eq!(map.get(from), plain.get(&from).copied());
                if step % 50 == 0 {
                    let range = plain
                        .range(from.min(until)..until)
                        .map(|(number, value)| (*number, *value));
                    assert!(map.range(from.min(until), until).eq(range), "seed {seed}");
                    let capacity: usize = map.runs.values().map(Vec::capacity).sum();
                    assert_eq!(map.capacity, capacity, "seed {seed}: wrong count of its memory");
                }
            }
            assert!(map.iter().eq(plain.into_iter()));
        }
    }

    #[test]
    fn an_entry_takes_at_most_32_bytes() {
        each_entry_takes_at_most::<u64>(32);
        each_entry_takes_at_most::<[u32; 4]>(32);
    }

    fn each_entry_takes_at_most<V: Copy + Default>(bytes: usize) {
        let orders: [fn(u64) -> u64; 3] =
            [|n| n, |n| u64::MAX / 1024 - n, |n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20];
        for (number, order) in orders.into_iter().enumerate() {
            let mut map = CompactMap::default();
            for n in 0..200_000 {
                map.insert(order(n), V::default());
            }
            assert!(map.memory() <= bytes * map.len(), "order {number}: {} bytes", map.memory());
            // Three quarters are removed, at scattered places.
            for n in (0..200_000).filter(|n| n % 4 != 1) {
                map.remove(order(n));
            }
            assert!(
                map.memory() <= bytes * map.len(),
                "order {number}, thinned: {} bytes",
                map.memory()
            );
        }
    }
}
