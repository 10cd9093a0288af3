//! One request of the transmission phase, and the replies to it.

use std::ops::Range;

/// Bytes of a request's header.
pub const HEADER: usize = 28;
const REQUEST_MAGIC: u32 = 0x2560_9513;
const SIMPLE_MAGIC: u32 = 0x6744_6698;
const STRUCTURED_MAGIC: u32 = 0x668e_33ef;
/// The largest read or write, as stated in the block-size constraints.
pub const PAYLOAD_MAX: u32 = 32 << 20;
/// Size on which a client without constraints may rely.
pub const PREFERRED: u32 = 4096;

const FLAG_FUA: u16 = 1;
const FLAG_NO_HOLE: u16 = 1 << 1;
const FLAG_DF: u16 = 1 << 2;

/// Error numbers of the protocol.
pub const EPERM: u32 = 1;
pub const EIO: u32 = 5;
pub const EINVAL: u32 = 22;
pub const ENOSPC: u32 = 28;
pub const EOVERFLOW: u32 = 75;
pub const ENOTSUP: u32 = 95;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    Read,
    Write,
    Disconnect,
    Flush,
    Trim,
    Cache,
    WriteZeroes,
    Unknown(u16),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NbdRequest {
    pub command: Command,
    pub fua: bool,
    /// The client's identifier of the request.
    pub cookie: u64,
    pub at: u64,
    pub length: u32,
    /// Whether it has flags that were not offered.
    pub strange_flags: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    #[error("no request begins here: magic {0:#010x}")]
    BadMagic(u32),
    #[error("a request's header has {HEADER} bytes, here are {0}")]
    Short(usize),
    #[error("a write of {0} bytes: at most {PAYLOAD_MAX} are taken")]
    TooLong(u32),
}

impl NbdRequest {
    pub fn parse(bytes: &[u8]) -> Result<NbdRequest, RequestError> {
        let Some(bytes) = bytes.get(..HEADER) else { return Err(RequestError::Short(bytes.len())) };
        let u16_at =
            |at: usize| u16::from_be_bytes(bytes[at..at + 2].try_into().expect("two bytes"));
        let u32_at =
            |at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        let u64_at =
            |at: usize| u64::from_be_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        if u32_at(0) != REQUEST_MAGIC {
            return Err(RequestError::BadMagic(u32_at(0)));
        }
        let flags = u16_at(4);
        let (command, known) = match u16_at(6) {
            0 => (Command::Read, FLAG_FUA | FLAG_DF),
            1 => (Command::Write, FLAG_FUA),
            2 => (Command::Disconnect, u16::MAX),
            3 => (Command::Flush, FLAG_FUA),
            4 => (Command::Trim, FLAG_FUA),
            5 => (Command::Cache, FLAG_FUA),
            6 => (Command::WriteZeroes, FLAG_FUA | FLAG_NO_HOLE),
            other => (Command::Unknown(other), 0),
        };
        let request = NbdRequest {
            command,
            fua: flags & FLAG_FUA != 0,
            cookie: u64_at(8),
            at: u64_at(16),
            length: u32_at(24),
            strange_flags: flags & !known != 0,
        };
        // Its payload cannot be held, nor be skipped in reasonable time.
        if command == Command::Write && request.length > PAYLOAD_MAX {
            return Err(RequestError::TooLong(request.length));
        }
        Ok(request)
    }

    /// The bytes of the export that it concerns.
    pub fn bytes(&self) -> Range<u64> {
        self.at..self.at.saturating_add(self.length.into())
    }

    /// Whether it changes what the disk holds.
    pub fn is_change(&self) -> bool {
        matches!(self.command, Command::Write | Command::Trim | Command::WriteZeroes)
    }

    /// The error to return before the disk is used.
    pub fn refuse(&self, size: u64, sector: u32, read_only: bool) -> Option<u32> {
        let changes = self.is_change();
        let has_range = changes || matches!(self.command, Command::Read | Command::Cache);
        let beyond = self.at.checked_add(self.length.into()).is_none_or(|end| end > size);
        if matches!(self.command, Command::Unknown(_)) || self.strange_flags {
            Some(EINVAL)
        } else if !has_range {
            None
        } else if changes && read_only {
            Some(EPERM)
        } else if beyond {
            Some(if changes { ENOSPC } else { EINVAL })
        } else if self.command == Command::Read && self.length > PAYLOAD_MAX {
            Some(EOVERFLOW)
        } else {
            let exact = self.command != Command::Trim && self.command != Command::Cache;
            let aligned = self.at % u64::from(sector) == 0 && self.length % sector == 0;
            (exact && !aligned || self.length == 0).then_some(EINVAL)
        }
    }
}

pub fn simple_reply(cookie: u64, error: u32) -> Vec<u8> {
    let mut bytes = SIMPLE_MAGIC.to_be_bytes().to_vec();
    bytes.extend_from_slice(&error.to_be_bytes());
    bytes.extend_from_slice(&cookie.to_be_bytes());
    bytes
}

/// The one chunk of a read that found data: the header before the data.
pub fn data_chunk(cookie: u64, at: u64, length: u32) -> Vec<u8> {
    let mut bytes = chunk(cookie, 1, length + 8);
    bytes.extend_from_slice(&at.to_be_bytes());
    bytes
}
pub fn error_chunk(cookie: u64, error: u32) -> Vec<u8> {
    let mut bytes = chunk(cookie, 1 << 15 | 1, 6);
    bytes.extend_from_slice(&error.to_be_bytes());
    bytes.extend_from_slice(&[0, 0]);
    bytes
}
/// Header of a chunk, always the last of its reply.
fn chunk(cookie: u64, kind: u16, length: u32) -> Vec<u8> {
    let mut bytes = STRUCTURED_MAGIC.to_be_bytes().to_vec();
    bytes.extend_from_slice(&1u16.to_be_bytes());
    bytes.extend_from_slice(&kind.to_be_bytes());
    bytes.extend_from_slice(&cookie.to_be_bytes());
    bytes.extend_from_slice(&length.to_be_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(flags: u16, kind: u16, at: u64, length: u32) -> Vec<u8> {
        let mut bytes = REQUEST_MAGIC.to_be_bytes().to_vec();
        bytes.extend_from_slice(&flags.to_be_bytes());
        bytes.extend_from_slice(&kind.to_be_bytes());
        bytes.extend_from_slice(&7u64.to_be_bytes());
        bytes.extend_from_slice(&at.to_be_bytes());
        bytes.extend_from_slice(&length.to_be_bytes());
        bytes
    }

    #[test]
    fn requests_that_no_disk_can_carry_out_are_refused_with_the_protocols_errors() {
        for (flags, kind, at, length, error) in [
            (0, 0, 0, 4096, None),
            (1, 1, 4096, 512, None),
            (0, 0, 4096, 8192, Some(EINVAL)),
            (0, 1, u64::MAX, 512, Some(ENOSPC)),
            (0, 0, 1, 512, Some(EINVAL)),
            (0, 0, 0, 0, Some(EINVAL)),
            (0, 4, 3, 700, None),
            (16, 6, 0, 512, Some(EINVAL)),
            (0, 7, 0, 512, Some(EINVAL)),
            (0, 99, 0, 512, Some(EINVAL)),
            (0, 3, 0, 0, None),
        ] {
            let request = NbdRequest::parse(&header(flags, kind, at, length)).expect("a header");
            assert_eq!(request.refuse(8192, 512, false), error, "{request:?}");
        }
        let write = NbdRequest::parse(&header(0, 1, 0, 512)).expect("a header");
        assert_eq!(write.refuse(8192, 512, true), Some(EPERM));
        let read = NbdRequest::parse(&header(0, 0, 0, PAYLOAD_MAX + 512)).expect("a header");
        assert_eq!(read.refuse(1 << 40, 512, false), Some(EOVERFLOW));
    }
    #[test]
    fn what_is_no_request_and_what_cannot_be_held_ends_the_connection() {
        assert_eq!(NbdRequest::parse(&[0; HEADER]), Err(RequestError::BadMagic(0)));
        assert_eq!(NbdRequest::parse(&[0; 5]), Err(RequestError::Short(5)));
        assert_eq!(
            NbdRequest::parse(&header(0, 1, 0, u32::MAX)),
            Err(RequestError::TooLong(u32::MAX))
        );
    }
    #[test]
    fn replies_have_the_lengths_that_they_state() {
        assert_eq!(simple_reply(1, 0).len(), 16);
        assert_eq!(data_chunk(1, 0, 512).len(), 28);
        assert_eq!(error_chunk(1, 5).len(), 26);
    }
}
