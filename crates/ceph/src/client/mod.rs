//! The daemon's side: one helper process at a time, and a [`store::Store`] in front of it.

mod errors;
mod link;
mod options;
mod store;

pub use options::Options;
pub use store::CephStore;
