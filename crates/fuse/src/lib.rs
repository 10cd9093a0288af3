//! The FUSE door: it translates requests of the kernel and decides nothing.
#![deny(unsafe_op_in_unsafe_fn)]

pub mod abi;
mod answer;
mod request;

pub use answer::Answer;
pub use request::{Malformed, Operation, Request};
