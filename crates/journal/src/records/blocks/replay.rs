use crate::pass_outcome::{PassCounts, RecoverError};
use crate::records::{Decoded, Decoder, LogPiece, Sink, WholeBlockLocation};
use format::jbd2::{
    BlockHeader, BlockTag, BlockType, DescriptorBlock, LogLayout, Packing, RevokeBlock, TagBytes,
    unescape,
};
use std::collections::VecDeque;
use units::TransactionId;

/// Reads revoke blocks, and descriptors with their logged blocks.
pub(super) struct BlockDecoder {
    layout: LogLayout,
    transaction: TransactionId,
    /// Remaining tags of the descriptor, for the logged blocks that follow.
    tags: VecDeque<(BlockTag, TagBytes)>,
    counts: PassCounts,
}

impl BlockDecoder {
    pub fn new(layout: LogLayout) -> BlockDecoder {
        BlockDecoder {
            layout,
            transaction: TransactionId(0),
            tags: VecDeque::new(),
            counts: PassCounts::default(),
        }
    }

    fn damaged(&self, piece: LogPiece, what: String) -> RecoverError {
        RecoverError::Damaged { at: piece.at, transaction: self.transaction, what }
    }

    fn revoke(&mut self, piece: LogPiece, sink: Sink) -> Result<(), RecoverError> {
        let revoke = RevokeBlock::parse(piece.bytes, &self.layout, piece.at)?;
        if revoke.transaction != self.transaction || !self.layout.is_intact(piece.bytes) {
            return Err(
                self.damaged(piece, "its revoke block is not what the scan read".to_owned())
            );
        }
        self.counts.revoke_blocks += 1;
        revoke.blocks.into_iter().try_for_each(|home| sink(Decoded::Revoke(home)))
    }

    fn descriptor(&mut self, piece: LogPiece) -> Result<(), RecoverError> {
        let descriptor = DescriptorBlock::parse(piece.bytes, &self.layout, piece.at)?;
        if descriptor.transaction != self.transaction || !self.layout.is_intact(piece.bytes) {
            return Err(
                self.damaged(piece, "its descriptor block is not what the scan read".to_owned())
            );
        }
        self.counts.descriptors += 1;
        let mut packing = Packing::new(self.layout.block_size);
        self.tags = descriptor.tags.into_iter().map(|tag| (tag, packing.place(&tag))).collect();
        Ok(())
    }

    fn logged(&mut self, first: BlockTag, piece: LogPiece, sink: Sink) -> Result<(), RecoverError> {
        let sum = self.layout.seed.of_logged_block(self.transaction, piece.bytes);
        if !first.matches(sum, &self.layout) {
            let what = format!("the checksum of the copy of {} is wrong", first.home);
            return Err(self.damaged(piece, what));
        }
        let mut content = piece.bytes.to_vec();
        if first.escaped && !units::fault!("escape-ignored") {
            unescape(&mut content);
        }
        match first.fragment {
            Some(_) => self.counts.multiwrite_blocks += 1,
            None => self.counts.regular_blocks += 1,
        }
        let raw = (!first.escaped).then_some(WholeBlockLocation { at: piece.at, offset: 0 });
        let block = self.tags.front().map(|(_, place)| place.block);
        while let Some((tag, place)) =
            self.tags.front().copied().filter(|(_, place)| Some(place.block) == block)
        {
            self.tags.pop_front();
            let (home, bytes) = (tag.home, &content[place.offset..][..place.length]);
            sink(match tag.fragment {
                None => Decoded::Whole { home, durable_only: tag.durable_only, bytes, place: raw },
                Some(fragment) => Decoded::Part {
                    home,
                    range: fragment.range,
                    bytes,
                    base_zero: fragment.base_zero,
                },
            })?;
        }
        Ok(())
    }
}

impl Decoder for BlockDecoder {
    fn begin(&mut self, transaction: TransactionId) {
        self.transaction = transaction;
        self.tags.clear();
    }

    fn give(&mut self, piece: LogPiece, sink: Sink) -> Result<(), RecoverError> {
        if let Some((tag, _)) = self.tags.front().copied() {
            return self.logged(tag, piece, sink);
        }
        match BlockHeader::parse(piece.bytes).and_then(|header| header.kind) {
            Some(BlockType::Revoke) => self.revoke(piece, sink),
            _ => self.descriptor(piece),
        }
    }

    fn counts(&self) -> PassCounts {
        self.counts
    }
}
