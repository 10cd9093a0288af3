use crate::{EvictionWorkload, Pattern};
use std::ops::Range;

/// Area for the writes of evictions: bytes of the disk without content, cut into slots of one write
/// each.
///
/// Successive evictions use different slots, cyclically. A write to a block that the cache still
/// holds from the eviction before would take no space in it, and so evict nothing.
#[derive(Clone, Debug)]
pub struct FlushZone {
    workload: EvictionWorkload,
    slot: u64,
    /// Starts of the slots, by address.
    slots: Vec<u64>,
}

/// Number of consecutive evictions that use different slots.
pub const ROUNDS: u64 = 4;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ZoneError {
    #[error("the workload is impossible: {0}")]
    Workload(String),
    #[error("the flush zone has space for {slots} writes of {slot} bytes; evictions need {needed}")]
    TooSmall { slots: u64, slot: u64, needed: u64 },
}

impl FlushZone {
    /// Bytes that a contiguous zone for this workload needs.
    pub fn size(workload: &EvictionWorkload, sector: u32) -> u64 {
        workload.write_size(sector) * u64::from(workload.writes) * ROUNDS
    }

    /// Creates a zone. `extents`: ranges of bytes of the disk, in the order of their use, starts
    /// and lengths in whole sectors.
    pub fn new(
        workload: EvictionWorkload,
        extents: &[Range<u64>],
        sector: u32,
    ) -> Result<FlushZone, ZoneError> {
        workload.check().map_err(ZoneError::Workload)?;
        let slot = workload.write_size(sector);
        let needed = u64::from(workload.writes) * ROUNDS;
        let slots_in = |extent: &Range<u64>| extent.end.saturating_sub(extent.start) / slot;
        let available = extents.iter().map(slots_in).fold(0u64, u64::saturating_add);
        if available < needed {
            return Err(ZoneError::TooSmall { slots: available, slot, needed });
        }
        // No more slots than needed: an extent read from a disk may claim to be huge.
        let starts = extents
            .iter()
            .flat_map(|extent| (0..slots_in(extent)).map(|index| extent.start + index * slot));
        Ok(FlushZone { workload, slot, slots: starts.take(needed as usize).collect() })
    }

    pub fn workload(&self) -> &EvictionWorkload {
        &self.workload
    }
    /// Bytes of one write.
    pub fn write_size(&self) -> u64 {
        self.slot
    }

    /// Addresses of the writes of the `count`-th eviction, in their order. `random` returns random
    /// numbers.
    pub fn writes(&self, count: u64, random: &mut dyn FnMut() -> u64) -> Vec<u64> {
        let writes = self.workload.writes as usize;
        let rounds = (self.slots.len() / writes) as u64;
        let round = (count % rounds) as usize;
        match self.workload.pattern {
            Pattern::Sequential => self.slots[round * writes..(round + 1) * writes].to_vec(),
            // Every `ROUNDS`-th slot, so that the writes of one eviction are not adjacent.
            Pattern::Random => {
                let mut places: Vec<u64> = self
                    .slots
                    .iter()
                    .copied()
                    .skip(round)
                    .step_by(rounds as usize)
                    .take(writes)
                    .collect();
                for left in (1..places.len()).rev() {
                    places.swap(left, (random() % (left as u64 + 1)) as usize);
                }
                places
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn zone(pattern: Pattern) -> FlushZone {
        let workload = EvictionWorkload { pattern, writes: 5, bytes: 5000 };
        // The first piece wastes less than a slot.
        let extents = [4096..4096 + 7 * 1024 + 512, 1 << 20..(1 << 20) + 13 * 1024];
        FlushZone::new(workload, &extents, 512).unwrap()
    }

    #[test]
    fn successive_evictions_share_no_place() {
        for pattern in [Pattern::Sequential, Pattern::Random] {
            let zone = zone(pattern);
            let mut seen = BTreeSet::new();
            let random = units::SplitMix::new(1);
            for count in 0..ROUNDS {
                let writes = zone.writes(count, &mut || random.next());
                assert_eq!(writes.len(), 5);
                assert!(
                    writes.into_iter().all(|at| seen.insert(at)),
                    "{pattern:?}, eviction {count}"
                );
            }
        }
    }

    #[test]
    fn random_writes_are_no_neighbours_of_one_another() {
        let mut writes = zone(Pattern::Random).writes(2, &mut || 0);
        writes.sort();
        assert!(writes.windows(2).all(|pair| pair[1] - pair[0] > 1024), "{writes:?}");
    }

    #[test]
    fn a_zone_too_small_is_refused() {
        let workload = EvictionWorkload { pattern: Pattern::Sequential, writes: 1, bytes: 4096 };
        assert_eq!(FlushZone::size(&workload, 512), 4 * 4096);
        let small = FlushZone::new(workload, std::slice::from_ref(&(0..3 * 4096)), 512);
        assert_eq!(small.unwrap_err(), ZoneError::TooSmall { slots: 3, slot: 4096, needed: 4 });
        assert!(
            FlushZone::new(
                EvictionWorkload { writes: 0, ..workload },
                std::slice::from_ref(&(0..1 << 20)),
                512
            )
            .is_err()
        );
    }
}
