//! Recovery's three passes over a log of packed transactions, whatever its bytes are.

use format::jbd2::{JournalSuperblock, Seed};
use format::packed::{PackedHeader, PackedLog};
use journal::{HomeBounds, LogRing, LogStart, Pass, ReplayImages, ReplayPass, RevokePass, ScanPass, records};
use std::rc::Rc;
use units::{BlockSize, LogBlock, TransactionId};

const UNITS_MAX: usize = 96;
const FIRST: TransactionId = TransactionId(1);

/// The first byte chooses the unit, and whether the checksums of transactions from the log's start on are made right. The
/// others are the log.
pub fn run(bytes: &[u8]) {
    let Some((&choice, rest)) = bytes.split_first() else { return };
    let unit = [512, 1024][usize::from(choice & 1)];
    let superblock = superblock(unit as u32);
    let mut log = rest[..rest.len().min(UNITS_MAX * unit)].to_vec();
    log.resize(log.len().next_multiple_of(unit).max(4 * unit), 0);
    if choice & 2 != 0 {
        seal(&mut log, unit, superblock.packed_seed());
    }
    let _ = recover(&superblock, &log, unit, choice & 4 != 0);
}

pub fn superblock(unit: u32) -> JournalSuperblock {
    let size = BlockSize::new(1024).expect("a power of two");
    let mut superblock = JournalSuperblock::new(size, 1024, [3; 16]);
    superblock.set_packed(PackedLog { unit, nonce: 5, gap_max: 0 });
    superblock
}

fn recover(
    superblock: &JournalSuperblock,
    log: &[u8],
    unit: usize,
    until_damage: bool,
) -> Result<(), journal::RecoverError> {
    let count = (log.len() / unit) as u32;
    let feed = |pass: &mut dyn Pass, then: &mut dyn FnMut()| {
        let mut turns = 0;
        while let Some(at) = pass.wants() {
            turns += 1;
            assert!(turns <= count, "a pass goes round the log more than once");
            pass.give(&log[at.get() as usize * unit..][..unit])?;
            then();
        }
        Ok::<(), journal::RecoverError>(())
    };
    let ring = Rc::new(LogRing::new(LogBlock(0), LogBlock(count)));
    let start = LogStart { transaction: FIRST, at: LogBlock(0) };
    let mut scan = ScanPass::over(records::of(superblock), ring, start).until_damage(until_damage);
    feed(&mut scan, &mut || ())?;
    let scanned = scan.finish();
    let mut revoke = RevokePass::new(&scanned);
    feed(&mut revoke, &mut || ())?;
    let bounds = HomeBounds { blocks: 1 << 20, forbidden: [(100, 200)].map(|(from, to)| from..to).to_vec() };
    let mut replay = ReplayPass::new(&scanned, revoke.finish(), bounds.clone());
    let mut images = ReplayImages::new(superblock.block_size);
    while let Some(at) = replay.wants() {
        replay.give(&log[at.get() as usize * unit..][..unit])?;
        replay.take_actions().for_each(|action| images.apply(action));
    }
    for image in images.take() {
        let home = image.home.get();
        assert!(home < bounds.blocks && !bounds.forbidden[0].contains(&home));
        assert_eq!(image.content.len(), superblock.block_size.bytes());
    }
    Ok(())
}

/// Gives each run from the start on, as long as it says it is, its number and its checksums.
fn seal(log: &mut [u8], unit: usize, seed: Seed) {
    let (mut at, mut transaction) = (0, FIRST);
    while at + unit <= log.len() {
        let word = |place: usize| {
            let bytes = &log[at + place..][..4];
            u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
        };
        let (length, durable) = (word(8), TransactionId(word(12)));
        let end = at + PackedHeader::units_of(length.into(), unit) as usize * unit;
        if end > log.len() {
            return;
        }
        let (header, body) = log[at..end].split_at_mut(PackedHeader::SIZE);
        let body_sum = seed.with(body).0;
        let time = units::Timestamp::default();
        PackedHeader { transaction, length, durable, time, body_sum }.serialize(seed, header);
        (at, transaction) = (end, transaction.next());
    }
}
