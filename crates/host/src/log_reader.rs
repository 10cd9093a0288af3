//! Feeds the log to the passes of `journal::recover`, block by block, and reads it in large pieces.

use crate::error::HostError;
use crate::superblock::HostJournal;
use device::Buffer;
use format::jbd2::JournalSuperblock;
use journal::{LogRing, LogWalk, Pass};
use runtime::WalkPace;
use units::LogBlock;

const READ_BYTES: usize = 1 << 20;
/// Bytes that are given before other tasks run.
const GIVEN_AT_ONCE: usize = 128 << 10;

pub(crate) struct LogReader<'a> {
    journal: &'a HostJournal,
    ring: LogRing,
    unit: usize,
    /// Log blocks `first .. first + count` are in `bytes`.
    first: LogBlock,
    count: u32,
    bytes: Buffer,
    /// Pace of a caller, by bytes given to it.
    pace: WalkPace,
}

impl<'a> LogReader<'a> {
    pub fn new(journal: &'a HostJournal, superblock: &JournalSuperblock) -> LogReader<'a> {
        let unit = superblock.log_block_bytes();
        let (ring, bytes) = (LogRing::of(superblock), Buffer::zeroed(0));
        let pace = WalkPace::new(GIVEN_AT_ONCE);
        LogReader { journal, ring, unit, first: LogBlock(0), count: 0, bytes, pace }
    }

    pub async fn feed(&mut self, pass: &mut impl Pass) -> Result<(), HostError> {
        while let Some(at) = pass.wants() {
            pass.give(self.read(at).await?)?;
        }
        Ok(())
    }

    pub async fn read(&mut self, at: LogBlock) -> Result<&[u8], HostError> {
        self.pace.visited(self.unit).await;
        if at < self.first || at.get() - self.first.get() >= self.count {
            let count = self.ring.together(at).min((READ_BYTES / self.unit) as u32);
            let byte = u64::from(at.get()) * self.unit as u64;
            let bytes = self.journal.read_log(byte, count as usize * self.unit).await?;
            (self.first, self.count, self.bytes) = (at, count, bytes);
        }
        let offset = (at.get() - self.first.get()) as usize * self.unit;
        Ok(&self.bytes[offset..offset + self.unit])
    }
}
