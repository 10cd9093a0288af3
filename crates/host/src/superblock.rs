//! The journal device: its head, the ledger of recovery, and the log.
//!
//! Block 0 is the head, written once. Blocks 1 and 2 hold the ledger. The log starts at block
//! [`LOG_START`] with a JBD2 journal superblock.

use crate::error::HostError;
use crate::journal_disk::{AbandonedChanges, JournalDisk};
use crate::record::{BLOCK, Fields};
use commit::{PlanDisks, PlanExecutor};
use device::{Buffer, DeviceError, Disk, Durability, World};
use format::jbd2::JournalSuperblock;
use std::cell::RefCell;
use std::rc::Rc;
use store::Identity;

const MAGIC: &[u8; 8] = b"OKHOST01";
pub(crate) const LEDGER_BLOCKS: [u64; 2] = [1, 2];
const LOG_START: u64 = 4;
/// Fewer have no space for a large write beside the records of others.
const LOG_BLOCKS_MIN: u64 = 4000;
const NAME_BYTES_MAX: usize = 1024;

/// The host and the store that a journal belongs to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JournalHead {
    /// Identity of this host at the store, through all its restarts.
    pub identity: Identity,
    /// The store's name.
    pub store: String,
    /// Identity of the store, whatever its name. Empty: the first recovery records it.
    pub store_identity: String,
    pub log_blocks: u32,
    pub uuid: [u8; 16],
}

/// A journal device and its head.
#[derive(Clone)]
pub struct HostJournal {
    pub disk: Rc<dyn Disk>,
    pub head: JournalHead,
    /// The store's identity in the head, once it is recorded.
    store_identity: Rc<RefCell<String>>,
    /// Changes of a recovery that was dropped.
    pub(crate) abandoned: Rc<AbandonedChanges>,
}

impl JournalHead {
    fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; 4];
        bytes.extend(MAGIC);
        bytes.extend(self.log_blocks.to_le_bytes());
        bytes.extend(self.uuid);
        for text in [&self.identity.0, &self.store, &self.store_identity] {
            bytes.extend((text.len() as u32).to_le_bytes());
            bytes.extend(text.as_bytes());
        }
        bytes.resize(BLOCK.bytes(), 0);
        let sum = crc32c::crc32c(&bytes[4..]);
        bytes[..4].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    fn parse(bytes: &[u8]) -> Result<JournalHead, &'static str> {
        let mut rest = Fields(bytes);
        let sum = rest.u32().ok_or("it is too short")?;
        let is_right = crc32c::crc32c(rest.0) == sum;
        if rest.take::<8>() != Some(*MAGIC) {
            return Err("its head is missing");
        }
        if !is_right {
            return Err("the checksum of its head is wrong");
        }
        let mut parse = || {
            let (log_blocks, uuid) = (rest.u32()?, rest.take()?);
            let mut text = || {
                let length = rest.u32()? as usize;
                let text = rest.0.get(..length.min(NAME_BYTES_MAX))?.to_vec();
                rest.0 = &rest.0[text.len()..];
                String::from_utf8(text).ok()
            };
            let (identity, store) = (Identity(text()?), text()?);
            // Older programs have left zeros there.
            let store_identity = text()?;
            Some(JournalHead { identity, store, store_identity, log_blocks, uuid })
        };
        parse().ok_or("its head is damaged")
    }
}

impl HostJournal {
    pub async fn open(disk: Rc<dyn Disk>) -> Result<HostJournal, HostError> {
        let not =
            |why: &str| HostError::NotAJournal { journal: disk.name().into(), why: why.into() };
        if disk.geometry().size < BLOCK.bytes() as u64 {
            return Err(not("it is too short"));
        }
        let head = JournalHead::parse(&disk.read(0, BLOCK.bytes()).await?).map_err(not)?;
        let blocks = disk.geometry().size >> BLOCK.shift();
        if u64::from(head.log_blocks) + LOG_START > blocks {
            return Err(not("it was longer when it was made"));
        }
        Ok(HostJournal::of(disk, head))
    }

    fn of(disk: Rc<dyn Disk>, head: JournalHead) -> HostJournal {
        let store_identity = Rc::new(RefCell::new(head.store_identity.clone()));
        let (disk, abandoned) = JournalDisk::new(disk);
        HostJournal { disk: Rc::new(disk), head, store_identity, abandoned }
    }

    /// Returns whether the device holds a journal, or anything that calls itself one.
    pub async fn is_one(disk: &dyn Disk) -> Result<bool, HostError> {
        if disk.geometry().size < BLOCK.bytes() as u64 {
            return Ok(false);
        }
        Ok(HostJournal::is_head(&disk.read(0, BLOCK.bytes()).await?))
    }

    /// Returns whether the first bytes of a disk, at least 12, call themselves the head of a host
    /// journal, damaged or not.
    pub fn is_head(start: &[u8]) -> bool {
        start.get(4..4 + MAGIC.len()) == Some(&MAGIC[..])
    }

    /// Makes an empty journal. What the device held is lost; a crash in between leaves none.
    pub async fn format(
        world: &dyn World,
        disk: Rc<dyn Disk>,
        identity: Identity,
        store: &str,
    ) -> Result<HostJournal, HostError> {
        let found = disk.geometry().size;
        let needed = (LOG_START + LOG_BLOCKS_MIN) << BLOCK.shift();
        if found < needed {
            return Err(HostError::TooSmall { journal: disk.name().into(), found, needed });
        }
        let log_blocks =
            ((found >> BLOCK.shift()) - LOG_START).min(u64::from(u32::MAX >> 4)) as u32;
        let mut uuid = [0; 16];
        uuid[..8].copy_from_slice(&world.random().to_le_bytes());
        uuid[8..].copy_from_slice(&world.random().to_le_bytes());
        let head = JournalHead {
            identity,
            store: store.chars().take(NAME_BYTES_MAX / 4).collect(),
            store_identity: String::new(),
            log_blocks,
            uuid,
        };
        let journal = HostJournal::of(disk, head);
        let zeros = Rc::new(Buffer::zeroed((LOG_START as usize) << BLOCK.shift()));
        journal.disk.write(0, vec![zeros], Durability::Durable).await?;
        let superblock = JournalSuperblock::new(BLOCK, log_blocks, uuid);
        let image = Rc::new(Buffer::copy_of(&superblock.serialize()));
        journal.disk.write(LOG_START << BLOCK.shift(), vec![image], Durability::Durable).await?;
        let head = Rc::new(Buffer::copy_of(&journal.head.to_bytes()));
        journal.disk.write(0, vec![head], Durability::Durable).await?;
        Ok(journal)
    }

    /// Returns whether nothing in the journal waits for recovery.
    pub async fn is_clean(&self) -> Result<bool, HostError> {
        Ok(self.read_superblock().await?.is_clean())
    }

    /// Checks that this host's name for the store is the one that the journal was made with.
    pub fn check_store(&self, store: &str) -> Result<(), HostError> {
        let wanted: String = store.chars().take(NAME_BYTES_MAX / 4).collect();
        if self.head.store == wanted {
            return Ok(());
        }
        let journal = self.disk.name().into();
        Err(HostError::Foreign { journal, found: self.head.store.clone(), wanted })
    }

    /// Checks that the records are of this store's files. An empty identity, of either, matches.
    pub fn check_store_identity(&self, found: &str) -> Result<(), HostError> {
        let wanted = self.store_identity.borrow();
        if wanted.is_empty() || found.is_empty() || *wanted == found {
            return Ok(());
        }
        Err(HostError::OtherStore {
            journal: self.disk.name().into(),
            store: self.head.store.clone(),
            found: found.into(),
            wanted: wanted.clone(),
        })
    }
    /// Records the store's identity, once, while the log is empty: a torn head then costs nothing.
    pub(crate) async fn note_store_identity(&self, found: &str) -> Result<(), HostError> {
        if !self.store_identity.borrow().is_empty() || found.is_empty() {
            return Ok(());
        }
        let store_identity = found.to_owned();
        let head = JournalHead { store_identity: store_identity.clone(), ..self.head.clone() };
        let image = Rc::new(Buffer::copy_of(&head.to_bytes()));
        self.disk.write(0, vec![image], Durability::Durable).await?;
        *self.store_identity.borrow_mut() = store_identity;
        Ok(())
    }

    /// Carries out plans of the log, whose blocks have `unit` bytes.
    pub(crate) fn executor(&self, unit: usize) -> PlanExecutor {
        let blocks = LOG_START..LOG_START + u64::from(self.head.log_blocks);
        PlanExecutor::log_only(PlanDisks::log_only(self.disk.clone(), BLOCK, blocks), unit)
    }
    /// Reads the log from its byte `at` on.
    pub(crate) async fn read_log(&self, at: u64, length: usize) -> Result<Buffer, DeviceError> {
        self.disk.read((LOG_START << BLOCK.shift()) + at, length).await
    }
    pub(crate) async fn read_superblock(&self) -> Result<JournalSuperblock, HostError> {
        let bytes = self.read_log(0, BLOCK.bytes()).await?;
        JournalSuperblock::parse(&bytes, BLOCK, self.head.log_blocks.into()).map_err(|error| {
            HostError::NotAJournal { journal: self.disk.name().into(), why: error.to_string() }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_come_back_and_damaged_ones_are_refused() {
        let (identity, store) = (Identity("host-1".into()), "dir:/srv".into());
        let store_identity = "dir 0123".into();
        let head = JournalHead { identity, store, store_identity, log_blocks: 4711, uuid: [3; 16] };
        let bytes = head.to_bytes();
        assert_eq!(JournalHead::parse(&bytes), Ok(head));
        for at in 0..64 {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            assert!(JournalHead::parse(&changed).is_err(), "byte {at}");
        }
    }
}
