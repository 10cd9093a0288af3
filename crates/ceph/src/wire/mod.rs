//! The messages between daemon and helper over their socket: frames of a bounded length,
//! little-endian.
//!
//! A frame is a length (4 bytes, of what follows), then a [`HelperRequest`] with its number or a
//! [`Report`]. Neither side trusts the other's bytes. Whatever they are, reading them ends,
//! allocates no more than they are long, and returns a message or [`MalformedMessage`].

mod bytes;
mod frames;
mod messages;

pub use bytes::MalformedMessage;
pub(crate) use bytes::kind_of;

pub use frames::{FRAME_BYTES_MAX, Frames, frame};
pub use messages::{Hello, HelloReply, HelperReply, HelperRequest, Numbered, Report, WIRE_VERSION};
