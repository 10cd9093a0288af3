//! Rights that a daemon gives up once its volume is mounted: from then on it reads untrusted bytes,
//! on the disk and from the kernel, and opens nothing more.
//!
//! Mounting and unmounting is done by another process, which reads neither.

use rustix::process::geteuid;
use std::io;

/// Permits reading callers' rights: `/proc/PID/syscall` and `ns/user` of any process
/// (`fuse/privilege`).
const CAP_SYS_PTRACE: u32 = 19;
/// Permits opening these files, which their owners alone may read.
const CAP_DAC_READ_SEARCH: u32 = 2;
/// Permits keeping memory locked.
const CAP_IPC_LOCK: u32 = 14;
/// Permits writing to image files beyond quotas, as at the time of the mount.
const CAP_SYS_RESOURCE: u32 = 24;
const KEPT: [u32; 4] = [CAP_DAC_READ_SEARCH, CAP_SYS_PTRACE, CAP_IPC_LOCK, CAP_SYS_RESOURCE];
/// Capabilities in the kernel's sets of 64 bits.
const CAPABILITIES: u32 = 64;

/// `_LINUX_CAPABILITY_VERSION_3`.
const VERSION: u32 = 0x2008_0522;

/// `struct __user_cap_header_struct`.
#[repr(C)]
struct Header {
    version: u32,
    process: libc::c_int,
}

/// `struct __user_cap_data_struct`: half of each set.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Half {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

/// Gives up rights for this thread, and for those that it starts. Call it before there are others.
///
/// # Errors
/// A refusal of the kernel's; the rest is given up all the same.
pub fn give_up() -> io::Result<()> {
    let is_root = geteuid().is_root() && !units::fault!("rights-kept");
    // Without CAP_SETPCAP the bounding set stays; nothing executes another program any more.
    let bounded = if is_root { bound().and(keep_few()) } else { Ok(()) };
    // SAFETY: prctl with these integers changes a flag of the thread.
    let unprivileged = checked(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) });
    let filtered = unprivileged.and_then(|()| forbid_calls());
    bounded.and(filtered)
}

/// Returns the warning of a daemon that keeps what it does not need.
pub fn kept_rights(why: &io::Error) -> String {
    format!("the daemon keeps rights that it does not need: {why}")
}

/// Removes all but the kept ones from the bounding set of this process.
fn bound() -> io::Result<()> {
    for capability in (0..CAPABILITIES).filter(|capability| !KEPT.contains(capability)) {
        // SAFETY: prctl with these integers changes a set of the thread. For a number that the
        // kernel does not know it returns EINVAL.
        let result = unsafe { libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) };
        match checked(result) {
            Err(error) if error.raw_os_error() != Some(libc::EINVAL) => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

fn keep_few() -> io::Result<()> {
    let mut halves = sets()?;
    for capability in 0..CAPABILITIES {
        let (half, bit) = (&mut halves[capability as usize / 32], 1 << (capability % 32));
        if !KEPT.contains(&capability) {
            half.effective &= !bit;
            half.permitted &= !bit;
        }
        half.inheritable = 0;
    }
    let header = Header { version: VERSION, process: 0 };
    // SAFETY: the structures are those of the call's version, and outlive it.
    checked(unsafe {
        libc::syscall(libc::SYS_capset, &raw const header, halves.as_ptr()) as libc::c_int
    })
}

/// Returns the sets of this thread.
fn sets() -> io::Result<[Half; 2]> {
    let header = Header { version: VERSION, process: 0 };
    let mut halves = [Half::default(); 2];
    // SAFETY: the structures are those of the call's version, and outlive it.
    checked(unsafe {
        libc::syscall(libc::SYS_capget, &raw const header, halves.as_mut_ptr()) as libc::c_int
    })?;
    Ok(halves)
}

/// Returns whether memory may be locked beyond any limit, before and after the rest is given up.
pub fn may_lock() -> bool {
    sets().is_ok_and(|[low, _]| low.effective & 1 << CAP_IPC_LOCK != 0)
}

/// Calls that a daemon does not need, and that an attacker's code would begin with.
const FORBIDDEN: [libc::c_long; 27] = [
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_setns,
    libc::SYS_unshare,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_kexec_load,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    libc::SYS_open_by_handle_at,
    // Later names of the above.
    libc::SYS_pidfd_getfd,
    libc::SYS_open_tree,
    libc::SYS_move_mount,
    libc::SYS_fsopen,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
];

/// `AUDIT_ARCH_…`: calls with another machine's numbers are forbidden as a whole.
#[cfg(target_arch = "x86_64")]
const MACHINE: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const MACHINE: u32 = 0xc000_00b7;
/// Bit of calls of the x32 kind.
const X32: u32 = 0x4000_0000;

/// Makes the calls of [`FORBIDDEN`] fail with EPERM: seccomp(2). Needs no right once
/// PR_SET_NO_NEW_PRIVS is set.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
fn forbid_calls() -> io::Result<()> {
    let mut filter = program();
    let length = filter.len() as libc::c_ushort;
    let program = libc::sock_fprog { len: length, filter: filter.as_mut_ptr() };
    let (mode, program) = (libc::SECCOMP_MODE_FILTER, &raw const program);
    // SAFETY: the program and its instructions outlive the call, which copies them.
    checked(unsafe { libc::prctl(libc::PR_SET_SECCOMP, mode, program, 0, 0) })
}
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn forbid_calls() -> io::Result<()> {
    Ok(())
}

/// Loads the machine, then the call's number; compares; allows or refuses.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
fn program() -> Vec<libc::sock_filter> {
    const NUMBER_AT: u32 = 0;
    const MACHINE_AT: u32 = 4;
    let load = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    let is_equal = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    let is_at_least = (libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K) as u16;
    let answer = (libc::BPF_RET | libc::BPF_K) as u16;
    let step = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    // After the comparisons come the two results: allow, refuse.
    let refuse_from = |index: usize| (FORBIDDEN.len() - index) as u8;
    let mut steps = vec![
        step(load, 0, 0, MACHINE_AT),
        step(is_equal, 0, FORBIDDEN.len() as u8 + 3, MACHINE),
        step(load, 0, 0, NUMBER_AT),
        step(is_at_least, FORBIDDEN.len() as u8 + 1, 0, X32),
    ];
    for (index, call) in FORBIDDEN.iter().enumerate() {
        steps.push(step(is_equal, refuse_from(index), 0, *call as u32));
    }
    steps.push(step(answer, 0, 0, libc::SECCOMP_RET_ALLOW));
    steps.push(step(answer, 0, 0, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32));
    steps
}

fn checked(result: libc::c_int) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_unit_of_volumes_leaves_what_the_daemon_keeps() {
        let unit = include_str!("../../../../systemd/okeanos@.service");
        let set = unit.lines().find_map(|line| line.strip_prefix("CapabilityBoundingSet="));
        let names = [
            (CAP_DAC_READ_SEARCH, "CAP_DAC_READ_SEARCH"),
            (CAP_SYS_PTRACE, "CAP_SYS_PTRACE"),
            (CAP_IPC_LOCK, "CAP_IPC_LOCK"),
            (CAP_SYS_RESOURCE, "CAP_SYS_RESOURCE"),
        ];
        assert_eq!(names.map(|(number, _)| number), KEPT);
        for (_, name) in names {
            assert!(set.is_some_and(|set| set.split(' ').any(|word| word == name)), "{name}");
        }
    }

    /// Runs in a thread of its own, whose loss of rights does not affect others.
    #[test]
    fn a_thread_that_gave_up_starts_no_program_and_mounts_nothing() {
        let given_up = std::thread::spawn(|| {
            give_up().unwrap();
            // SAFETY: the strings end with zero bytes; unshare takes an integer.
            let refused = unsafe {
                [
                    libc::unshare(libc::CLONE_NEWNS),
                    libc::umount2(c"/nowhere".as_ptr(), 0),
                    libc::chroot(c"/".as_ptr()),
                ]
            };
            let error = io::Error::last_os_error().raw_os_error();
            assert!(std::process::Command::new("/bin/true").status().is_err());
            // What the daemon needs still works.
            std::fs::read_to_string("/proc/self/status").unwrap();
            std::thread::spawn(|| ()).join().unwrap();
            (refused, error, std::fs::read_to_string("/proc/thread-self/status").unwrap())
        });
        let (refused, error, status) = given_up.join().unwrap();
        assert_eq!((refused, error), ([-1; 3], Some(libc::EPERM)));
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            line.trim().to_owned()
        };
        assert_eq!((field("NoNewPrivs:"), field("Seccomp:")), ("1".into(), "2".into()));
        let kept: u64 = KEPT.iter().map(|capability| 1 << capability).sum();
        if geteuid().is_root() {
            for set in ["CapEff:", "CapPrm:", "CapBnd:"] {
                let found = u64::from_str_radix(&field(set), 16).unwrap();
                assert_eq!(found & !kept, 0, "{set} {found:x}");
            }
        }
    }
}
