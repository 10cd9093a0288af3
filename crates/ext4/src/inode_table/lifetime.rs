//! Lifetime of an inode in memory, and the end of one without links.

use crate::{Inode, Result, Volume};
use engine::Handle;
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::BuildHasherDefault;
use std::ops::Range;
use std::rc::Rc;
use units::{BlockHasher, InodeNumber, TransactionId};

/// Number of inodes in memory up to which none is swept out.
const INODES_MIN: usize = 4096;
/// Number of inodes that each insertion beyond that looks at. Where `n` inodes must stay, at most a
/// third of `n` others stay with them.
const LOOKS: usize = 4;

/// Cache with at most one [`Inode`] per number.
#[derive(Default)]
pub(crate) struct InodeCache {
    inodes: HashMap<InodeNumber, Rc<Inode>, BuildHasherDefault<BlockHasher>>,
    /// The numbers of all inodes, in order.
    numbers: BTreeSet<InodeNumber>,
    /// Inodes that were swept out and that the kernel refers to: it keeps millions for long without
    /// using them.
    swept: BTreeMap<InodeNumber, Swept>,
    /// Number of the inode that the next insertion looks at first: a sweep of them all in one step
    /// would delay every other request.
    next_look: InodeNumber,
}

/// State that outlives an inode in memory.
struct Swept {
    /// References of the kernel.
    lookups: u64,
    pages_may_be_old: bool,
}

impl InodeCache {
    pub fn get(&self, number: InodeNumber) -> Option<Rc<Inode>> {
        self.inodes.get(&number).cloned()
    }
    /// Returns the inode that is in the cache now: another task may have inserted it first.
    pub fn insert(&mut self, inode: Rc<Inode>, committed: TransactionId) -> Rc<Inode> {
        if self.inodes.len() >= INODES_MIN {
            self.sweep_some(committed);
        }
        match self.inodes.entry(inode.number) {
            Entry::Occupied(known) => known.get().clone(),
            Entry::Vacant(place) => {
                if let Some(swept) = self.swept.remove(&inode.number) {
                    inode.lookups.set(swept.lookups);
                    inode.pages.forget_all(swept.pages_may_be_old);
                }
                self.numbers.insert(inode.number);
                place.insert(inode).clone()
            }
        }
    }
    /// Drops references of the kernel to an inode that is not in memory.
    fn forget_swept(&mut self, number: InodeNumber, count: u64) {
        let Some(swept) = self.swept.get_mut(&number) else { return };
        swept.lookups = swept.lookups.saturating_sub(count);
        if swept.lookups == 0 {
            self.swept.remove(&number);
        }
    }
    pub fn remove(&mut self, number: InodeNumber) {
        self.inodes.remove(&number);
        self.numbers.remove(&number);
    }
    /// Whether the inode is in use as far as memory knows.
    pub fn knows(&self, number: InodeNumber) -> bool {
        self.inodes.contains_key(&number) || self.swept.contains_key(&number)
    }
    /// Inodes of the range that are in memory.
    pub fn numbers(&self, range: Range<InodeNumber>) -> impl Iterator<Item = InodeNumber> + '_ {
        self.numbers.range(range).copied()
    }
    pub fn any(&self, wanted: impl Fn(&Inode) -> bool) -> bool {
        self.inodes.values().any(|inode| wanted(inode))
    }
    pub fn all(&self, wanted: impl Fn(&Inode) -> bool) -> Vec<Rc<Inode>> {
        let all = self.numbers.iter().filter_map(|number| self.inodes.get(number));
        all.filter(|inode| wanted(inode)).cloned().collect()
    }

    /// Drops those of the next few inodes that can be read again, and begins anew behind the last.
    fn sweep_some(&mut self, committed: TransactionId) {
        let (mut looks, mut dropped) = (0, Vec::new());
        let mut last = None;
        for number in self.numbers.range(self.next_look..).take(LOOKS) {
            (looks, last) = (looks + 1, Some(*number));
            if self.inodes.get(number).is_some_and(|inode| inode.can_be_read_again(committed)) {
                dropped.push(*number);
            }
        }
        self.next_look = last
            .filter(|_| looks == LOOKS)
            .map_or(InodeNumber(0), |last| InodeNumber(last.get().saturating_add(1)));
        for number in dropped {
            let Some(inode) = self.inodes.remove(&number) else { continue };
            self.numbers.remove(&number);
            if inode.lookups.get() > 0 {
                let (lookups, pages_may_be_old) = (inode.lookups.get(), inode.pages.may_be_old());
                self.swept.insert(number, Swept { lookups, pages_may_be_old });
            }
        }
    }
}

impl Inode {
    /// Whether memory may drop it: not open, with links, and the last change committed. An fsync of
    /// an inode read again would not know which transaction to wait for.
    fn can_be_read_again(self: &Rc<Self>, committed: TransactionId) -> bool {
        let stays = Rc::strong_count(self) > 1
            || self.opens.get() > 0
            || self.kept_home.get()
            || self.durable_by_request.get()
            || self.pages.has_newer()
            || self.fields.borrow().links == 0
            || self.access_is_newer.get()
            || self.last_change.get().is_after(committed)
            || self.durable_with().is_after(committed)
            || self.last_home_data.get().is_after(committed);
        !stays
    }
    pub(crate) fn is_referred_to(&self) -> bool {
        self.lookups.get() > 0 || self.opens.get() > 0
    }
    fn is_to_be_freed(&self) -> bool {
        self.fields.borrow().links == 0 && !self.is_referred_to()
    }
}

impl Volume {
    /// Counts a reference of the kernel (each LOOKUP, CREATE... answered). Call it under the
    /// directory's lock, so that no unlink comes between.
    pub fn remember(&self, inode: &Inode) {
        inode.lookups.set(inode.lookups.get() + 1);
    }
    /// Drops `count` references of the kernel. The last one of an inode without links frees it. It
    /// is the end of its use, too: where files are opened without a request, no close comes.
    pub async fn forget(self: &Rc<Self>, number: InodeNumber, count: u64) -> Result<()> {
        let Some(inode) = self.inodes.borrow().get(number) else {
            self.inodes.borrow_mut().forget_swept(number, count);
            self.drop_preallocation(number);
            return Ok(());
        };
        inode.lookups.set(inode.lookups.get().saturating_sub(count));
        if inode.lookups.get() == 0 {
            inode.pages.dropped();
            self.end_use(&inode);
        }
        self.free_if_unused(&inode).await
    }
    /// Counts a descriptor that a front end opened.
    pub fn opened(&self, inode: &Inode) {
        inode.opens.set(inode.opens.get() + 1);
    }
    /// Uncounts a descriptor that a front end closed. The last one releases preallocated blocks,
    /// and frees an inode without links.
    pub async fn closed(self: &Rc<Self>, number: InodeNumber) -> Result<()> {
        let Some(inode) = self.inodes.borrow().get(number) else { return Ok(()) };
        inode.opens.set(inode.opens.get().saturating_sub(1));
        if inode.opens.get() == 0 {
            inode.pages.all_closed();
        }
        self.end_use(&inode);
        self.free_if_unused(&inode).await
    }

    /// Ends what lasts as long as programs use a file, unless it is open.
    fn end_use(&self, inode: &Inode) {
        if inode.opens.get() == 0 {
            inode.kept_home.set(false);
            inode.durable_by_request.set(false);
            self.drop_preallocation(inode.number);
        }
    }

    /// Frees the inode if no link, descriptor or kernel reference is left. The task that removes
    /// the last link calls it when its handle is stopped and its locks are released. The inode is
    /// among the orphans.
    pub async fn free_if_unused(self: &Rc<Self>, inode: &Rc<Inode>) -> Result<()> {
        self.free_without_values(inode).await?;
        self.free_or_leave_values().await
    }

    /// Frees the inode as above, behind a change that has succeeded. One that cannot be freed now
    /// stays an orphan, and that is no failure of the change: behind an error the kernel would keep
    /// the name that is gone.
    pub(crate) async fn free_or_leave(self: &Rc<Self>, inode: &Rc<Inode>) -> Result<()> {
        match self.free_without_values(inode).await {
            Err(error) if self.may_stay_orphan(&error) => drop(self.note_damage(error)),
            freed => freed?,
        }
        self.free_or_leave_values().await
    }

    /// Frees the inode as above, but leaves values without references to [`Volume::free_values`],
    /// however long the chain.
    pub(crate) async fn free_without_values(self: &Rc<Self>, inode: &Rc<Inode>) -> Result<()> {
        if !inode.is_to_be_freed() || self.is_read_only() {
            return Ok(());
        }
        let _guard = inode.lock.write().await;
        // A link may have been made (O_TMPFILE), or another task may have freed the inode.
        if !inode.is_to_be_freed() || !self.is_cached(inode) {
            return Ok(());
        }
        self.free_locked(inode).await
    }

    /// Frees content, attributes and the inode itself, which is among the orphans. Values to which
    /// only its attributes referred are left to [`Volume::free_values`].
    pub(crate) async fn free_locked(self: &Rc<Self>, inode: &Rc<Inode>) -> Result<()> {
        let _in_progress = self.frees.begin();
        self.truncate_all_locked(inode).await?;
        self.drop_values(inode).await?;
        let _table = self.hold(&[inode]).await?;
        let _attributes = self.hold_xattrs(inode).await?;
        let group = self.superblock.borrow().group_of_inode(inode.number).0;
        let _bits = self.inode_bitmap(group).await?;
        let credits =
            self.credits_drop_xattrs() + self.credits_orphan() + self.credits_free_inode();
        let mut handle = self.engine.start(credits).await?;
        let before = self.before(&handle, inode);
        let freed = self.free_parts(&mut handle, inode).await;
        let freed = self.whole(&handle, before, freed);
        handle.stop();
        freed
    }

    /// Steps of [`Volume::free_locked`] in one transaction. The first alone reads blocks that are
    /// not held: those of neighbours in the orphan list.
    async fn free_parts(&self, handle: &mut Handle, inode: &Inode) -> Result<()> {
        self.orphan_remove(handle, inode).await?;
        self.drop_xattrs(handle, inode).await?;
        self.free_inode(handle, inode).await
    }

    /// Whether it is still the cached inode of its number.
    pub(crate) fn is_cached(&self, inode: &Rc<Inode>) -> bool {
        self.inodes.borrow().get(inode.number).is_some_and(|cached| Rc::ptr_eq(&cached, inode))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MANY: u32 = 3 * INODES_MIN as u32;

    fn insert(cache: &mut InodeCache, number: u32, changed: u32, committed: u32) {
        let fields = format::ext4::RawInode { links: 1, ..Default::default() };
        let inode = Inode::new(InodeNumber(number), fields, TransactionId(changed));
        inode.lookups.set(1);
        cache.insert(Rc::new(inode), TransactionId(committed));
    }

    /// The inodes of one transaction stay until its commit, and all of them may go then.
    #[test]
    fn no_insertion_looks_at_many_inodes() {
        let mut cache = InodeCache::default();
        for number in 0..MANY {
            insert(&mut cache, 10 + number, 2, 1);
        }
        assert_eq!(cache.inodes.len(), MANY as usize);
        for number in MANY..2 * MANY {
            let before = cache.inodes.len();
            insert(&mut cache, 10 + number, 3, 2);
            assert!(cache.inodes.len() + LOOKS > before, "{before}, then {}", cache.inodes.len());
        }
        let (first, rest) = (InodeNumber(10), InodeNumber(10 + MANY));
        assert_eq!((cache.numbers(first..rest).count(), cache.swept.len()), (0, MANY as usize));
    }

    /// Memory holds those that must stay, and a third more.
    #[test]
    fn inodes_that_can_be_read_again_are_dropped() {
        let mut cache = InodeCache::default();
        for number in 0..20 * MANY {
            let changed = if number < MANY { 2 } else { 1 };
            insert(&mut cache, 10 + number, changed, 1);
        }
        let most = MANY as usize / 3 * 4 + INODES_MIN / 8;
        assert!((MANY as usize..most).contains(&cache.inodes.len()), "{}", cache.inodes.len());
        assert!(cache.knows(InodeNumber(10)) && cache.knows(InodeNumber(9 + 20 * MANY)));
        assert_eq!(cache.inodes.len() + cache.swept.len(), 20 * MANY as usize);
    }
}
