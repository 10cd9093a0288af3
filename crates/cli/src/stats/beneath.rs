//! The emulated drives that a volume lies on, where `okeanos-lab disk serve` serves them on this
//! machine.

use crate::daemon::control::{Ask, Client};
use crate::disk::served::client_of;
use serde_json::Value;
use std::path::Path;

/// Who serves the disk of a volume.
pub struct Beneath(Option<Client>);

impl Beneath {
    /// `statistics`: what the volume's daemon says, which knows the name of the image. Of a volume
    /// on any other disk, and where nobody answers, there is nothing to tell.
    pub fn of(statistics: &Value) -> Beneath {
        Beneath(
            statistics["about"]["source"].as_str().and_then(|source| client_of(Path::new(source))),
        )
    }

    /// Adds what the drives count.
    pub fn add_to(&mut self, statistics: &mut Value) {
        let Some(client) = &mut self.0 else { return };
        match client.ask::<Value>(Ask::Stats) {
            Ok(mut told) if told["drives"].is_array() => {
                statistics["drives_beneath"] = told["drives"].take()
            }
            _ => self.0 = None,
        }
    }
}
