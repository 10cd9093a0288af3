//! Block buffers from the heap of pages.

use device::Buffer;
use runtime::Heap;

#[global_allocator]
static HEAP: Heap = Heap::new();

const BLOCK: usize = 4096;
const BLOCKS: usize = 4096;

/// Returns the resident bytes of this process.
fn resident() -> usize {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    pages.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

/// A single test: the heap is shared by all.
#[test]
fn block_buffers_are_adjacent_whole_pages_and_take_only_their_bytes() {
    let mut blocks: Vec<Buffer> = Vec::with_capacity(BLOCKS);
    let before = resident();
    blocks.extend((0..BLOCKS).map(|_| Buffer::copy_of(&[1; BLOCK])));
    let grown = resident() - before;
    println!("{} KiB for {}", grown >> 10, (BLOCKS * BLOCK) >> 10);
    // And the remainder of a huge page.
    assert!(grown < BLOCKS * BLOCK + (3 << 20), "{grown} bytes");
    let address = |buffer: &Buffer| buffer.as_ptr().addr();
    assert!(blocks.iter().all(|buffer| address(buffer) % BLOCK == 0));
    let in_a_row =
        blocks.windows(2).filter(|pair| address(&pair[0]) + BLOCK == address(&pair[1])).count();
    assert!(in_a_row > BLOCKS * 9 / 10, "{in_a_row} of {BLOCKS} follow their neighbour");
    drop(blocks);
    let left = resident().saturating_sub(before);
    assert!(left < 7 << 20, "{left} bytes are left");
}
