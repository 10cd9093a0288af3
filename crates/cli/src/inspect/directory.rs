use super::reader::Reader;
use crate::error::CliError;
use std::fmt;
use units::InodeNumber;

#[derive(serde::Serialize)]
pub struct DirectoryReport {
    inode: u32,
    blocks: Vec<BlockReport>,
}

#[derive(serde::Serialize)]
struct BlockReport {
    file_block: u32,
    block: u64,
    entries: Vec<EntryReport>,
    damage: Option<String>,
}

#[derive(serde::Serialize)]
struct EntryReport {
    /// Offset in bytes from the block's start.
    at: usize,
    inode: u32,
    kind: &'static str,
    name: String,
}

pub fn report(reader: &Reader, number: InodeNumber) -> Result<DirectoryReport, CliError> {
    let inode = reader.inode(number)?;
    let format = reader.directory_format(number, &inode);
    let mut blocks = Vec::new();
    for (file_block, home) in reader.directory_blocks(number, &inode)? {
        let bytes = reader.block(home)?;
        let mut report = BlockReport {
            file_block: file_block.get(),
            block: home.get(),
            entries: Vec::new(),
            damage: None,
        };
        for entry in format.entries(&bytes) {
            match entry {
                Ok(entry) => report.entries.extend(entry.inode.map(|inode| EntryReport {
                    at: entry.at,
                    inode: inode.get(),
                    kind: kind(entry.file_type),
                    name: String::from_utf8_lossy(entry.name).into_owned(),
                })),
                Err(error) => report.damage = Some(format!("at byte {}: {}", error.at, error.why)),
            }
        }
        blocks.push(report);
    }
    Ok(DirectoryReport { inode: number.get(), blocks })
}

fn kind(file_type: u8) -> &'static str {
    const KINDS: [&str; 8] = [
        "unknown",
        "regular file",
        "directory",
        "character device",
        "block device",
        "fifo",
        "socket",
        "symbolic link",
    ];
    KINDS.get(usize::from(file_type)).copied().unwrap_or("invalid type")
}

impl fmt::Display for DirectoryReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for block in &self.blocks {
            writeln!(f, "file block {}, block {}:", block.file_block, block.block)?;
            for entry in &block.entries {
                writeln!(
                    f,
                    "  byte {:>5}: inode {}, {}, {:?}",
                    entry.at, entry.inode, entry.kind, entry.name
                )?;
            }
            if let Some(damage) = &block.damage {
                writeln!(f, "  damaged {damage}")?;
            }
        }
        Ok(())
    }
}
