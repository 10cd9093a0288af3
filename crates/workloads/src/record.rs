//! Records that say themselves where they belong, so that a file can be checked without knowing its
//! history.
//!
//! `size` bytes: magic (4), writer (4), sequence (8), filling that depends on both, CRC-32C of all
//! before (4).

const MAGIC: u32 = 0x6f6b_7265;
const HEADER: usize = 16;
const CHECKSUM: usize = 4;

/// The smallest record, in bytes.
pub const SIZE_MIN: usize = HEADER + CHECKSUM;

/// Fills `record` for one writer's `sequence`-th append, counted from 0.
pub fn write(record: &mut [u8], writer: u32, sequence: u64) {
    let end = record.len() - CHECKSUM;
    record[0..4].copy_from_slice(&MAGIC.to_le_bytes());
    record[4..8].copy_from_slice(&writer.to_le_bytes());
    record[8..16].copy_from_slice(&sequence.to_le_bytes());
    let mut filling = u64::from(writer) << 32 ^ sequence;
    for chunk in record[HEADER..end].chunks_mut(8) {
        filling = filling.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        chunk.copy_from_slice(&filling.to_le_bytes()[..chunk.len()]);
    }
    let checksum = crc32c::crc32c(&record[..end]);
    record[end..].copy_from_slice(&checksum.to_le_bytes());
}

/// Returns whether `record` is exactly what [`write`] makes for this writer and sequence.
pub fn is_right(record: &[u8], writer: u32, sequence: u64) -> bool {
    let mut expected = vec![0; record.len()];
    record.len() >= SIZE_MIN && {
        write(&mut expected, writer, sequence);
        expected == record
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_right_only_in_its_own_place() {
        for size in [SIZE_MIN, 21, 128, 4096] {
            let mut record = vec![0; size];
            write(&mut record, 3, 7);
            assert!(is_right(&record, 3, 7));
            assert!(!is_right(&record, 3, 8) && !is_right(&record, 4, 7));
            record[size - 5] ^= 1;
            assert!(!is_right(&record, 3, 7), "{size} bytes");
        }
        assert!(!is_right(&[0; 3], 0, 0));
    }
}
