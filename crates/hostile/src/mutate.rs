//! Random small damage to an input.

use runtime::SplitMix;

/// Values at the edges of ranges.
const EDGES: [u64; 12] =
    [0, 1, 2, 0x7f, 0x80, 0xff, 0x7fff, 0x8000, 0xffff, 0x7fff_ffff, 0x8000_0000, 0xffff_ffff];

/// One to eight changes: bits, edge values of 1 to 8 bytes in either order, copies, cuts and
/// insertions.
pub fn mutate(bytes: &mut Vec<u8>, random: &SplitMix) {
    for _ in 0..1 + random.next() % 8 {
        change(bytes, random);
    }
}

fn change(bytes: &mut Vec<u8>, random: &SplitMix) {
    let below = |bound: usize| (random.next() % bound.max(1) as u64) as usize;
    if bytes.is_empty() {
        bytes.push(random.next() as u8);
        return;
    }
    let at = below(bytes.len());
    match below(10) {
        0..3 => bytes[at] ^= 1 << below(8),
        3..5 => bytes[at] = random.next() as u8,
        5..8 => {
            let width = (1 << below(4)).min(bytes.len() - at);
            let value = EDGES[below(EDGES.len())].wrapping_sub(below(2) as u64);
            let little = value.to_le_bytes();
            bytes[at..at + width].copy_from_slice(&little[..width]);
            if below(2) == 0 {
                bytes[at..at + width].reverse();
            }
        }
        8 => {
            let from = below(bytes.len());
            let length = below(64).min(bytes.len() - at).min(bytes.len() - from);
            bytes.copy_within(from..from + length, at);
        }
        _ if below(2) == 0 => bytes.truncate(at),
        _ => {
            let more = (0..1 + below(8)).map(|_| random.next() as u8).collect::<Vec<_>>();
            bytes.splice(at..at, more);
        }
    }
}
