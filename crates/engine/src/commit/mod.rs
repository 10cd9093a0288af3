//! Commits: from a locked transaction to a durable one. The executor carries out every plan.

pub(crate) mod clocks;
pub(crate) mod commit_task;
pub(crate) mod durability;
pub(crate) mod executor;
pub(crate) mod file_data;
pub(crate) mod in_place;
pub(crate) mod sync;
