//! Empty volumes of more and more bytes.

use super::GrowthQuantity::{FirstCreate, FirstLookup, Memory, Mount, Recovery};
use super::sparse::{JOURNAL, SparseVolume};
use super::{Bench, Sample};
use crate::real_time::rig::{RigError, timed};
use std::fs::File;

pub(super) fn measure(bench: &Bench<'_>) -> Result<Vec<Vec<Sample>>, RigError> {
    let at = |&bytes: &u64| {
        let what = format!("a volume of {} GiB", bytes >> 30);
        (bench.progress)(&format!("{what}: making it"));
        let mut volume = SparseVolume::make(bench, bytes, JOURNAL, None)?;
        bench.repeat(&what, || measure_cold(&mut volume, "lost+found"))
    };
    bench.options.volumes.iter().map(at).collect()
}

/// Measures a mount, the first steps on it, a small load, a kill, and the mount after the kill.
/// `known` is a path of the volume.
pub(super) fn measure_cold(volume: &mut SparseVolume<'_>, known: &str) -> Result<Sample, RigError> {
    let mount = volume.mount("")?;
    let memory = volume.memory()?.now;
    let (_, lookup) = timed(|| volume.path(known).symlink_metadata().map_err(RigError::at(known)))?;
    let name = volume.fresh_name();
    let fresh = volume.path(&name);
    let (_, create) = timed(|| File::create_new(&fresh).map_err(RigError::at(fresh.display())))?;
    volume.small_load()?;
    volume.kill()?;
    let recovery = volume.mount("")?;
    volume.unmount()?;
    Ok(vec![
        (Mount, mount),
        (Memory, memory),
        (FirstLookup, lookup),
        (FirstCreate, create),
        (Recovery, recovery),
    ])
}
