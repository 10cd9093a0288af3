use crate::attributes::FileId;
use units::Instant;

/// Names one host's connections to the store, also across a crash of the host: 1 to 64 printable
/// ASCII characters. The host's journal records it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Identity(pub String);

/// Phase of a registered host ([`crate::Store::register_host`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HostPhase {
    /// Recovering: its journal may have changes of an earlier life, which are being recovered.
    Recovering,
    /// Running: its journal has changes only of files whose tokens it holds.
    Running,
}

/// The rights of a client to a file until it is recalled.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Token {
    /// Shared read: several clients may cache what they read.
    SharedRead,
    /// Shared write: several clients may write and none may cache: each write reaches the servers
    /// before it returns.
    SharedWrite,
    /// Exclusive: one client may cache and buffer everything.
    ExclusiveWrite,
}

/// Events that the store reports unasked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StoreEvent {
    /// Recall: another client wants the file. From now on this client neither writes nor changes
    /// attributes of it; it makes its changes durable and returns the token before `deadline`, or
    /// is fenced.
    Recall { file: FileId, token: Token, deadline: Instant },
    /// Tokens are lost and calls fail until [`crate::Store::reconnect`]. `fenced`: a server
    /// reported it; buffered writes are lost or will be refused.
    Disconnected { fenced: bool },
    /// The kernel's cached data of the file is outdated: for stores that notice changes without a
    /// token.
    Changed { file: FileId },
}
