//! Changes that go to a file at once, past any buffer: writes without the exclusive token, and
//! attributes. The kernel has them in memory until the file is synced, by any descriptor.

use std::cell::Cell;

/// Steps (`Local::next_step`) at which an open file was changed and synced last. What happened
/// before it was opened is unknown, so it begins as changed.
pub(super) struct Durability {
    pub changed: Cell<u64>,
    pub synced: Cell<u64>,
}

impl Durability {
    pub fn opened_at(step: u64) -> Durability {
        Durability { changed: Cell::new(step), synced: Cell::new(0) }
    }
    pub fn is_unsynced(&self) -> bool {
        self.synced.get() <= self.changed.get() && !units::fault!("store-change-not-synced")
    }
}
