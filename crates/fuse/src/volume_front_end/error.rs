use ext4::Error as VolumeError;

/// An error number for the caller, or a failure that is reported as well.
#[derive(Debug)]
pub(super) enum RequestError {
    Refused(i32),
    Volume(VolumeError),
}

impl RequestError {
    /// The error number of the reply.
    pub(super) fn errno(&self) -> i32 {
        match self {
            RequestError::Refused(code) => *code,
            RequestError::Volume(error) => errno_of(error),
        }
    }
}

impl From<VolumeError> for RequestError {
    fn from(error: VolumeError) -> RequestError {
        match error {
            VolumeError::Refused(refusal) => RequestError::Refused(refusal.errno()),
            error => RequestError::Volume(error),
        }
    }
}

fn errno_of(error: &VolumeError) -> i32 {
    match error {
        error if error.is_read_only() => libc::EROFS,
        VolumeError::Engine(_) | VolumeError::OnlyReadable { .. } => libc::EIO,
        VolumeError::Corrupt { .. } => libc::EUCLEAN,
        VolumeError::Superblock(_)
        | VolumeError::Truncated { .. }
        | VolumeError::Journal(_)
        | VolumeError::FlushZone(_)
        | VolumeError::Logs(_) => libc::EINVAL,
        VolumeError::InUse(_) => libc::EBUSY,
        VolumeError::Refused(refusal) => refusal.errno(),
    }
}
