//! What a caller may do beyond its user number. FUSE tells the number alone; capabilities stand in /proc.
//!
//! Asked only where the kernel passes a call on unchecked. Looking does not block: the caller waits for our answer,
//! so its process stays, and neither file takes a lock that it could hold. In doubt the answer is no.

use std::fs;
use std::os::unix::fs::MetadataExt;

/// capability.h
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Capability {
    FileOwner = 3,
    SetId = 4,
    LinuxImmutable = 9,
    SystemAdministration = 21,
}

/// Whether the thread has it, as the kernel's `capable` means it: in the user namespace that this process is in.
/// Thread 0 is of a process namespace that we do not see.
pub fn holds(thread: u32, capability: Capability) -> bool {
    let status = || fs::read_to_string(format!("/proc/{thread}/status")).ok();
    thread != 0
        && status().and_then(|status| effective(&status)).is_some_and(|set| set & 1 << capability as u32 != 0)
        && is_of_our_user_namespace(thread)
}

fn effective(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
    u64::from_str_radix(line.trim(), 16).ok()
}

/// Capabilities of another namespace are worth nothing here, and anybody may make one.
fn is_of_our_user_namespace(thread: u32) -> bool {
    let namespace =
        |of: &str| fs::metadata(format!("/proc/{of}/ns/user")).map(|file| (file.dev(), file.ino()));
    match (namespace(&thread.to_string()), namespace("self")) {
        (Ok(theirs), Ok(ours)) => theirs == ours,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_effective_set_is_read_and_nonsense_is_none() {
        let status = "Name:\tx\nCapPrm:\tffffffffffffffff\nCapEff:\t0000000000200008\nCapBnd:\t0\n";
        assert_eq!(effective(status), Some(1 << 21 | 1 << 3));
        assert_eq!(effective("CapEff:\tmany\n"), None);
        assert_eq!(effective(""), None);
    }

    #[test]
    fn a_thread_that_is_not_to_be_seen_holds_nothing() {
        assert!(!holds(0, Capability::FileOwner));
        assert!(!holds(u32::MAX, Capability::FileOwner));
    }
}
