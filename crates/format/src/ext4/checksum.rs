//! The checksums of ext4: CRC-32C without the final inversion, and CRC-16/ARC of old group descriptors.

use crc::{CRC_16_ARC, Crc};
use units::InodeNumber;

/// CRC-32C of `bytes` as the kernel computes it: goes on from `seed`, inverts neither before nor after.
pub fn crc32c(seed: u32, bytes: &[u8]) -> u32 {
    !crc32c::crc32c_append(!seed, bytes)
}

/// Where checksums of an inode, its extents and its directory blocks begin.
pub fn inode_seed(volume_seed: u32, number: InodeNumber, generation: u32) -> u32 {
    crc32c(crc32c(volume_seed, &number.get().to_le_bytes()), &generation.to_le_bytes())
}

/// CRC-16 with polynomial 0x8005 reflected, from 0xffff on, over all `parts` (group descriptors, gdt_csum).
pub fn crc16(parts: &[&[u8]]) -> u16 {
    const CRC16: Crc<u16> = Crc::<u16>::new(&CRC_16_ARC);
    let mut digest = CRC16.digest_with_initial(0xffff);
    for part in parts {
        digest.update(part);
    }
    digest.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crc32c_is_the_kernels() {
        // The check value of CRC-32C is 0xe3069283 with both inversions.
        assert_eq!(!crc32c(!0, b"123456789"), 0xe306_9283);
        assert_eq!(crc32c(crc32c(!0, b"1234"), b"56789"), crc32c(!0, b"123456789"));
    }
}
