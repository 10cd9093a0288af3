use engine::EngineError;
use units::{HomeBlock, InodeNumber};

/// Errors of a volume. [`Error::errno`] is the number that the system call returns.
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
    /// The scattered logs are damaged, or there is no space for them.
    #[error("{0}")]
    Logs(String),
    /// Another computer or program uses the volume.
    #[error("{0}")]
    InUse(String),
    /// An operation that POSIX forbids; the errno says which rule.
    #[error("{}", std::io::Error::from_raw_os_error(*.0))]
    Refused(i32),
}

impl Error {
    pub fn corrupt_inode(inode: InodeNumber, why: impl Into<String>) -> Error {
        Error::Corrupt { what: inode.to_string(), why: why.into() }
    }
    pub fn corrupt_block(what: &str, at: HomeBlock, why: impl Into<String>) -> Error {
        Error::Corrupt { what: format!("{what} in {at}"), why: why.into() }
    }
    pub fn errno(&self) -> i32 {
        match self {
            Error::Engine(EngineError::ReadOnly | EngineError::ReadOnlySince { .. }) => {
                errno::EROFS
            }
            Error::Engine(_) => errno::EIO,
            Error::Corrupt { .. } => errno::EUCLEAN,
            Error::Superblock(_) | Error::Truncated { .. } | Error::Journal(_) => errno::EINVAL,
            Error::FlushZone(_) | Error::Logs(_) => errno::EINVAL,
            Error::OnlyReadable { .. } => errno::EROFS,
            Error::InUse(_) => errno::EBUSY,
            Error::Refused(code) => *code,
        }
    }
}

/// The Linux error numbers that this crate returns (x86 and ARM agree on all of them).
pub mod errno {
    pub const EPERM: i32 = 1;
    pub const ENOENT: i32 = 2;
    pub const EIO: i32 = 5;
    pub const E2BIG: i32 = 7;
    pub const EACCES: i32 = 13;
    pub const EBUSY: i32 = 16;
    pub const EEXIST: i32 = 17;
    pub const EXDEV: i32 = 18;
    pub const ENOTDIR: i32 = 20;
    pub const EISDIR: i32 = 21;
    pub const EINVAL: i32 = 22;
    pub const EFBIG: i32 = 27;
    pub const ENOSPC: i32 = 28;
    pub const EROFS: i32 = 30;
    pub const EMLINK: i32 = 31;
    pub const ERANGE: i32 = 34;
    pub const ENAMETOOLONG: i32 = 36;
    pub const ENOTEMPTY: i32 = 39;
    pub const ENODATA: i32 = 61;
    pub const EOPNOTSUPP: i32 = 95;
    pub const ESTALE: i32 = 116;
    pub const EUCLEAN: i32 = 117;
    pub const ENXIO: i32 = 6;
}
