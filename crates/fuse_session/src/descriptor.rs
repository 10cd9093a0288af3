//! Messages between processes, with or without an open file attached (SCM_RIGHTS, unix(7)).

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// Space for one descriptor with its header.
#[repr(C, align(8))]
struct Control([u8; 64]);

fn message(part: &mut libc::iovec, control: &mut Control) -> libc::msghdr {
    // SAFETY: msghdr is plain data, for which zeros are valid.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = part;
    message.msg_iovlen = 1;
    message.msg_control = (&raw mut control.0).cast();
    message.msg_controllen = size_of::<Control>() as _;
    message
}

/// Sends `bytes` as one message, and a copy of the descriptor.
///
/// # Errors
/// The kernel's; EPIPE, and no signal, when the other end is closed.
pub fn send(
    socket: &impl AsFd,
    bytes: &[u8],
    descriptor: Option<BorrowedFd<'_>>,
) -> io::Result<()> {
    let mut control = Control([0; 64]);
    let mut part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    let mut message = message(&mut part, &mut control);
    match descriptor {
        None => message.msg_controllen = 0,
        // SAFETY: the header and the number after it lie within `control`, which is aligned for
        // them.
        Some(descriptor) => unsafe {
            let size = size_of::<libc::c_int>() as u32;
            message.msg_controllen = libc::CMSG_SPACE(size) as _;
            let header = libc::CMSG_FIRSTHDR(&raw const message);
            (*header).cmsg_level = libc::SOL_SOCKET;
            (*header).cmsg_type = libc::SCM_RIGHTS;
            (*header).cmsg_len = libc::CMSG_LEN(size) as _;
            libc::CMSG_DATA(header).cast::<libc::c_int>().write_unaligned(descriptor.as_raw_fd());
        },
    }
    let socket = socket.as_fd().as_raw_fd();
    // SAFETY: all pointers of the message lead to live memory of the lengths given; `bytes` is only
    // read.
    match unsafe { libc::sendmsg(socket, &raw const message, libc::MSG_NOSIGNAL) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Waits for a message. Returns its length in bytes (zero when the other end is closed), and the
/// descriptor that came with it, which is closed on exec.
///
/// # Errors
/// The kernel's, but for EINTR, after which it waits on.
pub fn receive(socket: &impl AsFd, bytes: &mut [u8]) -> io::Result<(usize, Option<OwnedFd>)> {
    let mut control = Control([0; 64]);
    let mut part = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    let mut message = message(&mut part, &mut control);
    let socket = socket.as_fd().as_raw_fd();
    let length = loop {
        // SAFETY: all pointers of the message lead to live memory of the lengths given.
        match unsafe { libc::recvmsg(socket, &raw mut message, libc::MSG_CMSG_CLOEXEC) } {
            -1 => match io::Error::last_os_error() {
                error if error.kind() == io::ErrorKind::Interrupted => {}
                error => return Err(error),
            },
            length => break length as usize,
        }
    };
    // SAFETY: the kernel filled the control buffer. CMSG_FIRSTHDR returns null or a header within
    // it, and an SCM_RIGHTS message of this length holds one new descriptor that nobody else owns.
    let descriptor = unsafe {
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        let least = libc::CMSG_LEN(size_of::<libc::c_int>() as u32) as usize;
        let is_one = !header.is_null()
            && (*header).cmsg_level == libc::SOL_SOCKET
            && (*header).cmsg_type == libc::SCM_RIGHTS
            && (*header).cmsg_len as usize >= least;
        is_one.then(|| {
            OwnedFd::from_raw_fd(libc::CMSG_DATA(header).cast::<libc::c_int>().read_unaligned())
        })
    };
    Ok((length, descriptor))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Seek, Write};
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_descriptor_comes_with_its_message() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let mut gift = tempfile::tempfile().unwrap();
        gift.write_all(b"gift").unwrap();
        gift.rewind().unwrap();
        send(&theirs, b"take it", Some(gift.as_fd())).unwrap();
        let mut bytes = [0; 64];
        let (length, descriptor) = receive(&ours, &mut bytes).unwrap();
        assert_eq!(&bytes[..length], b"take it");
        let mut text = String::new();
        std::fs::File::from(descriptor.unwrap()).read_to_string(&mut text).unwrap();
        assert_eq!(text, "gift");
        send(&theirs, b"nothing", None).unwrap();
        assert!(matches!(receive(&ours, &mut bytes), Ok((7, None))));
    }

    #[test]
    fn the_end_of_the_other_side_is_an_empty_message() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        drop(theirs);
        assert!(matches!(receive(&ours, &mut [0]), Ok((0, None))));
    }
}
