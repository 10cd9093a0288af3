//! All figures, one file for each workload.

mod filebench;
mod kernel;
mod log_replay;
mod mpi_io;
mod postmark;
mod read_back;
mod shared;

use crate::Figure;

/// In the order of the papers.
pub fn all() -> Vec<Figure> {
    vec![
        read_back::FIGURE_8C,
        postmark::FIGURE_10A,
        filebench::TABLE_1,
        log_replay::FIGURE_10B,
        log_replay::FIGURE_10C,
        mpi_io::FIGURE_11,
        mpi_io::FIGURE_12,
        postmark::FIGURE_14,
        kernel::kernel_7a(),
        kernel::kernel_8a(),
        kernel::kernel_10a(),
    ]
}

pub fn find(name: &str) -> Option<Figure> {
    all().into_iter().find(|figure| figure.name == name)
}
