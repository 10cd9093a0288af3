//! A look at an image file or device, before anything is claimed.

use crate::error::CliError;
use format::ext4::superblock::{SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE};
use format::ext4::{VolumeSuperblock, feature};
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::Path;

/// Opens a file or device for a look at its content. A pipe that nobody writes to is opened at
/// once; then it cannot be read.
pub fn open_to_look(path: &Path) -> io::Result<File> {
    File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path)
}

/// Returns the current superblock; opening the volume reads it again. `None`: opening will report
/// what is wrong.
pub fn superblock_of(source: &Path) -> Option<VolumeSuperblock> {
    let mut bytes = [0; SUPERBLOCK_SIZE];
    open_to_look(source).ok()?.read_exact_at(&mut bytes, SUPERBLOCK_OFFSET).ok()?;
    VolumeSuperblock::parse(&bytes).ok()
}

/// Whether it is a volume of whose log nothing can be replayed, since it has no journal.
pub fn has_no_journal(source: &Path) -> bool {
    let has = |features: format::ext4::Features| {
        features.has(feature::HAS_JOURNAL) || features.has(feature::RECOVER)
    };
    superblock_of(source).is_some_and(|found| !has(found.features))
}

/// Refuses what can hold no volume: directories, pipes, `/dev/null`. What is not there is for the
/// caller to report.
pub fn refuse_no_disk(target: &Path) -> Result<(), CliError> {
    let Ok(found) = std::fs::metadata(target) else { return Ok(()) };
    let kind = found.file_type();
    if kind.is_file() || kind.is_block_device() {
        return Ok(());
    }
    let what = match kind {
        kind if kind.is_dir() => "is a directory",
        kind if kind.is_fifo() => "is a pipe, neither a file nor a block device",
        _ => "is neither a file nor a block device",
    };
    Err(CliError::new(format!("{} {what}", target.display()))
        .with_remedy("Name an image file or a block device."))
}
