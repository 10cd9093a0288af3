//! What a recovery has brought about so far, for the one that comes after it if it crashes: two copies, written in turn.
//!
//! Files are recovered in the order of their numbers: those up to `done` are finished. Of the one that comes next, it
//! notes the states that the store told while it was replayed, before the store makes them durable. They are ours.

use crate::error::HostError;
use crate::record::{BLOCK, Rest, STATES_MAX, put_version};
use crate::superblock::{HostJournal, LEDGER_BLOCKS};
use device::{Buffer, Durability};
use std::rc::Rc;
use store::{FileId, Version};

const MAGIC: &[u8; 8] = b"OKHLEDG1";

#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Ledger {
    /// Which copy is newer.
    turn: u64,
    /// The log that it belongs to: where it began.
    pub log: (u32, u32),
    pub done: Option<FileId>,
    pub file: Option<FileId>,
    pub states: Vec<Version>,
}

impl Ledger {
    fn to_bytes(&self) -> Vec<u8> {
        assert!(self.states.len() <= STATES_MAX);
        let mut bytes = vec![0; 4];
        bytes.extend(MAGIC);
        bytes.extend(self.turn.to_le_bytes());
        bytes.extend(self.log.0.to_le_bytes());
        bytes.extend(self.log.1.to_le_bytes());
        for file in [self.done, self.file] {
            bytes.extend(u32::from(file.is_some()).to_le_bytes());
            bytes.extend(file.map_or(0, |file| file.0).to_le_bytes());
        }
        bytes.extend((self.states.len() as u32).to_le_bytes());
        self.states.iter().for_each(|state| put_version(&mut bytes, *state));
        bytes.resize(BLOCK.bytes(), 0);
        let sum = crc32c::crc32c(&bytes[4..]);
        bytes[..4].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    fn parse(bytes: &[u8]) -> Option<Ledger> {
        let mut rest = Rest(bytes);
        (rest.u32()? == crc32c::crc32c(rest.0) && rest.take::<8>()? == *MAGIC).then_some(())?;
        let (turn, log) = (rest.u64()?, (rest.u32()?, rest.u32()?));
        let mut file = || Some((rest.u32()? == 1, FileId(rest.u64()?)));
        let [done, file] = [file()?, file()?].map(|(is_there, file)| is_there.then_some(file));
        let count = rest.u32()? as usize;
        (count <= STATES_MAX).then_some(())?;
        let states = (0..count).map(|_| rest.version()).collect::<Option<Vec<_>>>()?;
        Some(Ledger { turn, log, done, file, states })
    }

    /// Of the recovery of the log that begins at `log`; an empty one if there was none.
    pub async fn read(journal: &HostJournal, log: (u32, u32)) -> Result<Ledger, HostError> {
        let mut newest = Ledger { log, ..Ledger::default() };
        let mut turn = 0;
        for block in LEDGER_BLOCKS {
            let bytes = journal.disk.read(block << BLOCK.shift(), BLOCK.bytes()).await?;
            let Some(found) = Ledger::parse(&bytes) else { continue };
            turn = turn.max(found.turn);
            if found.log == log && found.turn > newest.turn {
                newest = found;
            }
        }
        newest.turn = turn;
        Ok(newest)
    }

    /// Durable when it returns.
    pub async fn write(&mut self, journal: &HostJournal) -> Result<(), HostError> {
        self.turn += 1;
        let block = LEDGER_BLOCKS[(self.turn % 2) as usize];
        let image = Rc::new(Buffer::copy_of(&self.to_bytes()));
        Ok(journal.disk.write(block << BLOCK.shift(), vec![image], Durability::Durable).await?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ledgers_come_back_and_torn_ones_do_not() {
        let states = vec![Version { number: 1, ctime_ns: 2, size: 3 }; STATES_MAX];
        let ledger = Ledger { turn: 9, log: (3, 4), done: Some(FileId(5)), file: None, states };
        let mut bytes = ledger.to_bytes();
        assert_eq!(bytes.len(), BLOCK.bytes());
        assert_eq!(Ledger::parse(&bytes), Some(ledger));
        bytes[512..].fill(0);
        assert_eq!(Ledger::parse(&bytes), None);
    }
}
