pub use units::Refusal;

/// Errors of a store. [`StoreError::errno`] is what a caller of a system call sees.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum StoreError {
    /// The store works and refuses the request.
    #[error("{0}")]
    Refused(Refusal),
    /// The token was not granted, because another client holds what it excludes: use the file
    /// without one.
    #[error("the token is held elsewhere")]
    TokenHeld,
    /// The connection is lost, with its tokens and its buffered writes. Until
    /// [`crate::Store::reconnect`] each call returns this error.
    #[error("the connection to {store} is lost: {why}")]
    Disconnected { store: String, why: String },
    /// The store has excluded this client: as above, and others may have changed the files since.
    #[error("{store} has fenced this client: {why}")]
    Fenced { store: String, why: String },
    /// The servers failed. After this error of [`crate::Store::make_durable`] the state of the
    /// file's buffered writes is unknown: a later success proves nothing for them.
    #[error("{store}: {what} failed: {}", std::io::Error::from_raw_os_error(*code))]
    Failed { store: String, what: String, code: i32 },
    /// A program that is no client of the store has changed the file since this client's token was
    /// taken. Nothing is written over that; what is buffered stays until [`crate::Store::discard`].
    #[error("{store}: another program changed the file past its clients")]
    ChangedPast { store: String },
    /// An answer that breaks the rules of this interface.
    #[error("{store} answered nonsense: {what}")]
    Nonsense { store: String, what: String },
}

impl StoreError {
    pub fn errno(&self) -> i32 {
        match self {
            StoreError::Refused(refusal) => refusal.errno(),
            StoreError::TokenHeld => 11,
            StoreError::Disconnected { .. } => 107,
            StoreError::Fenced { .. } => 108,
            StoreError::Failed { code, .. } => *code,
            StoreError::ChangedPast { .. } | StoreError::Nonsense { .. } => 5,
        }
    }
    /// Returns whether only a new connection helps.
    pub fn is_lost(&self) -> bool {
        matches!(self, StoreError::Disconnected { .. } | StoreError::Fenced { .. })
    }
}

impl From<Refusal> for StoreError {
    fn from(refusal: Refusal) -> StoreError {
        StoreError::Refused(refusal)
    }
}
