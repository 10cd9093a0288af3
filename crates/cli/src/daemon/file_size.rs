//! The limit of a file's size (RLIMIT_FSIZE, `ulimit -f`): a daemon whose image a write cannot
//! reach to the end is of no use.

use crate::error::CliError;
use crate::text::quantity::format_size;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::path::Path;

/// Lifts the limit as far as this user may: an ordinary user to the hard limit, root altogether. A
/// write beyond what is left fails with EFBIG; by default its signal would kill the daemon amid a
/// commit.
pub fn lift_limit() {
    // SAFETY: ignoring a signal installs no handler.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
    let unlimited = Rlimit { current: None, maximum: None };
    if setrlimit(Resource::Fsize, unlimited).is_err() {
        let limit = getrlimit(Resource::Fsize);
        let _ = setrlimit(Resource::Fsize, Rlimit { current: limit.maximum, ..limit });
    }
}

/// Refuses a file of `bytes` of which this process could not write all.
pub fn refuse_beyond_limit(path: &Path, bytes: u64) -> Result<(), CliError> {
    let Some(limit) = getrlimit(Resource::Fsize).current.filter(|limit| bytes > *limit) else {
        return Ok(());
    };
    let (size, most) = (format_size(bytes), format_size(limit));
    Err(CliError::new(format!(
        "{}: a file of {size}, and this process may write files up to {most} (RLIMIT_FSIZE)",
        path.display()
    ))
    .with_remedy("Raise the limit: see `ulimit -Hf`, limits.conf(5), LimitFSIZE= of a unit."))
}

/// Refuses an image file that is longer than the limit; a block device has none.
pub fn refuse_longer_than_limit(path: &Path) -> Result<(), CliError> {
    match std::fs::metadata(path) {
        Ok(found) if found.is_file() => refuse_beyond_limit(path, found.len()),
        // Opening reports what is wrong.
        _ => Ok(()),
    }
}
