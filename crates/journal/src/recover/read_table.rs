//! Reads from the table of runs (`mtl=`) what [`super::FindRuns`] would look for in the logs.
//!
//! 1. Entries count only under the mark in the journal superblock. So an older table, or another
//!    volume's, is refused.
//! 2. Each run from the tail to the latest is recorded, or the table is refused. Two pages identify
//!    the latest, and must fit: of the latest and the run before, or both of the first.
//! 3. Only entries that a search could have found count: in announced logs, one run behind the
//!    other. The scan verifies by checksums that each run is there. Only the latest run may be
//!    torn.

use super::find_runs::{FoundRuns, RunsInOrder};
use crate::log_space::{LogRun, LogWalk, Logs};
use format::jbd2::{JournalSuperblock, Seed};
use format::run_table::{self, LATEST_PAGES};
use format::scattered::{ActiveLogs, RunHeader};
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;
use units::{LogBlock, TransactionId};

/// Reason why a table is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TableRefused {
    #[error("the last mount had none")]
    NoneWasUsed,
    #[error("it is another volume's, older than the last mount, or was being rewritten")]
    OfAnother,
    #[error("it does not record {0}")]
    Missing(TransactionId),
    #[error("it records more transactions than it has slots for")]
    TooMany,
    #[error("it records a run of {0} where none can lie")]
    Impossible(TransactionId),
}

#[derive(Debug)]
pub struct ReadTable {
    logs: Rc<Logs>,
    active: ActiveLogs,
    seed: Seed,
    tail: TransactionId,
    /// Pages to read, in order.
    wanted: Range<u64>,
    /// The transaction whose slot is sought, once the pages of the latest are read.
    looked_for: Option<TransactionId>,
    /// Transactions that the pages of the latest record, as far as they were read.
    latest: Vec<TransactionId>,
    /// Number of transactions from the tail on.
    count: Option<u32>,
    headers: Vec<RunHeader>,
}

impl ReadTable {
    pub fn new(superblock: &JournalSuperblock, logs: Rc<Logs>) -> Result<ReadTable, TableRefused> {
        let scattered = superblock.scattered.as_ref().filter(|scattered| scattered.table_mark != 0);
        let scattered = scattered.ok_or(TableRefused::NoneWasUsed)?;
        Ok(ReadTable {
            logs,
            active: scattered.active.clone(),
            seed: run_table::table_seed(superblock.scattered_seed(), scattered.table_mark),
            tail: superblock.sequence,
            wanted: LATEST_PAGES,
            looked_for: None,
            latest: Vec::new(),
            count: None,
            headers: Vec::new(),
        })
    }

    pub fn wants(&self) -> Option<u64> {
        match self.looked_for {
            Some(transaction) => Some(run_table::slot_page(transaction)),
            None => (!self.wanted.is_empty()).then_some(self.wanted.start),
        }
    }

    /// Takes `page`, the bytes of the wanted page.
    pub fn give(&mut self, page: &[u8]) -> Result<(), TableRefused> {
        if let Some(first) = self.looked_for {
            return self.take_slots(first, page);
        }
        self.wanted.start += 1;
        // A page that is lost, or was invalidated, may have recorded a later run than the other.
        let latest = run_table::latest(page, self.seed);
        if latest.is_none() && !units::fault!("run-table-one-page") {
            return Err(TableRefused::OfAnother);
        }
        self.latest.extend(latest.map(|latest| latest.transaction));
        if self.wanted.is_empty() {
            let count = self.latest_covered().map(|latest| self.distance(latest.next()));
            let count =
                count.filter(|count| *count < self.logs.blocks()).ok_or(TableRefused::OfAnother)?;
            if count >= run_table::slots() {
                return Err(TableRefused::TooMany);
            }
            (self.count, self.looked_for) = (Some(count), Some(self.tail));
        }
        Ok(())
    }

    /// Returns the later of the two, if they fit.
    fn latest_covered(&self) -> Option<TransactionId> {
        let [one, other] = self.latest[..] else {
            return self.latest.first().copied().filter(|_| units::fault!("run-table-one-page"));
        };
        let (before, latest) = if one.is_after(other) { (other, one) } else { (one, other) };
        (latest == before || latest == before.next()).then_some(latest)
    }

    fn distance(&self, transaction: TransactionId) -> u32 {
        transaction.0.wrapping_sub(self.tail.0)
    }

    /// Takes the slots of `page`: that of `first` and some behind it. One more than the pages of
    /// the latest record is examined: its slot may be there alone.
    fn take_slots(&mut self, first: TransactionId, page: &[u8]) -> Result<(), TableRefused> {
        let count = self.count.unwrap_or(0);
        let (place, mut at) = (run_table::slot_page(first), first);
        while run_table::slot_page(at) == place {
            match run_table::slot(page, at, self.seed) {
                Some(header) => self.headers.push(header),
                None if units::fault!("run-table-gap-ignored") => {
                    self.looked_for = None;
                    return Ok(());
                }
                None if self.distance(at) < count => return Err(TableRefused::Missing(at)),
                None => {}
            }
            if self.distance(at) >= count {
                self.looked_for = None;
                return Ok(());
            }
            at = at.next();
        }
        self.looked_for = Some(at);
        Ok(())
    }

    pub fn finish(self) -> Result<FoundRuns, TableRefused> {
        assert!(self.wants().is_none(), "the table is not read to its end");
        self.check_places()?;
        let tail = self.tail;
        let run = |header: &RunHeader| LogRun { start: header.at.plus(1), count: header.blocks };
        let runs = self.headers.iter().map(run).collect();
        let latest = self.headers.last().map(|header| header.transaction);
        Ok(FoundRuns {
            walk: Rc::new(RunsInOrder::new(runs, self.logs.blocks())),
            tail,
            latest: latest.unwrap_or(tail),
            // One transaction is in flight at a time.
            proven: latest.map(TransactionId::previous),
            gave_up: false,
            headers: self.headers.iter().map(|header| (header.at, header.transaction)).collect(),
            has_unread: false,
            header_in_table: self.headers.last().copied(),
            logs_read: 0,
            blocks_read: 0,
        })
    }

    /// Checks that every run lies in a log that recovery would look at, behind those of earlier
    /// transactions.
    fn check_places(&self) -> Result<(), TableRefused> {
        let active: Vec<u32> = self.logs.active(&self.active).collect();
        let mut ends: BTreeMap<u32, LogBlock> = BTreeMap::new();
        for header in &self.headers {
            let refused = TableRefused::Impossible(header.transaction);
            let log = self.logs.holding(header.at).filter(|log| active.binary_search(log).is_ok());
            let log = log.ok_or(refused)?;
            let behind = ends.get(&log).copied().unwrap_or(self.logs.start(log));
            let left = self.logs.end(log).get() - header.at.get();
            if header.at < behind || header.blocks == 0 || header.blocks >= left {
                return Err(refused);
            }
            ends.insert(log, header.at.plus(1 + header.blocks));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log_space::{LogSpace, ScatteredLog, ScatteredLogMap};
    use format::run_table::TABLE_PAGE;
    use units::{BlockSize, HomeBlock};

    const MARK: u32 = 77;
    const FIRST: u32 = u32::MAX - 1;

    /// Four logs of 32 blocks, and the pages of a table.
    struct Table {
        superblock: JournalSuperblock,
        logs: Rc<Logs>,
        log: ScatteredLog,
        pages: BTreeMap<u64, Vec<u8>>,
        starts: Vec<LogBlock>,
    }

    impl Table {
        fn new() -> Table {
            let mut superblock = JournalSuperblock::new(BlockSize::new(1024).unwrap(), 64, [9; 16]);
            superblock.set_scattered(5);
            superblock.sequence = TransactionId(FIRST);
            let homes = (0..4).map(|log| HomeBlock(100 * log)).collect();
            let places = ScatteredLogMap { first: LogBlock(64), blocks: 32, homes };
            let logs = places.in_units(1).unwrap();
            let log = ScatteredLog::new(&superblock, logs.clone()).with_table(MARK);
            Table {
                superblock,
                logs: Rc::new(logs),
                log,
                pages: BTreeMap::new(),
                starts: Vec::new(),
            }
        }
        /// Creates runs of `count` transactions, each in another log.
        fn of(count: u32) -> Table {
            let mut table = Table::new();
            (0..count).for_each(|number| {
                table.put(FIRST.wrapping_add(number), u64::from(number) * 100 % 400)
            });
            table
        }
        fn put(&mut self, number: u32, head: u64) {
            let id = TransactionId(number);
            self.log.reserve(id, 3).unwrap();
            self.log.choose(id, HomeBlock(head));
            assert!(self.log.announce(&mut self.superblock, None) || number != FIRST);
            self.starts.push(self.log.bind(id).0[0].start);
            let pages = self.log.table_pages(id);
            self.pages.extend(pages.into_iter().map(|(page, bytes)| (page, bytes.to_vec())));
        }
        fn run_at(&self, number: usize) -> LogRun {
            LogRun { start: self.starts[number], count: 3 }
        }
        fn forget(&mut self) {
            let pages = self.log.forget_table();
            self.pages.extend(pages.into_iter().map(|(page, bytes)| (page, bytes.to_vec())));
        }
        fn read(&self) -> Result<FoundRuns, TableRefused> {
            let mut table = ReadTable::new(&self.superblock, self.logs.clone())?;
            let zeros = vec![0; TABLE_PAGE];
            while let Some(page) = table.wants() {
                table.give(self.pages.get(&page).unwrap_or(&zeros))?;
            }
            table.finish()
        }
        fn mark(&mut self) -> &mut u32 {
            &mut self.superblock.scattered.as_mut().unwrap().table_mark
        }
    }

    #[test]
    fn recorded_runs_are_read_back_across_the_number_wrap() {
        let table = Table::of(6);
        let found = table.read().unwrap();
        assert_eq!(
            found.first_runs(6).iter().map(|run| run.start).collect::<Vec<_>>(),
            table.starts
        );
        let latest = TransactionId(FIRST.wrapping_add(5));
        assert_eq!(
            (found.latest, found.proven, found.logs_read),
            (latest, Some(latest.previous()), 0)
        );
        assert_eq!(found.headers_from(latest).count(), 1, "the one that may be torn");
    }

    #[test]
    fn runs_behind_the_tail_alone_are_asked_for() {
        let mut table = Table::of(6);
        table.superblock.sequence = TransactionId(FIRST.wrapping_add(4));
        assert_eq!(table.read().unwrap().first_runs(2)[0].start, table.starts[4]);
        table.superblock.sequence = TransactionId(FIRST.wrapping_add(6));
        assert_eq!(table.read().unwrap().start(), None, "all is home");
        table.superblock.sequence = TransactionId(FIRST.wrapping_add(7));
        assert_eq!(table.read().unwrap_err(), TableRefused::OfAnother);
    }

    #[test]
    fn another_mark_is_refused() {
        let mut table = Table::of(6);
        *table.mark() = MARK + 1;
        assert_eq!(table.read().unwrap_err(), TableRefused::OfAnother);
        *table.mark() = 0;
        assert_eq!(table.read().unwrap_err(), TableRefused::NoneWasUsed);
    }

    #[test]
    fn missing_slot_or_latest_page_is_refused() {
        let table = Table::of(6);
        for number in 0..6 {
            let mut table = Table { pages: table.pages.clone(), ..Table::of(6) };
            let id = TransactionId(FIRST.wrapping_add(number));
            let page = table.pages.get_mut(&run_table::slot_page(id)).unwrap();
            let at = (id.0 % 128) as usize * 32;
            page[at + 9] ^= 1;
            assert_eq!(table.read().unwrap_err(), TableRefused::Missing(id));
        }
        for count in 1..6 {
            for page in LATEST_PAGES {
                let mut lost = Table::of(count);
                lost.pages.remove(&page);
                assert_eq!(
                    lost.read().unwrap_err(),
                    TableRefused::OfAnother,
                    "page {page} of {count}"
                );
            }
        }
    }

    /// A run was recorded in between.
    #[test]
    fn pages_of_the_latest_that_do_not_fit_are_refused() {
        let mut table = Table::of(6);
        let page = run_table::latest_page(TransactionId(FIRST.wrapping_add(5)));
        table.pages.insert(page, Table::of(4).pages[&page].clone());
        assert_eq!(
            table.read().unwrap().latest,
            TransactionId(FIRST.wrapping_add(5)),
            "its slot says so"
        );
        table.pages.insert(page, Table::of(2).pages[&page].clone());
        assert_eq!(table.read().unwrap_err(), TableRefused::OfAnother);
    }

    #[test]
    fn a_run_where_none_can_lie_is_refused() {
        let id = TransactionId(FIRST);
        let seed = run_table::table_seed(Table::new().superblock.scattered_seed(), MARK);
        for (at, blocks) in [(0, 3), (63, 3), (64 + 4 * 32, 3), (64 + 31, 1), (64, 32), (64, 0)] {
            let mut table = Table::of(2);
            let header =
                RunHeader { at: LogBlock(at), transaction: id, blocks, durable: id.previous() };
            run_table::put_slot(
                &header,
                seed,
                table.pages.get_mut(&run_table::slot_page(id)).unwrap(),
            );
            assert_eq!(table.read().unwrap_err(), TableRefused::Impossible(id), "{at}+{blocks}");
        }
        let mut table = Table::of(2);
        table.superblock.scattered.as_mut().unwrap().active = ActiveLogs::none();
        assert_eq!(table.read().unwrap_err(), TableRefused::Impossible(id));
    }

    /// Pages that the swap itself has written may be lost until its flush has ended.
    #[test]
    fn a_run_that_comes_while_runs_move_leaves_no_table_that_lacks_it() {
        for gives_up in [false, true] {
            let mut table = Table::of(2);
            let swap =
                table.log.begin_swap(0, HomeBlock(0)).expect("runs in the log that is nearest");
            table.log.forget_table();
            assert_eq!(
                table.read().unwrap().latest,
                TransactionId(FIRST.wrapping_add(1)),
                "not written yet"
            );
            table.put(FIRST.wrapping_add(2), 200);
            assert_eq!(table.read().unwrap_err(), TableRefused::OfAnother);
            match gives_up {
                true => table.log.give_up_swap(&swap, true),
                false => assert!(!table.log.end_swap(&swap).is_empty()),
            }
            table.put(FIRST.wrapping_add(3), 200);
            assert_eq!(table.read().unwrap().first_runs(4)[2..], [2, 3].map(|at| table.run_at(at)));
        }
    }

    #[test]
    fn a_forgotten_table_is_refused_until_all_is_recorded_again() {
        let mut table = Table::of(6);
        table.forget();
        assert_eq!(table.read().unwrap_err(), TableRefused::OfAnother);
        table.pages.retain(|page, _| LATEST_PAGES.contains(page));
        table.put(FIRST.wrapping_add(6), 0);
        assert_eq!(table.read().unwrap().first_runs(7)[6].start, table.starts[6]);
    }
}
