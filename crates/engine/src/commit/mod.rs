//! Commits: from a locked transaction to a durable one. The crate `commit` carries their plans out.

pub(crate) mod clocks;
pub(crate) mod commit_task;
pub(crate) mod file_data;
pub(crate) mod in_place;
pub(crate) mod sync;
