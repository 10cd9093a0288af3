//! The emulated drives beneath a volume, where `okeanos-lab disk serve` serves them on this
//! machine.

use crate::daemon::control::{Ask, Client};
use crate::disk::served::client_of;
use serde_json::Value;
use std::path::Path;

/// Connection to the server of a volume's disk.
pub struct ServedDrives(Option<Client>);

impl ServedDrives {
    /// Connects. `statistics`: those of the volume's daemon, which knows the name of the image.
    /// Empty for a volume on any other disk, and where no server answers.
    pub fn of(statistics: &Value) -> ServedDrives {
        ServedDrives(
            statistics["about"]["source"].as_str().and_then(|source| client_of(Path::new(source))),
        )
    }

    /// Adds the drives' counters.
    pub fn add_to(&mut self, statistics: &mut Value) {
        let Some(client) = &mut self.0 else { return };
        match client.ask::<Value>(Ask::Stats) {
            Ok(mut served) if served["drives"].is_array() => {
                statistics["drives_beneath"] = served["drives"].take()
            }
            _ => self.0 = None,
        }
    }
}
