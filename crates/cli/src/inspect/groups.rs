use super::reader::Reader;
use crate::error::CliError;
use crate::text::table::Table;
use format::ext4::group_flags;
use std::fmt;
use units::GroupNumber;

#[derive(serde::Serialize)]
#[serde(transparent)]
pub struct GroupsReport(Vec<GroupReport>);

#[derive(serde::Serialize)]
struct GroupReport {
    group: u32,
    first_block: u64,
    blocks: u32,
    block_bitmap: u64,
    inode_bitmap: u64,
    inode_table: u64,
    free_blocks: u32,
    free_inodes: u32,
    directories: u32,
    flags: Vec<&'static str>,
    superblock_copy: bool,
    damage: Option<String>,
}

pub fn report(reader: &Reader) -> Result<GroupsReport, CliError> {
    let superblock = &reader.superblock;
    let mut groups = Vec::new();
    for group in (0..superblock.groups()).map(GroupNumber) {
        let (descriptor, raw) = reader.descriptor(group)?;
        let names = [
            (group_flags::INODE_UNINIT, "inodes unused"),
            (group_flags::BLOCK_UNINIT, "blocks unused"),
            (group_flags::INODE_ZEROED, "table zeroed"),
        ];
        groups.push(GroupReport {
            group: group.get(),
            first_block: superblock.group_start(group).get(),
            blocks: superblock.blocks_in_group(group),
            block_bitmap: descriptor.block_bitmap.get(),
            inode_bitmap: descriptor.inode_bitmap.get(),
            inode_table: descriptor.inode_table.get(),
            free_blocks: descriptor.free_blocks,
            free_inodes: descriptor.free_inodes,
            directories: descriptor.directories,
            flags: names
                .into_iter()
                .filter(|(flag, _)| descriptor.is(*flag))
                .map(|(_, name)| name)
                .collect(),
            superblock_copy: superblock.has_superblock(group),
            damage: descriptor.check(&raw, group, superblock).err().map(|error| error.to_string()),
        });
    }
    Ok(GroupsReport(groups))
}

impl fmt::Display for GroupsReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = Table::new([
            "group",
            "first block",
            "blocks",
            "block bitmap",
            "inode bitmap",
            "inode table",
            "free blocks",
            "free inodes",
            "directories",
            "remarks",
        ]);
        for group in &self.0 {
            let copy = group.superblock_copy.then_some("superblock");
            let remarks: Vec<&str> = copy
                .into_iter()
                .chain(group.flags.iter().copied())
                .chain(group.damage.as_deref())
                .collect();
            table.row([
                group.group.to_string(),
                group.first_block.to_string(),
                group.blocks.to_string(),
                group.block_bitmap.to_string(),
                group.inode_bitmap.to_string(),
                group.inode_table.to_string(),
                group.free_blocks.to_string(),
                group.free_inodes.to_string(),
                group.directories.to_string(),
                remarks.join(", "),
            ]);
        }
        write!(f, "{table}")
    }
}
