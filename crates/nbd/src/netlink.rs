//! Generic netlink, as far as the kernel's NBD client needs it: attributes to bytes and back, and
//! one request at a time on a socket. Facts: `linux/netlink.h`, `linux/genetlink.h`, netlink(7).
//!
//! All numbers have the byte order of the machine, and every part begins at a multiple of four.

use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, send, socket_with,
};
use std::io;
use std::os::fd::OwnedFd;

/// Message type of the family that knows the others.
const CONTROL: u16 = 0x10;
const GET_FAMILY: u8 = 3;
const FAMILY_ID: u16 = 1;
const FAMILY_NAME: u16 = 2;
const FAMILY_ATTRIBUTE_MAX: u16 = 5;

const VERSION: u8 = 1;
/// Bytes of `struct nlmsghdr` and of `struct genlmsghdr`.
const HEADER: usize = 16;
const GENERIC_HEADER: usize = 4;
const ATTRIBUTE_HEADER: usize = 4;
/// Type of the message that acknowledges a request, or refuses it.
const ERROR: u16 = 2;
const REQUEST: u16 = 1;
const ACKNOWLEDGE: u16 = 4;
/// Bit of the type of an attribute that holds others.
const NESTED: u16 = 1 << 15;
/// Bits of the type that are no flags.
const TYPE_BITS: u16 = 0x3fff;
/// Longest datagram of a reply: the kernel's own limit for what it puts together at once.
const REPLY_MAX: usize = 32 << 10;

/// Attributes of a request.
#[derive(Default)]
pub struct Attributes(Vec<u8>);

impl Attributes {
    pub fn u32(self, kind: u16, value: u32) -> Attributes {
        self.bytes(kind, &value.to_ne_bytes())
    }
    pub fn u64(self, kind: u16, value: u64) -> Attributes {
        self.bytes(kind, &value.to_ne_bytes())
    }
    pub fn text(self, kind: u16, value: &str) -> Attributes {
        self.bytes(kind, &[value.as_bytes(), &[0]].concat())
    }
    pub fn nested(self, kind: u16, inner: Attributes) -> Attributes {
        self.bytes(kind | NESTED, &inner.0)
    }
    fn bytes(mut self, kind: u16, value: &[u8]) -> Attributes {
        let length = (ATTRIBUTE_HEADER + value.len()) as u16;
        self.0.extend_from_slice(&length.to_ne_bytes());
        self.0.extend_from_slice(&kind.to_ne_bytes());
        self.0.extend_from_slice(value);
        self.0.resize(aligned(self.0.len()), 0);
        self
    }
}

/// The attributes of the reply to a request; empty if it was only acknowledged.
#[derive(Default, PartialEq, Eq, Debug)]
pub struct Replied(Vec<u8>);

impl Replied {
    fn find(&self, wanted: u16) -> Option<&[u8]> {
        let mut rest = &self.0[..];
        while rest.len() >= ATTRIBUTE_HEADER {
            let (length, kind) = (usize::from(u16_at(rest, 0)?), u16_at(rest, 2)?);
            let value = rest.get(ATTRIBUTE_HEADER..length)?;
            if kind & TYPE_BITS == wanted {
                return Some(value);
            }
            rest = rest.get(aligned(length)..).unwrap_or_default();
        }
        None
    }
    pub fn u16(&self, wanted: u16) -> Option<u16> {
        self.find(wanted).and_then(|value| u16_at(value, 0))
    }
    pub fn u32(&self, wanted: u16) -> Option<u32> {
        self.find(wanted).and_then(|value| u32_at(value, 0))
    }
}

/// A family of messages, and a socket for them.
pub struct Family {
    socket: OwnedFd,
    id: u16,
    /// The highest attribute that this kernel knows.
    pub attribute_max: u32,
}

impl Family {
    /// Looks a family up. Newer kernels load the module that has it, where that is allowed.
    ///
    /// # Errors
    /// `NotFound` if there is none of this name.
    pub fn open(name: &str) -> io::Result<Family> {
        let (family, kind) = (AddressFamily::NETLINK, SocketType::RAW);
        let socket = socket_with(family, kind, SocketFlags::CLOEXEC, Some(netlink::GENERIC))?;
        let control = Family { socket, id: CONTROL, attribute_max: 0 };
        let found = control.ask(GET_FAMILY, Attributes::default().text(FAMILY_NAME, name))?;
        let id = found.u16(FAMILY_ID).ok_or(io::ErrorKind::InvalidData)?;
        let attribute_max = found.u32(FAMILY_ATTRIBUTE_MAX).unwrap_or(0);
        Ok(Family { id, attribute_max, ..control })
    }

    /// Has the kernel carry a command out, within this call.
    ///
    /// # Errors
    /// The kernel's.
    pub fn ask(&self, command: u8, attributes: Attributes) -> io::Result<Replied> {
        let message = request(self.id, command, &attributes);
        send(&self.socket, &message, SendFlags::empty())?;
        let mut bytes = vec![0; REPLY_MAX];
        let mut replied = Replied::default();
        loop {
            let (count, _) = recv(&self.socket, &mut bytes[..], RecvFlags::empty())?;
            let mut rest = &bytes[..count];
            while let Some((message, behind)) = next_message(rest) {
                match message {
                    Message::Reply(attributes) => replied = Replied(attributes.to_vec()),
                    Message::End(0) => return Ok(replied),
                    Message::End(error) => return Err(io::Error::from_raw_os_error(-error)),
                }
                rest = behind;
            }
        }
    }
}

fn request(family: u16, command: u8, attributes: &Attributes) -> Vec<u8> {
    let length = (HEADER + GENERIC_HEADER + attributes.0.len()) as u32;
    let mut bytes = length.to_ne_bytes().to_vec();
    bytes.extend_from_slice(&family.to_ne_bytes());
    bytes.extend_from_slice(&(REQUEST | ACKNOWLEDGE).to_ne_bytes());
    // Sequence and port: one request is in flight, and the kernel knows the socket.
    bytes.extend_from_slice(&[0; 8]);
    bytes.extend_from_slice(&[command, VERSION, 0, 0]);
    bytes.extend_from_slice(&attributes.0);
    bytes
}

#[derive(PartialEq, Eq, Debug)]
enum Message<'a> {
    Reply(&'a [u8]),
    /// The request was carried out, or refused with a negative errno.
    End(i32),
}

fn next_message(bytes: &[u8]) -> Option<(Message<'_>, &[u8])> {
    let (length, kind) = (u32_at(bytes, 0)? as usize, u16_at(bytes, 4)?);
    let body = bytes.get(HEADER..length)?;
    let message = match kind {
        ERROR => Message::End(u32_at(body, 0)? as i32),
        _ => Message::Reply(body.get(GENERIC_HEADER..)?),
    };
    Some((message, bytes.get(aligned(length)..).unwrap_or_default()))
}

fn aligned(length: usize) -> usize {
    length.next_multiple_of(4)
}
fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|two| u16::from_ne_bytes(*two))
}
fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|four| u32::from_ne_bytes(*four))
}

#[cfg(all(test, target_endian = "little"))]
mod tests {
    use super::*;

    #[test]
    fn requests_have_the_bytes_that_the_kernel_expects() {
        let sockets = Attributes::default().nested(1, Attributes::default().u32(1, 7));
        let attributes = Attributes::default().u32(1, 3).u64(2, 1 << 32).nested(7, sockets);
        let bytes = request(0x21, 1, &attributes.text(10, "id"));
        #[rustfmt::skip]
        let wanted = [
            64, 0, 0, 0, 0x21, 0, 5, 0, 0, 0, 0, 0, 0, 0, 0, 0,
            1, 1, 0, 0,
            8, 0, 1, 0, 3, 0, 0, 0,
            12, 0, 2, 0, 0, 0, 0, 0, 1, 0, 0, 0,
            16, 0, 7, 0x80, 12, 0, 1, 0x80, 8, 0, 1, 0, 7, 0, 0, 0,
            7, 0, 10, 0, b'i', b'd', 0, 0,
        ];
        assert_eq!(bytes, wanted);
    }

    #[test]
    fn replies_and_errors_are_read_from_one_datagram() {
        #[rustfmt::skip]
        let bytes = [
            // A reply of family 0x21 with attribute 1, of four bytes.
            28, 0, 0, 0, 0x21, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0,
            1, 1, 0, 0,
            8, 0, 1, 0, 5, 0, 0, 0,
            // An acknowledgement: no error, and the header of the request.
            36, 0, 0, 0, 2, 0, 0, 1, 0, 0, 0, 0, 9, 0, 0, 0,
            0, 0, 0, 0, 64, 0, 0, 0, 0x21, 0, 5, 0, 0, 0, 0, 0, 0, 0, 0, 0,
        ];
        let (message, rest) = next_message(&bytes).unwrap();
        let Message::Reply(attributes) = message else { panic!("{message:?}") };
        assert_eq!(Replied(attributes.to_vec()).u32(1), Some(5));
        let (message, rest) = next_message(rest).unwrap();
        assert_eq!((message, rest.len()), (Message::End(0), 0));
        let mut refused = bytes[28..].to_vec();
        refused[16..20].copy_from_slice(&(-16i32).to_ne_bytes());
        assert_eq!(next_message(&refused).unwrap().0, Message::End(-16));
    }

    #[test]
    fn cut_and_contradictory_bytes_are_no_messages() {
        let whole = [20, 0, 0, 0, 0x21, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 0, 0];
        assert!(next_message(&whole).is_some());
        for end in 0..whole.len() {
            assert_eq!(next_message(&whole[..end]), None, "{end} bytes");
        }
        let mut short = whole;
        short[0] = 3;
        assert_eq!(next_message(&short), None);
        for attributes in [&[1, 0, 1, 0][..], &[0, 0, 1, 0], &[9, 0, 1, 0, 5, 0, 0, 0]] {
            assert_eq!(Replied(attributes.to_vec()).u32(1), None, "{attributes:?}");
        }
        let behind_another = [5, 0, 2, 0, 7, 0, 0, 0, 8, 0, 1, 0, 4, 0, 0, 0];
        assert_eq!(Replied(behind_another.to_vec()).u32(1), Some(4));
    }

    #[test]
    fn the_kernel_answers_for_its_families() {
        let control = Family::open("nlctrl").expect("every kernel has it");
        assert_eq!(control.id, CONTROL);
        let error = Family::open("none-of-these").err().expect("there is none");
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}
