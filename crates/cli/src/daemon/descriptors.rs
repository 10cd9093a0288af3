//! Descriptors inherited from the caller. A daemon that kept them would hold the caller's locks,
//! and the ends of its pipes, for as long as the volume is mounted.

use std::fs;
use std::os::fd::RawFd;

/// Closes all descriptors but the standard ones and `kept`. Call it in a fresh process, before
/// anything that owns a descriptor is used again.
pub fn close_all_but(kept: RawFd) {
    if units::fault!("descriptors-of-the-caller-kept") {
        return;
    }
    let ranges = [(3, kept - 1), (kept + 1, RawFd::MAX)];
    let mut is_closed = true;
    for (first, last) in ranges.into_iter().filter(|(first, last)| first <= last) {
        // SAFETY: the call takes integers; owners of these descriptors never run again.
        let result = unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
        is_closed &= result == 0;
    }
    if !is_closed {
        // Before Linux 5.9.
        close_those_listed(kept);
    }
}

fn close_those_listed(kept: RawFd) {
    let open: Vec<RawFd> = fs::read_dir("/proc/self/fd")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect();
    for number in open.into_iter().filter(|&number| number > 2 && number != kept) {
        // SAFETY: owners of the descriptor never run again in this process.
        unsafe { libc::close(number) };
    }
}
