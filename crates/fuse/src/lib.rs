//! The FUSE front ends: they translate requests of the kernel and decide nothing.
//!
//! A [`VolumeFrontEnd`] and a [`HostFrontEnd`] are file systems of a [`fuse_session::Session`],
//! which hands each request to [`FileSystem::serve`](fuse_session::FileSystem::serve).
#![deny(unsafe_op_in_unsafe_fn)]

mod error;
mod host_front_end;
pub mod ioctl;
mod kernel;
mod privilege;
mod volume_front_end;

pub use host_front_end::HostFrontEnd;
pub use kernel::{checks_flags, drops_written_pages, strips_set_group};
pub use volume_front_end::{AttributeOptions, ClosedBadly, FrontEndOptions, VolumeFrontEnd};
