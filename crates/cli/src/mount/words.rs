//! Options behind `-o` that change nothing here. They are those of mount(8) and fstab(5), and those
//! of ext4 that are always on, have no meaning here, or are not supported. `docs/MOUNT_OPTIONS.md`
//! describes them for people.

/// Meaning of an option that is no setting of Okeanos.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Meaning {
    /// No effect, for this reason.
    Nothing(Why),
    /// Not supported, but the volume works without it; the user is warned.
    NotDone(&'static str),
    Refused(&'static str),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Why {
    /// Concerns mount(8), systemd or nobody any more.
    NotOurs,
    /// Always on.
    Always,
    /// Tunes a mechanism that works differently here.
    Otherwise,
}

use Meaning::{NotDone, Nothing, Refused};
use Why::{Always, NotOurs, Otherwise};

const DISCARD: Meaning = NotDone(concat!(
    "discard: freed blocks are not discarded as they are freed; ",
    "run fstrim on the mounted volume"
));
const QUOTA: Meaning = Refused("quotas are not supported");
const RESERVE: Meaning =
    Refused("it is kept in the superblock; set it there with tune2fs -u or -g");

/// Options, or names with a value behind them (`commit=`: any value).
pub const WORDS: &[(&[&str], Meaning)] = &[
    (
        &[
            "", "defaults", "auto", "noauto", "user", "user=", "nouser", "users", "nousers",
            "owner", "noowner", "group", "nogroup", "nofail", "_netdev", "comment=", "helper=",
            "uhelper=", "async", "silent", "loud", "mand", "nomand", "fuse",
        ],
        Nothing(NotOurs),
    ),
    // As the kernel lists them for a mount; mount(8) passes them back at a remount.
    (&["user_id=", "group_id=", "blksize=", "rootmode=", "fd=", "max_read="], Nothing(NotOurs)),
    (
        &[
            "default_permissions",
            "iversion",
            "i_version",
            "noiversion",
            "bsddf",
            "nodiscard",
            "noquota",
            "usrjquota=",
            "grpjquota=",
            "dax=never",
            "dax=inode",
            "block_validity",
        ],
        Nothing(Always),
    ),
    (
        &[
            "delalloc",
            "nodelalloc",
            "auto_da_alloc",
            "auto_da_alloc=",
            "noauto_da_alloc",
            "noblock_validity",
            "journal_async_commit",
            "journal_ioprio=",
            "max_batch_time=",
            "min_batch_time=",
            "inode_readahead_blks=",
            "stripe=",
            "init_itable",
            "init_itable=",
            "noinit_itable",
            "dioread_lock",
            "dioread_nolock",
            "nodioread_nolock",
            "data_err=ignore",
            "data_err=abort",
            "orlov",
            "oldalloc",
            "bh",
            "nobh",
            "reservation",
            "noreservation",
            "mblk_io_submit",
            "nomblk_io_submit",
            "mb_optimize_scan=",
            "prefetch_block_bitmaps",
            "no_prefetch_block_bitmaps",
            "nombcache",
            "no_mbcache",
            "check=none",
            "nocheck",
            "debug",
            "warn_on_error",
            "nowarn_on_error",
        ],
        Nothing(Otherwise),
    ),
    (&["discard"], DISCARD),
    (&["quota", "usrquota", "grpquota", "prjquota", "jqfmt="], QUOTA),
    (&["resuid=", "resgid="], RESERVE),
    (
        &["minixdf"],
        Refused("free space is always reported without what the file system itself takes"),
    ),
    (&["sb="], Refused("a copy of the superblock is for e2fsck -b")),
    (
        &["fsname=", "subtype="],
        Refused("a mount is listed with its image or device, and with the mode as its type"),
    ),
    (
        &["auto_unmount"],
        Refused(
            "a daemon that ends unmounts; one that was killed leaves its mount to the next okeanos \
             mount",
        ),
    ),
    (&["allow_root"], Refused("use allow_other, and modes that keep others out")),
    (&["abort"], Refused("take the mount away with okeanos umount --force")),
    (&["dax", "dax=always"], Refused("memory that is a disk is not mapped directly")),
    (&["max_dir_size_kb="], Refused("directories have no limit of their own")),
    (&["test_dummy_encryption", "inlinecrypt"], Refused("encryption is not supported")),
];

/// Returns `None` for a setting, or an unknown word.
pub fn meaning(word: &str) -> Option<Meaning> {
    if word.starts_with("x-") || word.starts_with("X-") {
        return Some(Nothing(NotOurs));
    }
    // Names of quota files turn quotas on; without one they turn them off.
    if word.starts_with("usrjquota=") || word.starts_with("grpjquota=") {
        return Some(if word.ends_with('=') { Nothing(Always) } else { QUOTA });
    }
    let value = word.split_once('=').map(|(name, _)| name);
    let is_it = |known: &&str| {
        *known == word || known.strip_suffix('=').is_some_and(|name| value == Some(name))
    };
    WORDS.iter().find(|(known, _)| known.iter().any(is_it)).map(|(_, meaning)| *meaning)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_stands_in_the_document() {
        let document = include_str!("../../../../docs/MOUNT_OPTIONS.md");
        for word in WORDS.iter().flat_map(|(words, _)| *words).filter(|word| !word.is_empty()) {
            assert!(document.contains(&format!("`{word}")), "docs/MOUNT_OPTIONS.md lacks `{word}`");
        }
    }

    #[test]
    fn names_with_a_value_are_no_words() {
        assert_eq!(meaning("stripe=128"), Some(Nothing(Otherwise)));
        assert_eq!(meaning("stripe"), None);
        assert_eq!(meaning("usrjquota="), Some(Nothing(Always)));
        assert_eq!(meaning("usrjquota=aquota.user"), Some(QUOTA));
        assert_eq!(meaning("x-systemd.automount"), Some(Nothing(NotOurs)));
        assert_eq!(meaning("data=ordered"), None);
    }
}
