//! The file or device of `mtl=`: memory that survives a power cut.

use crate::daemon::held_mount::open_place;
use crate::disk::content::is_blank;
use crate::disk::open_disk::open_disk;
use crate::error::CliError;
use crate::look::refuse_no_disk;
use device::Disk;
use disks::DiskAccess;
use engine::DurableMemory;
use format::run_table::{TABLE_BYTES, TABLE_PAGE, may_be_table};
use runtime::RealWorld;
use rustix::fs::{AtFlags, OFlags, statat, unlinkat};
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::rc::Rc;

/// A file that this mount has made: removed when dropped, unless the mount stands.
pub struct MadeFile {
    /// Directory of the table: before it mounts, the daemon leaves the paths of the system behind.
    directory: File,
    name: OsString,
    inode: u64,
    is_kept: bool,
}

impl MadeFile {
    fn note(path: &Path, file: &File) -> io::Result<MadeFile> {
        let path = std::path::absolute(path)?;
        let invalid = || io::Error::from(io::ErrorKind::InvalidInput);
        let (parent, name) = (path.parent(), path.file_name().ok_or_else(invalid)?.to_owned());
        let directory = open_place(parent.ok_or_else(invalid)?, OFlags::DIRECTORY)?;
        Ok(MadeFile { directory, name, inode: file.metadata()?.ino(), is_kept: false })
    }

    /// Leaves a file that was made where it is: the mount stands.
    pub fn keep(made: Option<MadeFile>) {
        if let Some(mut made) = made {
            made.is_kept = true;
        }
    }

    /// Whether the name still leads to the file.
    fn is_there(&self) -> bool {
        let found = statat(&self.directory, &self.name, AtFlags::SYMLINK_NOFOLLOW);
        found.is_ok_and(|found| found.st_ino == self.inode)
    }
}

impl Drop for MadeFile {
    fn drop(&mut self) {
        if !self.is_kept && self.is_there() {
            // One that cannot be removed harms nobody: the next mount takes it.
            let _ = unlinkat(&self.directory, &self.name, AtFlags::empty());
        }
    }
}

/// Opens the table of an option that may not be given.
pub fn open_if_asked(
    world: &RealWorld,
    path: Option<&Path>,
) -> Result<(Option<DurableMemory>, Option<MadeFile>), CliError> {
    let opened = path.map(|path| open(world, path)).transpose()?;
    Ok(opened.map_or((None, None), |(table, made)| (Some(table), made)))
}

/// Opens the table. A file is made, or extended. Other content than such a table is refused.
/// Returns the file, too, if it was made.
fn open(world: &RealWorld, path: &Path) -> Result<(DurableMemory, Option<MadeFile>), CliError> {
    refuse_no_disk(path)?;
    let failed = |error| CliError::system(format!("mtl={}", path.display()), error);
    let mut options = File::options();
    options.read(true).write(true).mode(0o600);
    let (mut file, made) = match options.open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let file = options.create_new(true).open(path).map_err(failed)?;
            let made = MadeFile::note(path, &file).map_err(failed)?;
            (file, Some(made))
        }
        file => (file.map_err(failed)?, None),
    };
    let mut head = Vec::new();
    Read::by_ref(&mut file).take(TABLE_PAGE as u64).read_to_end(&mut head).map_err(failed)?;
    let is_new = head.iter().all(|byte| *byte == 0);
    if !may_be_table(&head) || made.is_none() && is_new && !is_blank(path, TABLE_BYTES)? {
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
        true => Ok((DurableMemory(Rc::new(disk)), made)),
        false => {
            Err(CliError::new(format!("mtl={}: {TABLE_BYTES} bytes are needed", path.display())))
        }
    }
}
