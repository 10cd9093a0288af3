//! Names on volumes made by mke2fs: against a model, against the kernel, on damaged blocks, and
//! very many.

mod collisions;
mod crash;
mod damage;
mod kernel;
mod large;
mod listing;
mod model;
mod operations;
pub mod random;
mod reading;
pub mod support;
