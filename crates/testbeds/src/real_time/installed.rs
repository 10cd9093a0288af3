//! The two programs that measurements start.

use crate::real_time::rig::RigError;
use std::path::PathBuf;

/// The programs of Okeanos.
#[derive(Clone, Debug)]
pub struct Programs {
    /// `okeanos` makes, mounts and recovers volumes.
    pub okeanos: PathBuf,
    /// `okeanos-lab` serves emulated disks.
    pub lab: PathBuf,
}

impl Programs {
    /// Finds this program, which is `okeanos-lab`, and the `okeanos` beside it, as built or
    /// installed together, or in PATH.
    ///
    /// # Errors
    /// There is no `okeanos`.
    pub fn find() -> Result<Programs, RigError> {
        let lab = std::env::current_exe().map_err(RigError::at("the program's own path"))?;
        let path = std::env::var_os("PATH").unwrap_or_default();
        let beside = lab.parent().map(PathBuf::from);
        let mut places = beside.into_iter().chain(std::env::split_paths(&path));
        let okeanos = places.find_map(|place| {
            let program = place.join("okeanos");
            program.is_file().then_some(program)
        });
        let okeanos = okeanos.ok_or_else(|| {
            RigError::new("the program okeanos is neither beside okeanos-lab nor in PATH")
        })?;
        Ok(Programs { okeanos, lab })
    }
}
