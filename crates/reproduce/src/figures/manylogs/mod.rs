//! Figures of the Manylogs paper.

mod block_traces;
mod checkpoints;
mod figure_2;
mod figure_3;
mod figure_4;
mod figure_5;
mod figure_6;
mod logs;
mod memory;
mod raid_writer;
mod scene;
mod table_2;

use crate::Figure;

/// Figures in the order of the paper.
pub fn all() -> [Figure; 12] {
    [
        figure_2::FIGURE_2A,
        figure_2::FIGURE_2B,
        memory::FIGURE,
        figure_3::FIGURE_3,
        raid_writer::FIGURE_3B,
        figure_4::FIGURE_4,
        figure_5::FIGURE_5,
        figure_6::FIGURE_6,
        checkpoints::FIGURE_7,
        checkpoints::FIGURE_8,
        logs::FIGURE,
        table_2::TABLE_2,
    ]
}
