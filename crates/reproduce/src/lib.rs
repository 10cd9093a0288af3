//! The papers' figures, rerun: one command each, our numbers beside the paper's.
//!
//! A [`Figure`] plays workloads on [`testbeds::Stage`]s and returns [`Results`]; everything else
//! (files, pictures, the page) is made from those. The same seed gives the same results, byte for
//! byte.
#![forbid(unsafe_code)]

mod chart;
mod context;
mod csv;
mod error;
mod figure;
mod figures;
mod finished;
mod jobs;
#[cfg(test)]
mod made_up;
mod number;
mod page;
mod run;
mod seeds;
mod statement;

pub use chart::{Form, sheet};
pub use context::{Context, Varied};
pub use error::FigureError;
pub use figure::{Axis, Figure, Picture, Results, Scale, Series};
pub use figures::{all, find};
pub use finished::Finished;
pub use jobs::Jobs;
pub use page::markdown;
pub use run::{Outcome, RunError, RunOptions, finished_in, run, run_all, write_page};
pub use seeds::SEEDS;
pub use statement::{Claim, Origin, Tally, Verdict};
