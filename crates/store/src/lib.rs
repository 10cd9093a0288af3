//! A store: a file system that several hosts share, as seen by a host that journals in front of it.
//!
//! [`Store`] is the interface; it exchanges [`FileId`]s, [`FileAttributes`] with their [`Version`],
//! [`Token`]s, [`StoreEvent`]s and [`StoreError`]s. [`Store`] states the rules that hold between
//! the calls.
#![forbid(unsafe_code)]

mod attributes;
mod error;
mod event;
mod limits;
mod listing;
mod local;
mod lock;
mod names;
mod open_file;
mod opens;
mod overlay;
mod simulated;
mod store;

pub use attributes::{
    Allocation, AttributeChange, FileAttributes, FileId, FileKind, TimeChange, Version,
};
pub use error::{Refusal, StoreError};
pub use event::{HostPhase, Identity, StoreEvent, Token};
pub use limits::{
    LISTING_ENTRIES_MAX, NAME_BYTES_MAX, TARGET_BYTES_MAX, TRANSFER_BYTES_MAX, XATTR_BYTES_MAX,
    size_report_threshold,
};
pub use local::LocalStore;
pub use lock::{FileLock, LOCK_END, LockKind, LockMode, LockOwner};
pub use names::{Created, Creator, Entry, Found, Listing, NewNode, RenameOver, Space, XattrMode};
pub use open_file::{OpenFile, OpenMode};
pub use simulated::{
    Cluster, Cut, CutKind, MetadataTimes, Moment, Network, ServerDisks, SimulatedStore,
    TrafficCount,
};
pub use store::{Answer, Store, registers_host};
