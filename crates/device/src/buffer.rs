use std::cell::RefCell;
use std::ops::{Deref, DerefMut, Range};
use std::sync::atomic::{AtomicU8, Ordering};

const SECTOR: usize = 512;

/// Bytes of a page: an allocator may return one aligned.
const PAGE: usize = 4096;

/// Length in bytes from which on the kernel would have to find, and zero, page after page for new
/// memory.
const LONG: usize = 64 << 10;
/// Bytes of freed long buffers that each thread keeps for reuse.
const SPARES_MAX: usize = 4 << 20;

thread_local! {
    static SPARES: RefCell<Spares> = const { RefCell::new(Spares { kept: Vec::new(), bytes: 0 }) };
}

/// Memory of freed long buffers.
struct Spares {
    kept: Vec<Vec<u8>>,
    bytes: usize,
}

impl Spares {
    /// Takes memory of at least `least` bytes, and not many more: callers that account for memory
    /// count the length they asked for.
    fn take(&mut self, least: usize) -> Option<Vec<u8>> {
        let fits = |memory: &Vec<u8>| (least..=least + least / 8).contains(&memory.len());
        let memory = self.kept.remove(self.kept.iter().rposition(fits)?);
        self.bytes -= memory.len();
        Some(memory)
    }
    fn keep(&mut self, memory: Vec<u8>) {
        self.bytes += memory.len();
        self.kept.push(memory);
        // The oldest are freed first: their length may no longer be in demand.
        while self.bytes > SPARES_MAX {
            self.bytes -= self.kept.remove(0).len();
        }
    }
}

/// Heap memory that direct I/O accepts: a multiple of 512 bytes long, aligned to 512 bytes, or to
/// pages if it is longer than one. A drive may want memory aligned to its logical sectors, as
/// dm-crypt does.
///
/// The aligned part is found within memory that is larger by that much. An allocator asked for
/// aligned memory may be unable to reuse a freed piece for the same request, as that of glibc is. A
/// cache of blocks then takes twice its size. From an allocator whose pages are aligned anyway, a
/// page is taken as it is.
pub struct Buffer {
    /// Storage that never grows or shrinks, which would move it and lose the alignment.
    memory: Vec<u8>,
    start: usize,
    length: usize,
}

/// Whether the allocator was seen to align pages. One that does not is not tried again.
static PAGES_ARE_ALIGNED: AtomicU8 = AtomicU8::new(UNKNOWN);
const UNKNOWN: u8 = 0;
const ALIGNED: u8 = 1;
const MISALIGNED: u8 = 2;

/// Alignment in bytes of a buffer of `length` bytes.
const fn alignment(length: usize) -> usize {
    if length > PAGE { PAGE } else { SECTOR }
}

/// Empty memory in which `length` bytes from some offset on are aligned.
fn memory_for(length: usize) -> Vec<u8> {
    if length == PAGE && PAGES_ARE_ALIGNED.load(Ordering::Relaxed) != MISALIGNED {
        let memory: Vec<u8> = Vec::with_capacity(length);
        let is_aligned = memory.as_ptr().align_offset(PAGE) == 0;
        PAGES_ARE_ALIGNED.store(if is_aligned { ALIGNED } else { MISALIGNED }, Ordering::Relaxed);
        if is_aligned {
            return memory;
        }
    }
    Vec::with_capacity(length + alignment(length) - 1)
}

impl Buffer {
    /// A buffer of zeros; `length` in bytes, a multiple of 512.
    pub fn zeroed(length: usize) -> Buffer {
        assert!(length % SECTOR == 0, "{length} is not a multiple of {SECTOR}");
        if length != PAGE {
            // Large ones come zeroed.
            let memory = vec![0; length + alignment(length) - 1];
            let start = memory.as_ptr().align_offset(alignment(length));
            return Buffer { memory, start, length };
        }
        let mut memory = memory_for(length);
        let start = memory.as_ptr().align_offset(SECTOR);
        memory.resize(start + length, 0);
        Buffer { memory, start, length }
    }
    /// A buffer for callers that overwrite all of it: its content is arbitrary. The memory may be
    /// that of a freed long buffer.
    pub fn to_fill(length: usize) -> Buffer {
        assert!(length % SECTOR == 0, "{length} is not a multiple of {SECTOR}");
        let spare = || SPARES.with_borrow_mut(|spares| spares.take(length + PAGE - 1));
        match (length >= LONG).then(spare).flatten() {
            Some(memory) => Buffer { start: memory.as_ptr().align_offset(PAGE), memory, length },
            None => Buffer::zeroed(length),
        }
    }
    /// Bytes that a shared buffer of `length` bytes takes besides, at most, for each `unit` of it.
    /// `unit` is at most a page.
    pub const fn overhead_of(unit: usize) -> usize {
        // A buffer of one page, and the shortest that is aligned to pages.
        let short = (Buffer::memory_of(PAGE) - PAGE).div_ceil(PAGE / unit);
        let long = (Buffer::memory_of(2 * PAGE) - 2 * PAGE).div_ceil(2 * PAGE / unit);
        if short > long { short } else { long }
    }
    /// Memory of a shared buffer of `length` bytes, at most. Includes the alignment, its header,
    /// the shared pointer's counts, and the overhead of the allocator for each of the two.
    pub const fn memory_of(length: usize) -> usize {
        length + alignment(length) - 1 + size_of::<Buffer>() + 2 * size_of::<usize>() + 2 * 16
    }
    /// A copy of `bytes`, whose length is a multiple of 512.
    pub fn copy_of(bytes: &[u8]) -> Buffer {
        Buffer::zeroed_around(0, bytes, bytes.len())
    }
    /// A buffer of `length` bytes, a multiple of 512: `bytes` from byte `at` on, else zeros.
    pub fn zeroed_around(at: usize, bytes: &[u8], length: usize) -> Buffer {
        assert!(length % SECTOR == 0, "{length} is not a multiple of {SECTOR}");
        assert!(at + bytes.len() <= length);
        // Zeroing bytes that are overwritten at once would cost as much as the copy.
        let mut memory = memory_for(length);
        let start = memory.as_ptr().align_offset(alignment(length));
        memory.resize(start + at, 0);
        memory.extend_from_slice(bytes);
        memory.resize(start + length, 0);
        Buffer { memory, start, length }
    }
}
impl Buffer {
    /// Bytes of memory that it occupies. A part occupies as many as the whole.
    pub fn held(&self) -> usize {
        self.memory.len()
    }
    /// Cuts the buffer down to `range`, in place. The part begins at a sector of memory, and is
    /// whole sectors.
    pub fn part(mut self, range: Range<usize>) -> Buffer {
        let part = &self[range.clone()];
        let is_aligned = part.as_ptr().align_offset(SECTOR) == 0 && part.len() % SECTOR == 0;
        assert!(is_aligned, "{range:?} is not aligned to {SECTOR}");
        (self.start, self.length) = (self.start + range.start, range.len());
        self
    }
    /// Copies of the bytes before byte `at`, and of the rest.
    pub fn cut(&self, at: usize) -> [Buffer; 2] {
        let (before, behind) = self.split_at(at);
        [Buffer::copy_of(before), Buffer::copy_of(behind)]
    }
}
impl Drop for Buffer {
    fn drop(&mut self) {
        if self.memory.len() >= LONG {
            let memory = std::mem::take(&mut self.memory);
            // At the thread's end the list may have been destroyed.
            let _ = SPARES.try_with(|spares| spares.borrow_mut().keep(memory));
        }
    }
}
impl Clone for Buffer {
    fn clone(&self) -> Buffer {
        Buffer::copy_of(self)
    }
}
impl Deref for Buffer {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.memory[self.start..self.start + self.length]
    }
}
impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + self.length]
    }
}
impl std::fmt::Debug for Buffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Buffer({} bytes)", self.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_of_long_buffers_comes_back_within_bounds_and_short_ones_are_zero() {
        let length = 1 << 20;
        let mut first = Buffer::to_fill(length);
        first.fill(7);
        let place = first.as_ptr();
        drop(first);
        let much_shorter = Buffer::to_fill(length / 2);
        let again = Buffer::to_fill(length - SECTOR);
        assert!(
            much_shorter.as_ptr() != place
                && again.as_ptr() == place
                && again.len() == length - SECTOR
        );
        assert!(again.as_ptr().align_offset(SECTOR) == 0);
        assert_eq!(Buffer::zeroed(length)[..], vec![0; length]);
        drop((0..50).map(|_| Buffer::to_fill(length)).collect::<Vec<_>>());
        SPARES.with_borrow(|spares| {
            let bytes: usize = spares.kept.iter().map(Vec::len).sum();
            assert!(spares.bytes == bytes && (1..=SPARES_MAX).contains(&bytes), "{bytes}");
        });
        assert_eq!(Buffer::to_fill(LONG / 2)[..], vec![0; LONG / 2]);
    }

    #[test]
    fn buffers_longer_than_a_page_are_aligned_to_pages() {
        for length in [2 * PAGE, 9 * PAGE, LONG, 1 << 20] {
            let buffers = || {
                let copied = Buffer::copy_of(&vec![1; length]);
                [Buffer::zeroed(length), Buffer::to_fill(length), copied]
            };
            // Once more with the memory of the first.
            for buffer in buffers().into_iter().chain(buffers()) {
                assert_eq!(buffer.as_ptr().align_offset(PAGE), 0, "{length}");
                assert!(buffer.held() <= Buffer::memory_of(length), "{length}");
            }
        }
    }

    #[test]
    fn a_part_is_where_the_whole_was_and_leaves_all_of_its_memory() {
        let length = 3 << 20;
        let mut whole = Buffer::to_fill(length);
        whole[SECTOR] = 7;
        let place = whole.as_ptr();
        let part = whole.part(SECTOR..2 * SECTOR);
        assert_eq!((part[0], part.len(), part.as_ptr()), (7, SECTOR, place.wrapping_add(SECTOR)));
        drop(part);
        assert_eq!(Buffer::to_fill(length).as_ptr(), place);
    }
}
