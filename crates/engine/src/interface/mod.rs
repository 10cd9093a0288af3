//! Types that callers pass in and get back: options, errors, updates of blocks, statistics, and the
//! trait of a home.

pub(crate) mod calls;
pub(crate) mod commit_pacing;
pub(crate) mod error;
pub(crate) mod limits;
pub(crate) mod options;
pub(crate) mod stats;
pub(crate) mod update;
