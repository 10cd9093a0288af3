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
pub const WORDS: &[(&str, Meaning)] = &[
    ("", Nothing(NotOurs)),
    ("defaults", Nothing(NotOurs)),
    ("auto", Nothing(NotOurs)),
    ("noauto", Nothing(NotOurs)),
    ("user", Nothing(NotOurs)),
    ("user=", Nothing(NotOurs)),
    ("nouser", Nothing(NotOurs)),
    ("users", Nothing(NotOurs)),
    ("nousers", Nothing(NotOurs)),
    ("owner", Nothing(NotOurs)),
    ("noowner", Nothing(NotOurs)),
    ("group", Nothing(NotOurs)),
    ("nogroup", Nothing(NotOurs)),
    ("nofail", Nothing(NotOurs)),
    ("_netdev", Nothing(NotOurs)),
    ("comment=", Nothing(NotOurs)),
    ("helper=", Nothing(NotOurs)),
    ("uhelper=", Nothing(NotOurs)),
    ("async", Nothing(NotOurs)),
    ("silent", Nothing(NotOurs)),
    ("loud", Nothing(NotOurs)),
    ("mand", Nothing(NotOurs)),
    ("nomand", Nothing(NotOurs)),
    ("fuse", Nothing(NotOurs)),
    // As the kernel lists them for a mount; mount(8) passes them back at a remount.
    ("user_id=", Nothing(NotOurs)),
    ("group_id=", Nothing(NotOurs)),
    ("blksize=", Nothing(NotOurs)),
    ("rootmode=", Nothing(NotOurs)),
    ("fd=", Nothing(NotOurs)),
    ("max_read=", Nothing(NotOurs)),
    ("default_permissions", Nothing(Always)),
    ("iversion", Nothing(Always)),
    ("i_version", Nothing(Always)),
    ("noiversion", Nothing(Always)),
    ("bsddf", Nothing(Always)),
    ("nodiscard", Nothing(Always)),
    ("noquota", Nothing(Always)),
    ("usrjquota=", Nothing(Always)),
    ("grpjquota=", Nothing(Always)),
    ("dax=never", Nothing(Always)),
    ("dax=inode", Nothing(Always)),
    ("block_validity", Nothing(Always)),
    ("delalloc", Nothing(Otherwise)),
    ("nodelalloc", Nothing(Otherwise)),
    ("auto_da_alloc", Nothing(Otherwise)),
    ("auto_da_alloc=", Nothing(Otherwise)),
    ("noauto_da_alloc", Nothing(Otherwise)),
    ("noblock_validity", Nothing(Otherwise)),
    ("journal_async_commit", Nothing(Otherwise)),
    ("journal_ioprio=", Nothing(Otherwise)),
    ("max_batch_time=", Nothing(Otherwise)),
    ("min_batch_time=", Nothing(Otherwise)),
    ("inode_readahead_blks=", Nothing(Otherwise)),
    ("stripe=", Nothing(Otherwise)),
    ("init_itable", Nothing(Otherwise)),
    ("init_itable=", Nothing(Otherwise)),
    ("noinit_itable", Nothing(Otherwise)),
    ("dioread_lock", Nothing(Otherwise)),
    ("dioread_nolock", Nothing(Otherwise)),
    ("nodioread_nolock", Nothing(Otherwise)),
    ("data_err=ignore", Nothing(Otherwise)),
    ("data_err=abort", Nothing(Otherwise)),
    ("orlov", Nothing(Otherwise)),
    ("oldalloc", Nothing(Otherwise)),
    ("bh", Nothing(Otherwise)),
    ("nobh", Nothing(Otherwise)),
    ("reservation", Nothing(Otherwise)),
    ("noreservation", Nothing(Otherwise)),
    ("mblk_io_submit", Nothing(Otherwise)),
    ("nomblk_io_submit", Nothing(Otherwise)),
    ("mb_optimize_scan=", Nothing(Otherwise)),
    ("prefetch_block_bitmaps", Nothing(Otherwise)),
    ("no_prefetch_block_bitmaps", Nothing(Otherwise)),
    ("nombcache", Nothing(Otherwise)),
    ("no_mbcache", Nothing(Otherwise)),
    ("check=none", Nothing(Otherwise)),
    ("nocheck", Nothing(Otherwise)),
    ("debug", Nothing(Otherwise)),
    ("warn_on_error", Nothing(Otherwise)),
    ("nowarn_on_error", Nothing(Otherwise)),
    ("discard", DISCARD),
    ("quota", QUOTA),
    ("usrquota", QUOTA),
    ("grpquota", QUOTA),
    ("prjquota", QUOTA),
    ("jqfmt=", QUOTA),
    ("resuid=", RESERVE),
    ("resgid=", RESERVE),
    ("minixdf", Refused("free space is always reported without what the file system itself takes")),
    ("sb=", Refused("a copy of the superblock is for e2fsck -b")),
    ("abort", Refused("take the mount away with okeanos umount --force")),
    ("dax", Refused("memory that is a disk is not mapped directly")),
    ("dax=always", Refused("memory that is a disk is not mapped directly")),
    ("max_dir_size_kb=", Refused("directories have no limit of their own")),
    ("test_dummy_encryption", Refused("encryption is not supported")),
    ("inlinecrypt", Refused("encryption is not supported")),
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
    let is_it = |known: &str| {
        known == word || known.strip_suffix('=').is_some_and(|name| value == Some(name))
    };
    WORDS.iter().find(|(known, _)| is_it(known)).map(|(_, meaning)| *meaning)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_stands_in_the_document() {
        let document = include_str!("../../../../docs/MOUNT_OPTIONS.md");
        for (word, _) in WORDS.iter().filter(|(word, _)| !word.is_empty()) {
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
