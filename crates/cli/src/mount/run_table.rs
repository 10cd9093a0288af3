//! The file or device of `mtl=`: memory that survives a power cut.

use crate::disk::open_disk::open_disk;
use crate::error::CliError;
use device::Disk;
use disks::DiskAccess;
use engine::DurableMemory;
use format::run_table::{TABLE_BYTES, TABLE_PAGE, may_be_table};
use runtime::RealWorld;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::rc::Rc;

/// Opens the table. A file is made, or extended. Other content than such a table is refused.
pub fn open(world: &RealWorld, path: &Path) -> Result<DurableMemory, CliError> {
    let failed = |error| CliError::system(format!("mtl={}", path.display()), error);
    let mut file = File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)
        .map_err(failed)?;
    let mut head = Vec::new();
    Read::by_ref(&mut file).take(TABLE_PAGE as u64).read_to_end(&mut head).map_err(failed)?;
    if !may_be_table(&head) {
        return Err(CliError::new(format!("mtl={}: something else is there", path.display()))
            .with_remedy("Name a new file, or one that an earlier mount with mtl= has made."));
    }
    let about = file.metadata().map_err(failed)?;
    if about.is_file() && about.len() < TABLE_BYTES {
        // Written, so that no later write to it finds its file system full: that would end all
        // writing to the volume.
        let missing = vec![0; (TABLE_BYTES - about.len()) as usize];
        file.write_all_at(&missing, about.len()).map_err(failed)?;
    }
    drop(file);
    let disk = open_disk(world, path, DiskAccess::ReadWrite)?;
    match disk.geometry().size >= TABLE_BYTES {
        true => Ok(DurableMemory(Rc::new(disk))),
        false => {
            Err(CliError::new(format!("mtl={}: {TABLE_BYTES} bytes are needed", path.display())))
        }
    }
}
