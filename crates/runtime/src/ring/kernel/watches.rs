//! Waits for files to become ready, by epoll: polls, and calls that wait for other programs.

use super::call::{Call, Completion, Source};
use super::threads::result_of;
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

/// Events taken with one call.
const EVENTS: usize = 64;
/// Number of the alarm: no operation has it.
const ALARM: u64 = u64::MAX;

/// An operation that waits for its file.
struct Watch {
    /// Descriptor in epoll: the operation's own, or a copy where that is watched already.
    number: RawFd,
    _copy: Option<OwnedFd>,
    /// Call made once when the file is ready; none for a poll, which continues.
    call: Option<Call>,
}

pub(super) struct Watches {
    epoll: OwnedFd,
    watches: HashMap<u64, Watch>,
}

impl Watches {
    /// Creates the set. `alarm` ends a wait, and has no completion.
    pub fn new(alarm: RawFd) -> io::Result<Watches> {
        // SAFETY: the call takes an integer.
        let number = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if number < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new, so nobody else owns it.
        let epoll = unsafe { OwnedFd::from_raw_fd(number) };
        let watches = Watches { epoll, watches: HashMap::new() };
        // An edge: the counter need not be read.
        match watches.add(alarm, libc::EPOLLIN | libc::EPOLLET, ALARM) {
            0 => Ok(watches),
            error => Err(io::Error::from_raw_os_error(-error)),
        }
    }

    /// Reports changes, as a ring's multishot poll does. Returns a completion if the file cannot be
    /// watched.
    pub fn poll(&mut self, file: RawFd, mask: i16, user_data: u64) -> Option<Completion> {
        let events = i32::from(mask as u16 as i16) & 0xffff | libc::EPOLLET;
        match self.watch(file, events, user_data, None) {
            0 => None,
            // A file that never waits, such as a regular one.
            error if error == -libc::EPERM => {
                let ready = mask & (libc::POLLIN | libc::POLLOUT);
                Some(Completion::last(user_data, ready.into()))
            }
            error => Some(Completion::last(user_data, error)),
        }
    }

    /// Makes a call that would wait as soon as it does not.
    pub fn make_when_ready(&mut self, call: Call, user_data: u64) -> Option<Completion> {
        if let Some(result) = try_now(&call) {
            return Some(Completion::last(user_data, result));
        }
        let (file, events) = match call {
            Call::Receive { file, .. } => (file, libc::EPOLLIN),
            Call::Send { file, .. } | Call::Message { file, .. } => (file, libc::EPOLLOUT),
            _ => unreachable!("a call that waits for no other program"),
        };
        let result = self.watch(file, events, user_data, Some(call));
        (result < 0).then(|| Completion::last(user_data, result))
    }

    /// Returns the completion of the operation, if it waits here.
    pub fn cancel(&mut self, user_data: u64) -> Option<Completion> {
        self.remove(user_data)?;
        Some(Completion::last(user_data, -libc::ECANCELED))
    }

    /// Drops all watches.
    pub fn clear(&mut self) {
        self.watches.clear();
    }

    /// Waits for an event, for at most `limit`.
    ///
    /// # Errors
    /// ETIME on timeout, EINTR when a signal came.
    pub fn wait(&mut self, limit: Option<Duration>) -> io::Result<()> {
        let time = limit.map(|limit| libc::timespec {
            tv_sec: limit.as_secs().min(i32::MAX as u64) as _,
            tv_nsec: limit.subsec_nanos().into(),
        });
        let time = time.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        let mut polled =
            libc::pollfd { fd: self.epoll.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // Not epoll_wait: its time is in milliseconds, and that of epoll_pwait2 is of Linux 5.11.
        // SAFETY: both structures outlive the call; no signal mask is passed.
        match unsafe { libc::ppoll(&raw mut polled, 1, time, std::ptr::null()) } {
            1.. => Ok(()),
            0 => Err(io::Error::from_raw_os_error(libc::ETIME)),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Takes available events. Returns whether the alarm is among them.
    pub fn look(&mut self, arrived: &mut Vec<Completion>) -> io::Result<bool> {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; EVENTS];
        // SAFETY: there is space for as many events as passed.
        let count = unsafe {
            libc::epoll_wait(self.epoll.as_raw_fd(), events.as_mut_ptr(), EVENTS as libc::c_int, 0)
        };
        if count < 0 {
            return Err(io::Error::last_os_error());
        }
        let mut is_alarmed = false;
        for event in &events[..count as usize] {
            let (user_data, events) = (event.u64, event.events);
            is_alarmed |= user_data == ALARM;
            let Some(watch) = self.watches.get(&user_data) else { continue };
            match &watch.call {
                None => {
                    let result = (events & 0xffff) as i32;
                    arrived.push(Completion { user_data, result, more: true });
                }
                Some(call) => {
                    if let Some(result) = try_now(call) {
                        self.remove(user_data);
                        arrived.push(Completion::last(user_data, result));
                    }
                }
            }
        }
        Ok(is_alarmed)
    }

    /// Watches a file. Returns zero, or a negative errno.
    fn watch(&mut self, file: RawFd, events: i32, user_data: u64, call: Option<Call>) -> i32 {
        let (mut number, mut copy) = (file, None);
        let mut result = self.add(number, events, user_data);
        if result == -libc::EEXIST {
            // SAFETY: the call takes integers.
            number = result_of(|| unsafe { libc::fcntl(file, libc::F_DUPFD_CLOEXEC, 0) } as isize);
            if number < 0 {
                return number;
            }
            // SAFETY: the descriptor is new, so nobody else owns it.
            copy = Some(unsafe { OwnedFd::from_raw_fd(number) });
            result = self.add(number, events, user_data);
        }
        if result == 0 {
            self.watches.insert(user_data, Watch { number, _copy: copy, call });
        }
        result
    }

    fn add(&self, number: RawFd, events: i32, user_data: u64) -> i32 {
        let mut event = libc::epoll_event { events: events as u32, u64: user_data };
        let epoll = self.epoll.as_raw_fd();
        // SAFETY: the event outlives the call.
        result_of(|| unsafe { libc::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, number, &raw mut event) }
            as isize)
    }

    fn remove(&mut self, user_data: u64) -> Option<()> {
        let watch = self.watches.remove(&user_data)?;
        let epoll = self.epoll.as_raw_fd();
        // SAFETY: the event is not looked at. The file is open: its slot, or the copy, holds it.
        unsafe { libc::epoll_ctl(epoll, libc::EPOLL_CTL_DEL, watch.number, std::ptr::null_mut()) };
        Some(())
    }
}

/// Returns the call's result, unless it would wait.
fn try_now(call: &Call) -> Option<i32> {
    let result = match *call {
        Call::Receive { file, start, length } => {
            // The file may be one that blocks.
            if !is_ready(file, libc::POLLIN) {
                return None;
            }
            // SAFETY: the slot owns `length` bytes behind `start`, and nobody looks at them.
            result_of(|| unsafe { libc::read(file, start.cast(), length as usize) })
        }
        Call::Send { file, start, length } => {
            let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
            // SAFETY: the slot owns `length` bytes behind `start`.
            result_of(|| unsafe { libc::send(file, start.cast(), length as usize, flags) })
        }
        Call::Message { file, source } => message(file, source),
        _ => unreachable!("a call that waits for no other program"),
    };
    (result != -libc::EAGAIN).then_some(result)
}

fn message(file: RawFd, source: Source) -> i32 {
    result_of(|| match source {
        // SAFETY: the slot owns `length` bytes behind `start`.
        Source::One { start, length } => unsafe {
            libc::write(file, start.cast(), length as usize)
        },
        // SAFETY: the slot owns the table of `count` vectors and what they point to.
        Source::Many { vectors, count } => unsafe {
            libc::writev(file, vectors, count as libc::c_int)
        },
    })
}

fn is_ready(file: RawFd, events: i16) -> bool {
    let mut polled = libc::pollfd { fd: file, events, revents: 0 };
    // SAFETY: the structure outlives the call, which does not wait.
    unsafe { libc::poll(&raw mut polled, 1, 0) > 0 }
}
