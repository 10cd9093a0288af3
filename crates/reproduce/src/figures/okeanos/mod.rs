//! Wasteless and selective journaling: the figures of the paper of 2013.

mod figure_1;
mod figure_13;
mod figure_7;
mod figure_8;
mod figure_9;
mod filebench;
mod log_replay;
mod mpi_io;
mod postmark;
mod raid_0;
mod read_back;
mod sensitivity;
mod streams;
mod threshold;

use crate::Figure;

/// Figures in the order of the paper.
pub fn all() -> [Figure; 19] {
    [
        figure_1::figure(),
        figure_7::figure_7a(),
        figure_7::figure_7b(),
        figure_7::figure_7c(),
        figure_8::figure_8a(),
        figure_8::figure_8b(),
        read_back::FIGURE_8C,
        figure_9::figure(),
        postmark::FIGURE_10A,
        filebench::TABLE_1,
        filebench::TABLE_1_SCALE,
        log_replay::FIGURE_10B,
        log_replay::FIGURE_10C,
        mpi_io::FIGURE_11,
        mpi_io::FIGURE_12,
        figure_13::figure(),
        postmark::FIGURE_14,
        raid_0::figure(),
        threshold::FIGURE,
    ]
}

/// Returns the figure on what depends on the rig's chosen numbers.
pub fn sensitivity() -> Figure {
    sensitivity::figure()
}
