//! Reasons why there is no ring: the kernel's answer, and its likely cause.

use std::fmt;
use std::io;

/// Choice between a ring and its replacement.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum IoChoice {
    /// A ring, or where the kernel refuses one, threads and epoll.
    #[default]
    Auto,
    Ring,
    Classic,
}

const VARIABLE: &str = "OKEANOS_IO";

impl IoChoice {
    /// Parses the environment: `OKEANOS_IO=auto|ring|classic`.
    pub fn of_environment() -> io::Result<IoChoice> {
        match std::env::var_os(VARIABLE).as_deref().map(|word| word.to_str()) {
            None | Some(Some("auto" | "")) => Ok(IoChoice::Auto),
            Some(Some("ring")) => Ok(IoChoice::Ring),
            Some(Some("classic")) => Ok(IoChoice::Classic),
            Some(word) => {
                let word = word.unwrap_or("?");
                let text = format!("{VARIABLE}={word} is none of auto, ring, classic");
                Err(io::Error::new(io::ErrorKind::InvalidInput, text))
            }
        }
    }
}

/// Reason why a world has no ring.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NoRing {
    /// `OKEANOS_IO=classic`.
    NotWanted,
    Refused(RingRefusal),
}

impl fmt::Display for NoRing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NoRing::NotWanted => write!(f, "{VARIABLE}=classic"),
            NoRing::Refused(refusal) => refusal.fmt(f),
        }
    }
}

/// The kernel's error from io_uring_setup(2), and its likely causes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RingRefusal {
    code: i32,
    cause: String,
}

impl RingRefusal {
    /// Returns the refusal; `None` for errors that no kernel refuses rings with: another attempt
    /// may succeed, and the lacking resource is needed without a ring, too.
    pub fn of(error: &io::Error) -> Option<RingRefusal> {
        let code = error.raw_os_error()?;
        let facts = Facts {
            disabled: read("/proc/sys/kernel/io_uring_disabled"),
            is_filtered: read("/proc/thread-self/status")
                .lines()
                .any(|line| line.strip_prefix("Seccomp:").is_some_and(|mode| mode.trim() == "2")),
            release: read("/proc/sys/kernel/osrelease"),
        };
        Some(RingRefusal { code, cause: cause(code, &facts)? })
    }

    /// Returns the errno.
    pub fn code(&self) -> i32 {
        self.code
    }
}

impl fmt::Display for RingRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let error = io::Error::from_raw_os_error(self.code);
        write!(f, "the kernel refuses io_uring: {error}: {}", self.cause)
    }
}

struct Facts {
    /// `kernel.io_uring_disabled` (Linux 6.6).
    disabled: String,
    /// Whether the thread has a seccomp filter.
    is_filtered: bool,
    release: String,
}

fn cause(code: i32, facts: &Facts) -> Option<String> {
    let release = facts.release.trim();
    let cause = match (code, facts.disabled.trim()) {
        (libc::EPERM, "2") => "kernel.io_uring_disabled=2 forbids it to everybody".into(),
        (libc::EPERM, "1") if !facts.is_filtered => {
            "kernel.io_uring_disabled=1 forbids it to all but root and kernel.io_uring_group".into()
        }
        (libc::EPERM, _) if facts.is_filtered => {
            "a seccomp filter forbids it, as the default profile of Docker does".into()
        }
        (libc::EPERM, _) => "this process may not use it".into(),
        (libc::EACCES, _) => "a security module (SELinux, for one) forbids it".into(),
        (libc::ENOSYS, _) if facts.is_filtered => {
            "a seccomp filter hides it, or this kernel was built without it (CONFIG_IO_URING)"
                .into()
        }
        (libc::ENOSYS, _) => "this kernel was built without it (CONFIG_IO_URING)".into(),
        (libc::EINVAL, _) => {
            format!("what is needed of it came with Linux 5.19, and this is {release}")
        }
        _ => return None,
    };
    Some(cause)
}

fn read(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_errno_names_who_refuses() {
        let facts = |disabled: &str, is_filtered| Facts {
            disabled: disabled.into(),
            is_filtered,
            release: "5.14.0\n".into(),
        };
        let text = |code, facts: Facts| cause(code, &facts).unwrap();
        assert!(text(libc::EPERM, facts("2\n", true)).contains("io_uring_disabled=2"));
        assert!(text(libc::EPERM, facts("1\n", false)).contains("io_uring_group"));
        assert!(text(libc::EPERM, facts("0\n", true)).contains("seccomp"));
        assert!(text(libc::EPERM, facts("", true)).contains("Docker"));
        assert!(!text(libc::EPERM, facts("0\n", false)).contains("seccomp"));
        assert!(text(libc::EACCES, facts("", false)).contains("SELinux"));
        assert!(text(libc::ENOSYS, facts("", true)).contains("seccomp"));
        assert!(!text(libc::ENOSYS, facts("", false)).contains("seccomp"));
        assert!(text(libc::EINVAL, facts("", false)).ends_with("this is 5.14.0"));
        for other in [libc::ENOMEM, libc::EMFILE, libc::ENFILE] {
            assert_eq!(cause(other, &facts("0", false)), None, "{other}");
        }
    }
}
