use std::fmt;

/// The sequence number of a transaction (JBD2: `h_sequence`). It wraps, so it has no `<`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct TransactionId(pub u32);

impl TransactionId {
    pub const fn next(self) -> TransactionId {
        TransactionId(self.0.wrapping_add(1))
    }
    pub const fn previous(self) -> TransactionId {
        TransactionId(self.0.wrapping_sub(1))
    }
    /// Whether it is strictly later, on the circle of 2^32 numbers: right while the two are within
    /// 2^31 of each other.
    pub const fn is_after(self, other: TransactionId) -> bool {
        (self.0.wrapping_sub(other.0) as i32) > 0
    }
    pub const fn is_at_or_after(self, other: TransactionId) -> bool {
        !other.is_after(self)
    }
}
impl fmt::Display for TransactionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "transaction {}", self.0)
    }
}
impl fmt::Debug for TransactionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "T{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::TransactionId;
    #[test]
    fn order_survives_the_wrap() {
        let last = TransactionId(u32::MAX);
        assert!(last.next().is_after(last));
        assert!(!last.is_after(last.next()));
        assert!(last.is_at_or_after(last));
    }
}
