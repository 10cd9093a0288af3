//! The plans of log swapping.
//!
//! The table of runs is invalidated; `TableBeforeRun`. Copies; `CopyBeforeHeader`; headers;
//! `TailBeforeReuse`. Until the headers are written recovery finds the runs at their old addresses;
//! behind the last barrier the log that held them is overwritten.

use crate::log_space::TablePage;
use crate::plan::{Address, Barrier, BlockKind, Plan};
use device::Buffer;
use std::rc::Rc;
use units::LogBlock;

/// Plans the invalidation of the table of runs, which are about to move. Until the table records
/// all of them again, recovery finds them by their headers.
pub fn plan_table_forgotten(pages: Vec<TablePage>) -> Plan {
    let mut plan = Plan::default();
    plan.write_table(pages);
    plan
}

/// Plans the copy of blocks of a run to its new address.
pub fn plan_copies(at: LogBlock, blocks: Rc<Buffer>) -> Plan {
    let mut plan = Plan::default();
    plan.write(Address::Log(at), vec![(BlockKind::Swapped, blocks)]);
    plan
}

/// Plans the headers of runs: all copies are written, and count from their headers on. Also
/// rewrites the header of a run that recovery has found without one.
pub fn plan_run_headers(headers: Vec<(LogBlock, Rc<Buffer>)>) -> Plan {
    let mut plan = Plan::default();
    if !units::fault!("swap-header-before-copy") {
        plan.barrier(Barrier::CopyBeforeHeader);
    }
    for (at, header) in headers {
        plan.write(Address::Log(at), vec![(BlockKind::RunHeader, header)]);
    }
    if !units::fault!("swap-released-early") {
        plan.barrier(Barrier::TailBeforeReuse);
    }
    plan
}
