//! Facts that follow from the kernel's version and the machine.

use std::ffi::CStr;

/// Returns whether the kernel checks who may change flags and projects of files, and never passes
/// such a call on unchecked. It does from Linux 5.13 on (`vfs_fileattr_set`).
pub fn checks_flags() -> bool {
    let mut reported = std::mem::MaybeUninit::<libc::utsname>::uninit();
    // SAFETY: the kernel fills the structure where it returns zero, and ends each text with a zero
    // byte.
    let release = unsafe {
        if libc::uname(reported.as_mut_ptr()) != 0 {
            return false;
        }
        CStr::from_ptr(reported.assume_init_ref().release.as_ptr())
    };
    version_of(&release.to_string_lossy()).is_some_and(|version| version >= (5, 13))
}

/// Returns the size of a page of this machine, in bytes; `None` where the kernel does not report
/// it.
pub fn page_bytes() -> Option<u64> {
    // SAFETY: sysconf takes an integer and touches no memory of ours.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    u64::try_from(bytes).ok().filter(|bytes| bytes.is_power_of_two())
}

/// Returns the first two numbers of a release. One with another format counts as old.
fn version_of(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|character: char| !character.is_ascii_digit()).map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_no_smaller_than_any_machine_has() {
        assert!(page_bytes().is_some_and(|bytes| (4096..=64 << 10).contains(&bytes)));
    }

    #[test]
    fn releases_are_compared_by_their_numbers() {
        for (release, version) in [
            ("6.18.44-cloud-amd64", Some((6, 18))),
            ("5.4.0-150-generic", Some((5, 4))),
            ("5.13-rc1", Some((5, 13))),
            ("10.0", Some((10, 0))),
            ("", None),
            ("next", None),
        ] {
            assert_eq!(version_of(release), version, "{release}");
        }
        assert!(version_of("5.12.99") < Some((5, 13)) && version_of("10.1") > Some((5, 13)));
    }
}
