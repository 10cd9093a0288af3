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
        kernel::KERNEL_7A,
        kernel::KERNEL_8A,
        kernel::KERNEL_10A,
    ]
}

pub fn find(name: &str) -> Option<Figure> {
    all().into_iter().find(|figure| figure.name == name)
}
