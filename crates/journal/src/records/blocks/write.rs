//! The log blocks of a transaction: revoke blocks, then descriptors with their blocks, fragments
//! before regular blocks, then the commit block. Source: kernel `journal.rst`; paper, section 3.2.

use super::BlockRecords;
use crate::plan::BlockKind;
use crate::records::{CommitStamp, Images, LogBlocks, LogContent, RecordWriter, WholeBlocks};
use crate::transaction::{LockedTransaction, Record};
use device::Buffer;
use format::WholeTransaction;
use format::jbd2::{
    BlockTag, CommitBlock, DescriptorBlock, Fragment, LogLayout, Packing, RevokeBlock, TagBytes,
    escape,
};
use std::collections::btree_map;
use std::rc::Rc;
use units::{BlockRange, HomeBlock, TransactionId};

/// Writes revokes first, then data logged as bytes, then blocks logged whole.
pub(super) struct BlockWriter<'a> {
    records: BlockRecords,
    transaction: &'a LockedTransaction,
    stamp: CommitStamp,
    body: Body,
    /// Blocks of data not visited yet for parts.
    parts: btree_map::Iter<'a, HomeBlock, Record>,
    /// Blocks to be logged whole.
    wholes: Box<dyn Iterator<Item = HomeBlock> + 'a>,
    /// The checksum over all blocks, and the number of those it covers.
    sum: Option<WholeTransaction>,
    summed: usize,
}

impl<'a> BlockWriter<'a> {
    pub fn new(
        records: BlockRecords,
        transaction: &'a LockedTransaction,
        stamp: &CommitStamp,
    ) -> BlockWriter<'a> {
        let layout = records.layout;
        let whole_data =
            transaction.data().filter(|(_, record)| **record == Record::Whole).map(|(at, _)| at);
        let mut body = Body::new(transaction.id, layout);
        body.revokes(transaction.revoked());
        BlockWriter {
            records,
            transaction,
            stamp: *stamp,
            body,
            parts: transaction.data.iter(),
            wholes: Box::new(transaction.metadata().chain(whole_data)),
            sum: records.is_sealed().then(|| layout.whole_transaction(transaction.id)),
            summed: 0,
        }
    }

    /// Writes what one block needs. Returns false if there is none left.
    fn write_one(&mut self, images: Images) -> bool {
        if let Some((block, record)) = self.parts.next() {
            if let Record::Bytes { ranges, base_zero } = record {
                let image = images(*block);
                for (index, range) in ranges.as_slice().iter().enumerate() {
                    // Only the first fragment starts from zeros; later ones would wipe out those
                    // before them.
                    self.body.fragment(*block, *range, *base_zero && index == 0, &image);
                }
            }
            return true;
        }
        let Some(block) = self.wholes.next() else { return false };
        self.body.regular(block, images(block), self.transaction.is_durable_only(block));
        true
    }

    fn add_to_sum(&mut self) {
        if let Some(sum) = &mut self.sum {
            self.body.blocks[self.summed..].iter().for_each(|(_, block)| sum.add(block));
            self.summed = self.body.blocks.len();
        }
    }
}

impl RecordWriter for BlockWriter<'_> {
    fn write_some(&mut self, images: Images, blocks: usize) -> bool {
        let goes_on = (0..blocks).all(|_| self.write_one(images));
        self.add_to_sum();
        goes_on
    }

    fn finish(mut self: Box<Self>, images: Images) -> (LogContent, WholeBlocks) {
        while self.write_one(images) {}
        self.body.close_descriptor();
        self.add_to_sum();
        let BlockWriter { records, transaction, stamp, body, sum, .. } = *self;
        let (is_sealed, whole) = (sum.is_some(), sum.map(|sum| sum.sum()));
        let mut block = Buffer::zeroed(records.layout.block_size.bytes());
        let commit = CommitBlock { transaction: transaction.id, time: stamp.time, whole };
        commit.serialize(&records.layout, &mut block);
        let commit = (BlockKind::Commit, Rc::new(block));
        let mut blocks = body.blocks;
        let content = if is_sealed {
            blocks.push(commit);
            LogContent::Sealed(blocks)
        } else {
            LogContent::InTwo { body: blocks, commit: vec![commit] }
        };
        (content, body.wholes)
    }
}

/// Collects log blocks; the tags of the open descriptor wait until it is full.
struct Body {
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
    wholes: WholeBlocks,
}

impl Body {
    fn new(transaction: TransactionId, layout: LogLayout) -> Body {
        Body {
            transaction,
            layout,
            blocks: Vec::new(),
            tags: Vec::new(),
            logged: Vec::new(),
            packing: Packing::new(layout.block_size),
            room: DescriptorBlock::capacity(&layout),
            wholes: WholeBlocks::new(),
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
