//! Memory of a daemon in the kernel's write-back path: it must not wait for pages that only it can
//! clean.

use super::privileges;
use rustix::process::{Resource, Rlimit, geteuid, setrlimit};
use std::fs;

/// `prctl(2)`: memory that this process allocates must not wait for write-back, as write-back waits
/// for this process.
const PR_SET_IO_FLUSHER: libc::c_int = 57;
/// `mlock2(2)`: pages are locked when they are touched first, not all at once.
const MLOCK_ONFAULT: libc::c_uint = 1;
/// Limits from this value on mean "none": version 1 of memory cgroups has it, or a page less, then.
const UNLIMITED: u64 = 1 << 62;

/// Asks the kernel for precedence, before the mount, which may cover `/proc`. Returns what was
/// refused.
pub fn ask_for_precedence() -> Vec<&'static str> {
    // SAFETY: prctl with these integers changes a flag of the process.
    let flusher = unsafe { libc::prctl(PR_SET_IO_FLUSHER, 1, 0, 0, 0) } == 0;
    // If it were killed for memory, every user of a file on the volume would fail.
    let spared = fs::write("/proc/self/oom_score_adj", "-1000").is_ok();
    let flusher =
        (!flusher).then_some("to take memory without waiting for write-back (PR_SET_IO_FLUSHER)");
    let spared = (!spared).then_some("to be spared where memory runs out (oom_score_adj)");
    flusher.into_iter().chain(spared).collect()
}

/// Locks the program's code and constants as they are touched: they are read from a disk that may
/// be the daemon's own. The heap is not locked: the C library could return nothing of it to the
/// kernel (`MADV_DONTNEED` refuses locked pages), and the daemon's memory would exceed its bound.
/// Returns what was refused.
pub fn lock() -> Option<&'static str> {
    if !may_lock() {
        return Some("to lock its program (mlock2)");
    }
    let maps = fs::read_to_string("/proc/self/maps").unwrap_or_default();
    for (start, end) in maps.lines().filter_map(program_range) {
        // SAFETY: the range is mapped, and locking it changes no byte. Where the limit of a memory
        // cgroup is reached, it fails, and the pages stay as they were.
        unsafe { libc::mlock2(start as *const libc::c_void, end - start, MLOCK_ONFAULT) };
    }
    None
}

/// Lifts the limit of locked memory, and returns whether memory may be locked without one.
pub fn may_lock() -> bool {
    let unlimited = Rlimit { current: None, maximum: None };
    setrlimit(Resource::Memlock, unlimited).is_ok() || privileges::may_lock()
}

/// Returns whether the memory of this process has a limit of its own, within which it may wait for
/// itself: a memory cgroup, version 1 or 2.
fn memory_is_limited() -> bool {
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    limit_files(&groups)
        .iter()
        .any(|file| holds_limit(&fs::read_to_string(file).unwrap_or_default()))
}

/// Returns the files that may hold a limit for a process of these groups (`/proc/PID/cgroup`,
/// cgroups(7)): of its groups and of all above them.
fn limit_files(groups: &str) -> Vec<String> {
    let files = groups.lines().filter_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, group) = (fields.next()?, fields.next()?);
        let (root, name) = match controllers {
            "" => ("/sys/fs/cgroup", "memory.max"),
            _ if controllers.split(',').any(|word| word == "memory") => {
                ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")
            }
            _ => return None,
        };
        let groups = std::path::Path::new(group).ancestors();
        let file = move |group: &std::path::Path| {
            format!("{root}{}/{name}", group.display().to_string().trim_end_matches('/'))
        };
        Some(groups.map(file))
    });
    files.flatten().collect()
}

/// Returns whether this is a limit: a number of bytes below what version 1 calls unlimited. Version
/// 2 says `max` where there is none.
fn holds_limit(text: &str) -> bool {
    text.trim().parse().is_ok_and(|bytes: u64| bytes < UNLIMITED)
}

/// Returns a warning for root where its memory has a limit. An ordinary user is refused each time,
/// and gets none.
pub fn warning(refused: &[&str]) -> Option<String> {
    let is_root = geteuid().is_root();
    warning_of(is_root && memory_is_limited(), refused)
}

/// `may_wait`: the daemon may have to wait for itself where it was refused anything.
fn warning_of(may_wait: bool, refused: &[&str]) -> Option<String> {
    let is_silent = units::fault!("write-back-refusals-unsaid");
    (may_wait && !refused.is_empty() && !is_silent).then(|| {
        format!(
            "the daemon may not ask the kernel {}: where memory is short, it may wait for itself; \
             give it CAP_SYS_RESOURCE and CAP_IPC_LOCK",
            refused.join(", nor ")
        )
    })
}

/// Returns the addresses of a line of proc_pid_maps(5) that maps code or constants of a file.
fn program_range(line: &str) -> Option<(usize, usize)> {
    let mut fields = line.split_whitespace();
    let (range, rights) = (fields.next()?, fields.next()?);
    let is_of_a_file = fields.nth(2)? != "0";
    let (start, end) = range.split_once('-')?;
    let address = |text| usize::from_str_radix(text, 16).ok();
    let is_constant = rights.starts_with("r-");
    (is_of_a_file && is_constant).then_some((address(start)?, address(end)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_and_constants_of_files_are_found() {
        let code = "7f1000-7f3000 r-xp 00001000 fe:01 1234    /usr/bin/okeanos";
        assert_eq!(program_range(code), Some((0x7f1000, 0x7f3000)));
        for other in [
            "7f1000-7f3000 rw-p 00001000 fe:01 1234    /usr/bin/okeanos",
            "7f1000-7f3000 r--p 00000000 00:00 0",
            "nonsense",
            "",
        ] {
            assert_eq!(program_range(other), None, "{other}");
        }
        let maps = fs::read_to_string("/proc/self/maps").unwrap();
        assert!(maps.lines().filter_map(program_range).count() > 1);
    }

    #[test]
    fn limits_of_both_versions_are_looked_for_up_to_the_root() {
        assert_eq!(
            limit_files("0::/user.slice/a\n"),
            [
                "/sys/fs/cgroup/user.slice/a/memory.max",
                "/sys/fs/cgroup/user.slice/memory.max",
                "/sys/fs/cgroup/memory.max"
            ]
        );
        let first = "5:cpu,cpuacct:/x\n4:memory:/a:b\n1:name=systemd:/x\n";
        assert_eq!(
            limit_files(first),
            [
                "/sys/fs/cgroup/memory/a:b/memory.limit_in_bytes",
                "/sys/fs/cgroup/memory/memory.limit_in_bytes"
            ]
        );
        assert!(limit_files("nonsense\n::\n3:memory\n").len() < 2);
    }

    #[test]
    fn refusals_are_named_where_memory_is_limited() {
        let refused = ["to take memory", "to lock its program"];
        let warning = warning_of(true, &refused).unwrap();
        assert!(warning.contains("to take memory, nor to lock its program"), "{warning}");
        assert_eq!([warning_of(true, &[]), warning_of(false, &refused)], [None, None]);
    }

    #[test]
    fn what_is_unlimited_in_either_version_is_no_limit() {
        assert!(holds_limit("1073741824\n"));
        for text in ["max\n", "9223372036854771712\n", "", "many"] {
            assert!(!holds_limit(text), "{text}");
        }
    }
}
