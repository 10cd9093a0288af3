//! The papers' figures, rerun: one command each, our numbers beside the paper's.
//!
//! A [`Figure`] plays workloads on [`testbeds::Stage`]s and returns [`Results`]; everything else
//! (files, pictures, the page) is made from those. The same seed gives the same results, byte for
//! byte.
#![forbid(unsafe_code)]

mod chart;
mod claim;
mod context;
mod csv;
mod error;
mod figure;
mod figure_record;
mod figures;
mod hypercube;
mod identity;
mod jobs;
mod joint;
mod number;
mod overrides;
mod page;
mod provenance;
mod report;
mod run;
mod seeds;
mod statement;
#[cfg(test)]
mod test_figure;

pub use chart::{Form, sheet};
pub use claim::{Claim, Tally};
pub use context::{Context, Varied};
pub use error::{FigureError, RunError};
pub use figure::{Axis, Figure, Picture, Results, Scale, Series};
pub use figure_record::FigureRecord;
pub use figures::{all, find};
pub use hypercube::{Dimension, dimensions};
pub use identity::Identity;
pub use jobs::Jobs;
pub use joint::{
    JointResults, JointRun, KeptShare, POINTS, figures as figures_of_points, played_in,
};
pub use overrides::Overrides;
pub use provenance::{
    Origin, Parameter, Range, SharedRig, Span, Standing, parameters, rigs, standing,
};
pub use report::{KeptFigure, KeptResults, fill, markdown, row};
pub use run::{JOINT, Outcome, RunOptions, finished_in, run, run_all, write_page};
pub use seeds::SEEDS;
pub use statement::{
    Bound, Direction, Statement, Verdict, Words, bounds, files, find as find_statement, statements,
};
