use commit::CommitError;
use device::DeviceError;
use journal::RecoverError;
use store::StoreError;

#[derive(Clone, Debug, thiserror::Error)]
pub enum HostError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("the journal cannot be used: {0}")]
    Device(#[from] DeviceError),
    #[error("the journal cannot be read: {0}")]
    Log(#[from] RecoverError),
    #[error(
        "{journal} is not a host journal: {why}; okeanos host mount --format makes one, and what \
         it held is lost"
    )]
    NotAJournal { journal: String, why: String },
    /// Records with correct checksums and impossible contents: a program wrote them, so nothing is
    /// replayed.
    #[error(
        "{journal}: transaction {transaction} has bytes of file slot {slot} and no record that \
         says of which file; nothing was replayed, and nothing changed: keep a copy of the \
         journal, and report this"
    )]
    DamagedSlot { journal: String, slot: u32, transaction: u32 },
    #[error("{journal} belongs to {found}, and not to {wanted}")]
    Foreign { journal: String, found: String, wanted: String },
    /// File numbers and versions have another meaning there.
    #[error(
        "{journal} has records for another store: {store} is {found} now, and was {wanted}. Is the \
         right file system mounted there? If the former one is lost for good, okeanos host mount \
         --format makes a new journal"
    )]
    OtherStore { journal: String, store: String, found: String, wanted: String },
    #[error("{journal} is too small: {found} bytes; at least {needed}")]
    TooSmall { journal: String, found: u64, needed: u64 },
    /// Promises may no longer hold; the journal is kept for recovery.
    #[error(
        "the journal failed: {0}; what was synced is in it up to then: unmount, and mount again"
    )]
    Aborted(String),
    /// The store failed a flush, so what it has is unknown. The journal still has everything.
    #[error(
        "bringing the file to the store failed: {0}; unmount, and mount again, to bring it from \
         the journal"
    )]
    NotDestaged(StoreError),
    /// A sync failed of bytes that the journal does not have; lasts until every descriptor of the
    /// file is closed.
    #[error("bytes of the file may not have reached the store: {0}; close it, and open it again")]
    Unsynced(StoreError),
    /// Synced bytes are not in the file; lasts until every descriptor of it is closed.
    #[error(
        "bytes of the file were set aside in okeanos-conflicts: {0}; close it, and open it again"
    )]
    SetAside(String),
    /// Another host may have held the lock since; lasts until every descriptor of the file is
    /// closed.
    #[error(
        "locks of the file were lost with the connection to the store; close it, and open it again"
    )]
    LocksLost,
    /// Names were answered and not synced when the connection ended; reported once for each
    /// descriptor.
    #[error(
        "names in the directory that were made, moved or removed and not synced may be as before: \
         the connection to the store was lost since; look at them, and sync again"
    )]
    NamesLost,
    /// The store grants no token in this case. What is in the journal stays there.
    #[error(
        "file {file} is open on another client, which keeps it: close it there, and mount again; \
         what was synced stays in the journal"
    )]
    KeptOpen { file: u64 },
    /// The store refuses bytes that the journal has for it.
    #[error(
        "file {file} ({name}) could not be written to the store: {error}; what was synced stays in \
         the journal. Make room there or remove the cause, and mount again"
    )]
    NotReplayed {
        file: u64,
        /// The file's path from the store's root on, or how to find that.
        name: String,
        error: StoreError,
    },
    /// No room for a write: the journal, or memory, is full of files that the store does not take.
    /// Not the error of the file that is written.
    #[error("the journal has no room for the write, as the store does not take other files: {0}")]
    NoRoom(StoreError),
    /// The store does not answer for them. The journal has everything.
    #[error(
        "the store does not answer for {files} files, and has not got all of them; what was synced \
         stays in the journal: mount again"
    )]
    NotAnswered { files: u64 },
    #[error("the host is about to unmount")]
    Closing,
    #[error("the connection to the store is lost: {0}; the journal has what was answered")]
    Lost(String),
    /// A change whose answer was lost with the connection. It is not repeated: another client may
    /// have seen it, and what it has made since must not be changed.
    #[error(
        "the connection to the store was lost before {what} was answered: it may have been made or \
         not ({why})"
    )]
    Unsure { what: &'static str, why: String },
}

impl From<CommitError> for HostError {
    fn from(error: CommitError) -> HostError {
        match error {
            CommitError::Device(error) => HostError::Device(error),
            CommitError::Aborted { cause } => HostError::Aborted(cause),
            error => HostError::Aborted(error.to_string()),
        }
    }
}

impl HostError {
    /// Returns whether the connection to the store is lost.
    pub fn is_lost(&self) -> bool {
        match self {
            HostError::Lost(_) => true,
            HostError::Store(error) => error.is_lost(),
            _ => false,
        }
    }
    pub fn errno(&self) -> i32 {
        match self {
            HostError::NotDestaged(error)
            | HostError::Unsynced(error)
            | HostError::NotReplayed { error, .. } => match error.errno() {
                code @ (28 | 122) => code,
                _ => 5,
            },
            HostError::Store(error) => error.errno(),
            HostError::NoRoom(_) => 28,
            HostError::Lost(_) => 107,
            HostError::Foreign { .. }
            | HostError::OtherStore { .. }
            | HostError::NotAJournal { .. }
            | HostError::TooSmall { .. } => 22,
            _ => 5,
        }
    }
}
