//! The image or device that a command line names: itself, or by the directory of its mount.

use crate::daemon::mount_table::{self, Mount};
use crate::error::CliError;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

/// Returns the path to read for `path`: for a directory on which a volume is mounted, the volume's
/// image or device.
///
/// # Errors
/// A directory where no volume is mounted, or one whose mount names neither a file nor a device.
pub fn source_of(path: &Path) -> Result<PathBuf, CliError> {
    if !path.is_dir() {
        return Ok(path.to_owned());
    }
    let (name, system) = (path.display(), |error| CliError::system(path.display(), error));
    let at = mount_table::resolve(path).map_err(system)?;
    let is_volume = |mount: &Mount| {
        let of_kernel = matches!(&*mount.kind, "ext4" | "ext3" | "ext2");
        mount.is_okeanos() || of_kernel && mount.directory == at
    };
    let Some(mount) = mount_table::mount_around(path).map_err(system)?.filter(is_volume) else {
        return Err(CliError::new(format!(
            "{name} is a directory, and no okeanos volume is mounted there"
        ))
        .with_remedy("Name an image file, a device, or a volume's mount: okeanos list."));
    };
    if at != mount.directory {
        let directory = mount.directory.display();
        return Err(CliError::new(format!("{name} is a directory on a mounted volume"))
            .with_remedy(format!("Name where the volume is mounted: {directory}.")));
    }
    let source = mount.image();
    let is_readable = std::fs::metadata(&source)
        .is_ok_and(|found| found.is_file() || found.file_type().is_block_device());
    if !source.is_absolute() || !is_readable {
        let source = source.display();
        return Err(CliError::new(format!("{name} lies on {source}, which is no image or device"))
            .with_remedy("Name the image or device itself: okeanos list shows it."));
    }
    Ok(source)
}
