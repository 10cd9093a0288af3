//! Measurements that a later run continues.

use super::subject::Subject;
use crate::error::CliError;
use eviction::fingerprint::Fingerprint;
use std::ops::Range;
use std::path::Path;

/// Conditions under which measurements can be combined.
#[derive(Clone, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Conditions {
    drive: String,
    size: u64,
    range: Range<u64>,
    ignore_flush: bool,
    cache_off: bool,
}

impl Conditions {
    pub fn of(subject: &Subject) -> Conditions {
        Conditions {
            drive: subject.name.clone(),
            size: subject.size,
            range: subject.range.clone(),
            ignore_flush: subject.behaviour.ignores_flush,
            cache_off: subject.behaviour.cache_off,
        }
    }
}

impl std::fmt::Display for Conditions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Conditions { drive, size, range, ignore_flush, cache_off } = self;
        write!(
            f,
            "{drive:?} of {size} bytes, of which {} to {} are written",
            range.start, range.end
        )?;
        f.write_str(if *ignore_flush { ", ignoring flushes" } else { "" })?;
        f.write_str(if *cache_off { ", with its cache off" } else { "" })
    }
}

#[derive(serde::Serialize, serde::Deserialize)]
struct SavedMeasurements {
    of: Conditions,
    #[serde(flatten)]
    fingerprint: Fingerprint,
}

pub const BEGIN_ANEW: &str = "Give another directory with --out, or remove the file to begin anew.";

pub fn read_saved(path: &Path, of: &Conditions) -> Result<Fingerprint, CliError> {
    let text = match std::fs::read_to_string(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Ok(Fingerprint::default());
        }
        read => read.map_err(|error| CliError::system(path.display(), error))?,
    };
    let saved: SavedMeasurements = serde_json::from_str(&text).map_err(|error| {
        CliError::new(format!("{}: {error}", path.display())).with_remedy(BEGIN_ANEW)
    })?;
    if saved.of != *of {
        let why = format!("{} holds measurements of {}; this is {of}", path.display(), saved.of);
        return Err(CliError::new(why).with_remedy(BEGIN_ANEW));
    }
    Ok(saved.fingerprint)
}

pub fn save(path: &Path, of: &Conditions, fingerprint: &Fingerprint) -> Result<(), CliError> {
    let saved = SavedMeasurements { of: of.clone(), fingerprint: fingerprint.clone() };
    let text = serde_json::to_string(&saved).map_err(|error| CliError::new(error.to_string()))?;
    write(path, &text)
}

/// Writes the whole file or nothing.
pub fn write(path: &Path, text: &str) -> Result<(), CliError> {
    let new = path.with_extension("new");
    let written = std::fs::write(&new, text).and_then(|()| std::fs::rename(&new, path));
    written.map_err(|error| CliError::system(path.display(), error))
}
