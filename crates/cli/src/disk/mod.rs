//! Disks of commands: opening and claiming, detection of content, flush zones, and disks that are
//! served as a file.

pub mod block_volume;
pub mod coerce;
pub mod content;
pub mod exported;
pub mod front_end;
pub mod identity;
pub mod open_disk;
pub mod served;
pub mod superblock_copy;
