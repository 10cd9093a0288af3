use commit::CommitError;
use device::DeviceError;

#[derive(Clone, Debug, thiserror::Error)]
pub enum EngineError {
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// An earlier write or flush failed. Nothing is written any more, and every sync reports it.
    #[error("the journal was aborted and the volume is read-only: {cause}")]
    Aborted { cause: String },
    /// The journal was aborted: returned to callers that would change something.
    #[error("nothing can be changed: the journal was aborted and the volume is read-only: {cause}")]
    ReadOnlySince { cause: String },
    #[error("the volume was shut down")]
    ShutDown,
    #[error("the volume is mounted read-only")]
    ReadOnly,
    /// Damage was found on a volume that is to stop then (`errors=remount-ro`).
    #[error("{cause} (errors=remount-ro)")]
    Stopped { cause: String },
    #[error("{at} lies outside the volume of {blocks} blocks")]
    OutOfRange { at: units::HomeBlock, blocks: u64 },
    /// The journal superblock or the log cannot be used as it is.
    #[error("the journal cannot be used: {why}")]
    BadJournal { why: String },
    #[error(
        "log_unit={unit}: the log's disk writes at least {sector} bytes; mount without log_unit=, or with log_unit={sector} or more"
    )]
    ShortLogUnit { unit: u32, sector: u32 },
    /// The log is damaged, or is not ours to replay.
    #[error(transparent)]
    Recover(#[from] journal::RecoverError),
    #[error(
        "the journal's superblock says that the log is empty, but not as okeanos leaves an empty one: tune2fs and \
         others do that before they refuse such a volume. If nothing has changed it since, okeanos recover \
         --find-log finds the log and replays it"
    )]
    LogForgotten,
    #[error(
        "the journal's superblock does not remember where its log began: an older okeanos wrote it. Only e2fsck helps, \
         once tune2fs -f -O ^has_journal has given up what is in the log"
    )]
    LogNotFound,
    #[error(
        "the journal's superblock says that the log begins with {said}, the copy in it with {copy}: okeanos writes both the \
         same, so one is forged or damaged. Keep a copy of the disk; then okeanos recover --find-log replays from where the \
         copy says"
    )]
    LogDisputed { said: units::TransactionId, copy: units::TransactionId },
    /// Replay needs what home holds of a block beside the bytes in the log.
    #[error(
        "{at} cannot be read, and the log holds a part of it: {why}; okeanos recover --skip-unreadable leaves that \
         block out, and replays all others"
    )]
    BaseUnreadable { at: units::HomeBlock, why: DeviceError },
    /// The log holds transactions that must be replayed first.
    #[error("the journal needs recovery")]
    NeedsRecovery,
    /// The log's copy of a block that is not home yet is no longer the block that was logged.
    #[error("the log's copy of {at}, which is not home yet, has a wrong checksum")]
    LogCopyDamaged { at: units::HomeBlock },
    #[error("{at} was freed while another structure of the volume still used it; run e2fsck")]
    Shared { at: units::HomeBlock },
    /// A handle asked for more log blocks than any transaction may take.
    #[error("a change of {needed} log blocks does not fit into a transaction of at most {limit}")]
    HandleTooLarge { needed: u32, limit: u32 },
}

impl From<CommitError> for EngineError {
    fn from(error: CommitError) -> EngineError {
        match error {
            CommitError::Device(error) => EngineError::Device(error),
            CommitError::Aborted { cause } => EngineError::Aborted { cause },
            CommitError::OutOfRange { at, blocks } => EngineError::OutOfRange { at, blocks },
            CommitError::BadJournal { why } => EngineError::BadJournal { why },
        }
    }
}

impl EngineError {
    /// Returns what failed first, without the sentence of an abort around it.
    pub(crate) fn root(&self) -> &dyn std::fmt::Display {
        match self {
            EngineError::Aborted { cause } | EngineError::ReadOnlySince { cause } => cause,
            error => error,
        }
    }

    /// Returns the error for a caller that only begins, and loses nothing: the volume is read-only
    /// now, unless it was shut down on purpose.
    pub(crate) fn of_changes(self, was_shut_down: bool) -> EngineError {
        match self {
            EngineError::Aborted { cause } if !was_shut_down => {
                EngineError::ReadOnlySince { cause }
            }
            error => error,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_a_failure_handles_are_refused_and_syncs_report_it() {
        let error = EngineError::from(CommitError::Aborted { cause: "a write failed".into() });
        assert!(matches!(&error, EngineError::Aborted { .. }));
        // An abort for it reports one abort.
        assert_eq!(error.root().to_string(), "a write failed");
        assert!(matches!(error.clone().of_changes(true), EngineError::Aborted { .. }));
        assert!(matches!(error.of_changes(false),
                EngineError::ReadOnlySince { cause } if cause == "a write failed"));
    }
}
