//! The plans of log swapping.
//!
//! The table of runs counts for nothing; `TableBeforeRun`. Copies; `CopyBeforeHeader`; headers;
//! `TailBeforeReuse`. Before the headers recovery believes the runs where they were, and behind the
//! last barrier the log that held them is written again.

use crate::log_space::TablePage;
use crate::plan::{Address, Barrier, BlockKind, Plan};
use device::Buffer;
use std::rc::Rc;
use units::LogBlock;

/// Runs are about to move. Until all of them are told again, recovery finds them by their headers.
pub fn plan_table_forgotten(pages: Vec<TablePage>) -> Plan {
    let mut plan = Plan::default();
    plan.write_table(pages);
    plan
}

/// Blocks of a run to where it is to lie.
pub fn plan_copies(at: LogBlock, blocks: Rc<Buffer>) -> Plan {
    let mut plan = Plan::default();
    plan.write(Address::Log(at), vec![(BlockKind::Swapped, blocks)]);
    plan
}

/// All copies are written: headers say where they lie, and from then on they count. Or recovery has
/// found a run whose header is lost.
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
