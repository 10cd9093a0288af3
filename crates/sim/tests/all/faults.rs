//! A disk fails a read, a write or a flush, or never returns from a flush. An error is never
//! reported once and then forgotten, and nothing acknowledged is lost.

use crate::common::{in_each_mode, made, run};
use device::Operation;
use engine::DataMode;
use sim::faults::{FaultKind, FaultPlan, KINDS};
use sim::setup::{self, SETUPS};
use sim::{Case, CaseReport};

/// Plays each kind of fault at many places of small scripts.
fn suffer(mode: DataMode) {
    let mut total = CaseReport::default();
    for setup in [SETUPS[0], setup::find("external-1k").unwrap()] {
        let fresh = setup::make(setup).unwrap();
        for (operation, kind) in KINDS {
            for place in (0..20).step_by(3) {
                let case = Case { sample: 6, ..Case::random(setup, mode, 11 + place % 3, 3, 40) };
                let case = case.with_fault(FaultPlan { operation, kind, place });
                total.add(run(&case, &fresh));
            }
        }
    }
    println!("{}: {total:?}", mode.name());
    assert!(total.lives > 20, "{}: {total:?}: hardly a second life", mode.name());
    assert!(total.faults > 40, "{}: {total:?}: hardly a fault came in time", mode.name());
}

in_each_mode!(
    suffer: writeback_loses_nothing_acknowledged_on_a_failing_disk,
    ordered_loses_nothing_acknowledged_on_a_failing_disk,
    journal_loses_nothing_acknowledged_on_a_failing_disk,
    wasteless_loses_nothing_acknowledged_on_a_failing_disk,
    selective_loses_nothing_acknowledged_on_a_failing_disk,
    adaptive_loses_nothing_acknowledged_on_a_failing_disk
);

/// Found by the explorer: one fsync returned although its data waited for the commit of the
/// other's.
#[test]
fn an_fsync_waits_for_data_that_another_sync_took_along() {
    let (setup, fresh) = made("external-2k");
    let case = Case::random(setup, DataMode::Writeback, 16, 3, 30);
    let case = case.with_fault("flush-hang@20".parse().unwrap());
    run(&case, &fresh);
}

#[test]
fn a_fault_is_written_as_it_is_read() {
    for (operation, kind) in KINDS {
        let plan = FaultPlan { operation, kind, place: 7 };
        assert_eq!(plan.to_string().parse(), Ok(plan));
    }
    assert!("flush-once".parse::<FaultPlan>().is_err());
}

/// Found by the explorer: an unlink changed its directory, and could not read the table block of
/// the file's inode.
#[test]
fn an_operation_on_names_that_cannot_read_leaves_nothing_half_done() {
    let (setup, fresh) = made("tight-1k");
    for place in 0..60 {
        let case = Case::random(setup, DataMode::Selective, 4, 3, 30);
        let (operation, kind) = (Operation::Read, FaultKind::Once);
        let case = case.with_fault(FaultPlan { operation, kind, place });
        run(&case, &fresh);
    }
}

/// Found by the explorer: a write that met a failing read behind its first blocks left these, and
/// answered EIO.
#[test]
fn a_write_that_cannot_go_on_returns_how_far_it_came() {
    let (setup, fresh) = made("external-1k");
    let case = Case::random(setup, DataMode::Ordered, 6, 3, 30);
    let case = case.with_fault("read-once@18".parse().unwrap());
    let report = run(&case, &fresh);
    assert_eq!(report.faults, 1, "{report:?}");
}

/// Found by the explorer: a hole that found no block for the split of its extent was refused, its
/// edges zeroed.
#[test]
fn a_hole_that_is_refused_leaves_the_file_as_it_was() {
    let (setup, fresh) = made("tight-external-4k");
    let case = Case::random(setup, DataMode::Journal, 701, 3, 30);
    let case = case.with_fault("flush-once@17".parse().unwrap());
    run(&case, &fresh);
}

/// Found by the explorer: of two waiters for a read that failed, one began it anew, and the other
/// waited for ever.
#[test]
fn callers_that_wait_for_a_read_that_fails_go_on() {
    let (setup, fresh) = made("tight-1k");
    let case = Case::random(setup, DataMode::Wasteless, 201, 3, 30);
    let case = case.with_fault("read-once@9".parse().unwrap());
    run(&case, &fresh);
}
