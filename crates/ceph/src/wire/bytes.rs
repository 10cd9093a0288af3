//! Converts values to bytes and back.

use store::{
    Allocation, AttributeChange, Creator, Entry, FileAttributes, FileId, FileKind, Listing,
    LockMode, NewNode, Space, TimeChange, Token, Version, XattrMode,
};
use units::Timestamp;

/// Bytes that are no message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum MalformedMessage {
    #[error("a frame of {0} bytes is longer than any message")]
    TooLong(u32),
    #[error("a message ends before its last field")]
    Short,
    #[error("a message has bytes behind its last field")]
    Behind,
    #[error("{0} ns are no part of a second")]
    Nanoseconds(u32),
    #[error("{found} is no {field}")]
    Unknown { field: &'static str, found: u8 },
}

/// The unread rest of a frame.
pub struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    pub fn take(&mut self, count: usize) -> Result<&'a [u8], MalformedMessage> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(MalformedMessage::Short)?;
        self.0 = rest;
        Ok(taken)
    }
    /// Reads one message and nothing else.
    pub fn whole<T: Wire>(bytes: &'a [u8]) -> Result<T, MalformedMessage> {
        let mut reader = Reader(bytes);
        let message = T::take(&mut reader)?;
        if reader.0.is_empty() { Ok(message) } else { Err(MalformedMessage::Behind) }
    }
}

pub trait Wire: Sized {
    fn put(&self, out: &mut Vec<u8>);
    fn take(from: &mut Reader<'_>) -> Result<Self, MalformedMessage>;
}

macro_rules! wire_number {
    ($($number:ty),*) => { $(
        impl Wire for $number {
            fn put(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }
            fn take(from: &mut Reader<'_>) -> Result<Self, MalformedMessage> {
                let bytes = from.take(size_of::<$number>())?;
                let bytes = bytes.try_into().expect("the reader took as many bytes");
                Ok(<$number>::from_le_bytes(bytes))
            }
        }
    )* };
}
wire_number!(u8, u32, u64, i32, i64);

/// Encodes the fields one after the other.
macro_rules! wire_struct {
    ($name:ident { $($field:tt),* }) => {
        impl Wire for $name {
            fn put(&self, out: &mut Vec<u8>) {
                $(self.$field.put(out);)*
            }
            fn take(from: &mut Reader<'_>) -> Result<Self, MalformedMessage> {
                Ok($name { $($field: Wire::take(from)?),* })
            }
        }
    };
}
pub(crate) use wire_struct;

/// Encodes the variant as a byte, then its fields.
macro_rules! wire_enum {
    ($name:ident { $($number:literal => $variant:ident $({ $($field:ident),* })? ),* $(,)? }) => {
        impl Wire for $name {
            fn put(&self, out: &mut Vec<u8>) {
                match self {
                    $($name::$variant $({ $($field),* })? => {
                        out.push($number);
                        $($($field.put(out);)*)?
                    })*
                }
            }
            fn take(from: &mut Reader<'_>) -> Result<Self, MalformedMessage> {
                Ok(match u8::take(from)? {
                    $($number => $name::$variant $({ $($field: Wire::take(from)?),* })?,)*
                    found => return Err(MalformedMessage::Unknown { field: stringify!($name),
                    found }),
                })
            }
        }
    };
}
pub(crate) use wire_enum;

impl Wire for bool {
    fn put(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }
    fn take(from: &mut Reader<'_>) -> Result<Self, MalformedMessage> {
        match u8::take(from)? {
            0 => Ok(false),
            1 => Ok(true),
            found => Err(MalformedMessage::Unknown { field: "truth value", found }),
        }
    }
}
impl Wire for Vec<u8> {
    fn put(&self, out: &mut Vec<u8>) {
        (self.len() as u32).put(out);
        out.extend_from_slice(self);
    }
    fn take(from: &mut Reader<'_>) -> Result<Self, MalformedMessage> {
        let length = u32::take(from)? as usize;
        Ok(from.take(length)?.to_vec())
    }
}
impl Wire for Vec<Entry> {
    fn put(&self, out: &mut Vec<u8>) {
        (self.len() as u32).put(out);
        self.iter().for_each(|entry| entry.put(out));
    }
    fn take(from: &mut Reader<'_>) -> Result<Self, MalformedMessage> {
        let length = u32::take(from)?;
        // Grows with the bytes that are there, whatever the number says.
        (0..length).map(|_| Entry::take(from)).collect()
    }
}
impl<T: Wire> Wire for Option<T> {
    fn put(&self, out: &mut Vec<u8>) {
        self.is_some().put(out);
        if let Some(value) = self {
            value.put(out);
        }
    }
    fn take(from: &mut Reader<'_>) -> Result<Self, MalformedMessage> {
        bool::take(from)?.then(|| T::take(from)).transpose()
    }
}
impl Wire for FileId {
    fn put(&self, out: &mut Vec<u8>) {
        self.0.put(out);
    }
    fn take(from: &mut Reader<'_>) -> Result<Self, MalformedMessage> {
        u64::take(from).map(FileId)
    }
}
/// The bits of `S_IFMT`.
impl Wire for FileKind {
    fn put(&self, out: &mut Vec<u8>) {
        let bits = match self {
            FileKind::Regular => libc::S_IFREG,
            FileKind::Directory => libc::S_IFDIR,
            FileKind::Symlink => libc::S_IFLNK,
            FileKind::Special(bits) => *bits,
        };
        bits.put(out);
    }
    fn take(from: &mut Reader<'_>) -> Result<Self, MalformedMessage> {
        u32::take(from).map(kind_of)
    }
}

/// Returns the kind that the type bits of a mode encode.
pub fn kind_of(mode: u32) -> FileKind {
    match mode & libc::S_IFMT {
        libc::S_IFREG => FileKind::Regular,
        libc::S_IFDIR => FileKind::Directory,
        libc::S_IFLNK => FileKind::Symlink,
        bits => FileKind::Special(bits),
    }
}

impl Wire for Timestamp {
    fn put(&self, out: &mut Vec<u8>) {
        self.seconds.put(out);
        self.nanoseconds.put(out);
    }
    fn take(from: &mut Reader<'_>) -> Result<Self, MalformedMessage> {
        let (seconds, nanoseconds) = (i64::take(from)?, u32::take(from)?);
        // A journal with such a time would be refused as damaged.
        match nanoseconds < 1_000_000_000 {
            true => Ok(Timestamp { seconds, nanoseconds }),
            false => Err(MalformedMessage::Nanoseconds(nanoseconds)),
        }
    }
}
wire_struct!(Version { number, ctime_ns, size });
wire_struct!(FileAttributes {
    file,
    kind,
    version,
    mode,
    links,
    uid,
    gid,
    rdev,
    blocks,
    accessed,
    modified,
    changed
});
wire_struct!(AttributeChange { size, mode, uid, gid, accessed, modified });
wire_struct!(Creator { uid, gid, umask });
wire_struct!(Entry { name, file, kind, cursor });
wire_struct!(Listing { entries, is_end });
wire_struct!(Space { block_bytes, blocks, blocks_free, blocks_available, files, files_free });
wire_enum!(Token { 0 => SharedRead, 1 => SharedWrite, 2 => ExclusiveWrite });
wire_enum!(Allocation { 0 => Reserve, 1 => ReserveKeepingSize, 2 => PunchHole });
wire_enum!(LockMode { 0 => Shared, 1 => Exclusive });
wire_enum!(XattrMode { 0 => Set, 1 => Create, 2 => Replace });
wire_enum!(NewNode {
    0 => Regular { mode }, 1 => Directory { mode }, 2 => Symlink { target }, 3 => Special { kind,
    mode, rdev },
});

impl Wire for TimeChange {
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            TimeChange::Now => None,
            TimeChange::To(time) => Some(*time),
        }
        .put(out);
    }
    fn take(from: &mut Reader<'_>) -> Result<Self, MalformedMessage> {
        Ok(<Option<Timestamp> as Wire>::take(from)?.map_or(TimeChange::Now, TimeChange::To))
    }
}
