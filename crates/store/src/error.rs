/// Errors of a store. [`StoreError::errno`] is what a caller of a system call sees.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum StoreError {
    /// The store works and refuses the request.
    #[error("{0}")]
    Refused(Refusal),
    /// Another client holds what the token excludes, and did not return it: use the file without
    /// one.
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
    /// An answer that breaks the rules of this interface.
    #[error("{store} answered nonsense: {what}")]
    Nonsense { store: String, what: String },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refusal {
    #[error("no such file")]
    NotFound,
    #[error("the file is gone, or its number names another")]
    Stale,
    #[error("the name exists")]
    Exists,
    #[error("not a directory")]
    NotDirectory,
    #[error("is a directory")]
    IsDirectory,
    #[error("the directory is not empty")]
    NotEmpty,
    #[error("the name is too long")]
    NameTooLong,
    #[error("no space left")]
    NoSpace,
    #[error("the quota is exhausted")]
    Quota,
    #[error("the store cannot do that")]
    Unsupported,
    #[error("no such attribute")]
    NoAttribute,
    #[error("the argument is invalid, or beyond a limit of the interface")]
    Invalid,
    /// Any other error number.
    #[error("{}", std::io::Error::from_raw_os_error(*.0))]
    Other(i32),
}

impl StoreError {
    pub fn errno(&self) -> i32 {
        match self {
            StoreError::Refused(refusal) => refusal.errno(),
            StoreError::TokenHeld => 11,
            StoreError::Disconnected { .. } => 107,
            StoreError::Fenced { .. } => 108,
            StoreError::Failed { code, .. } => *code,
            StoreError::Nonsense { .. } => 5,
        }
    }
    /// Returns whether only a new connection helps.
    pub fn is_lost(&self) -> bool {
        matches!(self, StoreError::Disconnected { .. } | StoreError::Fenced { .. })
    }
}

impl Refusal {
    /// The Linux error number (x86 and ARM agree on these).
    pub fn errno(self) -> i32 {
        match self {
            Refusal::NotFound => 2,
            Refusal::Stale => 116,
            Refusal::Exists => 17,
            Refusal::NotDirectory => 20,
            Refusal::IsDirectory => 21,
            Refusal::NotEmpty => 39,
            Refusal::NameTooLong => 36,
            Refusal::NoSpace => 28,
            Refusal::Quota => 122,
            Refusal::Unsupported => 95,
            Refusal::NoAttribute => 61,
            Refusal::Invalid => 22,
            Refusal::Other(code) => code,
        }
    }
    pub fn of_errno(code: i32) -> Refusal {
        const NAMED: [Refusal; 12] = [
            Refusal::NotFound,
            Refusal::Stale,
            Refusal::Exists,
            Refusal::NotDirectory,
            Refusal::IsDirectory,
            Refusal::NotEmpty,
            Refusal::NameTooLong,
            Refusal::NoSpace,
            Refusal::Quota,
            Refusal::Unsupported,
            Refusal::NoAttribute,
            Refusal::Invalid,
        ];
        NAMED.into_iter().find(|refusal| refusal.errno() == code).unwrap_or(Refusal::Other(code))
    }
}

impl From<Refusal> for StoreError {
    fn from(refusal: Refusal) -> StoreError {
        StoreError::Refused(refusal)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_numbers_translate_both_ways() {
        for code in 1..134 {
            assert_eq!(Refusal::of_errno(code).errno(), code);
        }
    }
}
