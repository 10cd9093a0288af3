//! Hash tables by block number. Their order depends on the insertions, not on a random seed; only
//! look-ups should use them.

use crate::HomeBlock;
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};

pub type BlockMap<T> = HashMap<HomeBlock, T, BuildHasherDefault<BlockHasher>>;
pub type BlockSet = HashSet<HomeBlock, BuildHasherDefault<BlockHasher>>;

/// Block numbers are well spread by one multiplication (Fibonacci hashing).
#[derive(Clone, Default)]
pub struct BlockHasher(u64);

impl Hasher for BlockHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }
    fn write_u64(&mut self, value: u64) {
        let product = (self.0 ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = product ^ (product >> 32);
    }
}
