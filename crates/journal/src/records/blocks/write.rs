//! The log blocks of a transaction: revoke blocks, then descriptors with their blocks, fragments
//! before regular blocks, then the commit block. Source: kernel `journal.rst`; paper, section 3.2.

use super::BlockRecords;
use crate::plan::BlockKind;
use crate::records::{CommitStamp, Images, LogBlocks, LogContent, WholeBlocks};
use crate::transaction::{LockedTransaction, Record};
use device::Buffer;
use format::jbd2::{
    BlockTag, CommitBlock, DescriptorBlock, Fragment, LogLayout, Packing, RevokeBlock, TagBytes,
    escape,
};
use std::rc::Rc;
use units::{BlockRange, HomeBlock, TransactionId};

pub(super) fn write(
    records: &BlockRecords,
    transaction: &LockedTransaction,
    images: Images,
    stamp: &CommitStamp,
    wholes: &mut WholeBlocks,
) -> LogContent {
    let mut blocks = log_body(transaction, images, records.layout, wholes);
    let commit = (BlockKind::Commit, commit_block(transaction.id, &blocks, records, stamp));
    if records.is_sealed() {
        blocks.push(commit);
        LogContent::Sealed(blocks)
    } else {
        LogContent::InTwo { body: blocks, commit: vec![commit] }
    }
}

/// Writes all log blocks of the transaction but the commit block.
fn log_body(
    transaction: &LockedTransaction,
    images: Images,
    layout: LogLayout,
    wholes: &mut WholeBlocks,
) -> LogBlocks {
    let mut body = Body::new(transaction.id, layout, wholes);
    body.revokes(transaction.revoked.iter().copied());
    for (block, record) in &transaction.data {
        if let Record::Bytes { ranges, base_zero } = record {
            let image = images(*block);
            for (index, range) in ranges.as_slice().iter().enumerate() {
                // Only the first fragment starts from zeros; later ones would wipe out those before
                // them.
                body.fragment(*block, *range, *base_zero && index == 0, &image);
            }
        }
    }
    let whole_data = transaction
        .data
        .iter()
        .filter(|(_, record)| **record == Record::Whole)
        .map(|(block, _)| block);
    for block in transaction.metadata.keys().chain(whole_data) {
        body.regular(*block, images(*block), transaction.is_durable_only(*block));
    }
    body.close_descriptor();
    body.blocks
}

fn commit_block(
    transaction: TransactionId,
    body: &LogBlocks,
    records: &BlockRecords,
    stamp: &CommitStamp,
) -> Rc<Buffer> {
    let layout = &records.layout;
    let whole = records.is_sealed().then(|| {
        let mut whole = layout.whole_transaction(transaction);
        body.iter().for_each(|(_, block)| whole.add(block));
        whole.sum()
    });
    let mut block = Buffer::zeroed(layout.block_size.bytes());
    CommitBlock { transaction, time: stamp.time, whole }.serialize(layout, &mut block);
    Rc::new(block)
}

/// Collects log blocks; the tags of the open descriptor wait until it is full.
struct Body<'a> {
    transaction: TransactionId,
    layout: LogLayout,
    blocks: LogBlocks,
    /// Tags of the open descriptor, the log block (counted behind the descriptor) of each, and
    /// these log blocks.
    tags: Vec<(BlockTag, u32)>,
    logged: LogBlocks,
    packing: Packing,
    /// Bytes left for tags.
    room: usize,
    wholes: &'a mut WholeBlocks,
}

impl Body<'_> {
    fn new(transaction: TransactionId, layout: LogLayout, wholes: &mut WholeBlocks) -> Body<'_> {
        Body {
            transaction,
            layout,
            blocks: Vec::new(),
            tags: Vec::new(),
            logged: Vec::new(),
            packing: Packing::new(layout.block_size),
            room: DescriptorBlock::capacity(&layout),
            wholes,
        }
    }

    fn revokes(&mut self, revoked: impl Iterator<Item = HomeBlock>) {
        let revoked: Vec<HomeBlock> =
            revoked.filter(|_| !units::fault!("revoke-left-out")).collect();
        for blocks in revoked.chunks(RevokeBlock::capacity(&self.layout)) {
            let mut block = Buffer::zeroed(self.layout.block_size.bytes());
            let revoke = RevokeBlock { transaction: self.transaction, blocks: blocks.to_vec() };
            revoke.serialize(&self.layout, &mut block);
            self.blocks.push((BlockKind::Revoke, Rc::new(block)));
        }
    }

    fn fragment(&mut self, home: HomeBlock, range: BlockRange, base_zero: bool, image: &Buffer) {
        assert!(self.layout.multiwrite, "a part of {home} in a log that holds whole blocks");
        let place = self.tag(home, Some(Fragment { range, base_zero }), false);
        if place.begins_block() {
            let empty = Rc::new(Buffer::zeroed(self.layout.block_size.bytes()));
            self.logged.push((BlockKind::Multiwrite, empty));
        }
        let (_, block) = self.logged.last_mut().expect("the block that was begun");
        let block =
            Rc::get_mut(block).expect("a multiwrite block has one owner until it is planned");
        block[place.offset..][..place.length].copy_from_slice(&image[range.as_usize()]);
    }

    fn regular(&mut self, home: HomeBlock, image: Rc<Buffer>, durable_only: bool) {
        assert_eq!(image.len(), self.layout.block_size.bytes(), "the image of {home}");
        self.tag(home, None, durable_only);
        self.logged.push((BlockKind::Regular, image));
    }

    fn tag(&mut self, home: HomeBlock, fragment: Option<Fragment>, durable_only: bool) -> TagBytes {
        let tag =
            BlockTag { home, escaped: false, deleted: false, durable_only, checksum: 0, fragment };
        let length = tag.encoded_length(&self.layout);
        if length > self.room {
            self.close_descriptor();
        }
        self.room -= length;
        let place = self.packing.place(&tag);
        self.tags.push((tag, place.block));
        place
    }

    /// Writes the descriptor of the tags so far, and the blocks they name.
    fn close_descriptor(&mut self) {
        if self.tags.is_empty() {
            return;
        }
        let mut logged = std::mem::take(&mut self.logged);
        let sums: Vec<(bool, u32)> =
            logged.iter_mut().map(|(_, block)| self.escape_and_sum(block)).collect();
        let mut tags = Vec::with_capacity(self.tags.len());
        let mut previous = None;
        // Counted from the block behind the descriptor.
        let first = self.blocks.len() as u64 + 1;
        for (mut tag, block) in self.tags.drain(..) {
            let (escaped, sum) = sums[block as usize];
            if tag.fragment.is_none() && !escaped {
                let at = (first + u64::from(block)) << self.layout.block_size.shift();
                self.wholes.push((tag.home, at));
            }
            tag.escaped = escaped && previous != Some(block);
            tag.checksum = sum;
            previous = Some(block);
            tags.push(tag);
        }
        let mut block = Buffer::zeroed(self.layout.block_size.bytes());
        DescriptorBlock { transaction: self.transaction, tags }.serialize(&self.layout, &mut block);
        self.blocks.push((BlockKind::Descriptor, Rc::new(block)));
        self.blocks.append(&mut logged);
        self.packing = Packing::new(self.layout.block_size);
        self.room = DescriptorBlock::capacity(&self.layout);
    }

    /// Escapes a logged block if it begins with the magic (a copy of it: the cache shares the
    /// image). Returns whether it did, and the tag's checksum.
    fn escape_and_sum(&self, block: &mut Rc<Buffer>) -> (bool, u32) {
        let escaped = block[..4] == format::jbd2::MAGIC.to_be_bytes()
            && escape(Rc::<Buffer>::make_mut(block));
        let sums = self.layout.has_checksums();
        (escaped, if sums { self.layout.seed.of_logged_block(self.transaction, block) } else { 0 })
    }
}
