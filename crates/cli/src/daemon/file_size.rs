//! The limit of a file's size (RLIMIT_FSIZE, `ulimit -f`): a daemon whose image a write cannot
//! reach to the end is of no use.

use crate::error::CliError;
use crate::text::quantity::format_size;
use std::path::Path;

/// Lifts the limit as far as this user may: an ordinary user to the hard limit, root altogether. A
/// write beyond what is left fails with EFBIG; by default its signal would kill the daemon amid a
/// commit.
pub fn lift_limit() {
    let unlimited = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
    let mut limit = unlimited;
    // SAFETY: ignoring a signal installs no handler, and the calls use structures that outlive
    // them.
    unsafe {
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
        if libc::setrlimit(libc::RLIMIT_FSIZE, &raw const unlimited) != 0
            && libc::getrlimit(libc::RLIMIT_FSIZE, &raw mut limit) == 0
        {
            limit.rlim_cur = limit.rlim_max;
            libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit);
        }
    }
}

/// Refuses a file of `bytes` of which this process could not write all.
pub fn refuse_beyond_limit(path: &Path, bytes: u64) -> Result<(), CliError> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the call fills the structure, which outlives it.
    let known = unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &raw mut limit) } == 0;
    if !known || bytes <= limit.rlim_cur {
        return Ok(());
    }
    let (size, most) = (format_size(bytes), format_size(limit.rlim_cur));
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
