//! XXH64, after its public specification (`xxhash_spec.md`, version 0.2.0): 64 bits over bytes that come in pieces.

const PRIMES: [u64; 5] = [
    0x9e37_79b1_85eb_ca87,
    0xc2b2_ae3d_27d4_eb4f,
    0x1656_67b1_9e37_79f9,
    0x85eb_ca77_c2b2_ae63,
    0x27d4_eb2f_1656_67c5,
];
const STRIPE: usize = 32;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Xxh64 {
    lanes: [u64; 4],
    seed: u64,
    /// What has come and fills no stripe yet.
    rest: [u8; STRIPE],
    length: u64,
}

impl Xxh64 {
    pub fn new(seed: u64) -> Xxh64 {
        let first = seed.wrapping_add(PRIMES[0]);
        let lanes =
            [first.wrapping_add(PRIMES[1]), seed.wrapping_add(PRIMES[1]), seed, seed.wrapping_sub(PRIMES[0])];
        Xxh64 { lanes, seed, rest: [0; STRIPE], length: 0 }
    }

    pub fn add(&mut self, mut bytes: &[u8]) {
        let held = self.held();
        self.length += bytes.len() as u64;
        if held > 0 {
            let (now, later) = bytes.split_at(bytes.len().min(STRIPE - held));
            self.rest[held..held + now.len()].copy_from_slice(now);
            if held + now.len() < STRIPE {
                return;
            }
            stripe(&mut self.lanes, &self.rest.clone());
            bytes = later;
        }
        let (stripes, rest) = bytes.as_chunks::<STRIPE>();
        let mut lanes = self.lanes;
        stripes.iter().for_each(|bytes| stripe(&mut lanes, bytes));
        self.lanes = lanes;
        self.rest[..rest.len()].copy_from_slice(rest);
    }

    pub fn sum(&self) -> u64 {
        let mut sum = match self.length < STRIPE as u64 {
            true => self.seed.wrapping_add(PRIMES[4]),
            false => self.of_lanes(),
        };
        sum = sum.wrapping_add(self.length);
        let (words, rest) = self.rest[..self.held()].as_chunks::<8>();
        for word in words {
            sum ^= round(0, u64::from_le_bytes(*word));
            sum = sum.rotate_left(27).wrapping_mul(PRIMES[0]).wrapping_add(PRIMES[3]);
        }
        let (halves, rest) = rest.as_chunks::<4>();
        for half in halves {
            sum ^= u64::from(u32::from_le_bytes(*half)).wrapping_mul(PRIMES[0]);
            sum = sum.rotate_left(23).wrapping_mul(PRIMES[1]).wrapping_add(PRIMES[2]);
        }
        for byte in rest {
            sum ^= u64::from(*byte).wrapping_mul(PRIMES[4]);
            sum = sum.rotate_left(11).wrapping_mul(PRIMES[0]);
        }
        sum = (sum ^ (sum >> 33)).wrapping_mul(PRIMES[1]);
        sum = (sum ^ (sum >> 29)).wrapping_mul(PRIMES[2]);
        sum ^ (sum >> 32)
    }

    fn held(&self) -> usize {
        (self.length % STRIPE as u64) as usize
    }

    fn of_lanes(&self) -> u64 {
        let turned = self.lanes.iter().zip([1, 7, 12, 18]).map(|(lane, by)| lane.rotate_left(by));
        let sum = turned.fold(0u64, u64::wrapping_add);
        let merge =
            |sum: u64, lane: &u64| (sum ^ round(0, *lane)).wrapping_mul(PRIMES[0]).wrapping_add(PRIMES[3]);
        self.lanes.iter().fold(sum, merge)
    }
}

fn round(lane: u64, word: u64) -> u64 {
    lane.wrapping_add(word.wrapping_mul(PRIMES[1])).rotate_left(31).wrapping_mul(PRIMES[0])
}

fn stripe(lanes: &mut [u64; 4], bytes: &[u8; STRIPE]) {
    let (words, _) = bytes.as_chunks::<8>();
    lanes.iter_mut().zip(words).for_each(|(lane, word)| *lane = round(*lane, u64::from_le_bytes(*word)));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(seed: u64, bytes: &[u8]) -> u64 {
        let mut sum = Xxh64::new(seed);
        sum.add(bytes);
        sum.sum()
    }

    /// The values of the reference program.
    #[test]
    fn known_values_are_met() {
        assert_eq!(sum(0, b""), 0xef46_db37_51d8_e999);
        assert_eq!(sum(0, b"abc"), 0x44bc_2cf5_ad77_0999);
    }

    #[test]
    fn pieces_of_any_length_give_what_the_whole_gives() {
        let bytes: Vec<u8> = (0..200u8).collect();
        for length in 0..bytes.len() {
            let whole = sum(9, &bytes[..length]);
            for piece in [1, 3, 8, 31, 32, 33] {
                let mut sum = Xxh64::new(9);
                bytes[..length].chunks(piece).for_each(|piece| sum.add(piece));
                assert_eq!(sum.sum(), whole, "{length} bytes in pieces of {piece}");
            }
        }
    }
}
