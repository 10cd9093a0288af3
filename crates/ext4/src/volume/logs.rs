//! The scattered logs: a file of the volume whose blocks are distributed over it. The journal is
//! written to it past the file system.
//!
//! It is located before the journal is replayed, as the flush zone is. Its inode is one of the
//! first that are not reserved, and never changes after mkfs. Its blocks are allocated and, as far
//! as the file system knows, never written. So mkfs writes only bitmaps for them, and a reader of
//! the file sees zeros.

use super::readable::{CANDIDATES, readable, refuse_not_first};
use super::{OpenParts, Volume};
use crate::{Allocate, Caller, Error, Inode, Result, WriteFlags};
use engine::{LogExtent, ScatteredLogMap};
use format::ext4::inode::flags;
use format::ext4::{VolumeSuperblock, bitmap, feature};
use format::scattered::{LOGS_MAX, LOGS_SUPERBLOCK_SIZE, LogsError, LogsSuperblock};
use std::ops::Range;
use std::rc::Rc;
use units::{FileBlock, HomeBlock, InodeNumber, LogBlock};

/// The file's name, in the root.
pub const LOGS_NAME: &str = ".scattered-logs";
/// Blocks of one log: half of it is the longest transaction, and a handle has three quarters of
/// that. A rename in a deep directory fits.
const LOG_BLOCKS_MIN: u32 = 256;
/// Blocks of all logs together: a quarter of them holds what the largest fixed operation changes,
/// three times over.
const LOGS_BLOCKS_MIN: u64 = 512;

impl Volume {
    /// Makes the volume's scattered logs, one of `log_bytes` at the end of each `group_bytes`; for
    /// mkfs, before there are other files. Returns their number; a group without a run that long
    /// gets none.
    pub async fn make_scattered_logs(
        self: &Rc<Self>,
        log_bytes: u64,
        group_bytes: u64,
    ) -> Result<u32> {
        let block = self.block_size().bytes() as u64;
        let (log_blocks, group_blocks) = (log_bytes / block, group_bytes / block);
        let wrong = |why: String| Err(Error::LogSizes(why));
        if !self.has(feature::EXTENTS) {
            return Err(Error::Logs("scattered logs need a volume with extents (ext4)".to_owned()));
        }
        if !self.has(feature::HAS_JOURNAL) || self.superblock().journal_inode == 0 {
            return Err(Error::Logs("scattered logs need a journal inside the volume".to_owned()));
        }
        if log_blocks < LOG_BLOCKS_MIN.into() || log_blocks > u64::from(self.blocks_per_group()) {
            let most = u64::from(self.blocks_per_group()) * block;
            let least = u64::from(LOG_BLOCKS_MIN) * block;
            return wrong(format!(
                "a log of {log_bytes} bytes; with blocks of {block} bytes it may have from {least} to {most}"
            ));
        }
        if group_blocks < 2 * log_blocks || group_blocks > u64::from(u32::MAX) {
            return wrong(format!(
                "logs of {log_bytes} bytes in groups of {group_bytes}: more than a half"
            ));
        }
        let root = self.inode(InodeNumber(2)).await?;
        let made =
            self.mknod(&root, LOGS_NAME.as_bytes(), &Caller::ROOT, 0o100_400, 0).await?.value;
        refuse_not_first(self, &made, "the scattered logs")?;
        self.write(&made, &Caller::ROOT, 0, &vec![0; block as usize], WriteFlags::default())
            .await?;
        let (mut logs, end) = (0u32, self.superblock().blocks);
        let mut from = u64::from(self.superblock().first_data_block);
        while from + log_blocks <= end && logs < LOGS_MAX {
            if let Some(home) =
                self.last_free_run(from..end.min(from + group_blocks), log_blocks).await?
            {
                let at = 1 + u64::from(logs) * log_blocks;
                self.allocate_log(&made, at, home, log_blocks).await?;
                logs += 1;
            }
            from += group_blocks;
        }
        if logs == 0 {
            return wrong(format!("nowhere on the volume are {log_bytes} bytes free in one piece"));
        }
        if u64::from(logs) * log_blocks < LOGS_BLOCKS_MIN {
            let least = LOGS_BLOCKS_MIN * block;
            return wrong(format!("{logs} log of {log_bytes} bytes; together they need {least}"));
        }
        let size = (1 + u64::from(logs) * log_blocks) * block;
        self.set_size_of_logs(&made, size).await?;
        let superblock = LogsSuperblock {
            uuid: self.superblock().uuid,
            inode: made.number.0,
            logs,
            log_blocks: log_blocks as u32,
            group_blocks: group_blocks as u32,
        };
        let start = superblock.serialize();
        self.write(&made, &Caller::ROOT, 0, &start, WriteFlags::default()).await?;
        self.set_flags(&made, self.flags(&made) | flags::IMMUTABLE).await?;
        self.sync().await?;
        Ok(logs)
    }

    /// The last `count` free blocks in one piece among `blocks`, and in one group.
    async fn last_free_run(&self, blocks: Range<u64>, count: u64) -> Result<Option<HomeBlock>> {
        let group_of = |at: u64| self.superblock.borrow().group_of_block(HomeBlock(at)).0;
        let (first, last) = (group_of(blocks.start), group_of(blocks.end - 1));
        for group in (first.get()..=last.get()).rev().map(units::GroupNumber) {
            let bits = self.block_bitmap(group).await?;
            let bits = bits.to_vec();
            let superblock = self.superblock.borrow();
            let start = superblock.group_start(group).get();
            let end = start + u64::from(superblock.blocks_in_group(group));
            let part = blocks.start.max(start) - start..blocks.end.min(end) - start;
            let (mut at, mut found) = (part.start as u32, None);
            while let Some(run) = bitmap::next_clear_run(&bits, at..part.end as u32) {
                if u64::from(run.end - run.start) >= count {
                    found = Some(HomeBlock(start + u64::from(run.end) - count));
                }
                at = run.end;
            }
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }

    /// Maps the `count` blocks from `home` on to the file's block `at`.
    async fn allocate_log(
        &self,
        inode: &Rc<Inode>,
        at: u64,
        home: HomeBlock,
        count: u64,
    ) -> Result<()> {
        let _guard = inode.lock.write().await;
        let mut done = 0;
        while done < count {
            let mut handle = self.engine().start(self.credits_map(inode)).await?;
            self.drop_preallocation(inode.number);
            inode.mapping_cache.next_goal.set(Some(home.plus(done)));
            let (from, rest) = (FileBlock((at + done) as u32), (count - done) as u32);
            let how = Allocate::Unwritten;
            let found =
                self.map_or_allocate(&mut handle, inode, &Caller::ROOT, from, rest, how).await;
            self.drop_preallocation(inode.number);
            let stored = self.store(&mut handle, inode).await;
            handle.stop();
            let mapping = found?.mapping;
            stored?;
            if mapping.home() != Some(home.plus(done)) {
                return Err(Error::Logs(format!("{} was free, and is taken", home.plus(done))));
            }
            done += u64::from(mapping.count);
        }
        Ok(())
    }

    async fn set_size_of_logs(&self, inode: &Rc<Inode>, size: u64) -> Result<()> {
        let _guard = inode.lock.write().await;
        let mut handle = self.engine().start(self.credits_inode()).await?;
        inode.fields.borrow_mut().size = size;
        let stored = self.store(&mut handle, inode).await;
        handle.stop();
        stored
    }

    /// Whether the journal may lie in this file's blocks: then they must not be freed.
    pub(crate) async fn holds_logs(self: &Rc<Self>, inode: &Rc<Inode>) -> Result<bool> {
        if !inode.is_regular() {
            return Ok(false);
        }
        let start = self.read(inode, 0, LOGS_SUPERBLOCK_SIZE).await?;
        Ok(LogsSuperblock::parse(&start.to_vec()).is_ok_and(|logs| logs.inode == inode.number.0))
    }
}

/// The scattered logs of a volume that is not open, if it has any. `first`: the number of their
/// first log block.
pub(super) async fn find(
    parts: &OpenParts,
    superblock: &VolumeSuperblock,
    first: LogBlock,
) -> Result<Option<ScatteredLogMap>> {
    let volume = readable(parts, superblock).await?;
    let block = superblock.block_size.bytes() as u64;
    // Any user may make a file that looks like one, but for the flag.
    let mut not_it = None;
    let candidates = superblock.first_inode..superblock.first_inode.saturating_add(CANDIDATES);
    for number in candidates.map(InodeNumber) {
        // Free and damaged inodes hold none.
        let Ok(inode) = volume.load_inode(number).await else { continue };
        let size = inode.fields.borrow().size;
        if !inode.is_regular() || size < block {
            continue;
        }
        let Ok(mapping) = volume.map(&inode, FileBlock(0), 1).await else { continue };
        let Some(at) = mapping.home().filter(|at| volume.block_is_usable(*at, 1)) else { continue };
        let bytes = parts.home.read(at.get() * block, block as usize).await;
        let logs = match LogsSuperblock::parse(&bytes.map_err(engine::EngineError::from)?) {
            Err(LogsError::NoLogs) => continue,
            Err(error) => {
                not_it = not_it.or(Some(Error::Logs(error.to_string())));
                continue;
            }
            Ok(logs) => logs,
        };
        let blocks = 1 + u64::from(logs.logs) * u64::from(logs.log_blocks);
        let needed = blocks.saturating_mul(block);
        // The uuid may have changed (`tune2fs -U`): the blocks are the file's all the same.
        if logs.inode != number.0 || size < needed {
            // A copy, as a file.
            continue;
        }
        if inode.fields.borrow().flags & flags::IMMUTABLE == 0 {
            let why = "are no longer immutable (chattr +i): their blocks may be given away";
            let error = Error::Logs(format!("the scattered logs ({number}, /{LOGS_NAME}) {why}"));
            not_it = not_it.or(Some(error));
            continue;
        }
        let found = places(&volume, &inode, &logs, first).await?;
        let overlaps = |start: &HomeBlock| {
            (0..u64::from(found.blocks)).contains(&at.get().wrapping_sub(start.get()))
        };
        if found.homes.iter().any(overlaps) {
            return Err(Error::corrupt_inode(number, "a scattered log overlaps their superblock"));
        }
        return Ok(Some(found));
    }
    not_it.map_or(Ok(None), Err)
}

/// Locates the logs, each in one piece.
async fn places(
    volume: &Volume,
    inode: &Inode,
    logs: &LogsSuperblock,
    first: LogBlock,
) -> Result<ScatteredLogMap> {
    let corrupt = |why: String| Error::corrupt_inode(inode.number, why);
    let mut homes = Vec::new();
    for log in 0..u64::from(logs.logs) {
        let (mut done, mut home) = (0, None);
        while done < logs.log_blocks {
            let at = 1 + log * u64::from(logs.log_blocks) + u64::from(done);
            let at = u32::try_from(at)
                .map_err(|_| corrupt("the scattered logs are too long".to_owned()))?;
            let mapping = volume.map(inode, FileBlock(at), logs.log_blocks - done).await?;
            let Some(found) = mapping.home().filter(|_| mapping.count > 0) else {
                return Err(corrupt(format!("the scattered logs have a hole at block {at}")));
            };
            if !volume.block_is_usable(found, mapping.count.into()) {
                return Err(corrupt("the scattered logs overlap what is not their own".to_owned()));
            }
            let start = *home.get_or_insert(found);
            if start.plus(done.into()) != found {
                return Err(corrupt(format!("scattered log {log} is in more than one piece")));
            }
            done += mapping.count;
        }
        homes.extend(home);
    }
    Ok(ScatteredLogMap { first, blocks: logs.log_blocks, homes })
}

/// The extents of the logs, behind those of the journal.
pub(super) fn extents(places: &ScatteredLogMap) -> Result<Vec<LogExtent>> {
    let mut first = places.first;
    let mut extents = Vec::with_capacity(places.homes.len());
    for home in &places.homes {
        extents.push(LogExtent { first, count: places.blocks, disk_block: home.get() });
        let next = first.get().checked_add(places.blocks);
        first = LogBlock(
            next.ok_or_else(|| Error::Logs("they are too long to be numbered".to_owned()))?,
        );
    }
    Ok(extents)
}
