//! The papers' figures, rerun: one command each, our numbers beside the paper's.
//!
//! A [`Figure`] plays workloads on [`bench::Stage`]s and returns [`Results`]; everything else (files, pictures, the page)
//! is made from those. The same seed gives the same results, byte for byte.
#![forbid(unsafe_code)]

mod context;
mod figure;
mod figures;

pub use context::Context;
pub use figure::{Axis, Claim, Figure, FigureError, Picture, Results, Scale, Series};
pub use figures::{all, find};
