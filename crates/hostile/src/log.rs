//! Recovery's three passes over the logs of crashed golden volumes, their blocks damaged.

use crate::golden;
use crate::patches::Input;
use crate::seal;
use disks::Image;
use format::WholeTransaction;
use format::ext4::{SUPERBLOCK_OFFSET, VolumeSuperblock};
use format::jbd2::{
    BlockHeader, BlockType, DescriptorBlock, JournalSuperblock, LogLayout, Packing, TagFormat,
};
use journal::{HomeBounds, Pass, ReplayImages, ReplayPass, RevokePass, ScanPass};
use std::cell::OnceCell;
use std::ops::Range;
use units::{BlockSize, LogBlock};

/// Volumes with records in their logs, in every format.
const BASES: [&str; 8] = [
    "dirty-wasteless-1k",
    "dirty-plain-kernel-data",
    "revokes",
    "dirty-ext3-kernel",
    "dirty-wasteless",
    "revokes-kernel",
    "wrapped-log",
    "wrapped-log-kernel",
];

/// A log in memory.
#[derive(Clone)]
pub struct Log {
    pub block_size: BlockSize,
    pub bytes: Vec<u8>,
    /// Blocks that are not empty.
    used: Vec<u32>,
}

thread_local! {
    static LOGS: [OnceCell<Log>; BASES.len()] = const { [const { OnceCell::new() }; BASES.len()] };
}

pub fn run(bytes: &[u8]) {
    let Some(input) = Input::parse(bytes) else { return };
    let base = usize::from(input.base) % BASES.len();
    let mut log = LOGS.with(|logs| logs[base].get_or_init(|| Log::of_golden(BASES[base])).clone());
    let size = log.block_size.bytes();
    for patch in input.patches() {
        let at = log.used[usize::from(patch.place) % log.used.len()] as usize * size;
        let at = at + usize::from(patch.offset) % size;
        let length = patch.bytes.len().min(size - at % size);
        log.bytes[at..at + length].copy_from_slice(&patch.bytes[..length]);
    }
    if input.choice & 1 != 0 {
        log.seal();
    }
    log.recover();
}

impl Log {
    fn of_golden(name: &str) -> Log {
        let (image, _) = golden::load(name);
        let (block_size, runs) = journal_runs(&image);
        let mut bytes = Vec::new();
        for run in runs {
            let mut piece = vec![0; (run.end - run.start) as usize];
            image.read(run.start, &mut piece);
            bytes.extend(piece);
        }
        let blocks = bytes.chunks_exact(block_size.bytes()).enumerate();
        let used = blocks.filter(|(_, block)| block.iter().any(|byte| *byte != 0));
        let used = used.map(|(number, _)| number as u32).collect();
        Log { block_size, used, bytes }
    }

    fn count(&self) -> u32 {
        (self.bytes.len() >> self.block_size.shift()) as u32
    }
    fn block(&mut self, number: u32) -> &mut [u8] {
        let size = self.block_size.bytes();
        &mut self.bytes[number as usize * size..][..size]
    }

    fn recover(&mut self) {
        let (size, count) = (self.block_size, self.count());
        let Ok(superblock) = JournalSuperblock::parse(self.block(0), size, count.into()) else {
            return;
        };
        let Ok(mut scan) = ScanPass::new(&superblock) else { return };
        let unit = superblock.log_block_bytes();
        if !self.feed(unit, &mut scan, |_| ()) {
            return;
        }
        let scanned = scan.finish();
        let mut revoke = RevokePass::new(&scanned);
        if !self.feed(unit, &mut revoke, |_| ()) {
            return;
        }
        let bounds = HomeBounds {
            blocks: 16384,
            forbidden: [(100, 200)].map(|(start, end)| start..end).to_vec(),
        };
        let mut replay = ReplayPass::new(&scanned, revoke.finish(), bounds.clone());
        let mut images = ReplayImages::new(size);
        self.feed(unit, &mut replay, |replay| {
            replay.take_actions().for_each(|action| images.apply(action));
        });
        for image in images.take() {
            assert!(
                image.home.get() < bounds.blocks
                    && !bounds.forbidden[0].contains(&image.home.get())
            );
        }
    }

    /// Passes the log to a pass; returns false after an error. `unit`: bytes of a log block.
    fn feed<P: Pass>(&mut self, unit: usize, pass: &mut P, mut then: impl FnMut(&mut P)) -> bool {
        let (mut steps, count) = (0, self.bytes.len() / unit);
        while let Some(at) = pass.wants() {
            steps += 1;
            assert!((at.get() as usize) < count, "{at} is wanted of a log of {count} blocks");
            // No gap is longer than a sixteenth of the log, and one is read again where the log
            // ends.
            assert!(steps <= count + count / 16, "a pass wraps around the log more than once");
            if pass.give(&self.bytes[at.get() as usize * unit..][..unit]).is_err() {
                return false;
            }
            then(pass);
        }
        true
    }

    /// Corrects the checksums of everything that still looks like a transaction.
    pub fn seal(&mut self) {
        let (size, count) = (self.block_size, self.count());
        seal::journal_superblock(&mut self.block(0)[..1024]);
        let Ok(superblock) = JournalSuperblock::parse(self.block(0), size, count.into()) else {
            return;
        };
        let (layout, log) =
            (superblock.layout(), superblock.first.get()..superblock.log_end().get());
        if layout.tags == TagFormat::Plain || superblock.is_clean() {
            return;
        }
        let mut at = superblock.start.get();
        let mut whole = None;
        let mut steps = 0;
        while steps < count && log.contains(&at) {
            let Some(header) = BlockHeader::parse(self.block(at)) else { break };
            let mut taken = 1;
            match header.kind {
                Some(BlockType::Descriptor) => taken += self.seal_descriptor(at, &layout, &log),
                Some(BlockType::Revoke) => seal::log_tail(self.block(at), &layout),
                Some(BlockType::Commit) => {
                    if let Some(sum) = whole.take().map(|whole: WholeTransaction| whole.sum()) {
                        self.block(at)[0x14..0x18].copy_from_slice(&sum.to_be_bytes());
                    }
                    seal::commit_block(self.block(at), &layout);
                    taken = 0;
                }
                _ => break,
            }
            for block in (0..taken).map(|index| next(at, index, &log)) {
                whole
                    .get_or_insert_with(|| layout.whole_transaction(header.transaction))
                    .add(self.block(block));
            }
            at = next(at, taken.max(1), &log);
            steps += taken.max(1);
        }
    }

    /// Sets the tags' checksums, then the block's own; returns the number of log blocks of the
    /// tags.
    fn seal_descriptor(&mut self, at: u32, layout: &LogLayout, log: &Range<u32>) -> u32 {
        let mut packing = Packing::new(self.block_size);
        if let Ok(parsed) = DescriptorBlock::parse(self.block(at), layout, LogBlock(at)) {
            let mut from = BlockHeader::SIZE;
            for tag in &parsed.tags {
                let place = packing.place(tag);
                let block = next(at, 1 + place.block, log);
                let sum = layout.seed.of_logged_block(parsed.transaction, self.block(block));
                let descriptor = self.block(at);
                let wide = layout.tags == TagFormat::ChecksumV3;
                let same_uuid = descriptor[from + 7] & 2 != 0;
                if wide {
                    descriptor[from + 12..from + 16].copy_from_slice(&sum.to_be_bytes());
                } else {
                    descriptor[from + 4..from + 6].copy_from_slice(&(sum as u16).to_be_bytes());
                }
                from += tag.encoded_length(layout) + if same_uuid { 0 } else { 16 };
            }
        }
        seal::log_tail(self.block(at), layout);
        packing.blocks().min(self.count())
    }
}

fn next(at: u32, count: u32, log: &Range<u32>) -> u32 {
    log.start + (at - log.start + count % (log.end - log.start)) % (log.end - log.start)
}

/// Location of the journal of a healthy volume, in bytes of the image.
pub fn journal_runs(image: &Image) -> (BlockSize, Vec<Range<u64>>) {
    let mut bytes = vec![0; 1024];
    image.read(SUPERBLOCK_OFFSET, &mut bytes);
    let superblock = VolumeSuperblock::parse(&bytes).expect("a healthy superblock");
    let places = crate::volume::places_of_file(image, &superblock, superblock.journal_inode);
    let size = superblock.block_size;
    (size, places.into_iter().map(|at| at << size.shift()..(at + 1) << size.shift()).collect())
}
