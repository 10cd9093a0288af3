//! Registry of all figures, one file for each workload.

mod arion;
mod discreet;
mod figure_1;
mod figure_13;
mod figure_7;
mod figure_8;
mod figure_9;
mod filebench;
mod kernel;
mod log_replay;
mod manylogs;
mod mpi_io;
mod postmark;
mod raid_0;
mod read_back;
mod result_cache;
mod sensitivity;
mod shared;
mod streams;
mod threshold;

use crate::Figure;

/// Figures in the order of the papers.
pub fn all() -> Vec<Figure> {
    let okeanos = [
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
    ];
    let kernel = [kernel::KERNEL_7A, kernel::KERNEL_8A, kernel::KERNEL_10A];
    okeanos
        .into_iter()
        .chain(kernel)
        .chain(discreet::all())
        .chain(manylogs::all())
        .chain([sensitivity::figure()])
        .chain(arion::all())
        .collect()
}

pub fn find(name: &str) -> Option<Figure> {
    all().into_iter().find(|figure| figure.name == name)
}
