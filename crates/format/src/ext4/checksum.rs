//! The checksums of ext4: CRC-32C without the final inversion, and CRC-16/ARC of old group
//! descriptors.

use crc::{CRC_16_ARC, Crc};
use units::InodeNumber;

/// CRC-32C of `bytes` as the kernel computes it: continues from `seed`, inverts neither before nor
/// after.
pub fn crc32c(seed: u32, bytes: &[u8]) -> u32 {
    !crc32c::crc32c_append(!seed, bytes)
}

/// The value to xor to a [`crc32c`] when `difference` is xored to bytes of its content, with
/// `behind` more bytes after them, fewer than 65,536. (A CRC is linear: the rest does not matter.)
/// Costs a fraction of what the checksum of a block does.
pub fn crc32c_difference(difference: &[u8], behind: usize) -> u32 {
    let mut state = crc32c(0, difference);
    let mut left = behind;
    while left != 0 {
        state = behind_zeros(&ZEROS[left.trailing_zeros() as usize], state);
        left &= left - 1;
    }
    state
}

/// The states behind a number of zeros, by the states before of which only four bits are set: the
/// place of these four, and their value.
type BehindZeros = [[u32; 16]; 8];

/// Powers of two of zeros, from one byte on.
static ZEROS: [BehindZeros; 16] = {
    let mut all = [[[0; 16]; 8]; 16];
    let mut power = 0;
    while power < all.len() {
        let mut place = 0;
        while place < 8 {
            let mut value = 0;
            while value < 16 {
                let state = (value as u32) << (4 * place);
                all[power][place][value] = match power {
                    0 => behind_zero(state),
                    _ => behind_zeros(&all[power - 1], behind_zeros(&all[power - 1], state)),
                };
                value += 1;
            }
            place += 1;
        }
        power += 1;
    }
    all
};

const fn behind_zeros(table: &BehindZeros, state: u32) -> u32 {
    let (mut behind, mut place) = (0, 0);
    while place < 8 {
        behind ^= table[place][(state >> (4 * place) & 15) as usize];
        place += 1;
    }
    behind
}

/// The state behind one byte of zero.
const fn behind_zero(mut state: u32) -> u32 {
    let mut bit = 0;
    while bit < 8 {
        state = state >> 1 ^ if state & 1 != 0 { POLYNOMIAL } else { 0 };
        bit += 1;
    }
    state
}

/// The polynomial of CRC-32C, reflected.
const POLYNOMIAL: u32 = 0x82f6_3b78;

/// Seed of the checksums of an inode, its extents and its directory blocks.
pub fn inode_seed(volume_seed: u32, number: InodeNumber, generation: u32) -> u32 {
    // One call: a short one costs as much as two hundred bytes do.
    let both = u64::from(number.get()) | u64::from(generation) << 32;
    crc32c(volume_seed, &both.to_le_bytes())
}

/// CRC-16 with polynomial 0x8005 reflected, from 0xffff on, over all `parts` (group descriptors,
/// gdt_csum).
pub fn crc16(parts: &[&[u8]]) -> u16 {
    const CRC16: Crc<u16> = Crc::<u16>::new(&CRC_16_ARC);
    let mut digest = CRC16.digest_with_initial(0xffff);
    for part in parts {
        digest.update(part);
    }
    digest.finalize()
}

/// The four bytes which, in place of four zeros with `BEHIND` more bytes after them, turn a
/// [`crc32c`] of `found` into `wanted`. (A CRC is linear: the bytes must cause the difference,
/// which is traced back. So is the way back: what each bit of the difference leads to is known
/// beforehand.)
pub fn forge_crc32c<const BEHIND: usize>(found: u32, wanted: u32) -> [u8; 4] {
    let difference = found ^ wanted;
    let causes = const { causes(BEHIND + 4) };
    let of_bit = |bit: usize| causes[bit] & 0u32.wrapping_sub(difference >> bit & 1);
    (0..32).fold(0, |forged, bit| forged ^ of_bit(bit)).to_le_bytes()
}

/// The state `count` bytes earlier that leads to each single bit of a state, if they are zeros.
const fn causes(count: usize) -> [u32; 32] {
    let mut causes = [0; 32];
    let mut bit = 0;
    while bit < 32 {
        let mut state = 1 << bit;
        let mut step = 0;
        while step < count {
            let (low, xored) = UNDO[(state >> 24) as usize];
            state = (state ^ xored) << 8 | low as u32;
            step += 1;
        }
        causes[bit] = state;
        bit += 1;
    }
    causes
}

/// Table to undo a step of CRC-32C: for each high byte of the result, the low byte that went in and
/// the value that was xored.
const UNDO: [(u8, u32); 256] = {
    let mut table = [(0, 0); 256];
    let mut low = 0;
    while low < 256 {
        let xored = behind_zero(low as u32);
        table[(xored >> 24) as usize] = (low as u8, xored);
        low += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crc32c_is_the_kernels() {
        // The check value of CRC-32C is 0xe3069283 with both inversions.
        assert_eq!(!crc32c(!0, b"123456789"), 0xe306_9283);
        assert_eq!(crc32c(crc32c(!0, b"1234"), b"56789"), crc32c(!0, b"123456789"));
    }

    #[test]
    fn a_difference_changes_a_checksum_as_its_bytes_do() {
        let mut bytes: Vec<u8> =
            (0..65_536 + 20).map(|at: u32| (at.wrapping_mul(at) >> 3) as u8).collect();
        for length in [1, 2, 8, 20] {
            for behind in [0, 1, 2, 3, 12, 100, 255, 4083, 4095, 65_535] {
                let before = crc32c(5, &bytes);
                let at = bytes.len() - behind - length;
                let difference: Vec<u8> = (1..=length as u8).map(|byte| byte * 11).collect();
                bytes[at..].iter_mut().zip(&difference).for_each(|(byte, other)| *byte ^= other);
                let change = crc32c_difference(&difference, behind);
                assert_eq!(before ^ change, crc32c(5, &bytes), "{length} before {behind}");
            }
        }
    }

    #[test]
    fn forged_bytes_bring_about_the_wanted_checksum() {
        let bytes: Vec<u8> = (0..200).collect();
        fn check<const BEHIND: usize>(mut bytes: Vec<u8>) {
            let at = bytes.len() - BEHIND - 4;
            bytes[at..at + 4].fill(0);
            for wanted in [0, 1, 0x1234_5678, u32::MAX] {
                let forged = forge_crc32c::<BEHIND>(crc32c(5, &bytes), wanted);
                let mut changed = bytes.clone();
                changed[at..at + 4].copy_from_slice(&forged);
                assert_eq!(crc32c(5, &changed), wanted, "{BEHIND} bytes behind");
            }
        }
        check::<0>(bytes.clone());
        check::<7>(bytes.clone());
        check::<100>(bytes.clone());
        check::<196>(bytes);
    }
}
