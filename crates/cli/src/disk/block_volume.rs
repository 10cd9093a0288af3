//! A block volume on a disk, found before anything is claimed.

use crate::look::open_to_look;
use format::blocks::{
    BLOCKS_SUPERBLOCK_SIZE, BlocksRole, BlocksSuperblock, RESERVED_BYTES, SUPERBLOCK_AT,
    blocks_copy_at,
};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// A block volume on a disk, found before anything is claimed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum VolumeOnDisk {
    None,
    /// UUID of the volume, or of that to which a journal device belongs.
    Found([u8; 16]),
    /// Volume with only the copy of the superblock left: this byte holds something else.
    Overwritten(u64),
}

/// Bytes read as one where a disk may have sectors that cannot be read.
const PAGE: usize = 4096;

/// Whether the disk is the journal's device of a block volume.
pub fn is_log(source: &Path) -> bool {
    let mut bytes = [0; BLOCKS_SUPERBLOCK_SIZE];
    let read = open_to_look(source).and_then(|file| file.read_exact_at(&mut bytes, SUPERBLOCK_AT));
    read.is_ok() && BlocksSuperblock::parse(&bytes).is_ok_and(|it| it.role == BlocksRole::Journal)
}

/// Looks for a block volume as [`blocks::find_superblock`] does.
pub fn volume_on(source: &Path) -> io::Result<VolumeOnDisk> {
    let mut file = open_to_look(source)?;
    let size = io::Seek::seek(&mut file, io::SeekFrom::End(0))?;
    let parse = |at: u64| {
        let mut bytes = [0; BLOCKS_SUPERBLOCK_SIZE];
        file.read_exact_at(&mut bytes, at).ok()?;
        BlocksSuperblock::parse(&bytes).ok()
    };
    if let Some(superblock) = parse(SUPERBLOCK_AT) {
        return Ok(VolumeOnDisk::Found(superblock.uuid));
    }
    let copy = blocks_copy_at(size).and_then(|at| parse(at).map(|copy| (at, copy)));
    let copy = copy.filter(|(at, copy)| blocks_copy_at(copy.disk_bytes) == Some(*at));
    let Some((_, copy)) = copy else { return Ok(VolumeOnDisk::None) };
    let mut start = vec![0; RESERVED_BYTES as usize];
    for (page, at) in start.chunks_mut(PAGE).zip((0..).step_by(PAGE)) {
        if file.read_exact_at(page, at).is_err() {
            page.fill(0);
        }
    }
    let overwritten = copy.overwritten_at(&start);
    Ok(overwritten.map_or(VolumeOnDisk::Found(copy.uuid), VolumeOnDisk::Overwritten))
}
