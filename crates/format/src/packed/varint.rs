//! Numbers of 7 bits a byte, least significant first; all bytes but the last have the high bit set.

/// An error in records that no writer produces.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct MalformedRun(pub &'static str);

/// Length of the longest varint, in bytes.
pub const LENGTH_MAX: usize = 10;

/// Length of `value` in bytes.
pub fn length(value: u64) -> usize {
    if value < 1 << 7 {
        return 1;
    }
    (64 - (value | 1).leading_zeros() as usize).div_ceil(7)
}

/// Writes `value` at the start of `bytes`, and returns its length.
pub(super) fn encode(mut value: u64, bytes: &mut [u8]) -> usize {
    let mut count = 0;
    while value >= 1 << 7 {
        bytes[count] = value as u8 | 0x80;
        value >>= 7;
        count += 1;
    }
    bytes[count] = value as u8;
    count + 1
}

/// Reads the number at `at`, which is moved behind it; `None` if its end is missing.
pub(super) fn decode(bytes: &[u8], at: &mut usize) -> Result<Option<u64>, MalformedRun> {
    let mut value = 0u64;
    for (index, byte) in bytes[*at..].iter().take(LENGTH_MAX).enumerate() {
        let low = u64::from(byte & 0x7f);
        if index == LENGTH_MAX - 1 && *byte > 1 {
            return Err(MalformedRun("a number of more than 64 bits"));
        }
        value |= low << (7 * index);
        if byte & 0x80 == 0 {
            *at += index + 1;
            return Ok(Some(value));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_every_length_come_back() {
        let powers = (0..64).flat_map(|bit| [1u64 << bit, (1 << bit) - 1]);
        for value in powers.chain([u64::MAX]) {
            let mut bytes = [0; LENGTH_MAX];
            let count = encode(value, &mut bytes);
            assert_eq!(count, length(value), "{value}");
            for cut in 0..count {
                assert_eq!(decode(&bytes[..cut], &mut 0), Ok(None), "{value} cut at {cut}");
            }
            let mut at = 0;
            assert_eq!((decode(&bytes[..count], &mut at), at), (Ok(Some(value)), count));
        }
    }

    #[test]
    fn a_number_that_is_too_long_is_refused() {
        assert!(decode(&[0xff; 10], &mut 0).is_err());
        assert!(decode(&[0x80; 11], &mut 0).is_err());
    }
}
