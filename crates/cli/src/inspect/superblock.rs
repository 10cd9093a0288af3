use super::flush_zone::FlushZoneReport;
use super::reader::Reader;
use format::ext4::features::FEATURES;
use format::ext4::superblock::state;
use format::uuid_text;
use std::fmt;

#[derive(serde::Serialize)]
pub struct SuperblockReport {
    uuid: String,
    label: String,
    last_mounted: String,
    block_size: usize,
    blocks: u64,
    free_blocks: u64,
    reserved_blocks: u64,
    inodes: u32,
    free_inodes: u32,
    inode_size: u16,
    groups: u32,
    blocks_per_group: u32,
    inodes_per_group: u32,
    cleanly_unmounted: bool,
    errors_found: bool,
    needs_recovery: bool,
    first_orphan: u32,
    journal_inode: u32,
    journal_uuid: Option<String>,
    features: Vec<&'static str>,
    refused: Vec<String>,
    read_only: Vec<String>,
    flush_zone: Option<FlushZoneReport>,
}

pub fn report(reader: &Reader) -> SuperblockReport {
    let superblock = &reader.superblock;
    let features = &superblock.features;
    let on: Vec<&str> =
        FEATURES.iter().filter(|row| features.has(row.feature)).map(|row| row.name).collect();
    SuperblockReport {
        uuid: uuid_text(&superblock.uuid),
        label: text(&superblock.volume_name),
        last_mounted: text(&superblock.last_mounted),
        block_size: superblock.block_size.bytes(),
        blocks: superblock.blocks,
        free_blocks: superblock.free_blocks,
        reserved_blocks: superblock.reserved_blocks,
        inodes: superblock.inodes,
        free_inodes: superblock.free_inodes,
        inode_size: superblock.inode_size,
        groups: superblock.groups(),
        blocks_per_group: superblock.blocks_per_group,
        inodes_per_group: superblock.inodes_per_group,
        cleanly_unmounted: superblock.state & state::VALID != 0,
        errors_found: superblock.state & state::ERROR != 0,
        needs_recovery: on.contains(&"needs_recovery"),
        first_orphan: superblock.last_orphan,
        journal_inode: superblock.journal_inode,
        journal_uuid: (superblock.journal_uuid != [0; 16])
            .then(|| uuid_text(&superblock.journal_uuid)),
        refused: features.refused(),
        read_only: features.read_only(),
        flush_zone: FlushZoneReport::of_volume(reader),
        features: on,
    }
}

impl fmt::Display for SuperblockReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let or_none =
            |text: &str| if text.is_empty() { "none".to_string() } else { text.to_string() };
        writeln!(f, "uuid             {}", self.uuid)?;
        writeln!(f, "label            {}", or_none(&self.label))?;
        writeln!(f, "last mounted on  {}", or_none(&self.last_mounted))?;
        writeln!(
            f,
            "blocks           {} of {} bytes, {} free, {} of them for root only",
            self.blocks, self.block_size, self.free_blocks, self.reserved_blocks
        )?;
        writeln!(
            f,
            "inodes           {} of {} bytes, {} free",
            self.inodes, self.inode_size, self.free_inodes
        )?;
        writeln!(
            f,
            "groups           {}, each of {} blocks and {} inodes",
            self.groups, self.blocks_per_group, self.inodes_per_group
        )?;
        writeln!(f, "state            {}", self.state())?;
        match (&self.journal_uuid, self.journal_inode) {
            (_, inode @ 1..) => writeln!(f, "journal          in inode {inode}")?,
            (Some(uuid), 0) => writeln!(f, "journal          on another device, {uuid}")?,
            (None, 0) => writeln!(f, "journal          none")?,
        }
        if let Some(zone) = &self.flush_zone {
            writeln!(f, "flush zone       {zone}")?;
        }
        if self.first_orphan != 0 {
            writeln!(f, "orphans          from inode {} on", self.first_orphan)?;
        }
        writeln!(f, "features         {}", self.features.join(" "))?;
        if !self.refused.is_empty() {
            writeln!(f, "not supported    {}", self.refused.join(" "))?;
        }
        if !self.read_only.is_empty() {
            writeln!(f, "read-only for    {}", self.read_only.join(" "))?;
        }
        Ok(())
    }
}

impl SuperblockReport {
    fn state(&self) -> &'static str {
        match (self.errors_found, self.needs_recovery, self.cleanly_unmounted) {
            (true, _, _) => "errors were found: run e2fsck",
            (_, true, _) => "mounted, or not unmounted: the journal must be replayed",
            (_, _, false) => "mounted, or not unmounted",
            _ => "clean",
        }
    }
}

/// Text that ends in zeros.
fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}
