//! What `okeanos disk serve` tells of the disk that it serves, for whoever finds a volume on it.

use super::{DriveArguments, find};
use crate::daemon::control::{Ask, Client};
use crate::daemon::mount_table;
use device::{Disk, World};
use emulated::{CacheMode, DriveOptions, EmulatedDisk, Model};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::path::Path;
use std::rc::Rc;

/// As it was begun.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServedDisk {
    /// A name, or the whole path of a file.
    pub model: String,
    pub drives: u32,
    pub chunk: u64,
    /// The drives' write caches are on.
    pub caches: bool,
    /// Bytes of each.
    pub size: Option<u64>,
}

impl ServedDisk {
    pub fn new(drives: &DriveArguments, options: &DriveOptions) -> ServedDisk {
        let file = std::fs::canonicalize(&drives.model).ok().map(|path| path.display().to_string());
        let is_shipped = super::shipped().any(|(name, _)| name == drives.model);
        ServedDisk {
            model: file.filter(|_| !is_shipped).unwrap_or_else(|| drives.model.clone()),
            drives: drives.drives,
            chunk: drives.chunk,
            caches: options.cache == CacheMode::On,
            size: options.size,
        }
    }
}

/// Whoever serves the disk that this file is, or on which this loop device stands.
pub fn client_of(source: &Path) -> Option<Client> {
    let serving = mount_table::mount_around(&mount_table::behind(source)).ok().flatten()?;
    if !serving.is_okeanos() {
        return None;
    }
    Client::connect_to_look(&serving).ok()
}

/// A disk like that one, for trials in virtual time.
pub struct ServedModel {
    drives: DriveArguments,
    model: Model,
    options: DriveOptions,
}

impl ServedModel {
    /// `None` where no emulated disk is, or its model cannot be read.
    pub fn of(source: &Path) -> Option<ServedModel> {
        let told: Value = client_of(source)?.ask(Ask::Stats).ok()?;
        let served: ServedDisk = serde_json::from_value(told.get("served")?.clone()).ok()?;
        let ServedDisk { model: name, drives, chunk, caches, size } = served;
        let cache = if caches { CacheMode::On } else { CacheMode::Off };
        let model = find(&name).ok()?;
        let options = DriveOptions { cache, size, ..DriveOptions::default() };
        Some(ServedModel { drives: DriveArguments { model: name, drives, chunk }, model, options })
    }
    pub fn name(&self) -> &str {
        &self.model.name
    }
    pub fn disk(&self, world: &Rc<dyn World>) -> (Vec<EmulatedDisk>, Rc<dyn Disk>) {
        self.drives.disk(world, &self.model, self.options)
    }
}
