use device::DeviceError;
use units::HomeBlock;

/// Reason why a plan was not carried out, or a transaction not committed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum CommitError {
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// An earlier write or flush failed. Nothing is written any more, and every sync reports it.
    #[error("the journal was aborted: {cause}")]
    Aborted { cause: String },
    #[error("{at} lies outside the volume of {blocks} blocks")]
    OutOfRange { at: HomeBlock, blocks: u64 },
    /// The log does not lie where its superblock says.
    #[error("the journal cannot be used: {why}")]
    BadJournal { why: String },
}
