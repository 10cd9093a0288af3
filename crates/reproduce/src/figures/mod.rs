//! All figures, one file for each workload.

use crate::Figure;

/// In the order of the papers.
pub fn all() -> Vec<Figure> {
    Vec::new()
}

pub fn find(name: &str) -> Option<Figure> {
    all().into_iter().find(|figure| figure.name == name)
}
