//! Facts that follow from the kernel's version and the machine.

use std::ffi::CStr;

/// Returns whether the kernel checks who may change flags and projects of files, and never passes
/// such a call on unchecked. It does from Linux 5.13 on (`vfs_fileattr_set`).
pub fn checks_flags() -> bool {
    running().is_some_and(|version| version >= (5, 13, 0))
}

/// Returns whether the kernel takes set-group-id from new files that a caller outside the group
/// makes in a set-group-id directory. It does from Linux 6.0 on (`mode_strip_sgid`); before, that
/// was each file system's part.
pub fn strips_set_group() -> bool {
    running().is_some_and(|version| version >= (6, 0, 0))
}

/// Returns whether the kernel drops pages from its cache again behind a write past it (the end of
/// `fuse_direct_io`), so that no reader meets one that was read while the write was in flight.
pub fn drops_written_pages() -> bool {
    running().is_some_and(drops_pages)
}

/// Linux 6.19 does, and stable kernels since January 2026. Those of distributions that have the
/// change under another number count as without it, which costs speed alone.
fn drops_pages(version: Version) -> bool {
    match version {
        (6, 12, patch) => patch >= 64,
        (6, 18, patch) => patch >= 4,
        version => version >= (6, 19, 0),
    }
}

/// The first three numbers of a release.
type Version = (u32, u32, u32);

fn running() -> Option<Version> {
    let mut reported = std::mem::MaybeUninit::<libc::utsname>::uninit();
    // SAFETY: the kernel fills the structure where it returns zero, and ends each text with a zero
    // byte.
    let release = unsafe {
        if libc::uname(reported.as_mut_ptr()) != 0 {
            return None;
        }
        CStr::from_ptr(reported.assume_init_ref().release.as_ptr())
    };
    version_of(&release.to_string_lossy())
}

/// Parses a release; a missing third number is zero. One with another format counts as old.
fn version_of(release: &str) -> Option<Version> {
    let mut numbers = release.split(|character: char| !character.is_ascii_digit()).map(str::parse);
    let (major, minor) = (numbers.next()?.ok()?, numbers.next()?.ok()?);
    Some((major, minor, numbers.next().and_then(Result::ok).unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_compared_by_their_numbers() {
        for (release, version) in [
            ("6.18.44-cloud-amd64", Some((6, 18, 44))),
            ("6.12.117+deb13-amd64", Some((6, 12, 117))),
            ("5.4.0-150-generic", Some((5, 4, 0))),
            ("5.13-rc1", Some((5, 13, 0))),
            ("10.0", Some((10, 0, 0))),
            ("", None),
            ("next", None),
        ] {
            assert_eq!(version_of(release), version, "{release}");
        }
        assert!(version_of("5.12.99") < Some((5, 13, 0)));
        assert!(version_of("10.1") > Some((5, 13, 0)));
    }

    #[test]
    fn written_pages_are_dropped_by_kernels_that_have_the_change() {
        for release in ["6.19.0", "6.18.44-x", "6.12.117+deb13-amd64", "7.0", "10.1.1"] {
            assert!(version_of(release).is_some_and(drops_pages), "{release}");
        }
        for release in ["6.1.176", "6.8.0-60-generic", "6.12.63", "6.17.9", "6.18.3", "5.4.0"] {
            assert!(!version_of(release).is_some_and(drops_pages), "{release}");
        }
    }
}
