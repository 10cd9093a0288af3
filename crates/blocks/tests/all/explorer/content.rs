//! Content of written sectors, and of which write a sector is.
//!
//! The upper half of a write's number is its family: the number of the write whose bytes it repeats
//! but for a few. A block written by near-equal writes is logged as the bytes that differ.

use super::model::SECTOR;
use device::Buffer;
use std::rc::Rc;

const FAMILY_SHIFT: u32 = 32;
static ZEROS: [u8; SECTOR as usize] = [0; SECTOR as usize];

/// The number of the write `serial`, of the family of an earlier write or of its own.
pub fn number(serial: u64, like: Option<u64>) -> u64 {
    (like.map_or(serial, |other| other >> FAMILY_SHIFT) << FAMILY_SHIFT) | serial
}

/// The bytes of a sector of the write `id`. Odd families are full of their number; the first write
/// ends with a CRC-32C of itself, so that no CRC distinguishes it from another family's. Even ones
/// are zeros. In all of them the write's own number comes first.
pub fn sector_of(id: u64) -> [u8; SECTOR as usize] {
    let mut sector = [0; SECTOR as usize];
    let family = id >> FAMILY_SHIFT;
    if family % 2 != 0 {
        let first = number(family, None);
        let (body, own) = sector.split_at_mut(SECTOR as usize - 4);
        let bytes = first.to_le_bytes();
        body.chunks_mut(8).for_each(|field| field.copy_from_slice(&bytes[..field.len()]));
        own.copy_from_slice(&crc32c::crc32c(body).to_le_bytes());
    }
    sector[..8].copy_from_slice(&id.to_le_bytes());
    sector
}

pub fn content(id: u64, sectors: u64) -> Vec<Rc<Buffer>> {
    let mut buffer = Buffer::zeroed((sectors * SECTOR) as usize);
    let sector = sector_of(id);
    buffer.chunks_exact_mut(SECTOR as usize).for_each(|part| part.copy_from_slice(&sector));
    vec![Rc::new(buffer)]
}

/// The write that each sector is of. A sector of two writes is of none that there was.
pub fn ids(bytes: &[u8]) -> Vec<u64> {
    let id = |sector: &[u8]| {
        let id = u64::from_le_bytes(sector[..8].try_into().unwrap());
        if id == 0 && sector == ZEROS {
            return 0;
        }
        if sector == sector_of(id) { id } else { u64::MAX }
    };
    bytes.chunks_exact(SECTOR as usize).map(id).collect()
}

#[test]
fn a_crc_is_blind_to_which_write_a_sector_is_of() {
    let [before, one, other] = [1, 3, 5].map(|serial| sector_of(number(serial, None)));
    assert_ne!(one, other);
    let sum = |sector: &[u8]| crc32c::crc32c_append(crc32c::crc32c(&before), sector);
    assert_eq!(sum(&one), sum(&other));
}
