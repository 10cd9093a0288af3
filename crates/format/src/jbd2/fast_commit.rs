use units::TransactionId;

/// `EXT4_FC_TAG_HEAD` (kernel `fs/ext4/fast_commit.h`; little-endian, unlike the rest of the
/// journal).
const HEAD: u16 = 9;

/// Whether `block`, the first of the fast-commit area, begins a fast commit after the last full
/// one. `next` is the first transaction that was not committed.
pub fn live_fast_commit(block: &[u8], next: TransactionId) -> bool {
    // Tag and length (2 + 2 bytes), features (4), transaction (4).
    block.len() >= 12
        && u16::from_le_bytes([block[0], block[1]]) == HEAD
        && u32::from_le_bytes([block[8], block[9], block[10], block[11]]) == next.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_fast_commits_of_the_next_transaction_are_live() {
        let mut block = [0; 1024];
        assert!(!live_fast_commit(&block, TransactionId(0)));
        block[0] = 9;
        block[8] = 5;
        assert!(live_fast_commit(&block, TransactionId(5)));
        assert!(!live_fast_commit(&block, TransactionId(6)));
    }
}
