//! The small worlds: alphabets of operations, and bounds.

use super::operation::ByPath;
use super::operation::Operation::{self, *};
use host::{Destage, HostOptions};
use std::time::Duration;

/// The store that both hosts share.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shared {
    Cluster,
    /// A directory of the machine that runs the test.
    Directory,
}

/// Event after a script, before both hosts go on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ending {
    /// The first host dies and is recovered.
    FirstDies,
    /// The first host loses its connection, connects anew and syncs; then it dies.
    FirstReconnects,
    /// Both hosts die, and the one with this index is recovered first.
    BothDie { first: usize },
}

#[derive(Debug)]
pub struct HostWorld {
    pub name: &'static str,
    pub shared: Shared,
    pub alphabet: &'static [Operation],
    /// Adds a burst of each number of pieces up to this, as a first operation.
    pub bursts: usize,
    pub destage: Destage,
    /// Maximum number of operations of a script.
    pub operations: usize,
    /// Maximum number of operations of a script with a step that is cut at each message and journal
    /// write.
    pub cut_operations: usize,
    pub ending: Ending,
}

const UNDER_PRESSURE: HostWorld = HostWorld {
    name: "",
    shared: Shared::Cluster,
    alphabet: &[],
    bursts: 0,
    destage: Destage::UnderPressure,
    operations: 3,
    cut_operations: 1,
    ending: Ending::FirstDies,
};

pub const CONTENT: HostWorld = HostWorld {
    name: "content",
    alphabet: &[Write, WriteNow, Append, AppendNow, Sync, Truncate, Read, Crash, Recover],
    cut_operations: 2,
    ..UNDER_PRESSURE
};
pub const ATTRIBUTES: HostWorld = HostWorld {
    name: "attributes",
    alphabet: &[Write, WriteNow, Chmod, SetTime, Rename, Unlink, Sync, Crash, Recover, Remount],
    ..UNDER_PRESSURE
};
pub const LEASE: HostWorld = HostWorld {
    name: "lease",
    alphabet: &[Write, Sync, Silence, Read, Reopen],
    operations: 4,
    cut_operations: 2,
    ending: Ending::FirstReconnects,
    ..UNDER_PRESSURE
};
pub const DESTAGE: HostWorld = HostWorld {
    name: "destage",
    alphabet: &[Write, AppendNow, Sync, Wait, WaitLease, Chmod, Crash, Recover],
    destage: Destage::After(Duration::from_secs(2)),
    ..UNDER_PRESSURE
};
/// The host that begins, most often the earlier owner of the file, is recovered first.
pub const EARLIER_FIRST: HostWorld = HostWorld {
    name: "earlier-first",
    alphabet: &[Write, WriteNow, AppendNow, Sync, Truncate, Chmod, Crash],
    cut_operations: 2,
    ending: Ending::BothDie { first: 0 },
    ..UNDER_PRESSURE
};
/// The other host is recovered first.
pub const LATER_FIRST: HostWorld =
    HostWorld { name: "later-first", ending: Ending::BothDie { first: 1 }, ..EARLIER_FIRST };
/// The later owner dies amid its takeover of the earlier one's file: scripts of three operations,
/// of a smaller alphabet, are cut.
pub const TAKEOVER_EARLIER_FIRST: HostWorld = HostWorld {
    name: "takeover-earlier-first",
    alphabet: &[WriteNow, AppendNow, Crash],
    cut_operations: 3,
    ..EARLIER_FIRST
};
pub const TAKEOVER_LATER_FIRST: HostWorld = HostWorld {
    name: "takeover-later-first",
    ending: Ending::BothDie { first: 1 },
    ..TAKEOVER_EARLIER_FIRST
};
pub const BURSTS: HostWorld = HostWorld {
    name: "bursts",
    alphabet: &[Sync, Chmod],
    bursts: 200,
    operations: 2,
    cut_operations: 0,
    ..UNDER_PRESSURE
};

pub const DIRECTORY: HostWorld = HostWorld {
    name: "directory",
    shared: Shared::Directory,
    alphabet: &[Write, WriteNow, AppendNow, Truncate, Chmod, SetTime, Rename, Sync, Read],
    operations: 2,
    cut_operations: 0,
    ..UNDER_PRESSURE
};
pub const DIRECTORY_NAMES: HostWorld = HostWorld {
    name: "directory-names",
    alphabet: &[AppendNow, Unlink, Remove, Create, ListBegin, ListOn],
    operations: 3,
    ..DIRECTORY
};

/// Two programs of one host want the file at the same time: the store's clients look every five
/// milliseconds whether another has returned the token, and either program may be the first.
pub const DIRECTORY_BESIDE: HostWorld = HostWorld {
    name: "directory-beside",
    alphabet: &[
        Write,
        AppendNow,
        AppendBeside(ByPath::Mode, 0),
        AppendBeside(ByPath::Mode, 2),
        AppendBeside(ByPath::Mode, 4),
        AppendBeside(ByPath::Attribute, 0),
        AppendBeside(ByPath::Attribute, 2),
        AppendBeside(ByPath::Attribute, 4),
        AppendBeside(ByPath::Name, 0),
        AppendBeside(ByPath::Name, 4),
    ],
    ..DIRECTORY
};

pub const WORLDS: [&HostWorld; 12] = [
    &CONTENT,
    &ATTRIBUTES,
    &LEASE,
    &DESTAGE,
    &EARLIER_FIRST,
    &LATER_FIRST,
    &TAKEOVER_EARLIER_FIRST,
    &TAKEOVER_LATER_FIRST,
    &BURSTS,
    &DIRECTORY,
    &DIRECTORY_NAMES,
    &DIRECTORY_BESIDE,
];

pub fn find(name: &str) -> Option<&'static HostWorld> {
    WORLDS.into_iter().find(|world| world.name == name)
}

impl HostWorld {
    pub fn options(&self) -> HostOptions {
        let writeback = Duration::from_secs(1);
        HostOptions { destage: self.destage, writeback, ..HostOptions::default() }
    }
}
