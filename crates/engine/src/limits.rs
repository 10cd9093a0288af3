//! Bounds that several owners share.

/// Most transactions on their way to the disk at once. The pipeline keeps them in order, and each block has room for an
/// image of each.
pub(crate) const IN_FLIGHT_MAX: usize = 2;
const _: () =
    assert!(IN_FLIGHT_MAX <= journal::IN_FLIGHT_MAX as usize, "recovery looks ahead for as many as that");
