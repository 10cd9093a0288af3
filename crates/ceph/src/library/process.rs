//! The helper's own process: how it ends, and what its threads wait for.

use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;

/// Ends the process at once: no destructor of the library runs, which would wait for servers, and
/// may crash after a lost connection (T4).
pub fn end_process(code: i32) -> ! {
    // SAFETY: ends the process, whatever it does.
    unsafe { libc::_exit(code) }
}

/// Ignores the terminal's signals: the helper ends with its socket, so that its daemon's last
/// requests come first.
pub fn ignore_signals() {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGPIPE] {
        // SAFETY: to ignore a signal needs no handler.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
}

/// Returns how often the calling thread has waited for anything.
pub fn waits() -> i64 {
    // SAFETY: a structure of numbers, of which zeros are valid; the call fills it.
    unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage);
        usage.ru_nvcsw
    }
}

/// Ends the process once the socket's other end is closed, whatever its other threads wait for.
/// `leave` runs before.
pub fn end_with(socket: UnixStream, leave: impl FnOnce() + Send + 'static) {
    std::thread::spawn(move || {
        // Only the end is polled: other threads read what arrives before.
        let mut end = libc::pollfd { fd: socket.as_raw_fd(), events: 0, revents: 0 };
        loop {
            // SAFETY: one live structure, and the descriptor is open.
            if unsafe { libc::poll(&raw mut end, 1, -1) } == 1 {
                break;
            }
        }
        leave();
        end_process(0);
    });
}
