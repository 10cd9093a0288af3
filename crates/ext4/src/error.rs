use engine::EngineError;
use units::{HomeBlock, InodeNumber, Refusal};

/// Errors of a volume.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// A structure on the disk contradicts itself or its checksum.
    #[error("{what} is damaged: {why}; run e2fsck")]
    Corrupt { what: String, why: String },
    /// The volume cannot be opened: its superblock, or features that are not supported.
    #[error(transparent)]
    Superblock(#[from] format::ext4::SuperblockError),
    #[error("the image is truncated: the volume needs {needed} bytes, the disk has {found}")]
    Truncated { needed: u64, found: u64 },
    #[error("the volume can only be mounted read-only: it uses {}", names.join(", "))]
    OnlyReadable { names: Vec<String> },
    /// The journal is missing, or is not this volume's.
    #[error("{0}")]
    Journal(String),
    /// The flush zone is damaged, or there is no space for it; only `barrier=coerce` needs it.
    #[error("{0}")]
    FlushZone(String),
    /// The scattered logs are damaged, or the volume cannot have any.
    #[error("{0}")]
    Logs(String),
    /// Scattered logs of the sizes asked for do not fit the volume.
    #[error("{0}")]
    LogSizes(String),
    /// A file of mkfs would not be found again: the volume has other files already.
    #[error("{what} would be {number}, and is looked for up to inode {last} alone")]
    NotFirst { what: &'static str, number: InodeNumber, last: u32 },
    /// The volume is in use by another computer or program.
    #[error("{0}")]
    InUse(String),
    /// An operation that POSIX or the format forbids.
    #[error("{0}")]
    Refused(Refusal),
}

impl Error {
    pub fn corrupt_inode(inode: InodeNumber, why: impl Into<String>) -> Error {
        Error::Corrupt { what: inode.to_string(), why: why.into() }
    }
    pub fn corrupt_block(what: &str, at: HomeBlock, why: impl Into<String>) -> Error {
        Error::Corrupt { what: format!("{what} in {at}"), why: why.into() }
    }
    /// Returns whether the volume takes no changes: as mounted, or since a failure.
    pub fn is_read_only(&self) -> bool {
        use EngineError::{ReadOnly, ReadOnlySince};
        matches!(self, Error::Engine(ReadOnly | ReadOnlySince { .. }) | Error::OnlyReadable { .. })
    }
    /// The refusal, if the operation was refused and nothing failed.
    pub fn refusal(&self) -> Option<Refusal> {
        match self {
            Error::Refused(refusal) => Some(*refusal),
            _ => None,
        }
    }
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Error {
        Error::Refused(refusal)
    }
}
