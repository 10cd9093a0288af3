const BIG_ENDIAN_CRC32: crc::Crc<u32> = crc::Crc::<u32>::new(&crc::CRC_32_MPEG_2);

/// Checksum v1 (COMPAT_CHECKSUM): CRC-32, most significant bit first, over descriptors and logged
/// blocks. `before`: the sum so far, all ones for none.
pub fn ancient_checksum(before: u32, bytes: &[u8]) -> u32 {
    // The initial value is not reflected for this polynomial, so a running sum can be passed as
    // one.
    let mut digest = BIG_ENDIAN_CRC32.digest_with_initial(before);
    digest.update(bytes);
    digest.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ancient_checksum_gives_its_check_value_whole_and_in_parts() {
        assert_eq!(ancient_checksum(!0, b"123456789"), 0x0376_e6e7);
        assert_eq!(ancient_checksum(ancient_checksum(!0, b"1234"), b"56789"), 0x0376_e6e7);
    }
}
