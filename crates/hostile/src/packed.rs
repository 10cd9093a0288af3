//! Recovery's three passes over a log of packed transactions with arbitrary bytes.

use format::jbd2::{JournalSuperblock, Seed};
use format::packed::{PackedHeader, PackedLog};
use format::{TransactionSums, WholeTransaction};
use journal::{
    HomeBounds, LogRing, LogStart, Pass, ReplayImages, ReplayPass, RevokePass, ScanPass, records,
};
use std::rc::Rc;
use units::{BlockSize, LogBlock, TransactionId};

const UNITS_MAX: usize = 96;
const FIRST: TransactionId = TransactionId(1);

/// Parameters in the first byte of an input. The others are the log.
#[derive(Clone, Copy)]
struct Choice(u8);

impl Choice {
    fn unit(self) -> usize {
        [512, 1024][usize::from(self.0 & 1)]
    }
    /// Whether the checksums of transactions from the log's start on are corrected.
    fn seals(self) -> bool {
        self.0 & 2 != 0
    }
    fn until_damage(self) -> bool {
        self.0 & 4 != 0
    }
    /// Returns the maximum number of units between two transactions.
    fn gap_max(self) -> u32 {
        [0, 1, 3, 40][usize::from(self.0 >> 3 & 3)]
    }
    /// Number of units between transactions whose checksums are corrected.
    fn gap(self) -> usize {
        usize::from(self.0 >> 5 & 3)
    }
    /// First byte of units that cannot be read.
    fn unreadable(self) -> Option<u8> {
        (self.0 & 0x80 != 0).then_some(0xff)
    }
}

pub fn run(bytes: &[u8]) {
    let Some((&choice, rest)) = bytes.split_first() else { return };
    let choice = Choice(choice);
    let unit = choice.unit();
    let superblock = superblock(unit as u32, choice.gap_max());
    let mut log = rest[..rest.len().min(UNITS_MAX * unit)].to_vec();
    log.resize(log.len().next_multiple_of(unit).max(4 * unit), 0);
    if choice.seals() {
        seal(&mut log, choice, (superblock.transaction_sums(), superblock.packed_seed()));
    }
    let _ = recover(&superblock, &log, choice);
}

fn superblock(unit: u32, gap_max: u32) -> JournalSuperblock {
    let size = BlockSize::new(1024).expect("a power of two");
    let mut superblock = JournalSuperblock::new(size, 1024, [3; 16]);
    superblock.set_packed(PackedLog { unit, nonce: 5, gap_max });
    superblock
}

fn recover(
    superblock: &JournalSuperblock,
    log: &[u8],
    choice: Choice,
) -> Result<(), journal::RecoverError> {
    let unit = choice.unit();
    let count = (log.len() / unit) as u32;
    let feed = |pass: &mut dyn Pass, then: &mut dyn FnMut()| {
        let mut steps = 0;
        while let Some(at) = pass.wants() {
            steps += 1;
            assert!(steps <= count, "a pass wraps around the log more than once");
            pass.give(&log[at.get() as usize * unit..][..unit])?;
            then();
        }
        Ok::<(), journal::RecoverError>(())
    };
    let ring = Rc::new(LogRing::new(LogBlock(0), LogBlock(count)));
    let start = LogStart { transaction: FIRST, at: LogBlock(0) };
    let scan = ScanPass::over(records::of(superblock), ring, start).behind_gaps(choice.gap_max());
    let (mut scan, mut steps) = (scan.until_damage(choice.until_damage()), 0);
    while let Some(at) = scan.wants() {
        steps += 1;
        // Where the log ends, a gap is read again.
        assert!(
            steps <= count + choice.gap_max() + 1,
            "the scan goes round the log more than once"
        );
        let bytes = &log[at.get() as usize * unit..][..unit];
        match choice.unreadable().filter(|byte| bytes[0] == *byte) {
            None => scan.give(bytes)?,
            Some(_) if scan.pass_over()? => {}
            Some(_) => return Ok(()),
        }
    }
    let scanned = scan.finish();
    let mut revoke = RevokePass::new(&scanned);
    feed(&mut revoke, &mut || ())?;
    let bounds =
        HomeBounds { blocks: 1 << 20, forbidden: [(100, 200)].map(|(from, to)| from..to).to_vec() };
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

/// Sets the number and the checksums of each run from the start on, as long as the headers are
/// valid.
fn seal(log: &mut [u8], choice: Choice, (sums, seed): (TransactionSums, Seed)) {
    let (unit, gap) = (choice.unit(), choice.gap() * choice.unit());
    let (mut at, mut transaction) = (gap, FIRST);
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
        let mut whole = WholeTransaction::new(sums, seed);
        whole.add(body);
        let body_sum = whole.sum();
        let time = units::Timestamp::default();
        PackedHeader { transaction, length, durable, time, body_sum }.serialize(seed, header);
        (at, transaction) = (end + gap, transaction.next());
    }
}
