//! Privileges of a caller beyond its user number. FUSE passes the number alone; capabilities are
//! read from /proc.
//!
//! Read only where the kernel passes a call on unchecked, or does not distinguish calls. Reading
//! does not block: the caller waits for the answer, so its process stays, and no file takes a lock
//! that it could hold. In doubt the answer is no.

use fuse_session::abi::{InHeader, NO_ID};
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

/// Returns whether the thread has it, as the kernel's `capable` means it: in the user namespace of
/// this process. Thread 0 is in a process namespace that is not visible here.
pub fn holds(thread: u32, capability: Capability) -> bool {
    let status = || fs::read_to_string(format!("/proc/{thread}/status")).ok();
    thread != 0
        && status()
            .and_then(|status| effective(&status))
            .is_some_and(|set| set & 1 << capability as u32 != 0)
        && is_of_our_user_namespace(thread)
}

fn effective(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
    u64::from_str_radix(line.trim(), 16).ok()
}

/// Returns whether the group is among the thread's supplementary ones. FUSE passes the first group
/// alone.
fn is_in_group(thread: u32, group: u32) -> bool {
    let status = || fs::read_to_string(format!("/proc/{thread}/status")).ok();
    thread != 0 && status().is_some_and(|status| groups(&status).any(|own| own == group))
}

/// Returns whether the caller is in the group. Where groups may be mapped nobody is: the caller's
/// own number may mean another group there.
pub fn is_member(caller: &InHeader, group: u32) -> bool {
    caller.gid != NO_ID && (caller.gid == group || is_in_group(caller.pid, group))
}

/// Returns whether a new file with this mode, in a directory with that mode and group, would be an
/// executable of the directory's group although the caller is not in it: each user who may write
/// to the directory could run as the group.
pub fn gives_group_away(caller: &InHeader, (directory, group): (u32, u32), mode: u32) -> bool {
    const RUNS_AS_GROUP: u32 = libc::S_ISGID | libc::S_IXGRP;
    directory & libc::S_ISGID != 0
        && mode & RUNS_AS_GROUP == RUNS_AS_GROUP
        && !is_member(caller, group)
        && !holds(caller.pid, Capability::SetId)
}

/// Returns whether SIGKILL is pending for the thread. The kernel makes it so for each thread of a
/// process that a signal ends, except for signals that dump core (SIGQUIT, SIGABRT): these leave it
/// at that until the thread takes the signal.
pub fn is_dying(thread: u32) -> bool {
    let status = || fs::read_to_string(format!("/proc/{thread}/status")).ok();
    #[cfg(test)]
    if thread == KILLED {
        return true;
    }
    thread != 0 && status().is_some_and(|status| has_kill_pending(&status))
}
/// The number of no thread, which tests of the front ends take for that of a killed one.
#[cfg(test)]
pub const KILLED: u32 = 1 << 30;

fn has_kill_pending(status: &str) -> bool {
    let line = status.lines().find_map(|line| line.strip_prefix("SigPnd:"));
    let pending = line.and_then(|line| u64::from_str_radix(line.trim(), 16).ok());
    pending.is_some_and(|set| set & 1 << (libc::SIGKILL - 1) != 0)
}

fn groups(status: &str) -> impl Iterator<Item = u32> + '_ {
    let line = status.lines().find_map(|line| line.strip_prefix("Groups:")).unwrap_or_default();
    line.split_whitespace().filter_map(|number| number.parse().ok())
}

/// The calls that change owners, then those of 32-bit programs: lchown, fchown, chown, each with 16
/// and with 32 bits, and fchownat. As numbers of 64-bit programs the latter are calls for which the
/// kernel sends no SETATTR without a field.
#[cfg(target_arch = "x86_64")]
const OWNER_CALLS: [libc::c_long; 11] = [
    libc::SYS_chown,
    libc::SYS_lchown,
    libc::SYS_fchown,
    libc::SYS_fchownat,
    16,
    95,
    182,
    198,
    207,
    212,
    298,
];
#[cfg(not(target_arch = "x86_64"))]
const OWNER_CALLS: [libc::c_long; 2] = [libc::SYS_fchown, libc::SYS_fchownat];
/// A caller that is not asleep yet is checked again, at most this often.
const TRIES_MAX: usize = 1000;

/// Returns whether the thread waits in a call that changes the owner of a file; `None` where that
/// is not visible. Other threads run until this one is asleep.
pub async fn changes_owner(thread: u32) -> Option<bool> {
    for _ in 0..TRIES_MAX {
        match fs::read_to_string(format!("/proc/{thread}/syscall")).as_deref().map(waits_in) {
            Ok(Some(number)) => return Some(OWNER_CALLS.contains(&number)),
            Ok(None) => std::thread::yield_now(),
            Err(_) => return None,
        }
        runtime::yield_now().await;
    }
    None
}

/// Returns the number of the call, from the line of proc_pid_syscall(5); `None` while the thread
/// runs.
fn waits_in(line: &str) -> Option<libc::c_long> {
    line.split(' ').next()?.parse().ok()
}

/// Returns whether the thread is in our user namespace. Capabilities of another one do not count:
/// anybody may create a namespace.
pub fn is_of_our_user_namespace(thread: u32) -> bool {
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
    fn supplementary_groups_are_read() {
        let status = "Uid:\t0\t0\t0\t0\nGroups:\t4 24 70000 \nNStgid:\t7\n";
        assert_eq!(groups(status).collect::<Vec<_>>(), [4, 24, 70000]);
        assert_eq!(groups("Groups:\t\nx: 5\n").count(), 0);
        assert_eq!(groups("Name:\tx\n").count(), 0);
    }

    #[test]
    fn a_thread_dies_with_a_kill_that_is_pending() {
        assert!(has_kill_pending("SigQ:\t0/1\nSigPnd:\t0000000000000100\nShdPnd:\t0\n"));
        assert!(!has_kill_pending("SigPnd:\t0000000000000002\nShdPnd:\t0000000000004100\n"));
        assert!(!has_kill_pending("Name:\tx\n"), "in doubt");
        assert!(!is_dying(std::process::id()) && !is_dying(0) && !is_dying(u32::MAX));
    }

    #[test]
    fn a_call_is_known_by_its_number_and_only_while_the_thread_waits() {
        assert_eq!(
            waits_in("92 0x7ffd3 0xffffffff 0xffffffff 0x0 0x0 0x0 0x7ffd0 0x7f1c\n"),
            Some(92)
        );
        assert_eq!(waits_in("-1 0x7ffd0 0x7f1c\n"), Some(-1), "in no call");
        assert_eq!(waits_in("running\n"), None);
    }

    #[test]
    fn a_thread_that_is_not_to_be_seen_holds_nothing() {
        assert!(!holds(0, Capability::FileOwner));
        assert!(!holds(u32::MAX, Capability::FileOwner));
    }
}
