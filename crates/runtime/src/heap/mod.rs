//! The program's heap: pages of block buffers and of allocations nearly as long lie side by side;
//! all others come from the C library.
//!
//! Block buffers are most of a daemon's memory. From the C library each is 512 bytes longer, for
//! its alignment, and lies across two pages. A disk then gets two segments for each: a write of a
//! mebibyte splits into requests of 256 KiB. Here a page is aligned. Pages are taken from the
//! lowest slab that has one, which the kernel is asked to back with one huge page. Buffers written
//! in order lie in order, and a MiB is few segments.
//!
//! Why it exists: the C library gives a block of 4 KiB 4,608 bytes, as its alignment needs, and
//! aligned to a page twice its length (`device::Buffer`). A cache would hold an eighth less.
//!
//! Where no address space is available (`ulimit -v`, `vm.overcommit_memory=2`), all memory is the C
//! library's, which gives the bytes of the layout and no more.
//!
//! Invariants
//! 1. An address within the region is a page of a slab, taken or free; any other is the C
//!    library's.
//! 2. `taken` has a bit set for each page that is in use, and `full` for each slab without a free
//!    one.
//! 3. Empty slabs hold no memory, except `most_spares` of them.

use std::alloc::{GlobalAlloc, Layout, System};
use std::ptr::null_mut;
use std::sync::{Mutex, MutexGuard, PoisonError};

const PAGE: usize = 4096;
/// A huge page of x86-64 and arm64.
const SLAB: usize = 2 << 20;
const PAGES: usize = SLAB / PAGE;
const WORDS: usize = PAGES / 64;
/// Slabs of address space: 64 GiB of blocks. Allocations that do not fit are the C library's.
const SLABS_MAX: usize = 32 << 10;
/// Slabs that bursts leave empty and keep, 4 MiB.
const SPARE_SLABS: usize = 2;

/// The global allocator of a program with a block cache. `Other` serves other layouts, and pages
/// where there is no region.
pub struct Heap<Other = System> {
    pages: Mutex<Pages>,
    other: Other,
    /// Whether this heap has the deliberate fault. An allocator cannot ask as others do: that
    /// allocates.
    #[cfg(faults)]
    zeroes_pages: std::sync::atomic::AtomicBool,
}

struct Pages {
    /// Start of the region; zero before it is mapped.
    start: usize,
    /// Number of slabs in the region; zero where no address space was available.
    slabs: usize,
    is_asked_for: bool,
    taken: [[u64; WORDS]; SLABS_MAX],
    full: [u64; SLABS_MAX / 64],
    /// Slabs that are empty, and in memory.
    spare: [u64; SLABS_MAX / 64],
    spares: usize,
    most_spares: usize,
    /// Word of `full` below which no slab has a free page.
    lowest: usize,
}

impl Heap {
    #[allow(clippy::new_without_default, reason = "it is a constant")]
    pub const fn new() -> Heap {
        Heap::in_front_of(System)
    }
}

impl<Other> Heap<Other> {
    const fn in_front_of(other: Other) -> Heap<Other> {
        let (full, spare) = ([0; SLABS_MAX / 64], [0; SLABS_MAX / 64]);
        let taken = [[0; WORDS]; SLABS_MAX];
        let pages = Pages {
            start: 0,
            slabs: 0,
            is_asked_for: false,
            taken,
            full,
            spare,
            spares: 0,
            most_spares: SPARE_SLABS,
            lowest: 0,
        };
        Heap {
            pages: Mutex::new(pages),
            other,
            #[cfg(faults)]
            zeroes_pages: std::sync::atomic::AtomicBool::new(false),
        }
    }
    /// Keeps the memory of empty slabs from now on. For programs that fill the heap again and
    /// again, as one emulated machine after another does, and would otherwise wait each time until
    /// memory is cleared.
    pub fn keep(&self) {
        self.pages().most_spares = SLABS_MAX;
    }
    fn pages(&self) -> MutexGuard<'_, Pages> {
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether `layout` gets a page. Slightly shorter ones do, too, such as tasks of requests, for
/// which the C library would search all free memory.
fn is_page(layout: Layout) -> bool {
    layout.size() > PAGE / 2 && layout.size() <= PAGE && layout.align() <= PAGE
}

// SAFETY: a page that is given out is within the region, aligned, as long as any layout of a page,
// and given out to nobody else before it is returned (invariant 2). All else comes from `other`,
// for the same layout.
unsafe impl<Other: GlobalAlloc> GlobalAlloc for Heap<Other> {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if is_page(layout) {
            if let Some(page) = self.pages().take() {
                return page as *mut u8;
            }
        }
        // SAFETY: as promised by the caller.
        unsafe { self.other.alloc(layout) }
    }
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if is_page(layout) {
            if let Some(page) = self.pages().take() {
                let page = page as *mut u8;
                // SAFETY: a page of ours is as long as any layout of a page.
                unsafe { page.write_bytes(0, layout.size()) };
                return page;
            }
        }
        #[cfg(faults)]
        if is_page(layout) && self.zeroes_pages.load(std::sync::atomic::Ordering::Relaxed) {
            // SAFETY: none; a page may be longer than the layout. That is the fault.
            unsafe {
                let memory = self.other.alloc(layout);
                memory.write_bytes(0, PAGE);
                return memory;
            }
        }
        // SAFETY: as promised by the caller.
        unsafe { self.other.alloc_zeroed(layout) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        if !is_page(layout) || !self.pages().give_back(pointer as usize) {
            // SAFETY: it is none of the region's, so `other` gave it.
            unsafe { self.other.dealloc(pointer, layout) }
        }
    }
    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, length: usize) -> *mut u8 {
        // SAFETY: the caller promises that the length makes a layout.
        let wanted = unsafe { Layout::from_size_align_unchecked(length, layout.align()) };
        if !is_page(layout) && !is_page(wanted) {
            // SAFETY: no page, so `other` gave it; else as promised by the caller.
            return unsafe { self.other.realloc(pointer, layout, length) };
        }
        // SAFETY: both places are as long as what is copied.
        unsafe {
            let new = self.alloc(wanted);
            if !new.is_null() {
                new.copy_from_nonoverlapping(pointer, length.min(layout.size()));
                self.dealloc(pointer, layout);
            }
            new
        }
    }
}

impl Pages {
    fn take(&mut self) -> Option<usize> {
        if !self.is_asked_for {
            self.ask();
        }
        let words = self.slabs / 64;
        let word = (self.lowest..words).find(|word| self.full[*word] != u64::MAX);
        self.lowest = word.unwrap_or(words);
        let slab = word? * 64 + self.full[word?].trailing_ones() as usize;
        if bit(&self.spare, slab) {
            set(&mut self.spare, slab, false);
            self.spares -= 1;
        }
        let taken = &mut self.taken[slab];
        let free = taken.iter().position(|word| *word != u64::MAX)?;
        let page = free * 64 + taken[free].trailing_ones() as usize;
        set(taken, page, true);
        if taken.iter().all(|word| *word == u64::MAX) {
            set(&mut self.full, slab, true);
        }
        Some(self.start + slab * SLAB + page * PAGE)
    }

    /// Returns a page to its slab; false if it is not in the region.
    fn give_back(&mut self, address: usize) -> bool {
        if address < self.start || address >= self.start + self.slabs * SLAB {
            return false;
        }
        let (slab, page) = ((address - self.start) / SLAB, (address - self.start) % SLAB / PAGE);
        set(&mut self.taken[slab], page, false);
        set(&mut self.full, slab, false);
        self.lowest = self.lowest.min(slab / 64);
        if self.taken[slab] != [0; WORDS] {
            return true;
        }
        if self.spares < self.most_spares {
            set(&mut self.spare, slab, true);
            self.spares += 1;
        } else {
            let start = (self.start + slab * SLAB) as *mut libc::c_void;
            // SAFETY: nobody uses a page of this slab, and its next owner expects nothing in it.
            // Where it fails, the slab stays in memory.
            unsafe { libc::madvise(start, SLAB, libc::MADV_DONTNEED) };
        }
        true
    }

    /// Maps address space for the region, all of it or none; it takes no memory.
    fn ask(&mut self) {
        self.is_asked_for = true;
        let length = SLABS_MAX * SLAB;
        let (rights, kind) = (
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
        );
        // SAFETY: a fresh mapping, which nothing else refers to and nobody takes away again.
        let start = unsafe { libc::mmap(null_mut(), length + SLAB, rights, kind, -1, 0) };
        if start == libc::MAP_FAILED {
            return;
        }
        self.start = (start as usize).next_multiple_of(SLAB);
        self.slabs = SLABS_MAX;
        // SAFETY: the mapping made above; the call only advises how to back it. Pages of any size
        // will do.
        unsafe { libc::madvise(self.start as *mut libc::c_void, length, libc::MADV_HUGEPAGE) };
    }
}

fn bit(words: &[u64], at: usize) -> bool {
    words[at / 64] & 1 << (at % 64) != 0
}
fn set(words: &mut [u64], at: usize, value: bool) {
    let mask = 1 << (at % 64);
    words[at / 64] = if value { words[at / 64] | mask } else { words[at / 64] & !mask };
}

#[cfg(test)]
mod guarded;

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    static HEAP: Heap = Heap::new();
    const LAYOUT: Layout = Layout::new::<[u8; PAGE]>();

    fn take() -> usize {
        // SAFETY: the layout has a length.
        unsafe { HEAP.alloc(LAYOUT) as usize }
    }
    fn give_back(page: usize) {
        // SAFETY: called with what `take` gave, once.
        unsafe { HEAP.dealloc(page as *mut u8, LAYOUT) }
    }

    /// A single test, as there is one heap and the tests run concurrently.
    #[test]
    fn pages_are_apart_aligned_and_in_order_and_empty_slabs_hold_no_memory() {
        let seed = 7;
        let rng = units::SplitMix::new(seed);
        println!("seed {seed}");
        if !guarded::has_space_for_a_region() {
            println!("nothing to test: no address space for pages");
            return;
        }
        let first: Vec<usize> = (0..3 * PAGES).map(|_| take()).collect();
        assert!(first.windows(2).all(|pair| pair[1] == pair[0] + PAGE) && first[0] % SLAB == 0);
        let mut out: BTreeSet<usize> = first.into_iter().collect();
        for _ in 0..20_000 {
            if rng.below(2) == 0 {
                let page = take();
                assert!(page % PAGE == 0 && out.insert(page), "{page:x} is out already");
            } else if let Some(page) = out.iter().nth(rng.below(out.len() as u64) as usize).copied()
            {
                out.remove(&page);
                give_back(page);
            }
        }
        let many: Vec<usize> = (0..16 * PAGES).map(|_| take()).collect();
        // SAFETY: the pages are taken, and as long as said.
        many.iter().for_each(|page| unsafe { (*page as *mut u8).write_bytes(7, PAGE) });
        many.into_iter().chain(out).for_each(give_back);
        let pages = HEAP.pages();
        assert!(pages.taken.iter().flatten().all(|word| *word == 0) && pages.spares == SPARE_SLABS);
        assert!(pages.full.iter().all(|word| *word == 0));
        let in_memory: usize =
            (0..32).filter(|slab| is_in_memory(pages.start + slab * SLAB)).count();
        assert_eq!(in_memory, SPARE_SLABS);
        drop(pages);
        others_are_left_to_the_c_library();
    }

    fn is_in_memory(address: usize) -> bool {
        let mut pages = [0u8; PAGES];
        // SAFETY: the range is mapped, and there is a byte for each of its pages.
        let result =
            unsafe { libc::mincore(address as *mut libc::c_void, SLAB, pages.as_mut_ptr()) };
        assert_eq!(result, 0);
        pages.iter().any(|page| page & 1 != 0)
    }

    fn others_are_left_to_the_c_library() {
        // SAFETY: each pointer is given back once, with the layout that it has.
        unsafe {
            let short = Layout::from_size_align(100, 8).unwrap();
            let mut pointer = HEAP.alloc(short);
            pointer.write_bytes(3, 100);
            let is_ours = |pointer: *mut u8| {
                let start = HEAP.pages().start;
                (start..start + SLABS_MAX * SLAB).contains(&(pointer as usize))
            };
            assert!(!is_ours(pointer));
            let mut layout = short;
            for length in [PAGE, 5000, PAGE, PAGE / 2, PAGE / 2 + 1, PAGE - 1, 200] {
                pointer = HEAP.realloc(pointer, layout, length);
                layout = Layout::from_size_align(length, 8).unwrap();
                assert_eq!(is_ours(pointer), (PAGE / 2 + 1..=PAGE).contains(&length));
                assert!(std::slice::from_raw_parts(pointer, 100).iter().all(|byte| *byte == 3));
            }
            HEAP.dealloc(pointer, layout);
            let page = HEAP.alloc_zeroed(LAYOUT);
            assert!(std::slice::from_raw_parts(page, PAGE).iter().all(|byte| *byte == 0));
            HEAP.dealloc(page, LAYOUT);
        }
    }
}
