//! Pages that the kernel's cache has of a host's files. Every descriptor goes past the cache, so
//! they are pages of mappings.
//!
//! A page that a mapping has changed is written back whole, and may be older than a write of this
//! host beside it ([`ext4::KernelPages`], rule 1). Such a write may have been acknowledged, and
//! must not be undone.
//!
//! 1. Whatever changes the content of a file shares the file's lock until it is noted. Pages that
//!    are written back exclude it, so they are compared with every change that came before.
//! 2. A read for the cache waits for nothing here. The host reads under its own lock of the file,
//!    so what a read does not see is noted behind it. A change that it sees may be noted behind it,
//!    too: the kernel drops the page then, since files of hosts are mapped shared only where it
//!    does so ([`crate::drops_written_pages`]).
//! 3. Changes that other hosts make are not noted.

use ext4::KernelPages;
use runtime::sync::{ReadGuard, RwLock, WriteGuard};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::{Deref, Range};
use std::rc::Rc;

/// Nodes of which the kernel may have pages, and those in use by a request.
#[derive(Default)]
pub(super) struct CachedPages(RefCell<BTreeMap<u64, Rc<NodePages>>>);

#[derive(Default)]
pub(super) struct NodePages {
    lock: Rc<RwLock>,
    pages: KernelPages,
}

/// A node's pages while a request uses them.
pub(super) struct InUse<'a> {
    all: &'a CachedPages,
    node: u64,
    pages: Rc<NodePages>,
}

impl CachedPages {
    pub fn of(&self, node: u64) -> InUse<'_> {
        let pages = self.0.borrow_mut().entry(node).or_default().clone();
        InUse { all: self, node, pages }
    }
    /// Notes that the kernel has no pages of the node any more.
    pub fn forget(&self, node: u64) {
        self.0.borrow_mut().remove(&node);
    }
    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.0.borrow().is_empty()
    }
}

impl Deref for InUse<'_> {
    type Target = NodePages;
    fn deref(&self) -> &NodePages {
        &self.pages
    }
}

impl Drop for InUse<'_> {
    fn drop(&mut self) {
        // The table's reference and this one: no other request waits for the lock.
        if !self.pages.pages.are_held() && Rc::strong_count(&self.pages) == 2 {
            self.all.forget(self.node);
        }
    }
}

impl NodePages {
    /// Lets a change of the content begin, and keeps pages from being written back until it is
    /// noted.
    pub async fn changing(&self) -> ReadGuard {
        self.lock.read().await
    }
    /// Lets pages be written back when all changes that have begun are noted.
    pub async fn writing_back(&self) -> WriteGuard {
        self.lock.write().await
    }

    /// Notes the bytes of a write.
    pub fn written(&self, range: Range<u64>) {
        self.pages.written_past(range);
    }
    /// Notes a hole.
    pub fn zeroed(&self, range: Range<u64>) {
        self.pages.zeroed(range, u64::from(fuse_session::page_bytes()));
    }
    /// Ends what [`NodePages::zeroed`] began, right before the kernel is answered.
    pub async fn zeros_settled(&self, range: Range<u64>) {
        if !self.pages.has_edges() {
            return;
        }
        // Pages that were written back while the hole was made come first.
        let _alone = self.writing_back().await;
        self.pages.zeros_settled(range, true);
    }

    /// Notes what the kernel has read for its cache.
    pub fn filled(&self, range: Range<u64>) {
        self.pages.filled(range);
    }
    /// Returns the parts of a page written back that are not older than the file.
    pub fn not_older(&self, range: Range<u64>) -> Vec<Range<u64>> {
        match units::fault!("host-older-page-written") {
            true => vec![range],
            false => self.pages.not_older(range),
        }
    }
}
