//! Bounds that several owners share.

/// Most blocks taken home at once: bounds the memory for bases and images.
pub(crate) const HOME_BATCH_MAX: usize = 2048;
/// Most requests in flight at once of what is written home.
pub(crate) const HOME_REQUESTS_MAX: usize = 16;
