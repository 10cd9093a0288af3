//! Handles of open files.

/// A handle of this connection. Void after a reconnection.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct OpenFile(pub u64);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OpenMode {
    Read,
    ReadWrite,
}
