//! Memory of buffers that are allocated and freed by the million in a daemon's life.

use device::Buffer;

const BLOCK: usize = 4096;
const LIVE: usize = 8192;
const SMALL: usize = 20_000;
const RUNS: usize = 16;

/// Bytes of this process in memory.
fn resident() -> usize {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    pages.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

#[test]
fn buffers_that_come_and_go_take_little_more_than_those_that_live() {
    let before = resident();
    let numbers = units::SplitMix::new(1);
    let random = |bound: usize| numbers.below(bound as u64) as usize;
    let mut live: Vec<Buffer> = (0..LIVE).map(|_| Buffer::copy_of(&[1; BLOCK])).collect();
    // Other memory of a daemon.
    let mut small: Vec<Vec<u8>> = vec![Vec::new(); SMALL];
    let mut runs: Vec<Buffer> = vec![Buffer::zeroed(0); RUNS];
    for _ in 0..40 * LIVE {
        live[random(LIVE)] = Buffer::copy_of(&[2; BLOCK]);
        small[random(SMALL)] = vec![3; 50 + random(400)];
        if random(20) == 0 {
            runs[random(RUNS)] = Buffer::zeroed(BLOCK * (1 + random(32)));
        }
    }
    let grown = resident() - before;
    let small: usize = small.iter().map(Vec::len).sum();
    let all = small + live.iter().chain(&runs).map(|buffer| buffer.len()).sum::<usize>();
    println!("{} MiB for {} MiB", grown >> 20, all >> 20);
    assert!(grown < all * 3 / 2, "{grown} bytes for {all}");
}

#[test]
fn buffers_are_aligned_and_zeroed_and_a_copy_is_its_own() {
    for length in [0, 512, 1024, 4096, 1 << 20] {
        let mut buffer = Buffer::zeroed(length);
        assert!(buffer.len() == length && buffer.iter().all(|byte| *byte == 0));
        assert!(buffer.as_ptr().addr() % 512 == 0);
        let copy = buffer.clone();
        buffer.fill(7);
        assert!(copy.as_ptr().addr() % 512 == 0 && copy.iter().all(|byte| *byte == 0));
    }
}
