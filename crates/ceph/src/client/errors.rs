//! Converts error numbers of the helper to errors of a store.

use store::{Refusal, StoreError};

/// The meaning of a call's error numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Meaning {
    /// A refusal, unless the number says that a server failed.
    Usual,
    /// The call names a file by its number: there is none.
    ByNumber,
    /// Final error for the file's buffered writes.
    Durability,
    /// The call takes a token, or needs one that must not be recalled.
    Token,
    /// The call may extend a file, which clients do one after the other.
    Extension,
    /// The call concerns a program's lock.
    Lock,
}

pub fn error_of(store: &str, what: &'static str, meaning: Meaning, code: i32) -> StoreError {
    let failed = || StoreError::Failed { store: store.into(), what: what.into(), code };
    match (meaning, code) {
        (Meaning::ByNumber, libc::ENOENT) => Refusal::Stale.into(),
        (Meaning::Token | Meaning::Extension, libc::EAGAIN) => StoreError::TokenHeld,
        (Meaning::Lock, libc::EAGAIN) => Refusal::Other(code).into(),
        (Meaning::Durability, _) => failed(),
        (_, libc::EIO | libc::ETIMEDOUT | libc::EAGAIN | libc::ENOTRECOVERABLE | libc::ELIBACC) => {
            failed()
        }
        (_, code) => Refusal::of_errno(code).into(),
    }
}
