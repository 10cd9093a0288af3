use units::TransactionId;

/// CRC-32C as JBD2 keeps it: running, without the final inversion. A seed is the state after the
/// bytes summed before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Seed(pub u32);

impl Seed {
    /// The seed of every checksum v2 and v3 of a journal: its UUID.
    pub fn of_journal(uuid: &[u8; 16]) -> Seed {
        Seed(!0).with(uuid)
    }
    #[must_use]
    pub fn with(self, bytes: &[u8]) -> Seed {
        // The library inverts before and after, the kernel's crc32c does not.
        Seed(!crc32c::crc32c_append(!self.0, bytes))
    }
    /// The checksum in the tag of a log block, as the log block stands in the log (escaped).
    pub fn of_logged_block(self, transaction: TransactionId, block: &[u8]) -> u32 {
        self.with(&transaction.0.to_be_bytes()).with(block).0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_check_value_of_crc32c_is_met() {
        assert_eq!(!Seed(!0).with(b"123456789").0, 0xe306_9283);
        assert_eq!(Seed(!0).with(b"12345").with(b"6789"), Seed(!0).with(b"123456789"));
    }
}
