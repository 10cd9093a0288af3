//! The drive under test, and the conditions that must hold before anything is written to it.

use super::FingerprintArguments;
use crate::disk::coerce::{Drive, refuse_page_cache};
use crate::disk::content::overwritten_content;
use crate::disk::open_disk::open_disk;
use crate::error::CliError;
use crate::text::progress::Progress;
use device::{Buffer, DeviceError, Disk, Durability, World};
use disks::{DiskAccess, next_data};
use runtime::RealWorld;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::rc::Rc;

/// The drive under test.
pub struct Subject {
    pub name: String,
    pub size: u64,
    pub disk: Rc<dyn Disk>,
    pub world: Rc<dyn World>,
    pub range: Range<u64>,
    /// Whether it is a file, not all of which is on the drive yet.
    pub has_holes: bool,
    pub behaviour: Behaviour,
}

/// Options of an emulated drive; a real one has none.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Behaviour {
    pub ignores_flush: bool,
    pub cache_off: bool,
}

/// Refuses what is in use, and block devices whose content was not given up.
pub fn open(world: &RealWorld, arguments: &FingerprintArguments) -> Result<Subject, CliError> {
    let path = arguments.disk.as_path();
    crate::daemon::mounted::refuse_if_its_daemon_died(path)?;
    let metadata =
        std::fs::metadata(path).map_err(|error| CliError::system(path.display(), error))?;
    let is_device = metadata.file_type().is_block_device();
    if is_device && !arguments.destroy {
        return Err(CliError::new(format!(
            "{} is a block device, and a fingerprint overwrites it",
            path.display()
        ))
        .with_remedy(
            "Say --destroy if nothing on it is needed, with --range if only a part may be written.",
        ));
    }
    let disk = open_disk(world, path, DiskAccess::ReadWrite)?;
    if !arguments.examination.flush_test {
        refuse_page_cache(path)?;
    }
    // Behind the claim: another command may have made something while this one waited.
    if let (false, Some(found)) = (arguments.destroy, overwritten_content(path)?) {
        return Err(CliError::new(format!(
            "{} holds {found}, and a fingerprint overwrites it",
            path.display()
        ))
        .with_remedy("Say --destroy if nothing on it is needed."));
    }
    if !disk.is_direct() {
        return Err(CliError::new(format!(
            "the file system of {} has no direct I/O",
            path.display()
        ))
        .with_remedy("Give a file on another file system, or a block device."));
    }
    let size = disk.geometry().size;
    let range = arguments.range.clone().unwrap_or(0..size);
    let sector = u64::from(disk.geometry().logical_sector);
    if range.end > size || range.start % sector != 0 {
        let (start, end) = (range.start, range.end);
        return Err(CliError::new(format!(
            "bytes {start} to {end} do not lie on {}, which has {size}, or begin within a sector \
             of {sector}",
            path.display()
        )));
    }
    let has_holes =
        !is_device && first_hole(path, range.start).is_some_and(|hole| hole < range.end);
    let drive = Drive::of(path);
    let name =
        drive.as_ref().map_or_else(|| path.display().to_string(), |drive| drive.model.clone());
    let size = drive.map_or(size, |drive| drive.size);
    let behaviour = Behaviour::default();
    let (disk, world) = (Rc::new(disk), Rc::new(world.clone()));
    Ok(Subject { name, size, disk, world, range, has_holes, behaviour })
}

/// Returns the first byte from `from` on for which the file system keeps no block, or only a
/// reserved one.
fn first_hole(path: &Path, from: u64) -> Option<u64> {
    let data = next_data(&File::open(path).ok()?, from).ok().flatten();
    Some(data.filter(|data| data.start == from).map_or(from, |data| data.end))
}

/// Bytes of a write.
const FILL: u64 = 1 << 20;

impl Subject {
    /// Allocates a block of the drive for each byte: reading a hole never reaches the drive, and so
    /// measures nothing.
    pub async fn fill(&self) -> Result<(), CliError> {
        if !self.has_holes {
            return Ok(());
        }
        let failed = |error: DeviceError| CliError::new(error.to_string());
        let progress = Progress::new();
        let Range { mut start, end } = self.range;
        let length = end - start;
        let zeros = Rc::new(Buffer::zeroed(FILL as usize));
        while start < end {
            let part = FILL.min(end - start);
            let content =
                if part == FILL { zeros.clone() } else { Rc::new(Buffer::zeroed(part as usize)) };
            let written = self.disk.write(start, vec![content], Durability::Cached).await;
            written.map_err(failed)?;
            start += part;
            progress.show(format!(
                "filling the file's holes: {} %",
                100 - 100 * (end - start) / length
            ));
        }
        self.disk.flush().await.map_err(failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    #[test]
    fn a_file_with_holes_is_filled_where_it_may_be_written() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().write_all_at(&[7; 4096], 0).unwrap();
        file.as_file().set_len(4 << 20).unwrap();
        let path = file.path().to_owned();
        assert!(first_hole(&path, 0).unwrap() < 1 << 20);
        let world = RealWorld::new().unwrap();
        let disk = open_disk(&world, &path, DiskAccess::ReadWrite)
            .unwrap_or_else(|error| panic!("{error}"));
        let (name, of_run, range) = ("file".into(), Rc::new(world.clone()), 4096..3 << 20);
        let subject = Subject {
            name,
            size: 4 << 20,
            disk: Rc::new(disk),
            world: of_run,
            range,
            has_holes: true,
            behaviour: Behaviour::default(),
        };
        world.run(async move { subject.fill().await.unwrap_or_else(|error| panic!("{error}")) });
        world.end();
        let bytes = std::fs::read(&path).unwrap();
        assert!(bytes[..4096] == [7; 4096] && bytes.len() == 4 << 20);
        assert_eq!(first_hole(&path, 0), Some(3 << 20));
    }
}
