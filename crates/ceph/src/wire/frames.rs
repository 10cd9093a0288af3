//! Cuts a stream of bytes into frames.

use super::bytes::{MalformedMessage, Reader, Wire};
use store::TRANSFER_BYTES_MAX;

/// Maximum number of bytes after the length: the longest transfer, and space for what surrounds it.
pub const FRAME_BYTES_MAX: usize = TRANSFER_BYTES_MAX + (64 << 10);
const LENGTH_BYTES: usize = 4;

/// Encodes a message: its length, then `parts`.
pub(crate) fn framed(parts: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = vec![0; LENGTH_BYTES];
    parts(&mut out);
    let length = out.len() - LENGTH_BYTES;
    assert!(length <= FRAME_BYTES_MAX, "a message of {length} bytes");
    out[..LENGTH_BYTES].copy_from_slice(&(length as u32).to_le_bytes());
    out
}

/// Returns the frame of a message without a number.
#[allow(private_bounds)]
pub fn frame<T: Wire>(message: &T) -> Vec<u8> {
    framed(|out| message.put(out))
}

/// Received bytes that are not yet a whole frame.
#[derive(Default)]
pub struct Frames {
    bytes: Vec<u8>,
    /// Bytes consumed from the beginning of `bytes`.
    done: usize,
}

impl Frames {
    pub fn add(&mut self, bytes: &[u8]) {
        // Moved rarely: only the rest after the last frames.
        self.bytes.drain(..std::mem::take(&mut self.done));
        self.bytes.extend_from_slice(bytes);
    }
    /// Returns the next message; `None` if more bytes are needed. After an error nothing of the
    /// stream can be understood.
    #[allow(private_bounds)]
    pub fn next_message<T: Wire>(&mut self) -> Result<Option<T>, MalformedMessage> {
        let rest = &self.bytes[self.done..];
        let Some((length, behind)) = rest.split_first_chunk::<LENGTH_BYTES>() else {
            return Ok(None);
        };
        let length = u32::from_le_bytes(*length);
        if length as usize > FRAME_BYTES_MAX {
            return Err(MalformedMessage::TooLong(length));
        }
        let Some(body) = behind.get(..length as usize) else { return Ok(None) };
        let message = Reader::whole(body)?;
        self.done += LENGTH_BYTES + length as usize;
        Ok(Some(message))
    }
}
