//! Hashes of names, which order indexed directories.
//!
//! Sources: kernel `Documentation/filesystems/ext4/directory.rst` (hash versions). The Tiny
//! Encryption Algorithm (Wheeler and Needham, 1994). Half of MD4 (RFC 1320): 8 words in, 3 rounds
//! of 8 steps. They order directories and protect nothing.

use units::arrays;

/// The hash functions; the numbers are those of `dx_root_info.hash_version` and
/// `s_def_hash_version`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HashVersion {
    Legacy = 0,
    HalfMd4 = 1,
    Tea = 2,
}

impl HashVersion {
    /// The version of a stored number; `None` for numbers that no directory on the disk may have.
    pub const fn new(stored: u8) -> Option<HashVersion> {
        match stored {
            0 => Some(HashVersion::Legacy),
            1 => Some(HashVersion::HalfMd4),
            2 => Some(HashVersion::Tea),
            _ => None,
        }
    }
}

/// Whether a name's bytes count as -128..127 or as 0..255: `s_flags` records which kind of machine
/// made the volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HashBytes {
    Signed,
    Unsigned,
}

impl HashBytes {
    /// Reads `s_flags`: bit 1 means unsigned; old volumes with neither bit are taken as signed, as
    /// on x86.
    pub const fn new(superblock_flags: u32) -> HashBytes {
        if superblock_flags & 2 != 0 { HashBytes::Unsigned } else { HashBytes::Signed }
    }
    fn word(self, byte: u8) -> u32 {
        match self {
            HashBytes::Signed => byte as i8 as u32,
            HashBytes::Unsigned => byte.into(),
        }
    }
}

/// Position of a name in an indexed directory.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct NameHash {
    /// Key of the index; even, below `END_OF_DIRECTORY`.
    pub major: u32,
    /// Minor hash: further bits of the same hash, 0 from [`HashVersion::Legacy`].
    pub minor: u32,
}

/// A major hash that no name has (`EXT4_HTREE_EOF_32BIT << 1`).
pub const END_OF_DIRECTORY: u32 = 0xffff_fffe;

/// A hash function of one volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NameHasher {
    pub version: HashVersion,
    pub bytes: HashBytes,
    /// `s_hash_seed`; all zeros mean MD4's initial state.
    pub seed: [u32; 4],
}

impl NameHasher {
    pub fn hash(&self, name: &[u8]) -> NameHash {
        let mut state = if self.seed == [0; 4] {
            [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476]
        } else {
            self.seed
        };
        let (major, minor) = match self.version {
            HashVersion::Legacy => (legacy(name, self.bytes), 0),
            HashVersion::HalfMd4 => {
                for chunk in chunks(name, 32) {
                    half_md4(&mut state, &words(chunk, self.bytes));
                }
                (state[1], state[2])
            }
            HashVersion::Tea => {
                for chunk in chunks(name, 16) {
                    tea(&mut state, &words(chunk, self.bytes));
                }
                (state[0], state[1])
            }
        };
        let major = major & !1;
        NameHash {
            major: if major == END_OF_DIRECTORY { END_OF_DIRECTORY - 2 } else { major },
            minor,
        }
    }
}

/// The remaining bytes of a name, `size` bytes further each time: the padding of a chunk depends on
/// all that remains.
struct Chunks<'a> {
    rest: &'a [u8],
    size: usize,
}
fn chunks(name: &[u8], size: usize) -> Chunks<'_> {
    Chunks { rest: name, size }
}
impl<'a> Iterator for Chunks<'a> {
    type Item = &'a [u8];
    fn next(&mut self) -> Option<&'a [u8]> {
        let rest = self.rest;
        self.rest = rest.get(self.size..).unwrap_or(&[]);
        (!rest.is_empty()).then_some(rest)
    }
}

/// The first `4 * N` bytes as big-endian words; missing bytes are copies of the length's low byte.
fn words<const N: usize>(rest: &[u8], bytes: HashBytes) -> [u32; N] {
    let length = rest.len() as u32;
    let padding = (length | length << 8).wrapping_mul(0x1_0001);
    let mut words = [padding; N];
    // Sums, not ors: a signed byte below zero borrows from those before it.
    let add = |word: u32, &byte: &u8| bytes.word(byte).wrapping_add(word << 8);
    let (whole, part) = arrays::<4>(&rest[..rest.len().min(4 * N)]);
    let next = whole.len();
    for (word, four) in words.iter_mut().zip(whole) {
        *word = four.iter().fold(0, add);
    }
    if !part.is_empty() {
        words[next] = part.iter().fold(padding, add);
    }
    words
}

fn legacy(name: &[u8], bytes: HashBytes) -> u32 {
    let (mut last, mut before) = (0x12a3_fe2d_u32, 0x37ab_e8f9_u32);
    for &byte in name {
        let mut hash = before.wrapping_add(last ^ bytes.word(byte).wrapping_mul(7_152_373));
        if hash & 0x8000_0000 != 0 {
            hash = hash.wrapping_sub(0x7fff_ffff);
        }
        (before, last) = (last, hash);
    }
    last << 1
}

fn tea(state: &mut [u32; 4], input: &[u32; 4]) {
    let (mut left, mut right) = (state[0], state[1]);
    let mut sum = 0_u32;
    let mix = |half: u32, sum: u32, a: u32, b: u32| {
        (half << 4).wrapping_add(a) ^ half.wrapping_add(sum) ^ (half >> 5).wrapping_add(b)
    };
    for _ in 0..16 {
        sum = sum.wrapping_add(0x9e37_79b9);
        left = left.wrapping_add(mix(right, sum, input[0], input[1]));
        right = right.wrapping_add(mix(left, sum, input[2], input[3]));
    }
    state[0] = state[0].wrapping_add(left);
    state[1] = state[1].wrapping_add(right);
}

fn half_md4(state: &mut [u32; 4], input: &[u32; 8]) {
    // Each round is compiled on its own: listings hash every name.
    let mixed = round(*state, input, 0, [0, 1, 2, 3, 4, 5, 6, 7], [3, 7, 11, 19], |x, y, z| {
        z ^ (x & (y ^ z))
    });
    let majority = |x: u32, y: u32, z: u32| (x & y).wrapping_add((x ^ y) & z);
    let mixed = round(mixed, input, 0x5a82_7999, [1, 3, 5, 7, 0, 2, 4, 6], [3, 5, 9, 13], majority);
    let mixed =
        round(mixed, input, 0x6ed9_eba1, [3, 7, 2, 6, 1, 5, 0, 4], [3, 9, 11, 15], |x, y, z| {
            x ^ y ^ z
        });
    for (word, change) in state.iter_mut().zip(mixed) {
        *word = word.wrapping_add(change);
    }
}

#[inline(always)]
fn round(
    [mut a, mut b, mut c, mut d]: [u32; 4],
    input: &[u32; 8],
    constant: u32,
    order: [usize; 8],
    shifts: [u32; 4],
    mix: impl Fn(u32, u32, u32) -> u32,
) -> [u32; 4] {
    for half in [0, 4] {
        let step = |word: u32, x, y, z, at: usize| {
            let input = input[order[half + at]].wrapping_add(constant);
            word.wrapping_add(mix(x, y, z)).wrapping_add(input).rotate_left(shifts[at])
        };
        // The four words rotate.
        a = step(a, b, c, d, 0);
        d = step(d, a, b, c, 1);
        c = step(c, d, a, b, 2);
        b = step(b, c, d, a, 3);
    }
    [a, b, c, d]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    const SEED: [u32; 4] = [0x0f0e_0d0c, 0x8899_aabb, 0x1234_5678, 0xdead_beef];

    /// Parses the output of `debugfs -R "dx_hash ..."`: "Hash of NAME is 0x... (minor 0x...)".
    fn hash_of_debugfs(version: &str, seed: &str, name: &str) -> NameHash {
        let request = format!("dx_hash -h {version} -s {seed} {name}");
        let output =
            Command::new("debugfs").args(["-R", &request]).output().expect("debugfs (e2fsprogs)");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let number = |word: &str| {
            let digits = text.split(word).nth(1).expect(&text).trim_start_matches("0x");
            let end = digits.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(digits.len());
            u32::from_str_radix(&digits[..end], 16).expect(&text)
        };
        NameHash { major: number(" is "), minor: number("minor ") }
    }

    #[test]
    fn hashes_are_those_of_e2fsprogs() {
        // A uuid's bytes are the seed's words in little-endian order.
        let seed = "0c0d0e0f-bbaa-9988-7856-3412efbeadde";
        let names = [
            "a",
            "ab",
            "abc",
            "lost+found",
            "sixteen-bytes-16",
            "seventeen-bytes-17",
            "ünïcödé-ñàmé",
            "exactly-thirty-two-bytes-of-name",
            "a-name-that-needs-more-than-one-chunk-of-thirty-two-bytes",
            "0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789",
        ];
        // Names of the functions in e2fsprogs.
        let versions = [
            ("0", HashVersion::Legacy, HashBytes::Signed),
            ("1", HashVersion::HalfMd4, HashBytes::Signed),
            ("2", HashVersion::Tea, HashBytes::Signed),
            ("3", HashVersion::Legacy, HashBytes::Unsigned),
            ("4", HashVersion::HalfMd4, HashBytes::Unsigned),
            ("5", HashVersion::Tea, HashBytes::Unsigned),
        ];
        for (word, version, bytes) in versions {
            for name in names {
                let ours = NameHasher { version, bytes, seed: SEED }.hash(name.as_bytes());
                assert_eq!(ours, hash_of_debugfs(word, seed, name), "{word} of {name}");
            }
        }
    }

    #[test]
    fn no_name_hashes_to_the_end_of_the_directory() {
        let hasher =
            NameHasher { version: HashVersion::HalfMd4, bytes: HashBytes::Signed, seed: [0; 4] };
        for number in 0..100_000 {
            let hash = hasher.hash(format!("{number}").as_bytes());
            assert!(hash.major < END_OF_DIRECTORY && hash.major & 1 == 0);
        }
    }
}
