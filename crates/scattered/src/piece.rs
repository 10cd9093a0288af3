//! The blocks that a write adds to a log: whole blocks, with the sectors that are written, and
//! those that were logged before.
//!
//! Invariants: the caller holds a claim. A record stands for everything that is logged of its
//! blocks. So a piece is made, and becomes pending, in one step, after the needed logged blocks
//! were read. Concurrent writes of the same block are in it or follow it.

use crate::append::Piece;
use crate::disk::DeviceResult;
use crate::home::{blocks_of, gather};
use crate::state::{State, mask_of};
use crate::{BLOCK, SECTOR, WHOLE};
use device::Buffer;
use std::collections::BTreeMap;
use std::rc::Rc;

enum Made {
    Piece(Piece),
    /// The content of this place is needed.
    Needs(u64),
    WrittenHome,
}

impl State {
    /// Makes a piece, which is pending already. `None`: it must be written home.
    pub async fn piece(
        self: &Rc<Self>,
        at: u64,
        parts: &[Rc<Buffer>],
    ) -> DeviceResult<Option<Piece>> {
        // What was read stays what its place holds until the piece is made.
        let (mut known, mut pins) = (BTreeMap::new(), Vec::new());
        loop {
            match self.make_piece(at, parts, &known) {
                Made::Piece(mut piece) => {
                    self.inner.borrow_mut().pending.enter(&mut piece);
                    return Ok(Some(piece));
                }
                Made::WrittenHome => return Ok(None),
                Made::Needs(place) => {
                    pins.push(self.pin(place));
                    let content = self.logged_block(place).await?;
                    known.insert(place, content);
                }
            }
        }
    }

    fn make_piece(&self, at: u64, parts: &[Rc<Buffer>], known: &BTreeMap<u64, Rc<Buffer>>) -> Made {
        let length: usize = parts.iter().map(|part| part.len()).sum();
        let (homes, skip) = (blocks_of(at, length as u64), at as usize % BLOCK);
        let count = (homes.end - homes.start) as usize;
        let mut blocks = Vec::with_capacity(count);
        if skip == 0 && length == count * BLOCK {
            if let [whole] = parts {
                blocks.extend(homes.map(|home| (home, WHOLE)));
                return Made::Piece(Piece { blocks, content: whole.clone(), ticket: 0 });
            }
        }
        let inner = self.inner.borrow();
        let mut content = Buffer::zeroed(count * BLOCK);
        for (number, home) in homes.enumerate() {
            let from = skip.saturating_sub(number * BLOCK);
            let until = (skip + length - number * BLOCK).min(BLOCK);
            let mut mask = mask_of(from, until);
            let here = &mut content[number * BLOCK..(number + 1) * BLOCK];
            if mask != WHOLE {
                // What home has beside it may not be durable there yet, and the record before,
                // which would give it, would be hidden.
                if inner.drops.concern(&(home..home + 1)) {
                    return Made::WrittenHome;
                }
                if let Some((before, old)) = inner.pending.newest(home) {
                    copy_sectors(here, old, before);
                    mask |= before;
                } else if let Some(before) =
                    inner.table.get(home).filter(|before| before.mask & !mask != 0)
                {
                    let old =
                        known.get(&before.place).cloned().or_else(|| inner.partial(before.place));
                    let Some(old) = old else { return Made::Needs(before.place) };
                    copy_sectors(here, &old, before.mask);
                    mask |= before.mask;
                }
            }
            blocks.push((home, mask));
        }
        content[skip..skip + length].copy_from_slice(&gather(parts));
        Made::Piece(Piece { blocks, content: Rc::new(content), ticket: 0 })
    }
}

fn copy_sectors(to: &mut [u8], from: &[u8], mask: u8) {
    for sector in (0..BLOCK / SECTOR).filter(|sector| mask & 1 << sector != 0) {
        let range = sector * SECTOR..(sector + 1) * SECTOR;
        to[range.clone()].copy_from_slice(&from[range]);
    }
}
