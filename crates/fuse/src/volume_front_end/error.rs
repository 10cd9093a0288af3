use crate::error::Failure;
use ext4::Error;
use store::Refusal;

impl Failure for Error {
    fn refusal(&self) -> Option<Refusal> {
        match self {
            Error::Refused(refusal) => Some(*refusal),
            _ => None,
        }
    }
    fn errno(&self) -> i32 {
        match self {
            error if error.is_read_only() => libc::EROFS,
            Error::Engine(_) | Error::OnlyReadable { .. } => libc::EIO,
            Error::Corrupt { .. } => libc::EUCLEAN,
            Error::Superblock(_)
            | Error::Truncated { .. }
            | Error::Journal(_)
            | Error::FlushZone(_)
            | Error::Logs(_)
            | Error::LogSizes(_)
            | Error::NotFirst { .. } => libc::EINVAL,
            Error::InUse(_) => libc::EBUSY,
            Error::Refused(refusal) => refusal.errno(),
        }
    }
}
