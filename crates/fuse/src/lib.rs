//! The FUSE front ends: they translate requests of the kernel and decide nothing.
//!
//! [`mount`] gives a [`Connection`]; a [`Session`] serves it, and hands each [`Request`] to a
//! [`FileSystem`].
#![deny(unsafe_op_in_unsafe_fn)]

pub mod abi;
mod answer;
pub mod descriptor;
mod file_system;
mod host_front_end;
pub mod ioctl;
mod kernel;
mod message;
mod mount;
mod privilege;
mod request;
mod session;
mod volume_front_end;

pub use answer::Answer;
pub use file_system::FileSystem;
pub use host_front_end::HostFrontEnd;
pub use kernel::checks_flags;
pub use mount::{Connection, Kind, MountError, MountOptions, mount, possible_processors};
pub use request::{MalformedRequest, Operation, Request};
pub use session::{
    InitError, MAX_WRITE, Negotiated, Session, SessionError, SessionStatistics, Transport,
};
pub use volume_front_end::{AttributeOptions, ClosedBadly, FrontEndOptions, VolumeFrontEnd};
