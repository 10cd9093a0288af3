//! Bytes to structs and back. No I/O, no clock. Nothing here panics or allocates without bound on
//! any input.
#![forbid(unsafe_code)]

pub mod blocks;
pub mod ext4;
mod field;
pub mod flush_zone;
pub mod jbd2;
pub mod packed;
pub mod run_table;
pub mod scattered;
mod seed;
pub mod snapshot;
mod uuid;
mod whole_transaction;

pub use uuid::uuid_text;
pub use whole_transaction::{TransactionSums, WholeTransaction};
