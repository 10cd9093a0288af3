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
mod figure_record;
mod figures;
mod jobs;
mod number;
mod page;
mod run;
mod seeds;
mod statement;
#[cfg(test)]
mod test_figure;

pub use chart::{Form, sheet};
pub use context::{Context, Varied};
pub use error::FigureError;
pub use figure::{Axis, Figure, Picture, Results, Scale, Series};
pub use figure_record::FigureRecord;
pub use figures::{all, find};
pub use jobs::Jobs;
pub use page::markdown;
pub use run::{Outcome, RunError, RunOptions, finished_in, run, run_all, write_page};
pub use seeds::SEEDS;
pub use statement::{Claim, Origin, Tally, Verdict};
