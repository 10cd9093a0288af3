//! The payload memory of all ring entries: one mapping, made before the ring is negotiated.
//!
//! The kernel fills an entry without asking, so only the number of entries bounds what it may send
//! at once. A page that no request reached takes no memory; memory of large requests is returned
//! while there is much of it.

use super::MAX_WRITE;
use std::cell::Cell;
use std::io;
use std::ptr::NonNull;

/// Number of entries, where that gives each processor [`ENTRIES_EACH_MIN`]. With [`MAX_WRITE`]
/// each: 128 MiB.
const ENTRIES_TOTAL: usize = 128;
const ENTRIES_EACH_MIN: usize = 4;
/// Entries of processors that could be plugged in, or that this thread may not use: the kernel asks
/// for one.
const ENTRIES_UNUSABLE: usize = 1;
/// Bytes that may stay from one request to the next.
const RETAINED_MAX: usize = 32 << 20;
/// Returning less than this many bytes is not worth a system call.
const SMALL: usize = 64 << 10;

pub(super) const PAYLOAD: usize = MAX_WRITE as usize;

/// Returns the number of entries for the queue of each possible processor.
pub(super) fn queue_depths(possible: u16) -> Vec<usize> {
    let usable = usable_processors();
    let is_usable =
        |processor: usize| usable.as_ref().is_none_or(|usable| usable.contains(&processor));
    let count = (0..possible.into()).filter(|processor| is_usable(*processor)).count();
    let each = (ENTRIES_TOTAL / count.max(1)).max(ENTRIES_EACH_MIN);
    (0..possible.into())
        .map(|processor| if is_usable(processor) { each } else { ENTRIES_UNUSABLE })
        .collect()
}

/// Returns the processors that this thread may run on; `None` when the kernel counts more of them
/// than the set has bits.
fn usable_processors() -> Option<Vec<usize>> {
    // SAFETY: the set is plain bits, of which all patterns are valid; the call writes no more than
    // its size.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        if libc::sched_getaffinity(0, size_of_val(&set), &raw mut set) != 0 {
            return None;
        }
        Some(
            (0..libc::CPU_SETSIZE as usize)
                .filter(|processor| libc::CPU_ISSET(*processor, &set))
                .collect(),
        )
    }
}

pub(super) struct Payloads {
    start: NonNull<u8>,
    count: usize,
    /// Upper bound of the bytes that are backed by memory.
    backed: Cell<usize>,
}

impl Payloads {
    pub fn map(count: usize) -> io::Result<Payloads> {
        let (protection, kind) = (
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
        );
        // SAFETY: a new mapping at a place of the kernel's choice touches no memory of ours.
        let start =
            unsafe { libc::mmap(std::ptr::null_mut(), count * PAYLOAD, protection, kind, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // A huge page would be backed whole by the smallest request. A kernel without them refuses,
        // which is harmless. SAFETY: the mapping is ours and as long as said.
        unsafe { libc::madvise(start, count * PAYLOAD, libc::MADV_NOHUGEPAGE) };
        let start = NonNull::new(start.cast()).expect("a mapping is nowhere at zero");
        Ok(Payloads { start, count, backed: Cell::new(0) })
    }

    /// Returns the payload of entry `index`, which has [`PAYLOAD`] bytes.
    pub fn at(&self, index: usize) -> *mut u8 {
        assert!(index < self.count, "{index} of {}", self.count);
        // SAFETY: within the mapping.
        unsafe { self.start.as_ptr().add(index * PAYLOAD) }
    }

    /// Records that the first `length` bytes of a payload were used; `reached` is the most that was
    /// used since its memory was returned.
    pub fn note(&self, reached: &Cell<usize>, length: usize) {
        let more = length.saturating_sub(reached.get());
        reached.set(reached.get() + more);
        self.backed.set(self.backed.get() + more);
    }

    /// Returns the memory of a payload if there is much. It reads as zeros then.
    ///
    /// # Safety
    /// Nobody, the kernel included, needs the payload's content.
    pub unsafe fn give_back(&self, index: usize, reached: &Cell<usize>) {
        if self.backed.get() <= RETAINED_MAX || reached.get() <= SMALL {
            return;
        }
        // SAFETY: these pages belong to this payload alone, whose content nobody needs.
        if unsafe { libc::madvise(self.at(index).cast(), PAYLOAD, libc::MADV_DONTNEED) } == 0 {
            self.backed.set(self.backed.get() - reached.take());
        }
    }
}

impl Drop for Payloads {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours; each user of a part of it holds a reference to this.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.count * PAYLOAD) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_possible_processor_has_a_queue_and_all_together_stay_within_bounds() {
        let usable = usable_processors().expect("a machine of at most 1024 processors").len();
        for possible in [usable as u16, 128, 512] {
            let depths = queue_depths(possible);
            assert_eq!(depths.len(), possible.into());
            assert!(depths.iter().all(|depth| *depth >= 1));
            let most = ENTRIES_TOTAL.max(usable * ENTRIES_EACH_MIN) + usize::from(possible);
            assert!(depths.iter().sum::<usize>() <= most, "{possible}: {depths:?}");
        }
    }

    #[test]
    fn memory_of_large_requests_is_returned_above_a_bound() {
        let count = 2 * RETAINED_MAX / PAYLOAD;
        let payloads = Payloads::map(count).unwrap();
        let reached: Vec<Cell<usize>> = (0..count).map(|_| Cell::new(0)).collect();
        for (index, reached) in reached.iter().enumerate() {
            // SAFETY: the payload is as long as that, and nobody else uses it.
            unsafe { payloads.at(index).write_bytes(7, PAYLOAD) };
            payloads.note(reached, PAYLOAD);
            payloads.note(reached, 10);
        }
        assert_eq!(payloads.backed.get(), count * PAYLOAD);
        for (index, reached) in reached.iter().enumerate() {
            // SAFETY: nobody needs the content.
            unsafe { payloads.give_back(index, reached) };
        }
        assert_eq!(payloads.backed.get(), RETAINED_MAX);
        // SAFETY: within the mapping.
        let (first, last) = unsafe { (payloads.at(0).read(), payloads.at(count - 1).read()) };
        assert_eq!((first, last), (0, 7));
    }

    #[test]
    fn a_mapping_that_cannot_be_had_is_an_error() {
        assert!(Payloads::map(usize::MAX / PAYLOAD / 2).is_err());
    }
}
