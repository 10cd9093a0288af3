//! What made a result: the program, the drives' models, the parameters.

use crate::provenance::{drives_of, parameters_of};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use xxhash_rust::xxh64::xxh64;

/// Identity of what played a figure.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Identity {
    /// Checksum over the sources of all crates that play a figure (`build.rs`).
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
            program: env!("OKEANOS_FIGURES_PROGRAM").into(),
            commit: env!("OKEANOS_FIGURES_COMMIT").into(),
            models: drives_of(figure).into_iter().filter_map(model).collect(),
            parameters: parameters_of(figure),
        }
    }
    /// Whether results of the two are alike: the commit and the records may differ.
    pub fn plays_as(&self, other: &Identity) -> bool {
        (&self.program, &self.models) == (&other.program, &other.models)
    }
}

pub fn checksum(bytes: &[u8]) -> String {
    format!("{:016x}", xxh64(bytes, 0))
}
