//! The FUSE door: it translates requests of the kernel and decides nothing.
//!
//! [`mount`] gives a [`Connection`]; a [`Session`] serves it, and hands each [`Request`] to a
//! [`FileSystem`].
#![deny(unsafe_op_in_unsafe_fn)]

pub mod abi;
mod answer;
pub mod descriptor;
mod file_system;
mod host_door;
mod kernel;
mod message;
mod mount;
mod privilege;
mod request;
mod session;
mod volume_door;

pub use answer::Answer;
pub use file_system::FileSystem;
pub use host_door::HostDoor;
pub use kernel::checks_flags;
pub use mount::{Connection, Kind, MountError, MountOptions, mount, possible_processors};
pub use request::{MalformedRequest, Operation, Request};
pub use session::{
    InitError, MAX_WRITE, Negotiated, Session, SessionError, SessionStatistics, Transport,
};
pub use volume_door::{AttributeOptions, ClosedBadly, DoorOptions, VolumeDoor};
