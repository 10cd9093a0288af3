//! Origin of a result: the program, the drives' models, the parameters.

use crate::provenance::{drives_of, parameters_of};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use xxhash_rust::xxh64::xxh64;

/// Identity of what played a figure.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Identity {
    /// Checksum over the sources of all crates that play the figure (`build.rs`).
    pub program: String,
    /// The commit of the program and its date, if known, and whether the sources had changed since.
    pub commit: String,
    /// Checksum of each drive's model file.
    pub models: BTreeMap<String, String>,
    /// Parameters of the figure's rigs as recorded: name, value and origin.
    pub parameters: BTreeMap<String, String>,
}

impl Identity {
    /// Returns the identity of this program for a figure.
    pub fn of(figure: &str) -> Identity {
        let model = |name: &'static str| {
            let text = emulated::shipped().find(|(shipped, _)| *shipped == name)?.1;
            Some((name.to_owned(), checksum(text.as_bytes())))
        };
        Identity {
            program: programs().remove(folder_of(figure)).unwrap_or_default(),
            commit: COMMIT.into(),
            models: drives_of(figure).into_iter().filter_map(model).collect(),
            parameters: parameters_of(figure),
        }
    }
    /// Whether results of the two are alike: the commit and the records may differ.
    pub fn plays_as(&self, other: &Identity) -> bool {
        (&self.program, &self.models) == (&other.program, &other.models)
    }
}

/// The commit of this program and its date; empty if it is not known.
pub const COMMIT: &str = env!("OKEANOS_FIGURES_COMMIT");

/// Returns this program's checksum for each folder of figures.
pub fn programs() -> BTreeMap<String, String> {
    let pairs = env!("OKEANOS_FIGURES_PROGRAMS").split(' ').filter_map(|pair| pair.split_once('='));
    pairs.map(|(folder, sum)| (folder.to_owned(), sum.to_owned())).collect()
}

/// Returns the folder of `figures` that plays a figure.
pub fn folder_of(figure: &str) -> &'static str {
    match figure.split('-').next().unwrap_or_default() {
        "arion" => "arion",
        "atc" => "atc",
        "discreet" => "discreet",
        "kernel" => "kernel",
        "manylogs" => "manylogs",
        _ => "okeanos",
    }
}

pub fn checksum(bytes: &[u8]) -> String {
    format!("{:016x}", xxh64(bytes, 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_figure_has_a_checksum_of_its_folder() {
        for figure in crate::figures::all() {
            let folder = folder_of(figure.name);
            assert_eq!(Identity::of(figure.name).program, programs()[folder], "{}", figure.name);
            assert_eq!(figure.real_time, folder == "kernel", "{}", figure.name);
            assert_eq!(figure.source.starts_with("Arion"), folder == "arion", "{}", figure.name);
        }
    }
}
