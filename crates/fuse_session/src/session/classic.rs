//! The classic channel: read(2) of `/dev/fuse` returns one request; a write sends one reply. The
//! reads are plain system calls, as they never wait (O_NONBLOCK); the replies go through the ring,
//! many at a time.

use super::MAX_WRITE;
use super::request_memory::Share;
use crate::abi::{InitOut, NOTIFY_INVAL_INODE, NotifyInvalInode, OutHeader, init};
use crate::message::Inbox;
use crate::reply::Stale;
use crate::{MalformedRequest, Reply, Request};
use runtime::{File, PollStream, Ring};
use std::any::Any;
use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::AsRawFd;
use zerocopy::IntoBytes;

/// The largest WRITE with its header and structure, and some spare bytes; at least 8192 (the kernel
/// refuses less).
const MESSAGE_MAX: usize = MAX_WRITE as usize + 4096;
/// Replies up to this length, in bytes, hold too little memory to wait for.
const SHORT: usize = 512;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Received {
    /// A request is in the inbox.
    Message,
    /// No request waits.
    Nothing,
    /// The kernel has no memory for a read now; requests may wait.
    NoMemory,
    /// Unmounted, or the connection was aborted.
    Gone,
}

/// Returns what a failed read means; `None`: it is tried again at once.
///
/// # Errors
/// The error itself, if no read can succeed any more.
fn after_failed_read(error: io::Error) -> io::Result<Option<Received>> {
    match error.raw_os_error() {
        Some(libc::EAGAIN) => Ok(Some(Received::Nothing)),
        Some(libc::ENODEV | libc::ECONNABORTED) => Ok(Some(Received::Gone)),
        Some(libc::ENOMEM) if !units::fault!("read-without-memory-ends") => {
            Ok(Some(Received::NoMemory))
        }
        // ENOENT: the request was withdrawn while it was read.
        Some(libc::EINTR | libc::ENOENT) => Ok(None),
        _ => Err(error),
    }
}

pub(super) struct Classic {
    ring: Ring,
    fuse: File,
    inbox: RefCell<Inbox>,
    /// Length of the request in the inbox.
    length: Cell<usize>,
    /// Flags of the negotiation; before it, all.
    flags: Cell<u32>,
}

impl Classic {
    pub fn new(ring: Ring, fuse: File) -> Classic {
        let inbox = RefCell::new(Inbox::new(MESSAGE_MAX));
        Classic { ring, fuse, inbox, length: Cell::new(0), flags: Cell::new(!0) }
    }

    /// Sends the reply to INIT. Its flags decide the form of all later requests.
    pub fn begin(&self, unique: u64, reply: &InitOut) -> io::Result<()> {
        self.flags.set(reply.flags);
        self.reply_now(unique, Reply::of(reply))
    }

    pub fn file(&self) -> &File {
        &self.fuse
    }
    pub fn readable(&self) -> PollStream {
        self.ring.poll(&self.fuse, libc::POLLIN)
    }

    pub fn receive(&self) -> io::Result<Received> {
        let mut inbox = self.inbox.borrow_mut();
        let space = inbox.space();
        loop {
            // SAFETY: the space is live and as long as said.
            let count = unsafe {
                libc::read(self.fuse.as_raw_fd(), space.as_mut_ptr().cast(), space.len())
            };
            if count >= 0 {
                self.length.set(count as usize);
                return Ok(Received::Message);
            }
            if let Some(received) = after_failed_read(io::Error::last_os_error())? {
                return Ok(received);
            }
        }
    }

    /// Returns the request that was received.
    pub fn message(&self) -> Result<Request, MalformedRequest> {
        let request = Request::from_bytes(self.inbox.borrow_mut().take(self.length.get()))?;
        match u64::from(self.flags.get()) & init::SETXATTR_EXT {
            0 => Ok(request.with_short_setxattr()),
            _ => Ok(request),
        }
    }

    /// Sends the reply with the next submission of the ring. It may meet a request that was
    /// withdrawn, which is harmless. `share` is the request's: the reply's memory counts until the
    /// kernel has it.
    pub fn reply(&self, unique: u64, reply: Reply, share: Share) {
        // Other memory of the reply is not worth a box.
        let guard: Option<Box<dyn Any>> =
            if reply.is_within(SHORT) || units::fault!("answer-holds-no-memory") {
                None
            } else {
                Some(Box::new(share))
            };
        let (head, body) = reply.into_message(unique);
        self.ring.send(&self.fuse, head, body, guard);
    }

    /// Makes the kernel forget what it caches of a node; it has when this returns. A node that it
    /// does not know, or a mount that is gone, needs nothing.
    ///
    /// The kernel takes no lock for this that a request could hold. It locks pages of a listing
    /// only while it copies a reply to them. But it waits for the end of an eviction of the node
    /// (`find_inode`), and that waits for the node's pages to be written back. So a node that may
    /// have dirty pages is only named by a reply to a request whose caller holds it.
    pub fn forget(&self, stale: Stale) {
        let (ino, off) = match stale {
            Stale::Attributes(node) => (node, -1),
            // Every page, and the attributes with them.
            Stale::Listing(node) => (node, 0),
        };
        let notification = NotifyInvalInode { ino, off, len: 0 };
        let length = size_of::<OutHeader>() + size_of_val(&notification);
        let header = OutHeader { len: length as u32, error: NOTIFY_INVAL_INODE, unique: 0 };
        let message = [header.as_bytes(), notification.as_bytes()].concat();
        // SAFETY: the bytes are live and as long as said.
        unsafe { libc::write(self.fuse.as_raw_fd(), message.as_ptr().cast(), message.len()) };
    }

    /// Sends a reply without slices; the kernel has processed it when this returns.
    pub fn reply_now(&self, unique: u64, reply: Reply) -> io::Result<()> {
        let (head, body) = reply.into_message(unique);
        assert!(body.is_empty(), "only short replies go at once");
        // SAFETY: the bytes are live and as long as said.
        let count = unsafe { libc::write(self.fuse.as_raw_fd(), head.as_ptr().cast(), head.len()) };
        if count < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_connection_that_is_gone_ends_the_reading() {
        let after = |code| after_failed_read(io::Error::from_raw_os_error(code)).unwrap();
        assert_eq!(after(libc::ENODEV), Some(Received::Gone));
        assert_eq!(after(libc::EAGAIN), Some(Received::Nothing));
        assert_eq!(after(libc::ENOMEM), Some(Received::NoMemory));
        for code in [libc::EINTR, libc::ENOENT] {
            assert_eq!(after(code), None);
        }
        // A descriptor that is none of FUSE: every read would fail.
        let error = io::Error::from_raw_os_error(libc::EPERM);
        assert!(after_failed_read(error).is_err());
    }
}
