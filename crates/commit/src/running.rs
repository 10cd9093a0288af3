//! The running transaction, and what is kept beside it until it is locked.

use crate::completion::Completion;
use journal::{Holdings, RunningTransaction};
use std::rc::Rc;
use units::{BlockSize, HomeBlock, Instant, TransactionId};

/// The transaction that handles join now.
pub struct Running {
    transaction: RunningTransaction,
    completion: Rc<Completion>,
    /// Blocks that are worthless once it is committed.
    freed: Vec<Freed>,
    /// Time at which its first handle joined.
    since: Option<Instant>,
    /// Blocks of data that open handles may still write without logging them.
    home_credits: u32,
}

/// First block and count of blocks that are worthless once the transaction that freed them is
/// committed.
pub type Freed = (HomeBlock, u64);

/// Content of the running transaction at its lock.
pub struct RunningContent {
    pub transaction: RunningTransaction,
    pub freed: Vec<Freed>,
    pub completion: Rc<Completion>,
}

impl Running {
    pub fn new(id: TransactionId, now: Instant, size: BlockSize) -> Running {
        Running {
            transaction: RunningTransaction::new(id, now, size),
            completion: Rc::default(),
            freed: Vec::new(),
            since: None,
            home_credits: 0,
        }
    }
    pub fn id(&self) -> TransactionId {
        self.transaction.id()
    }
    /// Returns the transaction, which open handles change.
    pub fn transaction(&mut self) -> &mut RunningTransaction {
        &mut self.transaction
    }
    pub fn holdings(&self) -> Holdings {
        self.transaction.holdings()
    }
    /// Returns whether nobody has joined it yet.
    pub fn is_unused(&self) -> bool {
        self.transaction.handles() == 0
    }
    /// Returns the completion that callers wait for.
    pub fn completion(&self) -> &Rc<Completion> {
        &self.completion
    }
    /// Notes blocks that are worthless once the transaction is committed.
    pub fn free(&mut self, at: HomeBlock, count: u64) {
        self.freed.push((at, count));
    }
    /// Whether nothing happened in it.
    pub fn is_empty(&self) -> bool {
        self.transaction.is_empty()
    }
    /// Whether nothing happened in it and nothing can: no handle is open. Blocks that it freed are
    /// not dropped yet, so there is something to do though there is nothing to log.
    pub fn is_idle(&self) -> bool {
        self.is_empty() && self.freed.is_empty() && !self.has_handles()
    }
    pub fn has_handles(&self) -> bool {
        self.transaction.open_handles() > 0
    }
    /// Returns its number and the time since when it runs; `None` if no handle has joined yet.
    pub fn begun(&self) -> Option<(TransactionId, Instant)> {
        self.since.map(|since| (self.id(), since))
    }

    /// Lets a handle join with `credits`, which may write `home` blocks of data past the log.
    /// Whether it is the first.
    pub fn join(&mut self, credits: u32, home: u32, now: Instant) -> bool {
        self.transaction.open_handle(credits);
        self.home_credits += home;
        let is_first = self.since.is_none();
        self.since.get_or_insert(now);
        is_first
    }
    /// Lets a handle leave, and takes back the credits that it has not used.
    pub fn leave(&mut self, credits: u32, home: u32) {
        self.transaction.close_handle(credits);
        self.home_credits -= home;
    }
    /// Uses credits of an open handle that writes blocks of data past the log.
    pub fn use_home_credits(&mut self, count: u32) {
        self.home_credits -= count;
    }
    /// Images that open handles may still make; `None` if there are no handles.
    pub fn images_to_come(&self) -> Option<usize> {
        self.has_handles().then(|| (self.transaction.credits() + self.home_credits) as usize)
    }

    /// Takes the blocks that it freed.
    pub fn take_freed(&mut self) -> Vec<Freed> {
        std::mem::take(&mut self.freed)
    }
    /// Begins anew under the same id, since nothing happened. Returns what those wait for who
    /// wanted it committed.
    pub fn restart(&mut self) -> Rc<Completion> {
        self.since = None;
        std::mem::take(&mut self.completion)
    }
    /// Puts the next one in its place. No handle is open.
    pub fn take(&mut self, now: Instant, size: BlockSize) -> RunningContent {
        let next = Running::new(self.id().next(), now, size);
        let Running { transaction, completion, freed, home_credits, .. } =
            std::mem::replace(self, next);
        debug_assert_eq!(home_credits, 0, "credits of open handles");
        RunningContent { transaction, freed, completion }
    }
}
