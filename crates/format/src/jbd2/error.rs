use units::LogBlock;

/// Errors of a journal block. The caller adds the position.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum JournalFormatError {
    #[error("journal superblock: {0}")]
    Superblock(String),
    #[error("the journal needs features that okeanos does not know: {0}")]
    UnknownFeatures(String),
    #[error("external journal: {0}")]
    External(String),
    #[error("{at}: {what}: {why}")]
    Block { at: LogBlock, what: &'static str, why: String },
}

pub(super) fn wrong_superblock(why: String) -> JournalFormatError {
    JournalFormatError::Superblock(why)
}
