//! Random numbers from a seed, for code without a `World`.

use std::cell::Cell;

/// SplitMix64 (Steele, Lea and Flood, OOPSLA 2014): every seed is good, 64 bits of state, no
/// secrets.
pub struct SplitMix(Cell<u64>);

impl SplitMix {
    pub const fn new(seed: u64) -> SplitMix {
        SplitMix(Cell::new(seed))
    }
    pub fn next(&self) -> u64 {
        let state = self.0.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
        self.0.set(state);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    /// A number from 0 to `end` - 1, about equally distributed; `end` is not 0.
    pub fn below(&self, end: u64) -> u64 {
        self.next() % end
    }
}
