//! Rights that a daemon gives up once its volume is mounted: from then on it reads untrusted bytes,
//! on the disk, from clients and from the kernel, and opens nothing more.
//!
//! The daemon of a host opens files of its store for as long as it runs, for all of its users. It
//! keeps the rights to do so, and gives up the others before it reads records of its journal.
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

/// Permit making files for their owners, and changing those of others.
const CAP_CHOWN: u32 = 0;
const CAP_DAC_OVERRIDE: u32 = 1;
const CAP_FOWNER: u32 = 3;
/// Permits keeping set-id bits where the caller may keep them.
const CAP_FSETID: u32 = 4;
/// Permits reading and writing `trusted.*` attributes.
const CAP_SYS_ADMIN: u32 = 21;
const CAP_MKNOD: u32 = 27;
/// Permits writing file capabilities.
const CAP_SETFCAP: u32 = 31;
const KEPT_BY_HOSTS: [u32; 11] = [
    CAP_CHOWN,
    CAP_DAC_OVERRIDE,
    CAP_DAC_READ_SEARCH,
    CAP_FOWNER,
    CAP_FSETID,
    CAP_IPC_LOCK,
    CAP_SYS_PTRACE,
    CAP_SYS_ADMIN,
    CAP_SYS_RESOURCE,
    CAP_MKNOD,
    CAP_SETFCAP,
];
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

/// Programs that a host starts while it runs. They have its rights at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostPrograms {
    None,
    /// The helper in front of Ceph, which is started anew after a lost connection.
    Helper,
}

/// Gives up rights for this thread, and for those that it starts. Call it before there are others.
///
/// # Errors
/// A refusal of the kernel's; the rest is given up all the same.
pub fn give_up() -> io::Result<()> {
    keep(&KEPT, &[&EXECUTION, &FORBIDDEN])
}

/// Gives up rights like [`give_up`], except those over the files of a store.
///
/// # Errors
/// A refusal of the kernel's; the rest is given up all the same.
pub fn give_up_for_host(programs: HostPrograms) -> io::Result<()> {
    match programs {
        HostPrograms::None => keep(&KEPT_BY_HOSTS, &[&EXECUTION, &FORBIDDEN]),
        HostPrograms::Helper => keep(&KEPT_BY_HOSTS, &[&FORBIDDEN]),
    }
}

fn keep(capabilities: &[u32], forbidden: &[&[libc::c_long]]) -> io::Result<()> {
    let is_root = geteuid().is_root() && !units::fault!("rights-kept");
    // Without CAP_SETPCAP the bounding set stays; a program that root executes has all of it then.
    let bounded = match is_root {
        true => bound(capabilities).and(keep_few(capabilities)),
        false => Ok(()),
    };
    // SAFETY: prctl with these integers changes a flag of the thread.
    let unprivileged = checked(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) });
    let filtered = unprivileged.and_then(|()| forbid_calls(&forbidden.concat()));
    bounded.and(filtered)
}

/// Returns the warning of a daemon that keeps what it does not need.
pub fn kept_rights(why: &io::Error) -> String {
    format!("the daemon keeps rights that it does not need: {why}")
}

/// Removes all but the kept ones from the bounding set of this process.
fn bound(kept: &[u32]) -> io::Result<()> {
    for capability in (0..CAPABILITIES).filter(|capability| !kept.contains(capability)) {
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

fn keep_few(kept: &[u32]) -> io::Result<()> {
    let mut halves = sets()?;
    for capability in 0..CAPABILITIES {
        let (half, bit) = (&mut halves[capability as usize / 32], 1 << (capability % 32));
        if !kept.contains(&capability) {
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

/// Calls that start another program.
const EXECUTION: [libc::c_long; 2] = [libc::SYS_execve, libc::SYS_execveat];
/// Calls that a daemon does not need, and that an attacker's code would begin with.
const FORBIDDEN: [libc::c_long; 25] = [
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

/// Makes the calls fail with EPERM: seccomp(2). Needs no right once PR_SET_NO_NEW_PRIVS is set.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
fn forbid_calls(forbidden: &[libc::c_long]) -> io::Result<()> {
    let mut filter = program(forbidden);
    let length = filter.len() as libc::c_ushort;
    let program = libc::sock_fprog { len: length, filter: filter.as_mut_ptr() };
    let (mode, program) = (libc::SECCOMP_MODE_FILTER, &raw const program);
    // SAFETY: the program and its instructions outlive the call, which copies them.
    checked(unsafe { libc::prctl(libc::PR_SET_SECCOMP, mode, program, 0, 0) })
}
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn forbid_calls(_forbidden: &[libc::c_long]) -> io::Result<()> {
    Ok(())
}

/// Loads the machine, then the call's number; compares; allows or refuses. Jumps reach 255 steps.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
fn program(forbidden: &[libc::c_long]) -> Vec<libc::sock_filter> {
    const NUMBER_AT: u32 = 0;
    const MACHINE_AT: u32 = 4;
    let load = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    let is_equal = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    let is_at_least = (libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K) as u16;
    let answer = (libc::BPF_RET | libc::BPF_K) as u16;
    let step = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    // After the comparisons come the two results: allow, refuse.
    let refuse_from = |index: usize| (forbidden.len() - index) as u8;
    let mut steps = vec![
        step(load, 0, 0, MACHINE_AT),
        step(is_equal, 0, forbidden.len() as u8 + 3, MACHINE),
        step(load, 0, 0, NUMBER_AT),
        step(is_at_least, forbidden.len() as u8 + 1, 0, X32),
    ];
    for (index, call) in forbidden.iter().enumerate() {
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

    const NAMES: [(u32, &str); 11] = [
        (CAP_CHOWN, "CAP_CHOWN"),
        (CAP_DAC_OVERRIDE, "CAP_DAC_OVERRIDE"),
        (CAP_DAC_READ_SEARCH, "CAP_DAC_READ_SEARCH"),
        (CAP_FOWNER, "CAP_FOWNER"),
        (CAP_FSETID, "CAP_FSETID"),
        (CAP_IPC_LOCK, "CAP_IPC_LOCK"),
        (CAP_SYS_PTRACE, "CAP_SYS_PTRACE"),
        (CAP_SYS_ADMIN, "CAP_SYS_ADMIN"),
        (CAP_SYS_RESOURCE, "CAP_SYS_RESOURCE"),
        (CAP_MKNOD, "CAP_MKNOD"),
        (CAP_SETFCAP, "CAP_SETFCAP"),
    ];

    #[test]
    fn units_leave_what_their_daemons_keep() {
        let units = [
            (include_str!("../../../../systemd/okeanos@.service"), &KEPT[..]),
            (include_str!("../../../../systemd/okeanos-host@.service"), &KEPT_BY_HOSTS),
        ];
        for (unit, kept) in units {
            let set = unit.lines().find_map(|line| line.strip_prefix("CapabilityBoundingSet="));
            let left: Vec<&str> = set.expect("a bounding set").split(' ').collect();
            for capability in kept {
                let name = NAMES.iter().find(|(number, _)| number == capability);
                let (_, name) = name.expect("a name for each");
                assert!(left.contains(name), "{name}");
            }
            assert!(left.contains(&"CAP_SETPCAP"), "it gives up the others");
        }
    }

    /// Checks that the thread has these rights at most, and returns whether it starts programs.
    fn checks_rights(kept: &[u32]) -> bool {
        let runs = std::process::Command::new("/bin/true").status().is_ok();
        // SAFETY: the strings end with zero bytes; unshare takes an integer.
        let refused = unsafe {
            [
                libc::unshare(libc::CLONE_NEWNS),
                libc::umount2(c"/nowhere".as_ptr(), 0),
                libc::chroot(c"/".as_ptr()),
            ]
        };
        let error = io::Error::last_os_error().raw_os_error();
        assert_eq!((refused, error), ([-1; 3], Some(libc::EPERM)));
        // What the daemon needs still works.
        std::thread::spawn(|| ()).join().unwrap();
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            line.trim().to_owned()
        };
        assert_eq!((field("NoNewPrivs:"), field("Seccomp:")), ("1".into(), "2".into()));
        let kept: u64 = kept.iter().map(|capability| 1 << capability).sum();
        if geteuid().is_root() {
            for set in ["CapEff:", "CapPrm:", "CapBnd:"] {
                let found = u64::from_str_radix(&field(set), 16).unwrap();
                assert_eq!(found & !kept, 0, "{set} {found:x}");
            }
        }
        runs
    }

    /// Runs in a thread of its own, whose loss of rights does not affect others.
    #[test]
    fn a_thread_that_gave_up_starts_no_program_and_mounts_nothing() {
        let given_up = std::thread::spawn(|| {
            give_up().unwrap();
            checks_rights(&KEPT)
        });
        assert!(!given_up.join().unwrap());
    }

    #[test]
    fn a_host_starts_no_program_but_its_helper() {
        for (programs, starts_any) in [(HostPrograms::None, false), (HostPrograms::Helper, true)] {
            let given_up = std::thread::spawn(move || {
                give_up_for_host(programs).unwrap();
                checks_rights(&KEPT_BY_HOSTS)
            });
            assert_eq!(given_up.join().unwrap(), starts_any, "{programs:?}");
        }
    }
}
