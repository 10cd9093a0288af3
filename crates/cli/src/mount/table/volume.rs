//! Access to the volume, and what happens on damage.

use super::Row;
use crate::options::session::{SessionSettings, flag};
use crate::options::values::{choose, name_of, on_off, set, switch};
use crate::options::{MountOption, Refusal};
use ext4::{Atime, OnError};
use fuse::AttributeOptions;

/// Settings of how the volume is seen.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct VolumeSettings {
    pub atime: Atime,
    /// Whether directories change synchronously, also without `MS_SYNCHRONOUS`.
    pub synchronous_directories: bool,
    /// Extended attributes that are not served.
    pub attributes: AttributeOptions,
    pub on_error: OnError,
    /// Whether new files get their directory's group.
    pub group_of_directory: bool,
    /// Whether home is read without replaying the journal.
    pub without_journal: bool,
}

const ATIMES: [(&str, Atime); 3] =
    [("never", Atime::Never), ("relative", Atime::Relative), ("always", Atime::Always)];

pub const ROWS: &[Row] = &[
    Row {
        help: "nothing is written but, after a crash, what a recovery writes. If the disk is \
               write-protected, such a volume is refused with the way out",
        ..Row::READ_ONLY
    },
    Row {
        name: "noload",
        words: &[("noload", "on"), ("norecovery", "on")],
        parse: |value, it| set(&mut it.volume.without_journal, switch(value)?),
        text: |it| on_off(it.volume.without_journal),
        help: "only with ro: the volume as it is at home, without replaying its journal. What only \
               the journal holds is missing, and what is seen may contradict itself",
        // Refused by a rule of its own where it would change anything.
        is_live: true,
        ..Row::BASE
    },
    Row {
        name: "errors",
        value: "continue|remount-ro|panic",
        parse: |value, it| {
            it.volume.on_error = match value {
                "continue" => OnError::Continue,
                "remount-ro" => OnError::Stop,
                "panic" => {
                    it.not_done.push(
                        "errors=panic: a daemon does not stop the machine; the volume stops, as \
                         with remount-ro"
                            .to_owned(),
                    );
                    OnError::Stop
                }
                _ => return Err(Refusal::Value),
            };
            Ok(())
        },
        text: |it| {
            let stops = it.volume.on_error == OnError::Stop;
            Some(if stops { "remount-ro" } else { "continue" }.to_owned())
        },
        default: "the superblock's: tune2fs -e",
        help: "what happens on damage, which is always noted in the superblock and returned to the \
               caller. With remount-ro the journal is aborted: nothing is written any more, every \
               change fails with EROFS, and every sync with EIO. panic is taken as remount-ro, \
               with a warning",
        more: "Damage",
        is_live: true,
        in_superblock: true,
        ..Row::BASE
    },
    Row {
        name: "remount",
        words: &[("remount", "on")],
        parse: |value, it| set(&mut it.remount, switch(value)?),
        text: |it| on_off(it.remount),
        help: "changes ro, rw, commit, barrier, errors, noatime, nosuid and the like of what is \
               mounted",
        more: "Remount",
        is_live: true,
        ..Row::BASE
    },
    Row::ALLOW_OTHER,
    Row {
        name: "grpid",
        words: &[("grpid", "on"), ("nogrpid", "off")],
        hidden: &[("bsdgroups", "on"), ("sysvgroups", "off")],
        parse: |value, it| set(&mut it.volume.group_of_directory, switch(value)?),
        text: |it| on_off(it.volume.group_of_directory),
        help: "new files get their directory's group; bsdgroups and sysvgroups are other names",
        in_superblock: true,
        ..Row::BASE
    },
    Row {
        name: "nouser_xattr",
        words: &[("nouser_xattr", "on"), ("user_xattr", "off")],
        parse: |value, it| set(&mut it.volume.attributes.without_user, switch(value)?),
        text: |it| on_off(it.volume.attributes.without_user),
        help: "attributes user. are not served (EOPNOTSUPP); those on the disk stay",
        ..Row::BASE
    },
    Row {
        name: "noacl",
        words: &[("noacl", "on"), ("acl", "off")],
        parse: |value, it| set(&mut it.volume.attributes.without_access_lists, switch(value)?),
        text: |it| on_off(it.volume.attributes.without_access_lists),
        help: "modes alone decide: access control lists on the disk stay as they are and count for \
               nothing, new files inherit none, and a list can be neither read nor set \
               (EOPNOTSUPP)",
        ..Row::BASE
    },
    Row {
        name: "noxattr",
        words: &[("noxattr", "on")],
        hidden: &[("xattr", "off")],
        parse: |value, it| set(&mut it.volume.attributes.without_any, switch(value)?),
        text: |it| on_off(it.volume.attributes.without_any),
        help: "no extended attributes at all, file capabilities included; the kernel no longer \
               asks for them",
        more: "Fewer requests",
        ..Row::BASE
    },
    Row {
        name: "noatime",
        words: &[("noatime", "never"), ("relatime", "relative"), ("strictatime", "always")],
        hidden: &[("atime", "relative"), ("norelatime", "relative"), ("nostrictatime", "relative")],
        parse: |value, it| {
            it.volume.atime = choose(value, &ATIMES)?;
            it.session.set_flag(libc::MS_NOATIME, it.volume.atime == Atime::Never);
            // Without it a remount of the kernel's would keep what it has.
            it.session.set_flag(libc::MS_RELATIME, it.volume.atime == Atime::Relative);
            Ok(())
        },
        text: |it| name_of(&it.volume.atime, &ATIMES),
        default: "relatime",
        help: "whether reads change access times: never, where the last one is older than the last \
               change or a day, or always",
        is_live: true,
        ..Row::BASE
    },
    Row::NODIRATIME,
    flag!(
        libc::MS_LAZYTIME,
        "lazytime",
        &[("lazytime", "on"), ("nolazytime", "off")],
        "as for every file system"
    ),
    Row::NOSUID,
    Row::NODEV,
    Row::NOEXEC,
    Row::NOSYMFOLLOW,
    Row::SYNC,
    Row {
        name: "dirsync",
        words: &[("dirsync", "on")],
        parse: |value, it| set(&mut it.volume.synchronous_directories, switch(value)?),
        text: |it| on_off(it.volume.synchronous_directories),
        help: "changes of directories are synchronous",
        ..Row::BASE
    },
];
