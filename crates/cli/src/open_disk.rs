//! Opening image files and devices.

use crate::error::CliError;
use disks::{Access, FileDisk, OpenError};
use runtime::RealWorld;
use std::path::Path;
use std::time::{Duration, Instant};

/// The kernel lets go of what a killed daemon held (ring, loop device) a little after the daemon's end.
const PATIENCE: Duration = Duration::from_secs(3);
const PAUSE: Duration = Duration::from_millis(50);

/// Opens a disk; waits a little while somebody else has it. Blocks the thread: for the start of a program.
pub fn open_disk(world: &RealWorld, path: &Path, access: Access) -> Result<FileDisk, CliError> {
    let begun = Instant::now();
    loop {
        match FileDisk::open(world.ring(), path, access) {
            Err(OpenError::Busy { .. } | OpenError::Locked { .. } | OpenError::Attached { .. })
                if begun.elapsed() < PATIENCE =>
            {
                std::thread::sleep(PAUSE);
            }
            result => return result.map_err(|error| CliError::new(error.to_string())),
        }
    }
}
