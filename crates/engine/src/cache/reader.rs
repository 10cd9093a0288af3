//! The owners that a read needs.

use crate::cache::block_cache::Cache;
use crate::cache::direct_writes::DirectWrites;
use crate::interface::stats::Counters;
use crate::log::log_state::LogState;
use commit::Home;
use commit::PlanExecutor;
use std::cell::RefCell;
use units::BlockSize;

/// Reads blocks into the cache, from home or from the log.
#[derive(Clone, Copy)]
pub(crate) struct Reader<'a> {
    pub home: &'a dyn Home,
    pub block_size: BlockSize,
    pub cache: &'a RefCell<Cache>,
    pub counters: &'a RefCell<Counters>,
    pub direct_writes: &'a DirectWrites,
    pub log: Option<&'a RefCell<LogState>>,
    pub executor: &'a PlanExecutor,
}
