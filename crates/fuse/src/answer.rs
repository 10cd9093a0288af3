use crate::abi::OutHeader;
use zerocopy::{Immutable, IntoBytes};

/// An answer on its way to the kernel: room for the header, then the payload.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Positive errno, or zero.
    error: i32,
    bytes: Vec<u8>,
}

const HEADER: usize = size_of::<OutHeader>();

impl Answer {
    /// Success; a payload may be appended.
    pub fn empty() -> Answer {
        Answer::with_room(0)
    }
    /// Success, with memory for `payload` bytes ready.
    pub fn with_room(payload: usize) -> Answer {
        let mut bytes = Vec::with_capacity(HEADER + payload);
        bytes.resize(HEADER, 0);
        Answer { error: 0, bytes }
    }
    pub fn of(value: &(impl IntoBytes + Immutable)) -> Answer {
        let mut answer = Answer::with_room(size_of_val(value));
        answer.append(value);
        answer
    }
    pub fn bytes(payload: &[u8]) -> Answer {
        let mut answer = Answer::with_room(payload.len());
        answer.append_bytes(payload);
        answer
    }
    /// `errno` is positive.
    pub fn error(errno: i32) -> Answer {
        assert!(errno > 0, "errno {errno}");
        Answer { error: errno, ..Answer::empty() }
    }
    pub fn append(&mut self, value: &(impl IntoBytes + Immutable)) {
        self.append_bytes(value.as_bytes());
    }
    pub fn append_bytes(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }
    /// Adds zeros until the payload is a multiple of `alignment` long.
    pub fn pad(&mut self, alignment: usize) {
        let length = self.bytes.len().next_multiple_of(alignment);
        self.bytes.resize(length, 0);
    }
    pub fn payload(&self) -> &[u8] {
        &self.bytes[HEADER..]
    }
    pub fn errno(&self) -> i32 {
        self.error
    }

    /// The message as `/dev/fuse` takes it: header and payload in one piece.
    pub fn into_message(mut self, unique: u64) -> Vec<u8> {
        if self.error != 0 {
            self.bytes.truncate(HEADER);
        }
        let header = OutHeader { len: self.bytes.len() as u32, error: -self.error, unique };
        self.bytes[..HEADER].copy_from_slice(header.as_bytes());
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::FromBytes;

    #[test]
    fn an_error_carries_no_payload() {
        let mut answer = Answer::error(libc::EIO);
        answer.append_bytes(b"left over");
        let message = answer.into_message(7);
        let header = OutHeader::read_from_bytes(&message).unwrap();
        assert_eq!(header, OutHeader { len: 16, error: -libc::EIO, unique: 7 });
    }

    #[test]
    fn the_header_counts_header_and_payload() {
        let message = Answer::bytes(b"abc").into_message(1);
        assert_eq!(OutHeader::read_from_prefix(&message).unwrap().0.len, 19);
        assert_eq!(&message[16..], b"abc");
    }
}
