//! An emulated log-structured placement: the disk traffic of NILFS, as a stand-in for it.
//!
//! **What it is.** Files whose blocks are never written home. Each sync appends a *partial segment*
//! at the end of one log, in a single write. A partial segment begins with a summary block and the
//! dirty data blocks of the files that are synced. For each of these files its index blocks follow,
//! and the block of the inode table that holds its inode. The blocks of a checkpoint come last:
//! block addresses, segment usage, checkpoint file, super root. One writer serves all syncs waiting
//! at that moment, as NILFS's segment constructor does. Reads follow the map, so files that are
//! written at the same time lie interleaved on the disk. Reads and writes take the drive's time.
//!
//! **What it is not.** NILFS. Its bytes have no format, and it is not recovered after a crash.
//! Nothing is cleaned: a log that reaches the disk's end is full. Names cost nothing. Unsynced data
//! stays in memory, and the cache keeps everything until [`LogStructuredFiles::drop_caches`]. The
//! numbers of index and checkpoint blocks of a partial segment are counted as described at
//! [`LogStructuredFiles::overhead_blocks`], not taken from NILFS's code.

use crate::virtual_time::virtual_files::run_tasks;
use device::{Buffer, Disk, Durability, World};
use emulated::EmulatedDisk;
use runtime::VirtualWorld;
use runtime::sync::Event;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Range;
use std::rc::Rc;
use units::Instant;
use workloads::{Actor, Files, SyncKind};

/// Bytes of a block.
const BLOCK: usize = 4096;
/// Block addresses in an index block, inodes in a block of their table, and records of the table of
/// block addresses.
const ADDRESSES: u64 = 256;
const INODES: u64 = 32;
const TRANSLATIONS: u64 = 128;

/// Log-structured files; clones are the same files.
#[derive(Clone)]
pub struct LogStructuredFiles(Rc<State>);

struct State {
    world: VirtualWorld,
    disk: EmulatedDisk,
    names: RefCell<BTreeMap<String, u64>>,
    inodes: RefCell<Vec<Inode>>,
    /// The next block of the log.
    head: Cell<u64>,
    /// Inodes that wait to be synced, and the write that will do it.
    asked: RefCell<BTreeSet<u64>>,
    round: Cell<u64>,
    /// Number of the last durable write.
    done: Cell<u64>,
    writing: Cell<bool>,
    progress: Event,
}

#[derive(Default)]
struct Inode {
    size: u64,
    /// Address of each block; 0: none yet.
    places: Vec<u64>,
    cached: BTreeMap<u64, Rc<Buffer>>,
    dirty: BTreeSet<u64>,
}

pub struct LogStructuredFile {
    inode: u64,
    sync: SyncKind,
}

impl LogStructuredFiles {
    /// Opens an empty log on a drive in this world.
    pub fn new(world: VirtualWorld, disk: EmulatedDisk) -> LogStructuredFiles {
        LogStructuredFiles(Rc::new(State {
            world,
            disk,
            names: RefCell::default(),
            inodes: RefCell::default(),
            // As in NILFS, the first block is the superblock.
            head: Cell::new(1),
            asked: RefCell::default(),
            round: Cell::new(1),
            done: Cell::new(0),
            writing: Cell::new(false),
            progress: Event::default(),
        }))
    }

    /// Drops all cached content that is on the disk.
    pub fn drop_caches(&self) {
        for inode in self.0.inodes.borrow_mut().iter_mut() {
            let Inode { cached, dirty, .. } = inode;
            cached.retain(|block, _| dirty.contains(block));
        }
    }

    /// Returns the blocks of a partial segment besides the data. There is a summary, and a
    /// checkpoint of three blocks. Each file has an index block for each 256 consecutive blocks
    /// that it touches, in two levels if it has more than 256. Each 32 inodes have a block of the
    /// inode table, each 128 blocks written one of the table of block addresses.
    pub fn overhead_blocks(files: &[(u64, u64, BTreeSet<u64>)]) -> u64 {
        let data: u64 = files.iter().map(|(_, _, dirty)| dirty.len() as u64).sum();
        let index = |(_, blocks, dirty): &(u64, u64, BTreeSet<u64>)| {
            let leaves =
                dirty.iter().map(|block| block / ADDRESSES).collect::<BTreeSet<_>>().len() as u64;
            leaves + u64::from(*blocks > ADDRESSES)
        };
        let inodes =
            files.iter().map(|(inode, _, _)| inode / INODES).collect::<BTreeSet<_>>().len() as u64;
        1 + files.iter().map(index).sum::<u64>() + inodes + data.div_ceil(TRANSLATIONS) + 3
    }

    async fn sync_inode(&self, inode: u64) -> io::Result<()> {
        let state = &*self.0;
        state.asked.borrow_mut().insert(inode);
        let mine = state.round.get();
        if !state.writing.replace(true) {
            let result = self.write_segments(mine).await;
            state.writing.set(false);
            state.progress.notify();
            result?;
        }
        while state.done.get() < mine {
            let may_write = || (state.done.get() >= mine || !state.writing.get()).then_some(());
            state.progress.until(may_write).await;
            if state.done.get() < mine && !state.writing.replace(true) {
                let result = self.write_segments(mine).await;
                state.writing.set(false);
                state.progress.notify();
                result?;
            }
        }
        Ok(())
    }

    /// Writes partial segments until write `wanted` is durable.
    async fn write_segments(&self, wanted: u64) -> io::Result<()> {
        let state = &*self.0;
        while state.done.get() < wanted {
            let round = state.round.get();
            state.round.set(round + 1);
            self.write_segment().await?;
            state.done.set(round);
        }
        Ok(())
    }

    async fn write_segment(&self) -> io::Result<()> {
        let state = &*self.0;
        let asked = state.asked.take();
        let mut parts = vec![Rc::new(Buffer::zeroed(BLOCK))];
        let at = state.head.get();
        let mut files = Vec::new();
        for number in asked {
            let mut inodes = state.inodes.borrow_mut();
            let inode = &mut inodes[number as usize];
            let dirty = std::mem::take(&mut inode.dirty);
            for block in &dirty {
                inode.places[*block as usize] = at + parts.len() as u64;
                parts.push(inode.cached[block].clone());
            }
            files.push((number, inode.places.len() as u64, dirty));
        }
        for _ in 1..LogStructuredFiles::overhead_blocks(&files) {
            parts.push(Rc::new(Buffer::zeroed(BLOCK)));
        }
        let end = at + parts.len() as u64;
        if end * BLOCK as u64 > state.disk.geometry().size {
            return Err(io::Error::from_raw_os_error(libc::ENOSPC));
        }
        state.head.set(end);
        let written = state.disk.write(at * BLOCK as u64, parts, Durability::Cached).await;
        written.map_err(io::Error::other)
    }

    /// Returns the content of a block, from memory or the disk; zeros if it has no address.
    async fn block(&self, inode: u64, block: u64) -> io::Result<Rc<Buffer>> {
        self.fetch(inode, block..block + 1).await?;
        let inodes = self.0.inodes.borrow();
        let cached = inodes[inode as usize].cached.get(&block);
        Ok(cached.cloned().unwrap_or_else(|| Rc::new(Buffer::zeroed(BLOCK))))
    }

    /// Reads blocks from the disk into memory; adjacent blocks by one read.
    async fn fetch(&self, inode: u64, blocks: Range<u64>) -> io::Result<()> {
        let mut runs: Vec<(u64, u64, u64)> = Vec::new();
        {
            let inodes = self.0.inodes.borrow();
            let Inode { cached, places, .. } = &inodes[inode as usize];
            for block in blocks.filter(|block| !cached.contains_key(block)) {
                let place = places.get(block as usize).copied().unwrap_or(0);
                match runs.last_mut() {
                    _ if place == 0 => {}
                    Some((first, at, count))
                        if *first + *count == block && *at + *count == place =>
                    {
                        *count += 1
                    }
                    _ => runs.push((block, place, 1)),
                }
            }
        }
        for (first, place, count) in runs {
            let bytes = self.0.disk.read(place * BLOCK as u64, count as usize * BLOCK).await;
            let bytes = bytes.map_err(io::Error::other)?;
            let mut inodes = self.0.inodes.borrow_mut();
            let cached = &mut inodes[inode as usize].cached;
            for (block, bytes) in (first..).zip(bytes.chunks(BLOCK)) {
                // Another task may have written it during the read.
                cached.entry(block).or_insert_with(|| Rc::new(Buffer::copy_of(bytes)));
            }
        }
        Ok(())
    }

    fn find(&self, path: &str) -> io::Result<u64> {
        let found = self.0.names.borrow().get(path).copied();
        found.ok_or_else(|| io::Error::from_raw_os_error(libc::ENOENT))
    }
}

impl Files for LogStructuredFiles {
    type File = LogStructuredFile;

    fn now(&self) -> Instant {
        self.0.world.now()
    }
    async fn sleep_until(&self, at: Instant) {
        self.0.world.sleep_until(at).await;
    }
    async fn create(&self, path: &str, sync: SyncKind) -> io::Result<LogStructuredFile> {
        let mut names = self.0.names.borrow_mut();
        if names.contains_key(path) {
            return Err(io::Error::from_raw_os_error(libc::EEXIST));
        }
        let mut inodes = self.0.inodes.borrow_mut();
        let inode = inodes.len() as u64;
        inodes.push(Inode::default());
        names.insert(path.to_string(), inode);
        Ok(LogStructuredFile { inode, sync })
    }
    async fn open(&self, path: &str, sync: SyncKind) -> io::Result<LogStructuredFile> {
        Ok(LogStructuredFile { inode: self.find(path)?, sync })
    }
    async fn close(&self, _file: LogStructuredFile) {}
    async fn append(&self, file: &mut LogStructuredFile, bytes: &[u8]) -> io::Result<()> {
        let end = self.0.inodes.borrow()[file.inode as usize].size;
        self.write_at(file, end, bytes).await
    }
    async fn write_at(
        &self,
        file: &mut LogStructuredFile,
        offset: u64,
        bytes: &[u8],
    ) -> io::Result<()> {
        let end = offset + bytes.len() as u64;
        let mut at = offset;
        while at < end {
            let (block, within) = (at / BLOCK as u64, (at % BLOCK as u64) as usize);
            let count = (BLOCK - within).min((end - at) as usize);
            let mut content = self.block(file.inode, block).await?;
            let from = (at - offset) as usize;
            Rc::make_mut(&mut content)[within..within + count]
                .copy_from_slice(&bytes[from..from + count]);
            let mut inodes = self.0.inodes.borrow_mut();
            let inode = &mut inodes[file.inode as usize];
            inode.cached.insert(block, content);
            inode.dirty.insert(block);
            let blocks = inode.places.len().max(block as usize + 1);
            inode.places.resize(blocks, 0);
            at += count as u64;
            inode.size = inode.size.max(at);
        }
        match file.sync {
            SyncKind::None => Ok(()),
            SyncKind::OSync | SyncKind::Fsync => self.sync_inode(file.inode).await,
        }
    }
    async fn read_at(
        &self,
        file: &LogStructuredFile,
        offset: u64,
        bytes: &mut [u8],
    ) -> io::Result<usize> {
        let size = self.0.inodes.borrow()[file.inode as usize].size;
        let end = size.min(offset + bytes.len() as u64);
        self.fetch(file.inode, offset / BLOCK as u64..end.div_ceil(BLOCK as u64)).await?;
        let mut at = offset;
        while at < end {
            let (block, within) = (at / BLOCK as u64, (at % BLOCK as u64) as usize);
            let count = (BLOCK - within).min((end - at) as usize);
            let content = self.block(file.inode, block).await?;
            let to = (at - offset) as usize;
            bytes[to..to + count].copy_from_slice(&content[within..within + count]);
            at += count as u64;
        }
        Ok(at.saturating_sub(offset) as usize)
    }
    async fn sync(&self, file: &LogStructuredFile) -> io::Result<()> {
        self.sync_inode(file.inode).await
    }
    async fn length(&self, path: &str) -> io::Result<u64> {
        let inode = self.find(path)?;
        Ok(self.0.inodes.borrow()[inode as usize].size)
    }
    async fn unlink(&self, path: &str) -> io::Result<()> {
        self.find(path)?;
        self.0.names.borrow_mut().remove(path);
        Ok(())
    }
    async fn make_directory(&self, _path: &str) -> io::Result<()> {
        Ok(())
    }
    async fn run_actors<A: Actor<Self>>(
        &self,
        actors: Vec<A>,
        watch: impl FnMut(),
    ) -> io::Result<Vec<A::Output>> {
        run_tasks(&self.0.world, self, None, actors, watch).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use emulated::{DriveOptions, Model};
    use std::rc::Rc;
    use workloads::{Limit, StreamOptions, streams};

    fn files(size: u64) -> (VirtualWorld, EmulatedDisk, LogStructuredFiles) {
        let world = VirtualWorld::new(1);
        let (_, text) = emulated::shipped().find(|(name, _)| *name == "cheetah-15k5").unwrap();
        let options = DriveOptions { size: Some(size), ..DriveOptions::default() };
        let disk = EmulatedDisk::new(Rc::new(world.clone()), Model::parse(text).unwrap(), options);
        (world.clone(), disk.clone(), LogStructuredFiles::new(world, disk))
    }

    /// Writes five records of 5000 bytes by each of four writers.
    async fn write(files: LogStructuredFiles) {
        let options = StreamOptions {
            writers: 4,
            size: 5000,
            limit: Limit::Count(5),
            rate: Some(10.0),
            sync: SyncKind::OSync,
            prefix: "s-".into(),
        };
        let (report, _) = streams(&files, &options, |_| ()).await.unwrap();
        assert_eq!(report.failure, None);
    }

    #[test]
    fn what_was_synced_is_read_from_the_disk() {
        let (world, disk, files) = files(64 << 20);
        let (inner, drive) = (files.clone(), disk.clone());
        world.run(async move {
            write(inner.clone()).await;
            inner.drop_caches();
            let reads = drive.statistics().reads;
            let file = inner.open("s-00002", SyncKind::None).await.unwrap();
            let mut bytes = vec![0; 30_000];
            assert_eq!(inner.read_at(&file, 0, &mut bytes).await.unwrap(), 25_000);
            for (sequence, record) in bytes[..25_000].chunks(5000).enumerate() {
                assert!(workloads::is_right(record, 2, sequence as u64), "record {sequence}");
            }
            assert!((2..=5).contains(&(drive.statistics().reads - reads)));
        });
        world.end();
    }

    #[test]
    fn files_written_at_the_same_time_lie_interleaved() {
        let (world, _, files) = files(64 << 20);
        world.run(write(files.clone()));
        let inodes = files.0.inodes.borrow();
        let together =
            |inode: &Inode| inode.places.windows(2).filter(|pair| pair[0] + 1 == pair[1]).count();
        // Seven blocks, of which neighbours came in one record at most twice in a row.
        assert!(inodes.iter().all(|inode| inode.places.len() == 7 && together(inode) <= 3));
        drop(inodes);
        world.end();
    }

    #[test]
    fn a_full_log_says_so() {
        let (world, _, files) = files(1 << 20);
        let failed = world.run(async move {
            let mut file = files.create("big", SyncKind::OSync).await.unwrap();
            loop {
                if let Err(error) = files.append(&mut file, &[1; 40_000]).await {
                    break error;
                }
            }
        });
        assert_eq!(failed.raw_os_error(), Some(libc::ENOSPC));
        world.end();
    }
}
