//! Operations of the scripts of two hosts, and what they make of a file.

use std::fmt;
use std::str::FromStr;

/// One operation of one host, on the file that both have open.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    /// Writes three bytes at the beginning, which are durable soon.
    Write,
    /// Writes them durably.
    WriteNow,
    /// Appends three bytes through a descriptor with O_APPEND.
    Append,
    AppendNow,
    /// Closes the descriptor. Then one program changes the file by its path, and, this number of
    /// milliseconds later, another opens it and appends durably.
    AppendBeside(ByPath, u64),
    /// Writes this number of pieces of a line each, in the same transaction unless it is full.
    Burst(usize),
    Sync,
    /// Sets the size to two bytes.
    Truncate,
    Chmod,
    SetTime,
    Read,
    /// Gives the file its other name.
    Rename,
    Unlink,
    /// Closes the descriptor, and removes the file's name.
    Remove,
    /// Creates another file, and writes it durably.
    Create,
    /// Closes the descriptor, and opens another.
    Reopen,
    /// Lists one half of the directory.
    ListBegin,
    /// Lists the other half.
    ListOn,
    /// Lets three seconds pass.
    Wait,
    /// Lets more time pass than a lease has.
    WaitLease,
    /// Cuts the host's network until it connects anew.
    Silence,
    /// Cuts the power of the host.
    Crash,
    /// Starts a host that has crashed.
    Recover,
    /// Unmounts, and mounts again.
    Remount,
}
use Operation::*;

/// A change of a file that nobody on its host has open.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ByPath {
    Mode,
    Attribute,
    /// Gives the file its other name.
    Name,
}
const BY_PATH: [(ByPath, &str); 3] = [
    (ByPath::Mode, "append-beside-mode-"),
    (ByPath::Attribute, "append-beside-attribute-"),
    (ByPath::Name, "append-beside-name-"),
];

const NAMES: [(Operation, &str); 22] = [
    (Write, "write"),
    (WriteNow, "write-now"),
    (Append, "append"),
    (AppendNow, "append-now"),
    (Sync, "sync"),
    (Truncate, "truncate"),
    (Chmod, "chmod"),
    (SetTime, "set-time"),
    (Read, "read"),
    (Rename, "rename"),
    (Unlink, "unlink"),
    (Remove, "remove"),
    (Create, "create"),
    (Reopen, "reopen"),
    (ListBegin, "list-begin"),
    (ListOn, "list-on"),
    (Wait, "wait"),
    (WaitLease, "wait-lease"),
    (Silence, "silence"),
    (Crash, "crash"),
    (Recover, "recover"),
    (Remount, "remount"),
];
const BURST: &str = "burst-";

impl Operation {
    /// Returns whether its success makes durable what its host has written before.
    pub fn promises(self) -> bool {
        matches!(self, WriteNow | AppendNow | AppendBeside(..) | Sync | Truncate | Remount)
    }
    /// Returns whether it needs the descriptor.
    pub fn needs_descriptor(self) -> bool {
        let is_on_it = matches!(self, Sync | Read | Reopen | Remove);
        is_on_it || !self.changes(0).is_empty()
    }
    /// Returns whether it gives the file its other name.
    pub fn renames(self) -> bool {
        matches!(self, Rename | AppendBeside(ByPath::Name, _))
    }
    /// Returns whether it is the same whichever host does it.
    pub fn is_of_no_host(self) -> bool {
        matches!(self, Wait | WaitLease)
    }
    /// Returns its changes of the file, as step number `step` of the script.
    pub fn changes(self, step: u8) -> Vec<Change> {
        let tag = vec![b'A' + step; 3];
        let line = |piece: usize| {
            let line = format!("acknowledged {piece:03} {step:02}..\n").into_bytes();
            Change::Write(piece * line.len(), line)
        };
        match self {
            Write | WriteNow => vec![Change::Write(0, tag)],
            AppendBeside(ByPath::Mode, _) => {
                [Chmod.changes(step), AppendNow.changes(step)].concat()
            }
            Append | AppendNow | AppendBeside(..) => vec![Change::Append(tag)],
            Burst(pieces) => (0..pieces).map(line).collect(),
            Truncate => vec![Change::Size(2)],
            Chmod => vec![Change::Mode(0o600 + u32::from(step))],
            SetTime => vec![Change::Time(1000 + i64::from(step))],
            _ => Vec::new(),
        }
    }
}

/// A change of a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Change {
    Write(usize, Vec<u8>),
    Append(Vec<u8>),
    Size(usize),
    Mode(u32),
    /// Sets the time of the last change of content, in seconds.
    Time(i64),
}

/// A state of a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FileState {
    pub content: Vec<u8>,
    pub mode: u32,
    /// The time of the last change of content, if it was set since.
    pub modified: Option<i64>,
}

impl FileState {
    pub fn after(&self, change: &Change) -> FileState {
        let mut after = self.clone();
        match change {
            Change::Write(at, bytes) => {
                let end = at + bytes.len();
                after.content.resize(end.max(self.content.len()), 0);
                after.content[*at..end].copy_from_slice(bytes);
            }
            Change::Append(bytes) => after.content.extend(bytes),
            Change::Size(size) => after.content.resize(*size, 0),
            Change::Mode(mode) => after.mode = *mode,
            Change::Time(time) => after.modified = Some(*time),
        }
        if matches!(change, Change::Write(..) | Change::Append(_) | Change::Size(_)) {
            after.modified = None;
        }
        after
    }
    /// Returns whether the servers' state is this one.
    pub fn is(&self, found: &FileState) -> bool {
        self.content == found.content
            && self.mode == found.mode
            && self.modified.is_none_or(|modified| found.modified == Some(modified))
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Burst(pieces) = self {
            return write!(f, "{BURST}{pieces}");
        }
        if let AppendBeside(change, later) = self {
            let (_, name) = BY_PATH.iter().find(|(one, _)| one == change).expect("all have names");
            return write!(f, "{name}{later}");
        }
        let (_, name) = NAMES.iter().find(|(one, _)| one == self).expect("all have names");
        f.write_str(name)
    }
}
impl FromStr for Operation {
    type Err = String;
    fn from_str(text: &str) -> Result<Operation, String> {
        if let Some(pieces) = text.strip_prefix(BURST).and_then(|pieces| pieces.parse().ok()) {
            return Ok(Burst(pieces));
        }
        for (change, name) in BY_PATH {
            if let Some(later) = text.strip_prefix(name).and_then(|later| later.parse().ok()) {
                return Ok(AppendBeside(change, later));
            }
        }
        let found = NAMES.iter().find(|(_, name)| *name == text);
        found.map(|(one, _)| *one).ok_or_else(|| format!("{text}: no operation"))
    }
}
