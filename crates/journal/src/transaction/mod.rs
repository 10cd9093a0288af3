//! A transaction and its four states, each its own type, so that a wrong state cannot be expressed.
//!
//! Only addresses and ranges are kept here. The bytes stay in the cache (`Rc<Buffer>`, copied on
//! write), and `plan_commit` requests them once, when it is locked.

mod committed;
mod holdings;
mod locked;
mod record;
mod running;

pub use committed::{CommittedTransaction, CommittingTransaction};
pub use holdings::Holdings;
pub use locked::LockedTransaction;
pub use record::{Coverage, Record};
pub use running::RunningTransaction;
