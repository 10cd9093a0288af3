//! The heap in front of memory that ends at a forbidden page: a byte read or written beyond a
//! layout ends the test.

use super::{Heap, PAGE, SLAB, SLABS_MAX, is_page};
use std::alloc::{GlobalAlloc, Layout};
use std::collections::BTreeMap;
use std::ptr::null_mut;
use std::sync::Mutex;
use units::SplitMix;

/// Gives each allocation a mapping of its own, whose last page is forbidden. The allocation ends as
/// near to it as its alignment allows.
struct Guarded;

/// The mapping of each allocation: its first byte, and its length.
static MAPPINGS: Mutex<BTreeMap<usize, (usize, usize)>> = Mutex::new(BTreeMap::new());

// SAFETY: each allocation is a mapping of its own, long enough and aligned.
unsafe impl GlobalAlloc for Guarded {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let usable = layout.size().next_multiple_of(PAGE) + layout.align().next_multiple_of(PAGE);
        let (length, rights) = (usable + PAGE, libc::PROT_READ | libc::PROT_WRITE);
        let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a fresh mapping, whose last page is forbidden before it is used.
        unsafe {
            let start = libc::mmap(null_mut(), length, rights, kind, -1, 0);
            assert_ne!(start, libc::MAP_FAILED);
            assert_eq!(libc::mprotect(start.byte_add(usable), PAGE, libc::PROT_NONE), 0);
            let end = start as usize + usable;
            let place = (end - layout.size()) / layout.align() * layout.align();
            MAPPINGS.lock().unwrap().insert(place, (start as usize, length));
            // The initial content of an allocation is not promised.
            (place as *mut u8).write_bytes(0xa5, layout.size());
            place as *mut u8
        }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, _: Layout) {
        let mapping = MAPPINGS.lock().unwrap().remove(&(pointer as usize));
        let (start, length) = mapping.expect("an allocation of this allocator");
        // SAFETY: the mapping that `alloc` made, which nobody uses any more.
        assert_eq!(unsafe { libc::munmap(start as *mut _, length) }, 0);
    }
}

/// An allocation, filled with its number.
struct Held {
    pointer: *mut u8,
    layout: Layout,
    fill: u8,
}

impl Held {
    fn new(heap: &Heap<Guarded>, layout: Layout, fill: u8, zeroed: bool) -> Held {
        // SAFETY: the layout has a length.
        let pointer =
            unsafe { if zeroed { heap.alloc_zeroed(layout) } else { heap.alloc(layout) } };
        let held = Held { pointer, layout, fill };
        assert!(pointer.addr() % layout.align() == 0, "{layout:?}");
        if zeroed {
            held.check(layout.size(), 0);
        }
        held.fill(fill)
    }
    fn fill(self, fill: u8) -> Held {
        // SAFETY: as long as its layout says.
        unsafe { self.pointer.write_bytes(fill, self.layout.size()) };
        Held { fill, ..self }
    }
    fn check(&self, length: usize, fill: u8) {
        // SAFETY: as long as its layout says, and filled.
        let bytes = unsafe { std::slice::from_raw_parts(self.pointer, length) };
        assert!(bytes.iter().all(|byte| *byte == fill), "{:?} is overwritten", self.layout);
    }
    fn resize(self, heap: &Heap<Guarded>, length: usize, fill: u8) -> Held {
        let kept = length.min(self.layout.size());
        // SAFETY: it was given by this heap for this layout.
        let pointer = unsafe { heap.realloc(self.pointer, self.layout, length) };
        let layout = Layout::from_size_align(length, self.layout.align()).unwrap();
        let held = Held { pointer, layout, fill: self.fill };
        held.check(kept, self.fill);
        held.fill(fill)
    }
    fn give_back(self, heap: &Heap<Guarded>) {
        self.check(self.layout.size(), self.fill);
        // SAFETY: it was given by this heap for this layout, and is not used again.
        unsafe { heap.dealloc(self.pointer, self.layout) };
    }
}

/// Plays random calls. Allocations are checked whenever they are touched: two that overlap, or one
/// that was given out twice, differ from what they were filled with.
fn play(heap: &Heap<Guarded>, seed: u64) {
    let random = SplitMix::new(seed);
    let length = || match random.below(4) {
        0 => 1 + random.below(3 * PAGE as u64) as usize,
        1 => PAGE - random.below(20) as usize,
        2 => PAGE / 2 + random.below(20) as usize,
        _ => 1 + random.below(PAGE as u64) as usize,
    };
    let mut held: Vec<Held> = Vec::new();
    for step in 0..4000u64 {
        let fill = step as u8;
        match random.below(5) {
            0 | 1 if held.len() < 200 => {
                let layout = Layout::from_size_align(length(), 1 << random.below(14)).unwrap();
                held.push(Held::new(heap, layout, fill, random.below(2) == 0));
            }
            2 if !held.is_empty() => {
                let one = held.swap_remove(random.below(held.len() as u64) as usize);
                held.push(one.resize(heap, length(), fill));
            }
            _ if !held.is_empty() => {
                held.swap_remove(random.below(held.len() as u64) as usize).give_back(heap);
            }
            _ => {}
        }
    }
    held.into_iter().for_each(|one| one.give_back(heap));
}

/// Returns whether a heap gets its region: not under `ulimit -v`, nor with
/// `vm.overcommit_memory=2`.
pub(super) fn has_space_for_a_region() -> bool {
    let length = (SLABS_MAX + 1) * SLAB;
    let (rights, kind) = (
        libc::PROT_READ | libc::PROT_WRITE,
        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
    );
    // SAFETY: a fresh mapping, which nothing else refers to.
    unsafe {
        let start = libc::mmap(null_mut(), length, rights, kind, -1, 0);
        start != libc::MAP_FAILED && libc::munmap(start, length) == 0
    }
}

#[test]
fn no_call_touches_bytes_beyond_its_layout() {
    // Without a region, as under `ulimit -v`.
    static BARE: Heap<Guarded> = Heap::in_front_of(Guarded);
    static HEAP: Heap<Guarded> = Heap::in_front_of(Guarded);
    BARE.pages().is_asked_for = true;
    if units::fault!("heap-zeroes-a-page") {
        #[cfg(faults)]
        BARE.zeroes_pages.store(true, std::sync::atomic::Ordering::Relaxed);
    }
    for (heap, has_region) in [(&BARE, false), (&HEAP, has_space_for_a_region())] {
        for seed in 1..=4 {
            play(heap, seed);
        }
        assert_eq!(heap.pages().slabs > 0, has_region);
        assert!(heap.pages().taken.iter().flatten().all(|word| *word == 0));
    }
}

#[test]
fn lengths_of_half_a_page_to_a_page_are_pages() {
    let is = |size, align| is_page(Layout::from_size_align(size, align).unwrap());
    assert!(is(PAGE, PAGE) && is(PAGE / 2 + 1, 1));
    assert!(!is(PAGE / 2, 8) && !is(PAGE + 1, 8) && !is(PAGE, 2 * PAGE));
}
