//! The snapshot of the mapping table, and what may be wrong with it after a cut. Whatever is, the logs tell all that it would have
//! told.

use crate::setup::{Disks, Setup};
use disks::Image;
use format::jbd2::JournalSuperblock;
use runtime::SplitMix;
use units::BlockSize;

const SECTOR: u64 = 512;

/// What is left of the snapshot that the journal superblock names, if it names one: mostly what the cut has left. Or all but a
/// sector of its first pieces. `journal_at`: the block in which the journal begins.
pub fn spoiled(
    left: String,
    disks: Disks,
    setup: Setup,
    journal_at: Option<u64>,
    turn: u64,
) -> (String, Disks) {
    let spoils = turn % 8 == 2 || turn % 8 == 6;
    let found = journal_at.filter(|_| spoils).and_then(|at| Some((at, first_piece(&disks.home, setup, at)?)));
    let Some((journal_at, (first_at, pieces))) = found else { return (left, disks) };
    let (dice, mut home) = (SplitMix::new(turn), disks.home.clone());
    // Most pieces take a block, and begin with what counts.
    let block = journal_at + first_at + dice.below(pieces);
    let at = block * setup.block_size();
    let mut sector = vec![0; SECTOR as usize];
    home.read(at, &mut sector);
    if dice.below(2) == 0 {
        sector.fill(0);
    } else {
        sector[dice.below(SECTOR) as usize] ^= 1 << dice.below(8);
    }
    home.write(at, &sector);
    (format!("{left}; a sector of its snapshot is lost"), Disks { home, ..disks })
}

/// In which block of the journal the first piece is, and how many there are.
fn first_piece(home: &Image, setup: Setup, journal_at: u64) -> Option<(u64, u64)> {
    let mut bytes = vec![0; 1024];
    home.read(journal_at * setup.block_size(), &mut bytes);
    let size = BlockSize::new(setup.block_size() as u32)?;
    let superblock = JournalSuperblock::parse(&bytes, size, u64::from(u32::MAX)).ok()?;
    let named = superblock.named_snapshot()?;
    Some((named.first_at.get().into(), u64::from(named.last.wrapping_sub(named.first)) + 1))
}
