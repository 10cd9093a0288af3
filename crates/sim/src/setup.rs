//! The volumes that scripts run on, made by the real mke2fs.

use disks::Image;
use format::jbd2::JournalSuperblock;
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};
use units::{BlockSize, TransactionId};

/// One way to make a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setup {
    pub name: &'static str,
    pub mke2fs: &'static [&'static str],
    pub block_size: &'static str,
    pub external_journal: bool,
    pub journal: JournalStart,
}

/// How the journal of a fresh volume differs from what mke2fs makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JournalStart {
    AsMade,
    /// So few blocks that scripts fill it many times over.
    Blocks(u32),
    /// The numbers of the transactions begin here.
    Sequence(u32),
}

const fn setup(name: &'static str, mke2fs: &'static [&'static str], block_size: &'static str) -> Setup {
    Setup { name, mke2fs, block_size, external_journal: false, journal: JournalStart::AsMade }
}
const fn external(name: &'static str, block_size: &'static str) -> Setup {
    Setup { external_journal: true, ..setup(name, &["-t", "ext4"], block_size) }
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
    Setup { journal: JournalStart::Sequence(u32::MAX - 5), ..setup("wrapping-4k", &["-t", "ext4"], "4096") },
    Setup { journal: JournalStart::Sequence(u32::MAX - 5), ..external("wrapping-external-1k", "1024") },
];

impl Setup {
    pub fn has_extents(&self) -> bool {
        !self.mke2fs.contains(&"ext3")
    }
    fn block_size(&self) -> u64 {
        self.block_size.parse().expect("a number of bytes")
    }
}

pub fn find(name: &str) -> Option<Setup> {
    SETUPS.iter().copied().find(|setup| setup.name == name)
}

/// Fresh disks, not yet mounted by anyone.
#[derive(Clone, PartialEq, Eq)]
pub struct Disks {
    pub home: Image,
    pub journal: Option<Image>,
}

const HOME_SIZE: &str = "12M";
const HOME_BYTES: usize = 12 << 20;
/// What the disk held before: whoever shows bytes that were never written shows these.
const STALE: u8 = 0xd7;
const JOURNAL_SIZE: &str = "5M";
/// Fixed, so that the same seed meets the same volume.
const UUID: &str = "8c1b1f2e-0b5a-4a39-9d0e-6f6b65616e6f";

pub fn make(setup: Setup) -> io::Result<Disks> {
    let directory = tempfile::tempdir()?;
    let home = directory.path().join("home");
    let journal = directory.path().join("journal");
    let common = ["-q", "-F", "-b", setup.block_size];
    if setup.external_journal {
        run(Command::new("mke2fs")
            .args(common)
            .args(["-O", "journal_dev", "-U", UUID])
            .arg(&journal)
            .arg(JOURNAL_SIZE))?;
    }
    let mut command = Command::new("mke2fs");
    std::fs::write(&home, vec![STALE; HOME_BYTES])?;
    let extended = format!("hash_seed={UUID},nodiscard,lazy_itable_init=0,lazy_journal_init=0");
    command.args(common).args(setup.mke2fs).args(["-U", UUID, "-N", "256", "-E", &extended]);
    if setup.external_journal {
        // mke2fs wants a block device for `-J device=`; the journal is attached by its UUID afterwards.
        command.args(["-O", "^has_journal"]);
    }
    run(command.arg(&home).arg(HOME_SIZE))?;
    if setup.external_journal {
        attach(&home)?;
    }
    let mut disks = Disks {
        home: Image::read_file(&home)?,
        journal: setup.external_journal.then(|| Image::read_file(&journal)).transpose()?,
    };
    adjust_journal(setup, &home, &mut disks)?;
    Ok(disks)
}

/// Rewrites the journal superblock as the setup wants it.
fn adjust_journal(setup: Setup, home: &Path, disks: &mut Disks) -> io::Result<()> {
    if setup.journal == JournalStart::AsMade {
        return Ok(());
    }
    let size = BlockSize::new(setup.block_size() as u32).expect("a block size of ext4");
    let (image, block) = match &mut disks.journal {
        // Behind the ext4 superblock, which has a block of its own where blocks are small.
        Some(journal) => (journal, if setup.block_size() == 1024 { 2 } else { 1 }),
        None => (&mut disks.home, first_journal_block(home)?),
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

/// Where the hidden inode of the journal begins.
fn first_journal_block(home: &Path) -> io::Result<u64> {
    let output =
        Command::new("debugfs").args(["-R", "bmap <8> 0"]).arg(home).stdin(Stdio::null()).output()?;
    let said = String::from_utf8_lossy(&output.stdout);
    said.trim().parse().map_err(|_| io::Error::other(format!("debugfs bmap said {said:?}")))
}

/// What `mke2fs -J device=` writes into the superblock, by debugfs.
fn attach(home: &Path) -> io::Result<()> {
    for request in [
        "feature has_journal",
        &format!("set_super_value journal_uuid {UUID}"),
        "set_super_value journal_dev 0x700",
    ] {
        run(Command::new("debugfs").args(["-w", "-R", request]).arg(home))?;
    }
    Ok(())
}

fn run(command: &mut Command) -> io::Result<()> {
    // The same dates in every run.
    let output = command.env("E2FSPROGS_FAKE_TIME", "1577836800").stdin(Stdio::null()).output()?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    Err(io::Error::other(format!("{command:?} failed: {said}")))
}

/// What `e2fsck -fn` says of a volume; `Err` with its words when it finds anything.
pub fn check(disks: &Disks) -> Result<(), String> {
    let directory = tempfile::tempdir().map_err(|error| error.to_string())?;
    let home = directory.path().join("home");
    disks.home.write_file(&home).map_err(|error| error.to_string())?;
    let mut command = Command::new("timeout");
    command.args(["60", "e2fsck", "-fn"]);
    if let Some(journal) = &disks.journal {
        let path = directory.path().join("journal");
        journal.write_file(&path).map_err(|error| error.to_string())?;
        command.arg("-j").arg(path);
    }
    let output = command.arg(&home).stdin(Stdio::null()).output().map_err(|error| error.to_string())?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr)))
}
