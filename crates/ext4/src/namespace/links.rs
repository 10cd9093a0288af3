//! Link counts. A directory has a link for its name, one for its `.`, and one for the `..` of each
//! subdirectory.

use crate::{Inode, Volume};
use format::ext4::feature;
use format::ext4::inode::flags;

/// The most links of an inode (`EXT4_LINK_MAX`).
pub(super) const LINKS_MAX: u16 = 65_000;

impl Volume {
    /// Whether a directory can have one more subdirectory. With dir_nlink an indexed one always
    /// can.
    pub(super) fn takes_subdirectory(&self, directory: &Inode) -> bool {
        let uncounted = self.has(feature::DIR_NLINK) && directory.has_flag(flags::INDEX);
        uncounted || directory.fields.borrow().links < LINKS_MAX
    }
}

/// Counts one more subdirectory. Beyond the maximum the count becomes 1, which means "not counted
/// any more".
pub(super) fn add_subdirectory(directory: &Inode) {
    let mut fields = directory.fields.borrow_mut();
    fields.links = match fields.links {
        1 => 1,
        links if links >= LINKS_MAX => 1,
        links => links + 1,
    };
}

pub(super) fn remove_subdirectory(directory: &Inode) {
    let mut fields = directory.fields.borrow_mut();
    if fields.links > 2 {
        fields.links -= 1;
    }
}
