use super::reader::Reader;
use crate::error::CliError;
use crate::text::local_time;
use format::ext4::inode::flags;
use format::ext4::{RawInode, xattr};
use std::fmt;
use units::{HomeBlock, InodeNumber, Timestamp};

#[derive(serde::Serialize)]
pub struct InodeReport {
    inode: u32,
    kind: &'static str,
    /// Permission bits, octal.
    permissions: String,
    uid: u32,
    gid: u32,
    size: u64,
    links: u16,
    sectors: u64,
    generation: u32,
    flags: u32,
    flag_names: Vec<&'static str>,
    accessed: f64,
    changed: f64,
    modified: f64,
    created: f64,
    deletion_time: u32,
    symlink: Option<String>,
    extents: Vec<ExtentReport>,
    map_blocks: Vec<u64>,
    xattr_block: u64,
    xattrs: Vec<XattrReport>,
}

#[derive(serde::Serialize)]
struct ExtentReport {
    file_block: u32,
    count: u32,
    block: u64,
    unwritten: bool,
}

#[derive(serde::Serialize)]
struct XattrReport {
    name: String,
    bytes: usize,
    in_inode: bool,
}

pub fn report(reader: &Reader, number: InodeNumber) -> Result<InodeReport, CliError> {
    let inode = reader.inode(number)?;
    let layout = reader.layout(number, &inode)?;
    let extents = layout.extents.iter().map(|extent| ExtentReport {
        file_block: extent.at.get(),
        count: extent.count,
        block: extent.home.get(),
        unwritten: extent.unwritten,
    });
    let fast_symlink = inode.mode & 0xf000 == 0xa000 && layout.extents.is_empty();
    Ok(InodeReport {
        inode: number.get(),
        kind: kind(inode.mode),
        permissions: format!("{:04o}", inode.mode & 0o7777),
        uid: inode.uid,
        gid: inode.gid,
        size: inode.size,
        links: inode.links,
        sectors: inode.sectors,
        generation: inode.generation,
        flags: inode.flags,
        flag_names: flag_names(inode.flags),
        accessed: seconds(inode.accessed),
        changed: seconds(inode.changed),
        modified: seconds(inode.modified),
        created: seconds(inode.created),
        deletion_time: inode.deletion_time,
        symlink: fast_symlink.then(|| {
            let length = (inode.size as usize).min(inode.block.len());
            String::from_utf8_lossy(&inode.block[..length]).into_owned()
        }),
        extents: extents.collect(),
        map_blocks: layout.nodes.iter().map(|node| node.get()).collect(),
        xattr_block: inode.xattr_block.get(),
        xattrs: xattrs(reader, &inode)?,
    })
}

fn xattrs(reader: &Reader, inode: &RawInode) -> Result<Vec<XattrReport>, CliError> {
    let damaged = |error| reader.damaged(format!("extended attributes: {error}"));
    let mut all = xattr::parse_area(&inode.xattr_area).map_err(damaged)?;
    let in_inode = all.len();
    if inode.xattr_block != HomeBlock(0) {
        let block = reader.block(inode.xattr_block)?;
        all.extend(xattr::parse_block(&block).map_err(damaged)?.attributes);
    }
    let report = |(index, attribute): (usize, xattr::Attribute)| XattrReport {
        name: format!("{}{}", prefix(attribute.index), String::from_utf8_lossy(&attribute.name)),
        bytes: attribute.outside.map_or(attribute.value.len(), |outside| outside.length as usize),
        in_inode: index < in_inode,
    };
    Ok(all.into_iter().enumerate().map(report).collect())
}

fn prefix(index: u8) -> &'static str {
    match index {
        1 => "user.",
        2 => "system.posix_acl_access",
        3 => "system.posix_acl_default",
        4 => "trusted.",
        6 => "security.",
        7 => "system.",
        _ => "?.",
    }
}

fn kind(mode: u16) -> &'static str {
    match mode & 0xf000 {
        0x1000 => "fifo",
        0x2000 => "character device",
        0x4000 => "directory",
        0x6000 => "block device",
        0x8000 => "regular file",
        0xa000 => "symbolic link",
        0xc000 => "socket",
        0 if mode == 0 => "unused",
        _ => "of unknown type",
    }
}

fn flag_names(bits: u32) -> Vec<&'static str> {
    let names = [
        (flags::IMMUTABLE, "immutable"),
        (flags::APPEND, "append-only"),
        (flags::INDEX, "indexed"),
        (flags::JOURNAL_DATA, "journal-data"),
        (flags::TOP_DIRECTORY, "top-directory"),
        (flags::EXTENTS, "extents"),
        (flags::EA_INODE, "ea-inode"),
        (flags::INLINE_DATA, "inline-data"),
        (flags::PROJECT_INHERIT, "project-inherit"),
    ];
    names.into_iter().filter(|(bit, _)| bits & bit != 0).map(|(_, name)| name).collect()
}

/// Converts to seconds since 1970.
fn seconds(time: Timestamp) -> f64 {
    time.seconds as f64 + f64::from(time.nanoseconds) / 1e9
}

impl fmt::Display for InodeReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "inode {}: {}, mode {}, uid {}, gid {}, {} link{}, generation {}",
            self.inode,
            self.kind,
            self.permissions,
            self.uid,
            self.gid,
            self.links,
            if self.links == 1 { "" } else { "s" },
            self.generation
        )?;
        writeln!(f, "size {} bytes, {} sectors of 512 bytes used", self.size, self.sectors)?;
        if !self.flag_names.is_empty() {
            writeln!(f, "flags {:#x}: {}", self.flags, self.flag_names.join(", "))?;
        }
        let moment = |seconds: f64| local_time::local(seconds.floor() as i64);
        writeln!(f, "accessed {}, modified {}", moment(self.accessed), moment(self.modified))?;
        writeln!(f, "changed  {}, created  {}", moment(self.changed), moment(self.created))?;
        if self.deletion_time != 0 {
            writeln!(f, "deletion time, or next orphan: {}", self.deletion_time)?;
        }
        if let Some(target) = &self.symlink {
            writeln!(f, "leads to {target:?}, kept in the inode")?;
        }
        for extent in &self.extents {
            let last = u64::from(extent.file_block) + u64::from(extent.count) - 1;
            let end = extent.block.saturating_add(u64::from(extent.count) - 1);
            let unwritten = if extent.unwritten { ", unwritten" } else { "" };
            match extent.count {
                1 => writeln!(
                    f,
                    "file block {}: block {}{unwritten}",
                    extent.file_block, extent.block
                )?,
                _ => writeln!(
                    f,
                    "file blocks {}..={last}: blocks {}..={end}{unwritten}",
                    extent.file_block, extent.block
                )?,
            }
        }
        if !self.map_blocks.is_empty() {
            let blocks: Vec<String> = self.map_blocks.iter().map(u64::to_string).collect();
            writeln!(f, "its map takes blocks {}", blocks.join(", "))?;
        }
        for xattr in &self.xattrs {
            let place = if xattr.in_inode {
                "in the inode".into()
            } else {
                format!("in block {}", self.xattr_block)
            };
            writeln!(f, "attribute {}: {} bytes, {place}", xattr.name, xattr.bytes)?;
        }
        Ok(())
    }
}
