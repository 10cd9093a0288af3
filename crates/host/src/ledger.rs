//! The progress of a recovery, for the recovery that follows if it crashes: two copies, written
//! alternately.
//!
//! Files are begun in the order of their numbers, several at once: those up to `done` are finished.
//! Of the next few it records which are finished. Of those in flight it records the states that the
//! store reported while they were replayed, before the store makes them durable: they are ours.

use crate::error::HostError;
use crate::record::{BLOCK, Fields, STATES_MAX, put_version};
use crate::superblock::{HostJournal, LEDGER_BLOCKS};
use device::{Buffer, Durability};
use runtime::sync::RwLock;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use store::{FileId, Version};

const MAGIC: &[u8; 8] = b"OKHLEDG2";
/// The format of an older program, which recovered one file at a time; what it has noted counts.
const MAGIC_OF_ONE: &[u8; 8] = b"OKHLEDG1";
/// Limits of the files behind `done`, and of their states together: more do not fit.
pub(crate) const FILES_MAX: usize = 16;
pub(crate) const STATES_TOGETHER_MAX: usize = 160;
/// Written instead of a count of states.
const FINISHED: u32 = u32::MAX;

/// Progress of one file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Progress {
    /// A state that the store has, then those reported since.
    Noted(Vec<Version>),
    Finished,
}

#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Ledger {
    /// Number of the write: the copy with the greater one is newer.
    sequence: u64,
    /// The log that it belongs to, by the log's beginning.
    pub log: (u32, u32),
    pub done: Option<FileId>,
    /// Files behind `done`.
    pub files: BTreeMap<FileId, Progress>,
}

impl Ledger {
    pub fn is_finished(&self, file: FileId) -> bool {
        self.done.is_some_and(|done| file <= done)
            || self.files.get(&file) == Some(&Progress::Finished)
    }
    pub fn states(&self, file: FileId) -> &[Version] {
        match self.files.get(&file) {
            Some(Progress::Noted(states)) => states,
            _ => &[],
        }
    }
    /// Marks `file` as finished; `order` lists all files of the log.
    pub fn finish(&mut self, file: FileId, order: &[FileId]) {
        self.files.insert(file, Progress::Finished);
        let begin = self.done.map_or(0, |done| order.partition_point(|file| *file <= done));
        for next in &order[begin..] {
            let is_skipped = units::fault!("host-done-out-of-order") && *next < file;
            if !self.is_finished(*next) && !is_skipped {
                break;
            }
            self.done = Some(*next);
            self.files.remove(next);
        }
    }

    fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; 4];
        bytes.extend(MAGIC);
        bytes.extend(self.sequence.to_le_bytes());
        bytes.extend(self.log.0.to_le_bytes());
        bytes.extend(self.log.1.to_le_bytes());
        bytes.extend(u32::from(self.done.is_some()).to_le_bytes());
        bytes.extend(self.done.map_or(0, |file| file.0).to_le_bytes());
        bytes.extend((self.files.len() as u32).to_le_bytes());
        for (file, progress) in &self.files {
            bytes.extend(file.0.to_le_bytes());
            match progress {
                Progress::Finished => bytes.extend(FINISHED.to_le_bytes()),
                Progress::Noted(states) => {
                    bytes.extend((states.len() as u32).to_le_bytes());
                    states.iter().for_each(|state| put_version(&mut bytes, *state));
                }
            }
        }
        assert!(
            bytes.len() <= BLOCK.bytes(),
            "the task that begins a file has reserved space for its states"
        );
        bytes.resize(BLOCK.bytes(), 0);
        let sum = crc32c::crc32c(&bytes[4..]);
        bytes[..4].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    fn parse(bytes: &[u8]) -> Option<Ledger> {
        let mut rest = Fields(bytes);
        (rest.u32()? == crc32c::crc32c(rest.0)).then_some(())?;
        let magic = rest.take::<8>()?;
        (magic == *MAGIC || magic == *MAGIC_OF_ONE).then_some(())?;
        let (sequence, log) = (rest.u64()?, (rest.u32()?, rest.u32()?));
        let done = (rest.u32()? == 1, FileId(rest.u64()?));
        // The older format records of its one file whether there is one.
        let count = rest.u32()? as usize;
        (count <= FILES_MAX).then_some(())?;
        let mut files = BTreeMap::new();
        for _ in 0..count {
            let (file, states) = (FileId(rest.u64()?), rest.u32()?);
            let progress = match states {
                FINISHED => Progress::Finished,
                states if states as usize <= STATES_MAX => Progress::Noted(
                    (0..states).map(|_| rest.version()).collect::<Option<Vec<_>>>()?,
                ),
                _ => return None,
            };
            files.insert(file, progress);
        }
        Some(Ledger { sequence, log, done: done.0.then_some(done.1), files })
    }

    /// Reads the ledger of the recovery of the log that begins at `log`; an empty one if there was
    /// none.
    pub async fn read(journal: &HostJournal, log: (u32, u32)) -> Result<Ledger, HostError> {
        let mut newest = Ledger { log, ..Ledger::default() };
        let mut sequence = 0;
        for block in LEDGER_BLOCKS {
            let bytes = journal.disk.read(block << BLOCK.shift(), BLOCK.bytes()).await?;
            let Some(found) = Ledger::parse(&bytes) else { continue };
            sequence = sequence.max(found.sequence);
            if found.log == log && found.sequence > newest.sequence {
                newest = found;
            }
        }
        newest.sequence = sequence;
        Ok(newest)
    }

    async fn write(&self, journal: &HostJournal) -> Result<(), HostError> {
        let block = LEDGER_BLOCKS[(self.sequence % 2) as usize];
        let image = Rc::new(Buffer::copy_of(&self.to_bytes()));
        Ok(journal.disk.write(block << BLOCK.shift(), vec![image], Durability::Durable).await?)
    }
}

/// The ledger shared by files that are recovered at once: one write covers all changes made before
/// it began.
pub(crate) struct SharedLedger {
    ledger: RefCell<Ledger>,
    writing: Rc<RwLock>,
    /// Number of changes, and how many of them are durable.
    changes: Cell<u64>,
    durable: Cell<u64>,
}

impl SharedLedger {
    pub fn new(ledger: Ledger) -> SharedLedger {
        SharedLedger {
            ledger: RefCell::new(ledger),
            writing: Rc::default(),
            changes: Cell::default(),
            durable: Cell::default(),
        }
    }
    pub fn with<T>(&self, read: impl FnOnce(&Ledger) -> T) -> T {
        read(&self.ledger.borrow())
    }
    /// Changes the ledger; durable when this returns.
    pub async fn change(
        &self,
        journal: &HostJournal,
        change: impl FnOnce(&mut Ledger),
    ) -> Result<(), HostError> {
        change(&mut self.ledger.borrow_mut());
        self.changes.set(self.changes.get() + 1);
        let mine = self.changes.get();
        let _guard = self.writing.write().await;
        if self.durable.get() >= mine {
            return Ok(());
        }
        let all = self.changes.get();
        self.ledger.borrow_mut().sequence += 1;
        let ledger = self.ledger.borrow().clone();
        ledger.write(journal).await?;
        self.durable.set(all);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn states(count: usize) -> Vec<Version> {
        let number = |at| Version { number: at, ctime_ns: 2 * at, size: 3 * at };
        (1..=count as u64).map(number).collect()
    }

    /// Returns ledgers of all numbers of files, with as many states as fit in one of them or in
    /// each, and every file finished in one.
    fn all_kinds() -> Vec<Ledger> {
        let mut ledgers = Vec::new();
        for count in 0..=FILES_MAX {
            let each = STATES_TOGETHER_MAX / count.max(1);
            let most = each.min(STATES_MAX);
            for noted in [0, 1, 2, most - 1, most] {
                for finished in 0..=count as u64 {
                    let files = (0..count as u64).map(|at| match at < finished {
                        true => (FileId(7 + at), Progress::Finished),
                        false => (FileId(7 + at), Progress::Noted(states(noted))),
                    });
                    let done = (noted > 0).then_some(FileId(5));
                    let (sequence, log) = (9 + finished, (3, noted as u32));
                    ledgers.push(Ledger { sequence, log, done, files: files.collect() });
                }
            }
        }
        ledgers
    }

    #[test]
    fn ledgers_of_all_sizes_come_back() {
        let ledgers = all_kinds();
        assert!(ledgers.len() > 700, "only {}", ledgers.len());
        for ledger in ledgers {
            let bytes = ledger.to_bytes();
            assert_eq!(bytes.len(), BLOCK.bytes());
            assert_eq!(Ledger::parse(&bytes), Some(ledger));
        }
    }

    /// Any changed byte, and the beginning or the end of another ledger.
    #[test]
    fn damaged_ledgers_do_not_come_back() {
        for ledger in all_kinds().into_iter().step_by(29) {
            let whole = ledger.to_bytes();
            for at in 0..whole.len() {
                let mut bytes = whole.clone();
                bytes[at] ^= 0x40;
                assert_eq!(Ledger::parse(&bytes), None, "byte {at} of {ledger:?}");
            }
            let older = Ledger { sequence: ledger.sequence - 2, ..ledger }.to_bytes();
            for at in (512..whole.len()).step_by(512) {
                let torn = [&whole[..at], &older[at..]].concat();
                assert!(torn == whole || Ledger::parse(&torn).is_none(), "torn at {at}");
            }
        }
    }

    #[test]
    fn what_an_older_program_noted_of_its_one_file_counts() {
        let files = [(FileId(6), Progress::Noted(states(STATES_MAX)))].into();
        let ledger = Ledger { sequence: 9, log: (3, 4), done: Some(FileId(5)), files };
        let mut bytes = ledger.to_bytes();
        bytes[4..12].copy_from_slice(MAGIC_OF_ONE);
        let sum = crc32c::crc32c(&bytes[4..]);
        bytes[..4].copy_from_slice(&sum.to_le_bytes());
        assert_eq!(Ledger::parse(&bytes), Some(ledger));
    }

    #[test]
    fn all_is_done_up_to_the_first_file_that_is_not_finished() {
        let order = [1, 2, 3, 4].map(FileId);
        let mut ledger = Ledger::default();
        ledger.finish(FileId(2), &order);
        assert_eq!((ledger.done, ledger.files.len()), (None, 1));
        ledger.finish(FileId(1), &order);
        assert_eq!((ledger.done, ledger.files.len()), (Some(FileId(2)), 0));
        assert!(ledger.is_finished(FileId(1)) && !ledger.is_finished(FileId(3)));
    }
}
