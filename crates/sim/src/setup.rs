//! The volumes that scripts run on, made by the real mke2fs.

use disks::Image;
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};

/// One way to make a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setup {
    pub name: &'static str,
    pub mke2fs: &'static [&'static str],
    pub block_size: &'static str,
    pub external_journal: bool,
}

const fn setup(name: &'static str, mke2fs: &'static [&'static str], block_size: &'static str) -> Setup {
    Setup { name, mke2fs, block_size, external_journal: false }
}

/// Small volumes, because every crash image is read back as a whole.
pub const SETUPS: &[Setup] = &[
    setup("ext4-4k", &["-t", "ext4"], "4096"),
    setup("ext4-1k", &["-t", "ext4"], "1024"),
    setup("ext4-2k", &["-t", "ext4"], "2048"),
    setup("ext3-4k", &["-t", "ext3"], "4096"),
    Setup { name: "external-4k", mke2fs: &["-t", "ext4"], block_size: "4096", external_journal: true },
];

pub fn find(name: &str) -> Option<Setup> {
    SETUPS.iter().copied().find(|setup| setup.name == name)
}

/// Fresh disks, not yet mounted by anyone.
#[derive(Clone)]
pub struct Disks {
    pub home: Image,
    pub journal: Option<Image>,
}

const HOME_SIZE: &str = "12M";
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
    command.args(common).args(setup.mke2fs).args([
        "-U",
        UUID,
        "-N",
        "256",
        "-E",
        "hash_seed=8c1b1f2e-0b5a-4a39-9d0e-6f6b65616e6f",
    ]);
    if setup.external_journal {
        // mke2fs wants a block device for `-J device=`; the journal is attached by its UUID afterwards.
        command.args(["-O", "^has_journal"]);
    }
    run(command.arg(&home).arg(HOME_SIZE))?;
    if setup.external_journal {
        attach(&home)?;
    }
    Ok(Disks {
        home: Image::read_file(&home)?,
        journal: setup.external_journal.then(|| Image::read_file(&journal)).transpose()?,
    })
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
    let output = command.stdin(Stdio::null()).output()?;
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
