//! Contents of the kernel's page cache for a file, as far as its requests show.
//!
//! A page that is changed through a shared mapping is written back whole, whenever the kernel
//! likes. The request states neither which bytes were changed nor when. These rules follow:
//!
//! 1. A write past the cache may meet a page that came into the cache before it, by a read or by a
//!    write(2) of the whole page, and was changed since. When that page is written back, it has the
//!    old bytes where the write has new ones. The kernel drops such pages before the write(2)
//!    returns, so a store to these very bytes through the mapping was concurrent with the write,
//!    and the write may count as the later one. So bytes written past the cache win over pages
//!    written back, until the kernel has read or written them again. A copy is such a write.
//! 2. A hole that the kernel has read may have been filled in its memory, while a descriptor is
//!    open that can be mapped for writing. The kernel writes a mapping's pages back at munmap. Such
//!    a hole is reported as data.
//! 3. A modification time that was set while pages are changed stays: they may have been changed
//!    before.
//! 4. Bytes that a mapping stores behind the end of the file, in its last page, are not content.
//!    When the file is made longer, the zeros there win over that page, which the kernel drops
//!    before truncate(2) returns. A file that becomes longer by a write is no such case: the kernel
//!    keeps the page, and shows what is in it.
//! 5. A hole that fallocate(2) makes, and a range that it zeros, may meet a page that was changed
//!    while the call was in flight, too. Pages that lie in it whole are as in rule 1: the kernel
//!    drops them when it is answered. Pages that lie in it in part it keeps, and zeros that part
//!    itself. There the zeros win only until the answer: stores behind it count. One that the
//!    kernel wrote back before the call returned, and that arrives behind the answer, is taken for
//!    such a store.
//! 6. Before Linux 6.19 (6.18.4, 6.12.64) the kernel may leave an old page in its cache behind
//!    a write past it: 6.1 never drops pages then, later ones drop them only before the
//!    request, so a reader may bring the old page back. There no file has descriptors of both
//!    kinds at once: see [`KernelPages::open`]. The first descriptor decides, until the last
//!    of its kind is closed. What a mapping of a descriptor past the cache has left behind is
//!    dropped when the next kind begins.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::ops::Range;
use std::time::Duration;
use units::Instant;

/// Remembered writes past the cache of one file. Each matters only until the kernel has dropped its
/// pages, at the end of the same system call.
const NEWER_MAX: usize = 1024;
/// Remembered runs of holes of one file; more are joined.
const ZEROS_MAX: usize = 256;
/// The largest page of any machine. Content that ends within a page leaves zeros behind it.
pub(crate) const PAGE_MAX: u64 = 64 << 10;
/// The kernel writes changed pages back after 30 seconds, and looks for them every 5.
const WRITTEN_BACK_AFTER: Duration = Duration::from_secs(60);

/// Way in which a descriptor reaches the file's content.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PageAccess {
    /// Past the kernel's cache.
    Direct,
    /// Access through pages that the kernel holds already.
    Cached,
    /// Access through the cache, which the kernel empties first.
    Emptied,
}

#[derive(Default)]
pub struct KernelPages {
    /// Open descriptors that write past the cache, and those that read or write through it, where
    /// the two are kept apart.
    direct_writers: Cell<u32>,
    cached: Cell<u32>,
    /// The kernel may hold pages older than a write past the cache.
    may_be_old: Cell<bool>,
    /// Open descriptors that can be mapped for writing.
    mappable: Cell<u32>,
    /// Descriptors are opened and closed without a request, so there may always be one.
    is_unobserved: Cell<bool>,
    /// Pages have come into the kernel's cache, which may hold them also without a descriptor.
    filled: Cell<bool>,
    /// Ranges written past the cache, and not read into it since; the oldest first.
    newer: RefCell<VecDeque<Range<u64>>>,
    /// Parts of pages that a fallocate(2) in flight has zeroed.
    edges: RefCell<Vec<Range<u64>>>,
    /// Pages of zeros that the kernel may hold where the file had holes, in order and apart.
    zeros: RefCell<Vec<Range<u64>>>,
    /// Time at which the modification time was set while the file could be mapped.
    time_set: Cell<Option<Instant>>,
}

impl KernelPages {
    /// Counts a descriptor on a kernel that keeps old pages behind writes past its cache. Without a
    /// descriptor of the other kind it gets the access that it `wants`.
    pub fn open(&self, wants: PageAccess, writes: bool) -> PageAccess {
        let is_direct = match wants {
            PageAccess::Direct => self.cached.get() == 0,
            PageAccess::Cached | PageAccess::Emptied => self.direct_writers.get() > 0,
        };
        if is_direct {
            if writes {
                self.direct_writers.set(self.direct_writers.get() + 1);
                self.may_be_old.set(true);
            }
            return PageAccess::Direct;
        }
        self.cached.set(self.cached.get() + 1);
        if wants == PageAccess::Emptied || self.may_be_old.get() {
            PageAccess::Emptied
        } else {
            PageAccess::Cached
        }
    }
    /// Uncounts a descriptor that [`KernelPages::open`] counted.
    pub fn close(&self, access: PageAccess, writes: bool) {
        let count = match access {
            PageAccess::Direct if !writes => return,
            PageAccess::Direct => &self.direct_writers,
            PageAccess::Cached | PageAccess::Emptied => &self.cached,
        };
        count.set(count.get().saturating_sub(1));
        // Not at its open, whose reply the kernel had still to act on: another descriptor could
        // have met an old page.
        if access == PageAccess::Emptied {
            self.may_be_old.set(false);
        }
    }

    /// Counts a descriptor that can be mapped for writing (opened for reading and writing).
    pub fn mappable_opened(&self) {
        self.mappable.set(self.mappable.get() + 1);
    }
    /// Uncounts such a descriptor; its mappings are gone, and their pages written back.
    pub fn mappable_closed(&self) {
        self.mappable.set(self.mappable.get().saturating_sub(1));
        if !self.may_be_dirty() {
            self.time_set.set(None);
        }
    }
    /// Notes that the last descriptor of any kind was closed.
    pub(crate) fn all_closed(&self) {
        if self.is_unobserved.get() {
            return;
        }
        if units::fault!("closed-forgets-pages") {
            self.filled.set(false);
        }
        self.newer.borrow_mut().clear();
    }
    /// Notes that descriptors are opened without a request (`noopen`): from now on any may be
    /// mapped.
    pub fn opened_unobserved(&self) {
        self.is_unobserved.set(true);
    }
    pub(crate) fn may_be_dirty(&self) -> bool {
        self.mappable.get() > 0 || self.is_unobserved.get()
    }

    pub(crate) fn may_be_old(&self) -> bool {
        self.may_be_old.get()
    }
    /// Notes that the kernel may hold pages from unknown times; `may_be_old`: older than a write
    /// past them.
    pub(crate) fn forget_all(&self, may_be_old: bool) {
        self.filled.set(true);
        self.may_be_old.set(may_be_old);
        *self.zeros.borrow_mut() = std::iter::once(0..u64::MAX).collect();
    }
    pub fn is_forgotten(&self) -> bool {
        self.zeros.borrow().first() == Some(&(0..u64::MAX))
    }
    /// Notes that the kernel will drop its pages when it gets a reply. Until then it has them, and
    /// what is written past them is newer.
    pub fn to_be_dropped(&self) {
        self.zeros.borrow_mut().clear();
    }
    /// Notes that the kernel holds no pages.
    pub fn dropped(&self) {
        self.filled.set(false);
        self.newer.borrow_mut().clear();
        self.zeros.borrow_mut().clear();
    }
    /// Returns whether a page that is written back would be compared with a newer range.
    pub fn has_newer(&self) -> bool {
        !self.newer.borrow().is_empty()
    }
    /// Returns whether a fallocate(2) in flight has zeroed a page in part.
    pub fn has_edges(&self) -> bool {
        !self.edges.borrow().is_empty()
    }

    /// Returns whether the kernel may hold pages.
    pub fn are_held(&self) -> bool {
        self.filled.get()
    }
    /// Notes that the kernel was given these bytes for its cache.
    pub fn filled(&self, range: Range<u64>) {
        self.filled.set(true);
        self.agreed(range);
    }
    /// Notes that the kernel's pages and the file agree: both got these bytes, or lost them.
    pub(crate) fn agreed(&self, range: Range<u64>) {
        let mut newer = self.newer.borrow_mut();
        if newer.iter().any(|own| overlap(own, &range)) {
            *newer = newer.iter().flat_map(|own| without(own, &range)).collect();
        }
        // Each read in the midst of a long range makes two of it.
        if !units::fault!("reads-split-notes") {
            keep_latest(&mut newer);
        }
    }
    /// Notes a write past the cache. A range that the kernel never reads needs no note.
    pub fn written_past(&self, range: Range<u64>) {
        if !self.filled.get() || range.is_empty() {
            return;
        }
        let mut newer = self.newer.borrow_mut();
        match newer.back_mut() {
            Some(last) if last.start <= range.start && range.start <= last.end => {
                last.end = last.end.max(range.end);
            }
            _ => newer.push_back(range),
        }
        keep_latest(&mut newer);
    }
    /// Notes that fallocate(2) has zeroed the range, of a file with pages of `page` bytes. Until
    /// [`KernelPages::zeros_settled`], pages that lie in it in part are protected, too.
    pub fn zeroed(&self, range: Range<u64>, page: u64) {
        self.agreed(range.clone());
        if !self.filled.get() {
            return;
        }
        let whole = range.start.next_multiple_of(page)..range.end - range.end % page;
        if whole.start >= whole.end {
            self.edges.borrow_mut().push(range);
            return;
        }
        self.edges.borrow_mut().extend(without(&range, &whole));
        self.written_past(whole);
    }
    /// Notes that the fallocate(2) that zeroed the range is answered now. Behind an error the
    /// kernel keeps all pages as they are.
    pub fn zeros_settled(&self, range: Range<u64>, succeeded: bool) {
        self.edges.borrow_mut().retain(|own| !overlap(own, &range));
        if !succeeded {
            self.agreed(range);
        }
    }
    /// The parts of a page written back that are not older than the file.
    pub fn not_older(&self, range: Range<u64>) -> Vec<Range<u64>> {
        let (newer, edges) = (self.newer.borrow(), self.edges.borrow());
        newer.iter().chain(&*edges).fold(vec![range], |pieces, own| {
            pieces.iter().flat_map(|piece| without(piece, own)).collect()
        })
    }

    /// Notes that the kernel was given zeros for a hole.
    pub(crate) fn zeros_shown(&self, range: Range<u64>) {
        let mut zeros = self.zeros.borrow_mut();
        let from = zeros.partition_point(|own| own.end < range.start);
        let to = from + zeros[from..].partition_point(|own| own.start <= range.end);
        let merged = zeros[from..to]
            .iter()
            .fold(range, |sum, own| sum.start.min(own.start)..sum.end.max(own.end));
        zeros.splice(from..to, [merged]);
        if zeros.len() > ZEROS_MAX {
            let (start, end) = (zeros[0].start, zeros[zeros.len() - 1].end);
            *zeros = std::iter::once(start..end).collect();
        }
    }
    /// Notes that content begins or ends at `at`: the rest of its page, of `page` bytes, is zeros
    /// that the kernel made itself.
    pub(crate) fn cut_at(&self, at: u64, page: u64) {
        let page = if units::fault!("cut-by-largest-page") { PAGE_MAX } else { page };
        if at % page != 0 {
            let start = at - at % page;
            self.zeros_shown(start..start.saturating_add(page));
        }
    }
    /// Notes that truncate(2) made the file longer, from `old` to `new` bytes.
    pub(crate) fn lengthened(&self, old: u64, new: u64, page: u64) {
        if !units::fault!("stored-behind-end-kept") {
            self.written_past(old..new.min(old.next_multiple_of(page)));
        }
    }
    /// Notes that the file ends at `at` now: the kernel drops all pages, of `page` bytes, behind
    /// that one.
    pub(crate) fn dropped_behind(&self, at: u64, page: u64) {
        if self.is_forgotten() {
            return;
        }
        let end = at.next_multiple_of(page);
        self.zeros.borrow_mut().retain_mut(|own| {
            own.end = own.end.min(end);
            own.start < own.end
        });
    }
    /// The first part of `range` that is zeros in the kernel's memory and may have been changed
    /// there.
    pub(crate) fn changed_zeros(&self, range: Range<u64>) -> Option<Range<u64>> {
        if !self.may_be_dirty() {
            return None;
        }
        let zeros = self.zeros.borrow();
        let first = zeros.get(zeros.partition_point(|own| own.end <= range.start))?;
        overlap(first, &range).then(|| first.start.max(range.start)..first.end.min(range.end))
    }

    /// Notes that the modification time was set.
    pub(crate) fn time_set(&self, now: Instant) {
        self.time_set.set(self.may_be_dirty().then_some(now));
    }
    /// Notes that all pages that were changed until now are written back.
    pub(crate) fn written_back(&self) {
        self.time_set.set(None);
    }
    /// Whether a page written back may have been changed before the modification time was set.
    pub(crate) fn keep_time(&self, now: Instant) -> bool {
        self.time_set.get().is_some_and(|set| now.since(set) < WRITTEN_BACK_AFTER)
    }
}

/// Forgets the oldest ranges beyond [`NEWER_MAX`].
fn keep_latest(newer: &mut VecDeque<Range<u64>>) {
    let surplus = newer.len().saturating_sub(NEWER_MAX);
    newer.drain(..surplus);
}

fn overlap(one: &Range<u64>, other: &Range<u64>) -> bool {
    one.start < other.end && other.start < one.end
}

/// The parts of `range` before and behind `hole`.
fn without(range: &Range<u64>, hole: &Range<u64>) -> impl Iterator<Item = Range<u64>> + use<> {
    let before = range.start..range.end.min(hole.start);
    let behind = range.start.max(hole.end)..range.end;
    [before, behind].into_iter().filter(|part| part.start < part.end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_written_past_the_cache_win_until_the_kernel_reads_them() {
        let pages = KernelPages::default();
        pages.written_past(0..8);
        assert_eq!(pages.not_older(0..4096)[0], 0..4096, "the kernel has read nothing");
        pages.filled(0..8192);
        pages.written_past(100..200);
        pages.written_past(200..300);
        pages.written_past(5000..5100);
        assert_eq!(pages.not_older(0..8192), [0..100, 300..5000, 5100..8192]);
        pages.agreed(150..160);
        assert_eq!(pages.not_older(0..4096), [0..100, 150..160, 300..4096]);
        pages.filled(0..4096);
        assert_eq!(pages.not_older(0..8192), [0..5000, 5100..8192]);
        pages.written_past(0..8192);
        assert_eq!(pages.not_older(0..8192), []);
    }

    #[test]
    fn the_first_descriptor_decides_for_all_until_its_kind_is_closed() {
        use PageAccess::{Cached, Direct, Emptied};
        let pages = KernelPages::default();
        let (reads, writes) = (false, true);
        assert_eq!(pages.open(Cached, writes), Cached);
        assert_eq!(pages.open(Direct, writes), Cached);
        pages.close(Cached, writes);
        assert_eq!(pages.open(Direct, reads), Cached, "one is open still");
        pages.close(Cached, writes);
        pages.close(Cached, reads);
        assert_eq!(pages.open(Direct, reads), Direct);
        assert_eq!(pages.open(Cached, reads), Cached, "a direct reader leaves nothing old");
        pages.close(Cached, reads);
        pages.close(Direct, reads);
        assert_eq!(pages.open(Direct, writes), Direct);
        assert_eq!(pages.open(Cached, writes), Direct);
        pages.close(Direct, writes);
        assert_eq!(pages.open(Emptied, reads), Direct, "one is open still");
        pages.close(Direct, reads);
        pages.close(Direct, writes);
        // Mappings of them may have left pages, until one that emptied the cache is closed.
        assert_eq!([(); 2].map(|()| pages.open(Cached, reads)), [Emptied; 2]);
        pages.close(Emptied, reads);
        assert_eq!(pages.open(Cached, reads), Cached);
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let pages = KernelPages::default();
        pages.filled(0..1);
        pages.mappable_opened();
        for number in 0..10_000 {
            pages.written_past(number * 10..number * 10 + 1);
            pages.zeros_shown(number * 10..number * 10 + 1);
        }
        assert_eq!(pages.newer.borrow().len(), NEWER_MAX);
        // A hole punched over all of it, and reads here and there.
        pages.written_past(0..1 << 40);
        (0..10_000).for_each(|number| pages.filled(number * 8192..number * 8192 + 4096));
        assert_eq!(pages.newer.borrow().len(), NEWER_MAX);
        assert!(pages.zeros.borrow().len() <= ZEROS_MAX);
        assert!(
            (0..10_000).all(|number| pages.changed_zeros(number * 10..number * 10 + 1).is_some())
        );
    }

    #[test]
    fn a_write_before_the_kernel_has_dropped_its_pages_is_newer() {
        let pages = KernelPages::default();
        pages.forget_all(false);
        pages.to_be_dropped();
        assert!(!pages.is_forgotten());
        pages.written_past(0..100);
        assert_eq!(pages.not_older(0..4096)[0], 100..4096);
    }

    #[test]
    fn zeros_count_as_changed_only_while_the_file_can_be_mapped() {
        let pages = KernelPages::default();
        pages.zeros_shown(4096..8192);
        pages.zeros_shown(8192..12288);
        pages.zeros_shown(20480..24576);
        assert_eq!(pages.changed_zeros(0..100_000), None);
        pages.mappable_opened();
        assert_eq!(pages.changed_zeros(0..100_000), Some(4096..12288));
        assert_eq!(pages.changed_zeros(5000..6000), Some(5000..6000));
        assert_eq!(pages.changed_zeros(12288..20480), None);
        pages.forget_all(false);
        assert!(pages.is_forgotten() && pages.changed_zeros(12288..20480).is_some());
        pages.mappable_closed();
        assert_eq!(pages.changed_zeros(0..100_000), None);
    }
}
