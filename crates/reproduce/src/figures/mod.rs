//! All figures, one file for each workload.

mod kernel;

use crate::Figure;

/// In the order of the papers.
pub fn all() -> Vec<Figure> {
    vec![kernel::kernel_7a(), kernel::kernel_8a(), kernel::kernel_10a()]
}

pub fn find(name: &str) -> Option<Figure> {
    all().into_iter().find(|figure| figure.name == name)
}
