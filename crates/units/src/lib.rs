//! Numbers that cannot be mixed up. A home address and a log address are both integers; confusing
//! them destroys data, so each has a type and nothing converts silently.
#![forbid(unsafe_code)]

mod arrays;
mod block;
mod block_areas;
mod block_map;
mod compact_map;
pub mod faults;
mod number;
mod random;
mod refusal;
mod time;
mod transaction;

pub use arrays::arrays;
pub use block::{BlockRange, BlockSize, is_within};
pub use block_areas::{AREA_BLOCKS, BlockAreas};
pub use block_map::{BlockHasher, BlockMap, BlockSet};
pub use compact_map::CompactMap;
pub use number::{FileBlock, GroupNumber, HomeBlock, InodeNumber, LogBlock, Owner};
pub use random::SplitMix;
pub use refusal::Refusal;
pub use time::{Instant, Timestamp};
pub use transaction::TransactionId;
