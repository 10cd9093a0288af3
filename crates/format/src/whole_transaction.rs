//! The checksum over a whole transaction, which detects a torn one.
//!
//! A power cut may leave a sector or a block as an earlier wrap of the log wrote it, possibly an
//! older version of the same structure. A CRC-32C is blind to that where the content holds a
//! CRC-32C of its own. All versions of an ext4 superblock, or of a node of an extent tree, then
//! give one and the same. XXH64 is no such code.

use crate::seed::Seed;
use xxhash_rust::xxh64::Xxh64;

/// Kind of a log's checksum over transactions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TransactionSums {
    /// Used in logs of older programs.
    Crc32c,
    /// The low half of XXH64.
    Xxh64,
}

/// A running checksum over one transaction.
#[derive(Clone)]
pub struct WholeTransaction(Running);

#[derive(Clone)]
enum Running {
    Crc32c(Seed),
    Xxh64(Xxh64),
}

impl WholeTransaction {
    /// Creates a checksum. `seed`: its initial state.
    pub fn new(sums: TransactionSums, seed: Seed) -> WholeTransaction {
        let sums =
            if units::fault!("transaction-sum-crc") { TransactionSums::Crc32c } else { sums };
        WholeTransaction(match sums {
            TransactionSums::Crc32c => Running::Crc32c(seed),
            TransactionSums::Xxh64 => Running::Xxh64(Xxh64::new(seed.0.into())),
        })
    }
    pub fn add(&mut self, bytes: &[u8]) {
        match &mut self.0 {
            Running::Crc32c(seed) => *seed = seed.with(bytes),
            Running::Xxh64(sum) => sum.update(bytes),
        }
    }
    pub fn sum(&self) -> u32 {
        match &self.0 {
            Running::Crc32c(seed) => seed.0,
            Running::Xxh64(sum) => sum.digest() as u32,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(sums: TransactionSums, bytes: &[u8]) -> u32 {
        let mut sum = WholeTransaction::new(sums, Seed(5));
        sum.add(bytes);
        sum.sum()
    }

    #[test]
    fn an_older_version_of_what_has_a_crc_of_its_own_is_noticed() {
        let node = |version: u8| {
            let content: Vec<u8> = (0..100).map(|at: u8| at.wrapping_mul(version)).collect();
            let own = Seed(77).with(&content).0;
            [content, own.to_le_bytes().to_vec()].concat()
        };
        let [older, newer] = [node(3), node(4)];
        assert_ne!(older, newer);
        assert_eq!(sum(TransactionSums::Crc32c, &older), sum(TransactionSums::Crc32c, &newer));
        assert_ne!(sum(TransactionSums::Xxh64, &older), sum(TransactionSums::Xxh64, &newer));
    }
}
