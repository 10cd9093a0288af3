//! The volumes that scripts run on, made by the real mke2fs.

use crate::model::WriteBounds;
use disks::{Image, MemoryDisk};
use ext4::{OpenParts, Volume, VolumeOptions};
use format::jbd2::JournalSuperblock;
use runtime::VirtualWorld;
use std::io;
use std::rc::Rc;
use units::{BlockSize, TransactionId};
use volume_images::{ImageRequest, Images, Journal};

/// One way to make a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setup {
    pub name: &'static str,
    pub mke2fs: &'static [&'static str],
    pub block_size: &'static str,
    pub external_journal: bool,
    pub journal: JournalStart,
    /// KiB of the home disk.
    pub size: u64,
    pub inodes: &'static str,
    /// Layout of scattered logs, if the log lies in these.
    pub logs: Option<ScatteredLayout>,
}

/// Layout of scattered logs: KiB of each, and from one to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScatteredLayout {
    pub each: u64,
    pub group: u64,
}

/// Difference of the journal of a fresh volume from that of mke2fs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JournalStart {
    AsMade,
    /// Number of blocks, so few that scripts fill it many times over.
    Blocks(u32),
    /// First number of the transactions.
    Sequence(u32),
}

const fn setup(
    name: &'static str,
    mke2fs: &'static [&'static str],
    block_size: &'static str,
) -> Setup {
    let (size, inodes) = (ROOMY, "256");
    let (external_journal, journal, logs) = (false, JournalStart::AsMade, None);
    Setup { name, mke2fs, block_size, external_journal, journal, size, inodes, logs }
}
const fn external(name: &'static str, block_size: &'static str) -> Setup {
    Setup { external_journal: true, ..setup(name, &["-t", "ext4"], block_size) }
}

const fn scattered(name: &'static str, block_size: &'static str, each: u64, group: u64) -> Setup {
    let logs = Some(ScatteredLayout { each, group });
    Setup { logs, size: ROOMY + (4 << 10), ..setup(name, &["-t", "ext4"], block_size) }
}

/// Small volumes, because every crash image is read back as a whole.
pub const SETUPS: &[Setup] = &[
    setup("ext4-4k", &["-t", "ext4"], "4096"),
    setup("ext4-1k", &["-t", "ext4"], "1024"),
    setup("ext4-2k", &["-t", "ext4"], "2048"),
    setup("ext3-4k", &["-t", "ext3"], "4096"),
    external("external-4k", "4096"),
    external("external-2k", "2048"),
    external("external-1k", "1024"),
    Setup { journal: JournalStart::Blocks(448), ..setup("small-log-1k", &["-t", "ext4"], "1024") },
    // A few transactions before their numbers begin again at 0.
    Setup {
        journal: JournalStart::Sequence(u32::MAX - 5),
        ..setup("wrapping-4k", &["-t", "ext4"], "4096")
    },
    Setup {
        journal: JournalStart::Sequence(u32::MAX - 5),
        ..external("wrapping-external-1k", "1024")
    },
    // Space for some 200 KB: the inode table takes the rest; a fiftieth is kept for extent trees.
    Setup {
        size: 2352,
        inodes: "4200",
        ..setup("tight-1k", &["-t", "ext4", "-J", "size=1"], "1024")
    },
    // Also few inodes.
    Setup { size: 272, inodes: "32", ..external("tight-external-4k", "4096") },
    scattered("scattered-4k", "4096", 1 << 10, 3 << 10),
    // Three short logs, which scripts fill many times over.
    Setup {
        journal: JournalStart::Sequence(u32::MAX - 5),
        ..scattered("scattered-1k", "1024", 256, 5 << 10)
    },
];

impl Setup {
    pub fn has_extents(&self) -> bool {
        !self.mke2fs.contains(&"ext3")
    }
    /// Whether scripts fill it to the last block.
    pub fn is_tight(&self) -> bool {
        self.size < ROOMY
    }
    pub fn block_size(&self) -> u64 {
        self.block_size.parse().expect("a number of bytes")
    }
    /// Returns the blocks of the log, or of the part of which one transaction may take a quarter.
    fn log_blocks(&self) -> u64 {
        match self.journal {
            _ if self.logs.is_some() => {
                self.logs.map_or(0, |logs| 2 * (logs.each << 10) / self.block_size())
            }
            JournalStart::Blocks(blocks) => blocks.into(),
            _ if self.external_journal => JOURNAL_SIZE / self.block_size(),
            _ => INSIDE_BLOCKS,
        }
    }
    /// Returns the guarantees of the README for single writes: up to a mebibyte, and no more than
    /// an eighth of the log, is whole.
    pub fn write_bounds(&self) -> WriteBounds {
        let whole_max = (self.log_blocks() / 8 * self.block_size()).min(1 << 20) as usize;
        WriteBounds { block: self.block_size() as usize, whole_max, page: None }
    }
}

pub fn find(name: &str) -> Option<Setup> {
    SETUPS.iter().copied().find(|setup| setup.name == name)
}

/// Fresh disks, not yet mounted by anyone.
pub type Disks = Images;

/// Size in KiB that scripts do not fill.
const ROOMY: u64 = 12 << 10;
const JOURNAL_SIZE: u64 = 5 << 20;
/// Blocks of the log that mke2fs makes inside volumes of less than 32,768 blocks.
const INSIDE_BLOCKS: u64 = 1024;
/// Old content of the disk: shown by any read of bytes that were never written.
const STALE: u8 = 0xd7;

pub fn make(setup: Setup) -> io::Result<Disks> {
    let journal = match setup.external_journal {
        true => Journal::Outside { size: JOURNAL_SIZE },
        false => Journal::Inside,
    };
    let mut disks = volume_images::make(&ImageRequest {
        options: &[setup.mke2fs, &["-N", setup.inodes]].concat(),
        block_size: setup.block_size(),
        size: setup.size << 10,
        journal,
        stale: Some(STALE),
    })?;
    adjust_journal(setup, &mut disks)?;
    if let Some(logs) = setup.logs {
        disks.home = with_logs(disks.home, logs).map_err(io::Error::other)?;
    }
    Ok(disks)
}

fn with_logs(home: Image, logs: ScatteredLayout) -> Result<Image, ext4::Error> {
    let world = VirtualWorld::new(1);
    let disk = MemoryDisk::from_image(Rc::new(world.clone()), home);
    let (shared, options) = (Rc::new(world.clone()), VolumeOptions::default());
    let parts = OpenParts { world: shared, home: Rc::new(disk.clone()), journal: None, options };
    let made = world.run(async move {
        let volume = Volume::open(parts).await?;
        volume.make_scattered_logs(logs.each << 10, logs.group << 10).await?;
        volume.close().await
    });
    world.end();
    made.map(|()| disk.image())
}

/// Rewrites the journal superblock according to the setup.
fn adjust_journal(setup: Setup, disks: &mut Disks) -> io::Result<()> {
    if setup.journal == JournalStart::AsMade {
        return Ok(());
    }
    let size = BlockSize::new(setup.block_size() as u32).expect("a block size of ext4");
    let inside = if disks.journal.is_none() { first_journal_block(disks)? } else { 0 };
    let (image, block) = match &mut disks.journal {
        // Behind the ext4 superblock, which has a block of its own where blocks are small.
        Some(journal) => (journal, if setup.block_size() == 1024 { 2 } else { 1 }),
        None => (&mut disks.home, inside),
    };
    let mut bytes = vec![0; 1024];
    image.read(block * setup.block_size(), &mut bytes);
    let mut superblock =
        JournalSuperblock::parse(&bytes, size, u64::from(u32::MAX)).map_err(io::Error::other)?;
    match setup.journal {
        JournalStart::AsMade => {}
        JournalStart::Blocks(blocks) => superblock.length = blocks,
        JournalStart::Sequence(sequence) => superblock.sequence = TransactionId(sequence),
    }
    image.write(block * setup.block_size(), &superblock.serialize());
    Ok(())
}

/// Returns the first block of the hidden inode of the journal.
pub fn first_journal_block(disks: &Disks) -> io::Result<u64> {
    journal_blocks(disks)?
        .first()
        .copied()
        .ok_or_else(|| io::Error::other("the journal has no blocks"))
}

/// Returns all blocks of the journal, in order.
pub fn journal_blocks(disks: &Disks) -> io::Result<Vec<u64>> {
    let said = disks.ask("blocks <8>")?;
    let blocks = said.split_whitespace().map(str::parse).collect::<Result<_, _>>();
    blocks.map_err(|_| io::Error::other(format!("debugfs blocks said {said:?}")))
}

/// Runs `e2fsck -fn` on a volume; `Err` with its output when it finds anything.
pub fn check(disks: &Disks) -> Result<(), String> {
    disks.check()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guaranteed writes are a share of the log, so a wrong length would demand too much or too
    /// little.
    #[test]
    fn the_log_is_as_long_as_the_setup_says() {
        for setup in
            SETUPS.iter().copied().filter(|setup| !setup.external_journal && setup.logs.is_none())
        {
            let disks = make(setup).unwrap();
            let mut bytes = vec![0; 1024];
            disks.home.read(first_journal_block(&disks).unwrap() * setup.block_size(), &mut bytes);
            let size = BlockSize::new(setup.block_size() as u32).unwrap();
            let superblock = JournalSuperblock::parse(&bytes, size, u64::from(u32::MAX)).unwrap();
            assert_eq!(u64::from(superblock.length), setup.log_blocks(), "{}", setup.name);
        }
    }
}
