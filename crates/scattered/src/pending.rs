//! Blocks that are being logged: the newest content of each, until all its records are in the
//! table.
//!
//! Invariants: tickets grow in the order in which pieces were made, which is the order of their
//! records' sequence. Of the records of one block that were in flight at once the newest stays in
//! the table, whichever completes first.

use crate::BLOCK;
use crate::append::Piece;
use device::Buffer;
use std::collections::BTreeMap;
use std::rc::Rc;

struct Block {
    /// Pieces with this block that are waiting or in flight.
    pieces: u32,
    /// Ticket of the newest piece that is in the table.
    installed: u64,
    mask: u8,
    content: Rc<Buffer>,
    offset: usize,
}

#[derive(Default)]
pub struct Pending {
    blocks: BTreeMap<u64, Block>,
    last: u64,
}

impl Pending {
    /// Sectors and content of a block as the newest piece has it.
    pub fn newest(&self, home: u64) -> Option<(u8, &[u8])> {
        let block = self.blocks.get(&home)?;
        Some((block.mask, &block.content[block.offset..block.offset + BLOCK]))
    }
    /// Gives the piece its ticket.
    pub fn enter(&mut self, piece: &mut Piece) {
        self.last += 1;
        piece.ticket = self.last;
        for (number, (home, mask)) in piece.blocks.iter().enumerate() {
            let (content, offset) = (piece.content.clone(), number * BLOCK);
            let before =
                self.blocks.get(home).map_or((0, 0), |block| (block.pieces, block.installed));
            let block =
                Block { pieces: before.0 + 1, installed: before.1, mask: *mask, content, offset };
            self.blocks.insert(*home, block);
        }
    }
    /// Returns whether the table shall name the piece; its record is complete.
    pub fn installs(&mut self, home: u64, ticket: u64) -> bool {
        let Some(block) = self.blocks.get_mut(&home) else { return true };
        let is_newer = ticket > block.installed;
        block.installed = block.installed.max(ticket);
        self.leave(home);
        is_newer
    }
    /// Forgets a piece that goes to no log.
    pub fn forget(&mut self, piece: &Piece) {
        piece.blocks.iter().for_each(|(home, _)| self.leave(*home));
    }
    fn leave(&mut self, home: u64) {
        if let Some(block) = self.blocks.get_mut(&home) {
            block.pieces -= 1;
            if block.pieces == 0 {
                self.blocks.remove(&home);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(home: u64, byte: u8) -> Piece {
        Piece {
            blocks: vec![(home, 1)],
            content: Rc::new(Buffer::copy_of(&[byte; BLOCK])),
            ticket: 0,
        }
    }

    #[test]
    fn the_newest_piece_stays_whichever_is_complete_first() {
        let mut pending = Pending::default();
        let (mut old, mut new) = (piece(7, 1), piece(7, 2));
        pending.enter(&mut old);
        pending.enter(&mut new);
        assert_eq!(pending.newest(7).map(|(_, content)| content[0]), Some(2));
        assert!(pending.installs(7, new.ticket) && !pending.installs(7, old.ticket));
        assert!(pending.newest(7).is_none() && pending.blocks.is_empty());
        pending.enter(&mut old);
        pending.forget(&old);
        assert!(pending.blocks.is_empty());
    }
}
