//! Registry of all figures: a folder for each paper, a file for each workload.

mod arion;
mod atc;
mod common;
mod discreet;
mod kernel;
mod manylogs;
mod okeanos;

use crate::Figure;

/// Folders in the order of the papers, with their figures.
fn folders() -> [(&'static str, Vec<Figure>); 6] {
    let mut okeanos: Vec<Figure> = okeanos::all().into();
    okeanos.push(okeanos::sensitivity());
    [
        ("okeanos", okeanos),
        ("atc", atc::all()),
        ("kernel", vec![kernel::KERNEL_7A, kernel::KERNEL_8A, kernel::KERNEL_10A]),
        ("discreet", discreet::all()),
        ("manylogs", manylogs::all().into()),
        ("arion", arion::all().into()),
    ]
}

/// Figures in the order of the papers.
pub fn all() -> Vec<Figure> {
    folders().into_iter().flat_map(|(_, figures)| figures).collect()
}

pub fn find(name: &str) -> Option<Figure> {
    all().into_iter().find(|figure| figure.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_have_the_checksum_of_the_folder_that_plays_them() {
        for (folder, figures) in folders() {
            for figure in figures {
                assert_eq!(crate::identity::folder_of(figure.name), folder, "{}", figure.name);
            }
        }
    }
}
