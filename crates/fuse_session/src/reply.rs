use crate::abi::OutHeader;
use runtime::Slice;
use zerocopy::{Immutable, IntoBytes};

/// A reply to the kernel: an errno, or a payload. The payload begins with copied bytes; file data
/// may follow as slices of shared buffers.
///
/// The operation says what the payload is: one structure of [`abi`](crate::abi) or several, bytes,
/// or nothing. The session adds the header.
#[derive(Clone, Debug)]
pub struct Reply {
    /// Positive errno, or zero.
    error: i32,
    /// Space for the header, then the beginning of the payload.
    head: Vec<u8>,
    body: Vec<Slice>,
    /// Cached data that the kernel must forget before it sees this reply.
    stale: Vec<Stale>,
}

/// Data of a node that the kernel caches and is to forget.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stale {
    Attributes(u64),
    /// A directory's entries.
    Listing(u64),
}

const HEADER: usize = size_of::<OutHeader>();

impl Reply {
    /// Creates a success to which a payload may be appended.
    pub fn empty() -> Reply {
        Reply::with_capacity(0)
    }
    /// Creates a success, with memory for `payload` bytes.
    pub fn with_capacity(payload: usize) -> Reply {
        let mut head = Vec::with_capacity(HEADER + payload);
        head.resize(HEADER, 0);
        Reply { error: 0, head, body: Vec::new(), stale: Vec::new() }
    }
    /// Creates a success with one structure as payload.
    pub fn of(value: &(impl IntoBytes + Immutable)) -> Reply {
        let mut reply = Reply::with_capacity(size_of_val(value));
        reply.append(value);
        reply
    }
    /// Creates a success with a copy of `payload`.
    pub fn bytes(payload: &[u8]) -> Reply {
        let mut reply = Reply::with_capacity(payload.len());
        reply.append_bytes(payload);
        reply
    }
    /// Creates a success with file data in shared buffers: `slices` in order, nothing copied.
    /// Nothing may be appended to it.
    pub fn slices(slices: Vec<Slice>) -> Reply {
        Reply { body: slices, ..Reply::empty() }
    }
    /// Creates an error, which has no payload.
    ///
    /// # Panics
    /// If `errno` is not positive.
    pub fn error(errno: i32) -> Reply {
        assert!(errno > 0, "errno {errno}");
        Reply { error: errno, ..Reply::empty() }
    }
    /// Marks attributes of `node` as changed without this reply reporting them: the kernel forgets
    /// them before it gets the reply. Not for a write-back of the page cache ([`write::CACHE`]):
    /// the kernel may be evicting the node, and wait for the reply.
    ///
    /// [`write::CACHE`]: crate::abi::write::CACHE
    pub fn with_stale_attributes(mut self, node: u64) -> Reply {
        self.stale.push(Stale::Attributes(node));
        self
    }
    /// Marks entries of the directory `node` as changed without the kernel's knowledge: it forgets
    /// them, and the directory's attributes, before it gets the reply.
    pub fn with_stale_listing(mut self, node: u64) -> Reply {
        self.stale.push(Stale::Listing(node));
        self
    }
    /// Returns whether the kernel is made to forget anything before it gets this reply.
    pub fn has_stale(&self) -> bool {
        !self.stale.is_empty()
    }
    pub(crate) fn stale(&self) -> &[Stale] {
        &self.stale
    }
    /// Appends a structure to the payload.
    pub fn append(&mut self, value: &(impl IntoBytes + Immutable)) {
        self.append_bytes(value.as_bytes());
    }
    /// Appends a copy of `bytes` to the payload.
    pub fn append_bytes(&mut self, bytes: &[u8]) {
        debug_assert!(self.body.is_empty(), "slices come last");
        self.head.extend_from_slice(bytes);
    }
    /// Appends `count` bytes of zeros to the payload.
    pub fn append_zeros(&mut self, count: usize) {
        self.head.resize(self.head.len() + count, 0);
    }
    /// Appends zeros until the payload is a multiple of `alignment` bytes long, as entries of a
    /// listing need ([`RECORD_ALIGNMENT`](crate::abi::RECORD_ALIGNMENT)).
    pub fn pad(&mut self, alignment: usize) {
        let length = self.payload_length().next_multiple_of(alignment);
        self.head.resize(HEADER + length, 0);
    }
    /// Returns the length of the payload, in bytes.
    pub fn payload_length(&self) -> usize {
        self.head.len() - HEADER + self.body.iter().map(|slice| slice.range.len()).sum::<usize>()
    }
    /// Returns whether the message is copied bytes alone, at most `length` of them.
    pub(crate) fn is_within(&self, length: usize) -> bool {
        self.body.is_empty() && self.head.len() <= length
    }
    /// Returns a copy of the payload; empty for an error. Tests of a file system read replies so.
    pub fn payload(&self) -> Vec<u8> {
        if self.error != 0 {
            return Vec::new();
        }
        let slices = self.body.iter().map(|slice| &slice.buffer[slice.range.clone()]);
        std::iter::once(&self.head[HEADER..]).chain(slices).flatten().copied().collect()
    }
    /// Returns the errno; zero for a success.
    pub fn errno(&self) -> i32 {
        self.error
    }

    /// Converts to the message that `/dev/fuse` takes: header and payload, in pieces.
    pub(crate) fn into_message(mut self, unique: u64) -> (Vec<u8>, Vec<Slice>) {
        self.drop_payload_of_error();
        let header = self.header(unique);
        self.head[..HEADER].copy_from_slice(header.as_bytes());
        (self.head, self.body)
    }

    /// Copies the payload to the beginning of `payload`. Returns the header and the length; `None`
    /// if it does not fit.
    pub(crate) fn copy_to(mut self, unique: u64, payload: &mut [u8]) -> Option<(OutHeader, usize)> {
        self.drop_payload_of_error();
        let length = self.payload_length();
        let mut rest = payload.get_mut(..length)?;
        let slices = self.body.iter().map(|slice| &slice.buffer[slice.range.clone()]);
        for piece in std::iter::once(&self.head[HEADER..]).chain(slices) {
            let (place, behind) = rest.split_at_mut(piece.len());
            place.copy_from_slice(piece);
            rest = behind;
        }
        Some((self.header(unique), length))
    }

    fn drop_payload_of_error(&mut self) {
        if self.error != 0 {
            self.head.truncate(HEADER);
            self.body.clear();
        }
    }

    fn header(&self, unique: u64) -> OutHeader {
        OutHeader { len: (HEADER + self.payload_length()) as u32, error: -self.error, unique }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use device::Buffer;
    use std::rc::Rc;
    use zerocopy::FromBytes;

    #[test]
    fn an_error_carries_no_payload() {
        let mut reply = Reply::error(libc::EIO);
        reply.append_bytes(b"left over");
        let (head, body) = reply.into_message(7);
        let header = OutHeader::read_from_bytes(&head).unwrap();
        assert_eq!(header, OutHeader { len: 16, error: -libc::EIO, unique: 7 });
        assert!(body.is_empty());
    }

    #[test]
    fn the_header_counts_header_and_payload() {
        let (head, _) = Reply::bytes(b"abc").into_message(1);
        assert_eq!(OutHeader::read_from_prefix(&head).unwrap().0.len, 19);
        assert_eq!(&head[16..], b"abc");
    }

    #[test]
    fn shared_data_arrives_in_order_on_both_transports() {
        let mut buffer = Buffer::zeroed(512);
        buffer[..6].copy_from_slice(b"abcdef");
        let buffer = Rc::new(buffer);
        let slice = |range| Slice { buffer: buffer.clone(), range };
        let reply = Reply::slices(vec![slice(3..6), slice(0..2)]);
        let mut payload = [0; 8];
        let (header, length) = reply.clone().copy_to(1, &mut payload).unwrap();
        assert_eq!((header.len, length, &payload), (21, 5, b"defab\0\0\0"));
        assert!(reply.clone().copy_to(1, &mut [0; 4]).is_none(), "it does not fit");
        let (head, body) = reply.into_message(1);
        assert_eq!((OutHeader::read_from_prefix(&head).unwrap().0.len, body.len()), (21, 2));
    }
}
