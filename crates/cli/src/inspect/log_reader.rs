//! Finds the journal of a volume and reads its blocks.

use super::reader::{Layout, Reader};
use crate::error::CliError;
use crate::look::open_to_look;
use format::ext4::feature;
use format::jbd2::{ExternalJournal, JournalSuperblock};
use format::uuid_text;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use units::{BlockSize, HomeBlock, InodeNumber, LogBlock};

pub struct LogReader {
    place: LogSource,
    block_size: BlockSize,
    pub superblock: JournalSuperblock,
}

enum LogSource {
    Inode { reader: Box<Reader>, number: InodeNumber, layout: Layout },
    Device { path: PathBuf, file: File },
}

impl LogReader {
    /// Opens the log. `journal_device`: the external journal, if the volume has one.
    pub fn open(source: &Path, journal_device: Option<&Path>) -> Result<LogReader, CliError> {
        if let Some(device) = journal_device {
            let log = LogReader::external(device)?;
            refuse_foreign(source, device, &log.superblock)?;
            return Ok(log);
        }
        if let Ok(log) = LogReader::external(source) {
            return Ok(log);
        }
        let reader = Box::new(Reader::open(source)?);
        if !reader.superblock.features.has(feature::HAS_JOURNAL) {
            return Err(CliError::new(format!("{} has no journal", source.display())));
        }
        let number = InodeNumber(reader.superblock.journal_inode);
        if number.get() == 0 {
            return Err(CliError::new(format!(
                "the journal of {} is on another device",
                source.display()
            ))
            .with_remedy("Name it: --journal-device DEVICE."));
        }
        let inode = reader.inode(number)?;
        let layout = reader.layout(number, &inode)?;
        let block_size = reader.superblock.block_size;
        let blocks = inode.size >> block_size.shift();
        LogReader::at(LogSource::Inode { reader, number, layout }, block_size, LogBlock(0), blocks)
    }

    fn external(path: &Path) -> Result<LogReader, CliError> {
        let file = open_to_look(path).map_err(|error| CliError::system(path.display(), error))?;
        let mut start = vec![0; 2048];
        file.read_exact_at(&mut start, 0)
            .map_err(|error| CliError::system(path.display(), error))?;
        let wrong =
            |error: &dyn std::fmt::Display| CliError::new(format!("{}: {error}", path.display()));
        let journal = ExternalJournal::parse(&start)
            .map_err(|error| wrong(&error))?
            .ok_or_else(|| wrong(&"this is no external journal (mke2fs -O journal_dev)"))?;
        let place = LogSource::Device { path: path.to_owned(), file };
        LogReader::at(place, journal.block_size, journal.superblock_at(), journal.blocks)
    }

    fn at(
        place: LogSource,
        block_size: BlockSize,
        first: LogBlock,
        blocks: u64,
    ) -> Result<LogReader, CliError> {
        let bytes = place.read(block_size, first)?;
        let superblock = JournalSuperblock::parse(&bytes, block_size, blocks).map_err(|error| {
            CliError::new(format!("{}: {error}", place.path().display())).with_remedy("Run e2fsck.")
        })?;
        Ok(LogReader { place, block_size, superblock })
    }

    pub fn block(&self, at: LogBlock) -> Result<Vec<u8>, CliError> {
        self.place.read(self.block_size, at)
    }
    /// Reads a block of the volume that the journal lies in.
    pub fn home_block(&self, at: HomeBlock) -> Result<Vec<u8>, CliError> {
        match &self.place {
            LogSource::Inode { reader, .. } => reader.block(at),
            LogSource::Device { path, .. } => {
                Err(CliError::new(format!("{} holds no volume", path.display())))
            }
        }
    }
    /// Returns the bytes of a block.
    pub fn block_bytes(&self) -> usize {
        self.block_size.bytes()
    }
    /// Reads a log block: for packed transactions a unit, otherwise a block.
    pub fn unit(&self, at: LogBlock) -> Result<Vec<u8>, CliError> {
        let each = self.superblock.log_blocks_per_block();
        let unit = self.block_size.bytes() / each as usize;
        let block = self.block(LogBlock(at.get() / each))?;
        Ok(block[(at.get() % each) as usize * unit..][..unit].to_vec())
    }
    pub fn place(&self) -> String {
        match &self.place {
            LogSource::Inode { number, .. } => format!("in {number}"),
            LogSource::Device { path, .. } => format!("on {}", path.display()),
        }
    }
}

/// Refuses a journal device that is not the volume's own: its log says nothing about the volume.
fn refuse_foreign(
    source: &Path,
    device: &Path,
    journal: &JournalSuperblock,
) -> Result<(), CliError> {
    let volume = Reader::open(source)?.superblock;
    let has_one = volume.features.has(feature::HAS_JOURNAL) && volume.journal_inode == 0;
    if has_one && volume.journal_uuid == journal.uuid {
        return Ok(());
    }
    let (name, found) = (device.display(), uuid_text(&journal.uuid));
    let wanted = match has_one {
        true => format!("the volume's journal has {}", uuid_text(&volume.journal_uuid)),
        false => "the volume has no journal outside".into(),
    };
    Err(CliError::new(format!("{name} has UUID {found}, and {wanted}"))
        .with_remedy("Name the volume's own journal, or leave out --journal-device."))
}

impl LogSource {
    /// Returns the image or device.
    fn path(&self) -> &Path {
        match self {
            LogSource::Inode { reader, .. } => reader.path(),
            LogSource::Device { path, .. } => path,
        }
    }
    fn read(&self, block_size: BlockSize, at: LogBlock) -> Result<Vec<u8>, CliError> {
        match self {
            LogSource::Inode { reader, number, layout } => {
                let holds = |start: u32, count: u32| at.get() >= start && at.get() - start < count;
                let extent =
                    layout.extents.iter().find(|extent| holds(extent.at.get(), extent.count));
                let extent =
                    extent.ok_or_else(|| reader.damaged(format!("{number} has no {at}")))?;
                reader.block(extent.home.plus(u64::from(at.get() - extent.at.get())))
            }
            LogSource::Device { path, file } => {
                let mut bytes = vec![0; block_size.bytes()];
                file.read_exact_at(&mut bytes, u64::from(at.get()) << block_size.shift()).map_err(
                    |error| CliError::system(format!("{at} of {}", path.display()), error),
                )?;
                Ok(bytes)
            }
        }
    }
}
