//! The snapshot of the mapping table, and its damage after a cut. Whatever the damage, the logs
//! hold all that it would have recorded.

use crate::setup::{Disks, Setup};
use disks::Image;
use format::jbd2::JournalSuperblock;
use runtime::SplitMix;
use units::BlockSize;

const SECTOR: u64 = 512;

/// Damages the snapshot that the journal superblock names, if any: mostly it stays as the cut has
/// left it; or its first pieces lack a sector. `journal`: the blocks of the journal.
pub fn spoiled(
    left: String,
    disks: Disks,
    setup: Setup,
    journal: &[u64],
    number: u64,
) -> (String, Disks) {
    let spoils = number % 8 == 2 || number % 8 == 6;
    let found = if spoils { pieces(&disks.home, setup, journal) } else { None };
    let Some(pieces) = found else { return (left, disks) };
    let (rng, mut home) = (SplitMix::new(number), disks.home.clone());
    // Most pieces take a block, and begin with the fields that count.
    let at = pieces[rng.below(pieces.len() as u64) as usize] * setup.block_size();
    let mut sector = vec![0; SECTOR as usize];
    home.read(at, &mut sector);
    if rng.below(2) == 0 {
        sector.fill(0);
    } else {
        sector[rng.below(SECTOR) as usize] ^= 1 << rng.below(8);
    }
    home.write(at, &sector);
    (format!("{left}; a sector of its snapshot is lost"), Disks { home, ..disks })
}

/// Returns blocks from the first piece on, as many as there are pieces, up to the journal's end;
/// the others begin at its start.
fn pieces<'a>(home: &Image, setup: Setup, journal: &'a [u64]) -> Option<&'a [u64]> {
    let mut bytes = vec![0; 1024];
    home.read(journal.first()? * setup.block_size(), &mut bytes);
    let size = BlockSize::new(setup.block_size() as u32)?;
    let superblock = JournalSuperblock::parse(&bytes, size, u64::from(u32::MAX)).ok()?;
    let named = superblock.named_snapshot()?;
    let count = named.last.wrapping_sub(named.first) as usize + 1;
    let behind = journal.get(named.first_at.get() as usize..)?;
    behind.get(..count.min(behind.len())).filter(|pieces| !pieces.is_empty())
}
