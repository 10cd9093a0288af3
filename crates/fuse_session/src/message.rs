//! Memory into which requests are read.
//!
//! A short request is copied out of it; a long one takes the memory along. So none of its bytes are
//! copied, and the next long request meets memory that is in the processor's cache. The data of a
//! WRITE lie aligned for a disk. Accounting of requests counts such memory as a whole
//! ([`Bytes::held`]).

use crate::abi::{InHeader, WriteIn};
use device::Buffer;
use std::ops::{Deref, Range};
use std::rc::Rc;

/// Length in bytes from which copying costs more than the memory it saves.
const LONG: usize = 256 << 10;
/// Offset of the data of a WRITE in its message.
const DATA_AT: usize = size_of::<InHeader>() + size_of::<WriteIn>();
/// Alignment of the data.
const PAGE: usize = 4096;

/// The bytes of a request.
#[derive(Debug)]
pub(crate) enum Bytes {
    Short(Vec<u8>),
    Long(Buffer, Range<usize>),
}

/// Memory for the next message.
pub(crate) struct Inbox {
    buffer: Buffer,
    /// Offset at which a message begins.
    begin: usize,
    /// Length of the longest message.
    length: usize,
}

impl Inbox {
    /// Creates an inbox for messages of at most `length` bytes.
    pub fn new(length: usize) -> Inbox {
        let buffer = Buffer::to_fill((length + PAGE).next_multiple_of(PAGE));
        let begin = buffer.as_ptr().wrapping_add(DATA_AT).align_offset(PAGE);
        Inbox { buffer, begin, length }
    }
    /// Returns the memory for the next message.
    pub fn space(&mut self) -> &mut [u8] {
        &mut self.buffer[self.begin..self.begin + self.length]
    }
    /// Takes the message of `length` bytes that was put there, and makes space for the next one.
    pub fn take(&mut self, length: usize) -> Bytes {
        let range = self.begin..self.begin + length;
        if length < LONG {
            return Bytes::Short(self.buffer[range].to_vec());
        }
        let next = Inbox::new(self.length);
        Bytes::Long(std::mem::replace(self, next).buffer, range)
    }
}

impl Bytes {
    /// Returns the memory held, in bytes.
    pub fn held(&self) -> usize {
        match self {
            Bytes::Short(bytes) => bytes.len(),
            Bytes::Long(buffer, _) => buffer.len(),
        }
    }
    /// Splits a large WRITE into the bytes before its data, and the data in place, if they are
    /// whole sectors.
    pub fn into_data(self) -> Result<(Vec<u8>, Rc<Buffer>), Bytes> {
        match self {
            Bytes::Long(buffer, range) if range.len().saturating_sub(DATA_AT) % 512 == 0 => {
                let data = range.start + DATA_AT..range.end;
                let before = buffer[range.start..data.start].to_vec();
                Ok((before, Rc::new(buffer.part(data))))
            }
            bytes => Err(bytes),
        }
    }
}

impl From<Vec<u8>> for Bytes {
    fn from(bytes: Vec<u8>) -> Bytes {
        Bytes::Short(bytes)
    }
}
impl Deref for Bytes {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match self {
            Bytes::Short(bytes) => bytes,
            Bytes::Long(buffer, range) => &buffer[range.clone()],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_messages_are_not_copied_and_the_data_of_a_write_are_aligned() {
        let mut inbox = Inbox::new(1 << 20);
        inbox.space()[DATA_AT] = 7;
        let place = inbox.space().as_ptr();
        let short = inbox.take(LONG - 1);
        assert!(short.held() == LONG - 1 && inbox.space().as_ptr() == place);
        let long = inbox.take(LONG + DATA_AT);
        assert!(long.as_ptr() == place && long.len() == LONG + DATA_AT);
        assert!(long.held() >= 1 << 20 && inbox.space().as_ptr() != place);
        let (before, data) = long.into_data().unwrap();
        assert_eq!((before.len(), data.len(), data[0]), (DATA_AT, LONG, 7));
        assert_eq!(data.as_ptr(), place.wrapping_add(DATA_AT));
        assert_eq!(data.as_ptr().align_offset(PAGE), 0);
        drop(data);
        inbox.take(LONG);
        assert_eq!(inbox.space().as_ptr(), place, "memory comes back");
    }

    #[test]
    fn data_of_partial_sectors_stays_in_its_message() {
        for length in [LONG + DATA_AT + 1, LONG + 511] {
            assert_eq!(Inbox::new(1 << 20).take(length).into_data().unwrap_err().len(), length);
        }
        assert!(Bytes::from(vec![0; DATA_AT + 512]).into_data().is_err());
    }
}
