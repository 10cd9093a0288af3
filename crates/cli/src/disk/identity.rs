//! Facts that distinguish a disk from its copies.

use std::fs::{Metadata, metadata};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

/// Returns what identifies a disk among those of this machine, as long as it is there.
pub fn identity(source: &Path) -> io::Result<String> {
    metadata(source).map(|found| identity_of(&found))
}

/// Returns the identity of the file or device of which these are the attributes.
pub fn identity_of(found: &Metadata) -> String {
    match found.file_type().is_block_device() {
        true => format!("device {}", found.rdev()),
        false => format!("file {} on {}", found.ino(), found.dev()),
    }
}
