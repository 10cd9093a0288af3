//! Little-endian fields of a block of bytes. Reading beyond its end gives zeros, which no checksum
//! accepts.

use crate::BLOCK;

/// Offset of the CRC-32C of each block's 4096 bytes, this field being zero; the magic comes before
/// it.
const CHECKSUM_AT: usize = 4;

/// Limit of counters, which none reaches by increments; a larger number is damage, and would
/// overflow.
pub const NUMBER_MAX: u64 = 1 << 62;

pub fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes
        .get(at..at + 4)
        .map_or(0, |field| u32::from_le_bytes(field.try_into().expect("four bytes")))
}
pub fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes
        .get(at..at + 8)
        .map_or(0, |field| u64::from_le_bytes(field.try_into().expect("eight bytes")))
}
pub fn u128_at(bytes: &[u8], at: usize) -> u128 {
    bytes
        .get(at..at + 16)
        .map_or(0, |field| u128::from_le_bytes(field.try_into().expect("sixteen bytes")))
}
pub fn put(bytes: &mut [u8], at: usize, field: &[u8]) {
    bytes[at..at + field.len()].copy_from_slice(field);
}

fn checksum(bytes: &[u8]) -> u32 {
    let before = crc32c::crc32c(&bytes[..CHECKSUM_AT]);
    crc32c::crc32c_append(crc32c::crc32c_append(before, &[0; 4]), &bytes[CHECKSUM_AT + 4..])
}
/// Begins a block: magic and nonce are the same fields in all of ours.
pub fn begin(magic: [u8; 4], nonce: u128) -> Vec<u8> {
    let mut bytes = vec![0; BLOCK];
    put(&mut bytes, 0, &magic);
    put(&mut bytes, 8, &nonce.to_le_bytes());
    bytes
}
pub fn seal(mut bytes: Vec<u8>) -> Vec<u8> {
    let sum = checksum(&bytes);
    put(&mut bytes, CHECKSUM_AT, &sum.to_le_bytes());
    bytes
}
/// Returns whether the block, whole or torn, was begun as one of this kind and identity.
pub fn is_of(bytes: &[u8], magic: [u8; 4], nonce: u128) -> bool {
    bytes.starts_with(&magic) && u128_at(bytes, 8) == nonce
}
/// The first block of `bytes`, if it is whole and of this kind and identity.
pub fn sealed(bytes: &[u8], magic: [u8; 4], nonce: Option<u128>) -> Option<&[u8]> {
    let bytes = bytes.get(..BLOCK)?;
    let right = bytes[..4] == magic
        && (units::fault!("block-header-sum-ignored")
            || u32_at(bytes, CHECKSUM_AT) == checksum(bytes))
        && nonce.is_none_or(|nonce| u128_at(bytes, 8) == nonce);
    right.then_some(bytes)
}
