//! An export: a disk, and its description for clients.

use crate::request::{PAYLOAD_MAX, PREFERRED};
use device::Disk;
use std::rc::Rc;

const HAS_FLAGS: u16 = 1;
const READ_ONLY: u16 = 1 << 1;
pub const FLUSH: u16 = 1 << 2;
pub const FUA: u16 = 1 << 3;
const ROTATIONAL: u16 = 1 << 4;
const TRIM: u16 = 1 << 5;
const WRITE_ZEROES: u16 = 1 << 6;
pub const DF: u16 = 1 << 7;
const MULTI_CONN: u16 = 1 << 8;

pub struct Export {
    pub disk: Rc<dyn Disk>,
    pub read_only: bool,
    /// Whether platters rotate: the client may sort its requests.
    pub rotational: bool,
}

impl Export {
    /// The transmission flags. Several connections see one disk, and its flush covers the completed
    /// writes of all: multi-conn is honest.
    pub fn flags(&self) -> u16 {
        let mut flags = HAS_FLAGS | FLUSH | FUA | DF | MULTI_CONN;
        flags |= if self.read_only { READ_ONLY } else { WRITE_ZEROES };
        if self.disk.geometry().discard && !self.read_only {
            flags |= TRIM;
        }
        if self.rotational {
            flags |= ROTATIONAL;
        }
        flags
    }
    pub fn size(&self) -> u64 {
        self.disk.geometry().size
    }
    pub fn sector(&self) -> u32 {
        self.disk.geometry().logical_sector
    }
    /// Size and flags, as in the handshake.
    pub fn about(&self) -> Vec<u8> {
        let mut bytes = self.size().to_be_bytes().to_vec();
        bytes.extend_from_slice(&self.flags().to_be_bytes());
        bytes
    }
    /// Smallest, best and largest request.
    pub fn block_sizes(&self) -> Vec<u8> {
        let best = self.disk.physical_sector().max(PREFERRED);
        [self.sector(), best, PAYLOAD_MAX].iter().flat_map(|size| size.to_be_bytes()).collect()
    }
}
