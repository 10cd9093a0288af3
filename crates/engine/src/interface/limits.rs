//! Bounds that several owners share.

/// Maximum number of blocks taken home at once: bounds the memory for bases and images.
pub(crate) const HOME_BATCH_MAX: usize = 2048;
/// Maximum number of requests in flight at once of what is written home.
pub(crate) const HOME_REQUESTS_MAX: usize = 16;
