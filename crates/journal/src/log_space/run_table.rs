//! The table of runs of scattered logs, on memory that survives a power cut (`mtl=`,
//! [`format::run_table`]).
//!
//! 1. The table records a run, durably, before any block of the run is written: it covers whatever
//!    the logs hold.
//! 2. It counts only under the mark in the journal superblock. Each mount has a mark of its own,
//!    and writes it before its first run. A mount without a table writes 0.
//! 3. The first run of a mount records all live runs. While runs move from log to log no table
//!    counts, and the first run after that records all of them again: durably before the pages that
//!    identify the latest run, as slots from before the move are valid until they are overwritten.
//! 4. Two pages identify the latest run: one records that run, one the run before. The first run is
//!    on both. So a table of which one page was forgotten, or lost, does not count.
//! 5. A run that is written during a swap is not recorded. Instead it invalidates the table itself,
//!    before it is written. The swap's own invalidation need not be durable yet.

use super::scattered::{HEADER, ScatteredLog};
use device::Buffer;
use format::jbd2::Seed;
use format::run_table::{self, LATEST_PAGES, TABLE_PAGE};
use format::scattered::RunHeader;
use std::collections::BTreeMap;
use std::rc::Rc;
use units::TransactionId;

/// A page number of the table, and its new content.
pub type TablePage = (u64, Rc<Buffer>);

#[derive(Clone, Debug)]
pub(super) struct RunTable {
    pub mark: u32,
    seed: Seed,
    /// Whether all live runs are recorded.
    is_whole: bool,
}

impl ScatteredLog {
    /// Records runs in a table from now on. `mark`: one that was never used before, and not 0.
    #[must_use]
    pub fn with_table(mut self, mark: u32) -> ScatteredLog {
        let seed = run_table::table_seed(self.seed, mark);
        self.table = Some(RunTable { mark, seed, is_whole: false });
        self
    }

    /// Returns the pages to write before the run of `transaction`, which is bound, is written: they
    /// record that run, or invalidate the table.
    pub(super) fn pages_for(&mut self, transaction: TransactionId) -> Vec<TablePage> {
        if self.swapping.is_some() {
            if units::fault!("run-table-left-by-run-in-swap") {
                return Vec::new();
            }
            return self.pages_without();
        }
        let Some(table) = &mut self.table else { return Vec::new() };
        let (seed, was_whole) = (table.seed, std::mem::replace(&mut table.is_whole, true));
        let mut pages = BTreeMap::new();
        if !was_whole {
            pages.insert(0, Buffer::copy_of(&run_table::head()));
            for (held, _) in self.held.iter() {
                pages
                    .entry(run_table::slot_page(held))
                    .or_insert_with(|| self.slots_beside(held, seed));
            }
        }
        let page = run_table::slot_page(transaction);
        pages.entry(page).or_insert_with(|| self.slots_beside(transaction, seed));
        let mut latest = Buffer::zeroed(TABLE_PAGE);
        let header = self.header_of(transaction).expect("a transaction that is bound");
        run_table::put_latest(&header, seed, &mut latest);
        if !was_whole {
            // No page records the run before, so both record this one.
            LATEST_PAGES.for_each(|page| drop(pages.insert(page, Buffer::copy_of(&latest))));
        }
        pages.insert(run_table::latest_page(transaction), latest);
        pages.into_iter().map(|(page, bytes)| (page, Rc::new(bytes))).collect()
    }

    /// Returns the pages that invalidate the table.
    pub(super) fn pages_without(&mut self) -> Vec<TablePage> {
        let Some(table) = &mut self.table else { return Vec::new() };
        if units::fault!("run-table-kept-in-swap") {
            return Vec::new();
        }
        table.is_whole = false;
        LATEST_PAGES.map(|page| (page, Rc::new(Buffer::zeroed(TABLE_PAGE)))).collect()
    }

    /// Returns the page that holds the slot of `transaction`.
    fn slots_beside(&self, transaction: TransactionId, seed: Seed) -> Buffer {
        let mut page = Buffer::zeroed(TABLE_PAGE);
        for header in
            run_table::slot_neighbours(transaction).filter_map(|beside| self.header_of(beside))
        {
            run_table::put_slot(&header, seed, &mut page);
        }
        page
    }

    /// Returns the header as in front of the run. One run is in flight at a time, so those before
    /// it are durable.
    fn header_of(&self, transaction: TransactionId) -> Option<RunHeader> {
        let held = self.held.get(transaction)?;
        let (log, first) = held.bound?;
        let (at, durable) = (self.logs.start(log).plus(first), transaction.previous());
        Some(RunHeader { at, transaction, blocks: held.blocks - HEADER, durable })
    }
}
