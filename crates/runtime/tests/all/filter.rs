//! A seccomp filter that refuses calls with chosen errors, for this thread and those that it makes
//! later. (Also `#[path]` of the program's tests.)

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

/// Makes each `(call, errno)` fail with that errno.
#[allow(dead_code, reason = "programs that install it between fork and exec make it before")]
pub fn refuse(calls: &[(libc::c_long, i32)]) -> io::Result<()> {
    install(&program(calls))
}

pub fn program(calls: &[(libc::c_long, i32)]) -> Vec<libc::sock_filter> {
    const NUMBER_AT: u32 = 0;
    let load = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    let is_equal = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    let answer = (libc::BPF_RET | libc::BPF_K) as u16;
    let step = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let mut steps = vec![step(load, 0, 0, NUMBER_AT)];
    for (call, errno) in calls {
        steps.push(step(is_equal, 0, 1, *call as u32));
        steps.push(step(answer, 0, 0, libc::SECCOMP_RET_ERRNO | *errno as u32));
    }
    steps.push(step(answer, 0, 0, libc::SECCOMP_RET_ALLOW));
    steps
}

/// Installs the filter. Takes no memory, so it may be called between fork and exec.
pub fn install(program: &[libc::sock_filter]) -> io::Result<()> {
    let (length, steps) = (program.len() as libc::c_ushort, program.as_ptr().cast_mut());
    let program = libc::sock_fprog { len: length, filter: steps };
    // SAFETY: prctl changes a flag of the thread, and copies program and instructions, which
    // outlive the calls. Root may filter without the flag, which would take the rights of
    // fusermount3 away.
    let result = unsafe {
        if libc::geteuid() != 0 {
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        }
        libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program, 0, 0)
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Makes a call wait until what this returns is dropped; then it fails with ENOSYS. What this
/// returns is readable while a thread is in the call.
#[allow(dead_code, reason = "only the runtime's tests hold calls")]
pub fn hold(call: libc::c_long) -> io::Result<OwnedFd> {
    let mut steps = program(&[(call, 0)]);
    let answer = steps.iter_mut().find(|step| step.k == libc::SECCOMP_RET_ERRNO);
    answer.expect("one for the call").k = libc::SECCOMP_RET_USER_NOTIF;
    let program =
        libc::sock_fprog { len: steps.len() as libc::c_ushort, filter: steps.as_mut_ptr() };
    // SAFETY: as for `install`.
    let number = unsafe {
        if libc::geteuid() != 0 {
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        }
        let flags = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER;
        libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &raw const program)
    };
    if number < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new, so nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(number as i32) })
}
