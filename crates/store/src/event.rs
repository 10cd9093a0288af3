use crate::attributes::FileId;
use units::Instant;

/// Names one host's connections to the store, also over a crash of the host: 1 to 64 printable
/// ASCII characters. It stands in the host's journal.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Identity(pub String);

/// What a client may do with a file until it is recalled.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Token {
    /// Several may keep what they read.
    SharedRead,
    /// Several may write, nobody may keep anything: each write reaches the servers before it
    /// returns.
    SharedWrite,
    /// One may keep and buffer everything.
    ExclusiveWrite,
}

/// What the store tells by itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StoreEvent {
    /// Another wants the file. From now on this client neither writes nor changes attributes of it;
    /// it makes durable what it has, and returns the token before `deadline`. Else it is fenced.
    Recall { file: FileId, token: Token, deadline: Instant },
    /// Tokens are lost and calls fail until [`crate::Store::reconnect`]. `fenced`: a server has
    /// said so; buffered writes are gone, or will be refused.
    Disconnected { fenced: bool },
    /// What the kernel has cached of the file is no longer right: for stores that notice changes
    /// without a token.
    Changed { file: FileId },
}
