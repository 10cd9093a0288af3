//! The bytes of sectors that are not on the medium yet: pieces of the host's buffers, never copied.

use crate::SECTOR;
use device::Buffer;
use disks::Image;
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

/// Position of a write among all writes of the drive.
pub(super) type Order = u64;

/// New content of contiguous sectors.
#[derive(Clone)]
pub(super) struct Piece {
    pub sectors: Range<u64>,
    pub order: Order,
    buffer: Rc<Buffer>,
    /// Offset of the first sector, in bytes.
    offset: usize,
}

impl Piece {
    /// Pieces for the parts of a write that begins at sector `start`.
    pub fn of(parts: &[Rc<Buffer>], mut start: u64, order: Order) -> Vec<Piece> {
        let pieces = parts.iter().filter(|part| !part.is_empty()).map(|buffer| {
            let sectors = start..start + buffer.len() as u64 / SECTOR;
            start = sectors.end;
            Piece { sectors, order, buffer: buffer.clone(), offset: 0 }
        });
        pieces.collect()
    }

    pub fn bytes(&self) -> &[u8] {
        &self.buffer
            [self.offset..self.offset + ((self.sectors.end - self.sectors.start) * SECTOR) as usize]
    }
    /// The part of it that lies in `sectors`.
    pub fn within(&self, sectors: &Range<u64>) -> Option<Piece> {
        let cut = self.sectors.start.max(sectors.start)..self.sectors.end.min(sectors.end);
        let offset = self.offset + (cut.start.saturating_sub(self.sectors.start) * SECTOR) as usize;
        (cut.start < cut.end).then(|| Piece { sectors: cut, offset, ..self.clone() })
    }
    /// The piece at an address `by` sectors higher on the medium.
    pub fn moved(self, by: u64) -> Piece {
        Piece { sectors: self.sectors.start + by..self.sectors.end + by, ..self }
    }
    pub fn write_to(&self, image: &mut Image) {
        image.write(self.sectors.start * SECTOR, self.bytes());
    }
}

/// Pieces that do not overlap: the newest content of every sector that has one.
#[derive(Default)]
pub(super) struct Pieces {
    by_start: BTreeMap<u64, Piece>,
    sectors: u64,
}

impl Pieces {
    /// Number of sectors with content.
    pub fn sectors(&self) -> u64 {
        self.sectors
    }
    /// Adds a piece and replaces older content.
    pub fn put(&mut self, piece: Piece) {
        self.remove(&piece.sectors, Order::MAX);
        self.insert(piece);
    }
    /// The pieces in order, cut to `sectors`.
    pub fn within(&self, sectors: Range<u64>) -> impl Iterator<Item = Piece> {
        let pieces = self.by_start.range(self.first_start(&sectors)..sectors.end);
        pieces.filter_map(move |(_, piece)| piece.within(&sectors))
    }
    /// The end of the content without a gap from `sector` on.
    pub fn reach(&self, sector: u64) -> u64 {
        let mut reach = sector;
        for (start, piece) in self.by_start.range(self.first_start(&(sector..sector + 1))..) {
            if *start > reach {
                break;
            }
            reach = reach.max(piece.sectors.end);
        }
        reach
    }
    /// Drops content of these sectors that is not newer than `order`.
    pub fn remove(&mut self, sectors: &Range<u64>, order: Order) {
        let range = self.first_start(sectors)..sectors.end;
        let found: Vec<u64> = self
            .by_start
            .range(range)
            .filter(|(_, piece)| piece.order <= order && piece.sectors.end > sectors.start)
            .map(|(start, _)| *start)
            .collect();
        for start in found {
            let old = self.by_start.remove(&start).expect("found just now");
            self.sectors -= old.sectors.end - old.sectors.start;
            for rest in [0..sectors.start, sectors.end..u64::MAX] {
                if let Some(rest) = old.within(&rest) {
                    self.insert(rest);
                }
            }
        }
    }

    fn insert(&mut self, piece: Piece) {
        self.sectors += piece.sectors.end - piece.sectors.start;
        self.by_start.insert(piece.sectors.start, piece);
    }
    /// Start of the piece in which the range begins, or of the range itself.
    fn first_start(&self, sectors: &Range<u64>) -> u64 {
        let before = self.by_start.range(..=sectors.start).next_back();
        before
            .filter(|(_, piece)| piece.sectors.end > sectors.start)
            .map_or(sectors.start, |(start, _)| *start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use runtime::SplitMix;

    #[test]
    fn pieces_hold_the_newest_content_of_every_sector() {
        const AREA: u64 = 40;
        for seed in 0..200 {
            let random = SplitMix::new(seed);
            let mut pieces = Pieces::default();
            let mut plain: Vec<Option<(Order, u8)>> = vec![None; AREA as usize];
            for order in 1..40 {
                let start = random.next() % AREA;
                let end = start + 1 + random.next() % (AREA - start);
                if random.next() % 4 == 0 {
                    let oldest = random.next() % order;
                    pieces.remove(&(start..end), oldest);
                    for sector in &mut plain[start as usize..end as usize] {
                        *sector = sector.filter(|(order, _)| *order > oldest);
                    }
                } else {
                    let mut buffer = Buffer::zeroed(((end - start) * SECTOR) as usize);
                    for (index, byte) in buffer.iter_mut().enumerate() {
                        *byte = (order + index as u64 / SECTOR) as u8;
                    }
                    Piece::of(&[Rc::new(buffer)], start, order)
                        .into_iter()
                        .for_each(|piece| pieces.put(piece));
                    for sector in start..end {
                        plain[sector as usize] = Some((order, (order + sector - start) as u8));
                    }
                }
                let mut found = vec![None; AREA as usize];
                for piece in pieces.within(0..AREA) {
                    for (sector, bytes) in
                        piece.sectors.clone().zip(piece.bytes().chunks(SECTOR as usize))
                    {
                        assert_eq!(found[sector as usize], None, "seed {seed}: no overlap");
                        found[sector as usize] = Some((piece.order, bytes[0]));
                    }
                }
                assert_eq!(found, plain, "seed {seed} after {order} steps");
                assert_eq!(pieces.sectors(), plain.iter().flatten().count() as u64, "seed {seed}");
                let gap = plain[start as usize..].iter().position(Option::is_none);
                assert_eq!(
                    pieces.reach(start),
                    gap.map_or(AREA, |gap| start + gap as u64),
                    "seed {seed}"
                );
            }
        }
    }
}
