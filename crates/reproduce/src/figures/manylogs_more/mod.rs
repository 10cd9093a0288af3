//! More of the Manylogs paper: Figure 3b, what its text says of the logs, and Figure 2b with other
//! memory.

// What only the other figures of the paper need of the two is not used here.
#[allow(dead_code)]
#[path = "../manylogs/block_traces.rs"]
mod block_traces;
mod logs;
mod memory;
mod raid_writer;
#[allow(dead_code)]
#[path = "../manylogs/scene.rs"]
mod scene;

use crate::Figure;
use scene::{Cell, Line};
use testbeds::{SmallWriters, Updates};

/// Figures in the order of the paper.
pub fn all() -> [Figure; 3] {
    [memory::FIGURE, raid_writer::FIGURE_3B, logs::FIGURE]
}

/// Bytes of an update.
const UPDATE: usize = 4096;

/// Returns the updates of a line, `rate` a second and drive.
fn updates(line: Line, rate: u32, drives: u32) -> SmallWriters {
    let Line { order, home_with_sync, .. } = line;
    let per_second = rate * drives;
    SmallWriters::Updates(Updates { per_second, bytes: UPDATE, order, home_with_sync })
}

/// Returns a cell for each line and rate.
fn cells(lines: &[Line], rates: &[u32], drives: u32) -> Vec<Cell> {
    let of = |line: Line, rate: u32| Cell {
        part: 0,
        line,
        x: f64::from(rate),
        small: updates(line, rate, drives),
    };
    lines.iter().flat_map(|line| rates.iter().map(move |rate| of(*line, *rate))).collect()
}
