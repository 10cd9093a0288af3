//! Bounds that several owners share.

/// Most transactions in flight to the disk at once. The pipeline keeps them in order, and each
/// block has room for an image of each.
pub(crate) const IN_FLIGHT_MAX: usize = 2;
const _: () = assert!(
    IN_FLIGHT_MAX <= journal::IN_FLIGHT_MAX as usize,
    "recovery looks ahead for as many as that"
);
/// Most blocks taken home at once: bounds the memory for bases and images.
pub(crate) const HOME_BATCH_MAX: usize = 2048;
/// Most requests in flight at once of what is written home.
pub(crate) const HOME_REQUESTS_MAX: usize = 16;
