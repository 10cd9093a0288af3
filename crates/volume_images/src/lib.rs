//! Volumes as images, made and checked by the real mke2fs, debugfs and e2fsck: the same request
//! gives the same bytes.
#![forbid(unsafe_code)]

use disks::Image;
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// Parameters of a volume.
#[derive(Clone, Copy, Debug)]
pub struct ImageRequest<'a> {
    /// Options for mke2fs, such as `-t ext3 -I 128`.
    pub options: &'a [&'a str],
    /// Block size in bytes.
    pub block_size: u64,
    pub size: u64,
    pub journal: Journal,
    /// Old content of every byte of home: mke2fs then zeroes all that it relies on. `None`: a
    /// sparse file of zeros.
    pub stale: Option<u8>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Journal {
    /// A hidden inode of mke2fs's default size, or that of the options.
    Inside,
    /// A disk of `size` bytes.
    Outside { size: u64 },
}

#[derive(Clone, PartialEq, Eq)]
pub struct Images {
    pub home: Image,
    pub journal: Option<Image>,
    /// Memory that survives power cuts, with the table of runs.
    pub table: Option<Image>,
}

/// UUID of the volume and of its journal device, and seed of the hashes of names.
const UUID: &str = "8c1b1f2e-0b5a-4a39-9d0e-6f6b65616e6f";
/// Time limit of e2fsck; no volume here takes longer.
const CHECK_SECONDS: &str = "300";

pub fn make(request: &ImageRequest<'_>) -> io::Result<Images> {
    let directory = tempfile::tempdir()?;
    let home = directory.path().join("home");
    let mut extended = vec![format!("hash_seed={UUID}")];
    if let Some(byte) = request.stale {
        std::fs::write(&home, vec![byte; request.size as usize])?;
        extended.push("nodiscard,lazy_itable_init=0,lazy_journal_init=0".into());
    }
    let mut command = mke2fs(request);
    command.args(request.options).args(["-E", &extended.join(",")]);
    let journal = match request.journal {
        Journal::Inside => None,
        Journal::Outside { size } => {
            // mke2fs wants a block device for `-J device=`; the journal is attached by its UUID
            // afterwards.
            command.args(["-O", "^has_journal"]);
            let path = directory.path().join("journal");
            run(mke2fs(request)
                .args(["-E", &extended[0], "-O", "journal_dev"])
                .arg(&path)
                .arg(kibibytes(size)))?;
            Some(Image::read_file(&path)?)
        }
    };
    run(command.arg(&home).arg(kibibytes(request.size)))?;
    if journal.is_some() {
        attach(&home)?;
    }
    Ok(Images { home: Image::read_file(&home)?, journal, table: None })
}

fn mke2fs(request: &ImageRequest<'_>) -> Command {
    let mut command = Command::new("mke2fs");
    command.args(["-q", "-F", "-U", UUID, "-b", &request.block_size.to_string()]);
    command
}

fn kibibytes(size: u64) -> String {
    format!("{}K", size >> 10)
}

/// Writes the fields of `mke2fs -J device=` into the superblock, by debugfs.
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

impl Images {
    /// Output of debugfs for a read-only request.
    pub fn ask(&self, request: &str) -> io::Result<String> {
        let (_directory, home, _) = self.files()?;
        let output = Command::new("debugfs")
            .args(["-R", request])
            .arg(home)
            .stdin(Stdio::null())
            .output()?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Runs `e2fsck -fn`; `Err` with its output when it finds anything.
    pub fn check(&self) -> Result<(), String> {
        let (_directory, home, journal) = self.files().map_err(|error| error.to_string())?;
        let mut command = Command::new("timeout");
        command.args([CHECK_SECONDS, "e2fsck", "-fn"]);
        if let Some(journal) = journal {
            command.arg("-j").arg(journal);
        }
        let output =
            command.arg(&home).stdin(Stdio::null()).output().map_err(|error| error.to_string())?;
        if output.status.success() {
            return Ok(());
        }
        let text = String::from_utf8_lossy;
        Err(format!("{}{}{}", output.status, text(&output.stdout), text(&output.stderr)))
    }

    fn files(&self) -> io::Result<(TempDir, std::path::PathBuf, Option<std::path::PathBuf>)> {
        // In memory where that is possible: nothing of it needs to last.
        let directory = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir())?;
        let home = directory.path().join("home");
        self.home.write_file(&home)?;
        let journal = match &self.journal {
            None => None,
            Some(image) => {
                let path = directory.path().join("journal");
                image.write_file(&path)?;
                Some(path)
            }
        };
        Ok((directory, home, journal))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REQUEST: ImageRequest<'_> = ImageRequest {
        options: &["-t", "ext3", "-I", "128"],
        block_size: 4096,
        size: 64 << 20,
        journal: Journal::Inside,
        stale: None,
    };

    #[test]
    fn the_same_request_gives_the_same_bytes() {
        for journal in [Journal::Inside, Journal::Outside { size: 8 << 20 }] {
            let request = ImageRequest { journal, ..REQUEST };
            let images = make(&request).unwrap();
            assert!(images == make(&request).unwrap());
            assert_eq!(images.home.size(), 64 << 20);
            images.check().unwrap();
        }
    }
    #[test]
    fn a_disk_keeps_what_was_on_it_where_the_volume_does_not_care() {
        let images = make(&ImageRequest { stale: Some(0xd7), ..REQUEST }).unwrap();
        let stale =
            images.home.pages().filter(|(_, page)| page.iter().all(|byte| *byte == 0xd7)).count();
        assert!(stale > 8000, "{stale} pages of 16,384");
        images.check().unwrap();
    }
    #[test]
    fn damage_is_reported() {
        let mut images = make(&REQUEST).unwrap();
        images.home.fill(4096, 4096, 0xff);
        assert!(images.check().unwrap_err().contains("descriptor"), "{:?}", images.check());
    }
    #[test]
    fn what_mke2fs_refuses_is_an_error_with_its_words() {
        let error =
            make(&ImageRequest { options: &["-I", "100"], ..REQUEST }).err().expect("no such type");
        assert!(error.to_string().contains("100"), "{error}");
    }
}
