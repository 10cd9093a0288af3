//! A FUSE session: mounts a file system, takes the kernel's requests and sends the replies.
//!
//! [`mount`] gives a [`Connection`]; a [`Session`] serves it, and hands each [`Request`] to a
//! [`FileSystem`].
#![deny(unsafe_op_in_unsafe_fn)]

pub mod abi;
pub mod descriptor;
mod file_system;
mod message;
mod mount;
mod reply;
mod request;
mod session;

pub use file_system::FileSystem;
pub use mount::{Connection, MountError, MountKind, MountOptions, mount, possible_processors};
pub use reply::Reply;
pub use request::{MalformedRequest, Operation, Request};
pub use session::{
    InitError, MAX_WRITE, Negotiated, Session, SessionError, SessionStatistics, Transport,
};
