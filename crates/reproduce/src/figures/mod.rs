//! Registry of all figures: a folder for each paper, a file for each workload.

mod arion;
mod common;
mod discreet;
mod kernel;
mod manylogs;
mod okeanos;

use crate::Figure;

/// Figures in the order of the papers.
pub fn all() -> Vec<Figure> {
    let kernel = [kernel::KERNEL_7A, kernel::KERNEL_8A, kernel::KERNEL_10A];
    okeanos::all()
        .into_iter()
        .chain(kernel)
        .chain(discreet::all())
        .chain(manylogs::all())
        .chain([okeanos::sensitivity()])
        .chain(arion::all())
        .collect()
}

pub fn find(name: &str) -> Option<Figure> {
    all().into_iter().find(|figure| figure.name == name)
}
