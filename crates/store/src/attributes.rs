use units::Timestamp;

/// A file for as long as it exists, also for another connection and after a crash; never a handle
/// of this connection. A reused number counts as the same file; the [`Version`] distinguishes the
/// two.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FileId(pub u64);

/// Identifies a state of a file. The number alone proves nothing: two histories may reach the same
/// one. Two states are the same only if all three fields are equal.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Version {
    /// Grows with each change of content or attributes, by one or more.
    pub number: u64,
    /// Time of the last change, in nanoseconds since 1970.
    pub ctime_ns: u64,
    /// Size in bytes.
    pub size: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum FileKind {
    Regular,
    Directory,
    Symlink,
    /// Pipe, socket or device: the bits of `S_IFMT`.
    Special(u32),
}

/// Attributes of a file as this client sees it: its own buffered writes are included.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileAttributes {
    pub file: FileId,
    pub kind: FileKind,
    pub version: Version,
    /// Permission bits, set-id bits and the sticky bit.
    pub mode: u32,
    pub links: u32,
    pub uid: u32,
    pub gid: u32,
    /// Device number of a device.
    pub rdev: u32,
    /// Blocks of 512 bytes.
    pub blocks: u64,
    pub accessed: Timestamp,
    pub modified: Timestamp,
    pub changed: Timestamp,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TimeChange {
    /// The store's or this host's clock.
    Now,
    To(Timestamp),
}

/// The change that [`crate::Store::allocate`] makes to a range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Allocation {
    /// Later writes to it do not lack space; the file is as long as its end, at least.
    Reserve,
    /// Reserves space, and keeps the size.
    ReserveKeepingSize,
    /// Reads as zeros afterwards, and takes no space if the store can free it; the size stays.
    PunchHole,
}

/// Attributes that [`crate::Store::set_attributes`] is to change; `None` leaves one as it is.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct AttributeChange {
    /// Truncates or extends with zeros.
    pub size: Option<u64>,
    pub mode: Option<u32>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub accessed: Option<TimeChange>,
    pub modified: Option<TimeChange>,
}

impl AttributeChange {
    /// Applies everything but the size to a file's attributes. Another size sets the time of the
    /// last change of content.
    pub(crate) fn apply_to(&self, attributes: &mut FileAttributes, now: Timestamp) {
        let time = |change: TimeChange| match change {
            TimeChange::Now => now,
            TimeChange::To(time) => time,
        };
        attributes.mode = self.mode.unwrap_or(attributes.mode);
        attributes.uid = self.uid.unwrap_or(attributes.uid);
        attributes.gid = self.gid.unwrap_or(attributes.gid);
        attributes.accessed = self.accessed.map_or(attributes.accessed, time);
        if self.size.is_some() {
            attributes.modified = now;
        }
        attributes.modified = self.modified.map_or(attributes.modified, time);
    }
}
