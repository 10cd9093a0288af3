//! Re-reading a block that a run holds whole.

use super::PackedHeader;

/// Number of units of `unit` bytes that hold `bytes` bytes of records from byte `offset` of the
/// first on.
pub fn units_from(offset: usize, bytes: usize, unit: usize) -> u32 {
    let further = bytes.saturating_sub(unit - offset);
    1 + further.div_ceil(unit - 1) as u32
}

/// Fills `block` with the bytes of records in `units` of `unit` bytes, from byte `offset` of the
/// first on. The units must hold enough bytes.
pub fn read_again(units: &[u8], unit: usize, offset: usize, mut block: &mut [u8]) {
    for (index, bytes) in units.chunks(unit).enumerate() {
        let bytes =
            if index == 0 { &bytes[offset..] } else { PackedHeader::records_in(false, bytes) };
        let (now, later) = block.split_at_mut(bytes.len().min(block.len()));
        now.copy_from_slice(&bytes[..now.len()]);
        block = later;
    }
    assert!(block.is_empty(), "{} bytes more than the units hold", block.len());
}
