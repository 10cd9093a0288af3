//! Detection of existing content on an image file or device, before a command overwrites or exports
//! it.

use crate::error::CliError;
use crate::programs;
use format::blocks::{BLOCKS_MAGIC, SUPERBLOCK_AT};
use host::HostJournal;
use scattered::Superblock;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// Bytes that must be zeros where a journal is made without --format. Signatures that blkid(8)
/// knows lie there or at the end.
const ZEROS: u64 = 1 << 20;

/// Returns the content, as in "an ext4 file system (label \"mail\")": what blkid(8) knows, and
/// formats of Okeanos, which it does not.
pub fn content_of(path: &Path) -> Result<Option<String>, CliError> {
    let read = SUPERBLOCK_AT + BLOCKS_MAGIC.len() as u64;
    let start = start_of(path, read).map_err(|error| CliError::system(path.display(), error))?;
    if start.ends_with(&BLOCKS_MAGIC) && start.len() as u64 == read {
        return Ok(Some("a block volume".into()));
    }
    if Superblock::is_begun(&start) {
        return Ok(Some("scattered logs".into()));
    }
    if HostJournal::is_head(&start) {
        return Ok(Some("the journal of a host".into()));
    }
    programs::signature_of(path)
}

/// Refuses a disk that holds something, unless `force`: mke2fs and this project's formats do not
/// ask. The remedy is `command` with --force.
pub fn refuse_to_overwrite(path: &Path, force: bool, command: &str) -> Result<(), CliError> {
    let found = if force { None } else { content_of(path)? };
    match found {
        Some(found) => Err(holds(path, &found).with_remedy(format!(
            "Look at what it is; to overwrite it: {command} {}.",
            path.display()
        ))),
        None => Ok(()),
    }
}

/// Refuses to export scattered logs as a disk without them. Blocks that lie in a log would read as
/// outdated content, and one write could destroy all logs.
pub fn refuse_raw_logs(path: &Path) -> Result<(), CliError> {
    let start = start_of(path, 4096).map_err(|error| CliError::system(path.display(), error))?;
    if !Superblock::is_begun(&start) {
        return Ok(());
    }
    Err(holds(path, "scattered logs").with_remedy(
        "Export what they hold: okeanos nbd --scattered. What is logged lies elsewhere than a raw export would show it.",
    ))
}

/// Returns whether the disk begins with zeros and holds no known content: then a journal may be
/// made without --format.
pub fn is_blank(path: &Path) -> Result<bool, CliError> {
    let start = start_of(path, ZEROS).map_err(|error| CliError::system(path.display(), error))?;
    Ok(start.iter().all(|byte| *byte == 0) && content_of(path)?.is_none())
}

fn holds(path: &Path, found: &str) -> CliError {
    CliError::new(format!("{} appears to hold {found} already", path.display()))
}

/// Returns the first `most` bytes, or all of a shorter disk.
fn start_of(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let mut start = Vec::new();
    File::open(path)?.take(most).read_to_end(&mut start)?;
    Ok(start)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_formats_and_foreign_ones_are_named() {
        let image = tempfile::NamedTempFile::new().unwrap();
        let path = image.path();
        image.as_file().set_len(8 << 20).unwrap();
        assert!(is_blank(path).unwrap() && content_of(path).unwrap().is_none());
        let write = |bytes: &[u8], at: u64| {
            std::os::unix::fs::FileExt::write_all_at(image.as_file(), bytes, at).unwrap()
        };
        write(b"OKSD", 0);
        assert!(content_of(path).unwrap().unwrap().contains("scattered logs"));
        assert!(refuse_raw_logs(path).is_err() && !is_blank(path).unwrap());
        write(b"\0\0\0\0OKHOST01", 0);
        assert!(content_of(path).unwrap().unwrap().contains("host"));
        assert!(refuse_raw_logs(path).is_ok());
        assert!(refuse_to_overwrite(path, false, "mkfs --force").is_err());
        assert!(refuse_to_overwrite(path, true, "mkfs --force").is_ok());
        write(&[0; 16], 0);
        write(&BLOCKS_MAGIC, SUPERBLOCK_AT);
        assert!(content_of(path).unwrap().unwrap().contains("block volume"));
        write(&[0; 16], SUPERBLOCK_AT);
        // Beyond the first block, as the superblock of btrfs.
        write(b"_BHRfS_M", (64 << 10) + 64);
        assert!(!is_blank(path).unwrap());
    }
}
