//! RAID-0: chunks distributed round-robin over several disks, as Linux's md does with members of
//! one size.

use crate::{Image, check};
use device::{Buffer, DeviceError, Disk, Durability, Geometry, LocalFuture, Operation};
use std::rc::Rc;

/// A RAID-0. The disks work at once; a request that spans chunks goes to each disk in as few
/// requests as possible.
pub struct Raid0 {
    name: String,
    disks: Vec<Rc<dyn Disk>>,
    chunk: u64,
    geometry: Geometry,
}

/// A part of a request that lies within one chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Piece {
    disk: usize,
    /// Offset in bytes on that disk.
    at: u64,
    /// Offset in bytes within the request.
    offset: usize,
    length: usize,
}

/// Pieces that are contiguous on one disk.
struct Extent {
    disk: usize,
    at: u64,
    pieces: Vec<Piece>,
}

impl Raid0 {
    /// Makes a RAID-0 of at least one disk; `chunk` in bytes, a multiple of every disk's sector. As
    /// many whole chunks of each disk are used as the smallest one has.
    pub fn new(disks: Vec<Rc<dyn Disk>>, chunk: u64) -> Raid0 {
        let geometries: Vec<Geometry> = disks.iter().map(|disk| disk.geometry()).collect();
        let logical_sector = geometries.iter().map(|geometry| geometry.logical_sector).max();
        let logical_sector = logical_sector.expect("RAID-0 needs a disk");
        assert!(chunk > 0 && chunk % u64::from(logical_sector) == 0, "a chunk of {chunk} bytes");
        let smallest = geometries.iter().map(|geometry| geometry.size).min().unwrap_or(0);
        let geometry = Geometry {
            size: smallest / chunk * chunk * disks.len() as u64,
            logical_sector,
            discard: geometries.iter().all(|geometry| geometry.discard),
            forced_unit_access: geometries.iter().all(|geometry| geometry.forced_unit_access),
        };
        let mut names: Vec<&str> = disks.iter().map(|disk| disk.name()).collect();
        names.dedup();
        let name = format!("RAID-0 of {} {}", disks.len(), names.join(", "));
        Raid0 { name, disks, chunk, geometry }
    }

    /// Combines the disks: a RAID-0, or the only one itself.
    pub fn of(mut disks: Vec<Rc<dyn Disk>>, chunk: u64) -> Rc<dyn Disk> {
        match disks.len() {
            1 => disks.remove(0),
            _ => Rc::new(Raid0::new(disks, chunk)),
        }
    }

    fn check(&self, operation: Operation, at: u64, length: u64) -> Result<(), DeviceError> {
        check(&self.name, self.geometry, operation, at, length)
    }

    fn pieces(&self, at: u64, length: u64) -> Vec<Piece> {
        pieces(self.disks.len(), self.chunk, at, length)
    }

    /// Splits `image` into the images of the members, of `size` bytes each.
    pub fn deal(image: &Image, members: usize, size: u64, chunk: u64) -> Vec<Image> {
        let mut images = vec![Image::new(size); members];
        for (at, page) in image.pages() {
            let length = (page.len() as u64).min(image.size() - at);
            for Piece { disk, at, offset, length } in pieces(members, chunk, at, length) {
                images[disk].write(at, &page[offset..offset + length]);
            }
        }
        images
    }

    /// Joins the images of the members: the inverse of [`Raid0::deal`].
    pub fn gather(members: &[Image], chunk: u64) -> Image {
        let smallest = members.iter().map(Image::size).min().unwrap_or(0);
        let mut whole = Image::new(smallest / chunk * chunk * members.len() as u64);
        for (number, member) in members.iter().enumerate() {
            for (at, page) in member.pages() {
                // Chunks need not be whole pages.
                let mut done = 0;
                while done < page.len() {
                    let (stripe, within) = ((at + done as u64) / chunk, (at + done as u64) % chunk);
                    let length = (page.len() - done).min((chunk - within) as usize);
                    let to = (stripe * members.len() as u64 + number as u64) * chunk + within;
                    if to < whole.size() {
                        whole.write(to, &page[done..done + length]);
                    }
                    done += length;
                }
            }
        }
        whole
    }

    /// The extents of a request, one for each disk involved: its chunks are contiguous there.
    fn extents(&self, at: u64, length: u64) -> Vec<Extent> {
        let mut extents: Vec<Extent> = Vec::new();
        for piece in self.pieces(at, length) {
            match extents.iter_mut().find(|extent| extent.disk == piece.disk) {
                Some(extent) => extent.pieces.push(piece),
                None => {
                    extents.push(Extent { disk: piece.disk, at: piece.at, pieces: vec![piece] })
                }
            }
        }
        extents
    }
}

fn pieces(disks: usize, chunk: u64, at: u64, length: u64) -> Vec<Piece> {
    let count = disks as u64;
    let mut pieces = Vec::new();
    let (mut offset, end) = (0, length);
    while offset < end {
        let (number, within) = ((at + offset) / chunk, (at + offset) % chunk);
        let length = (chunk - within).min(end - offset);
        pieces.push(Piece {
            disk: (number % count) as usize,
            at: number / count * chunk + within,
            offset: offset as usize,
            length: length as usize,
        });
        offset += length;
    }
    pieces
}

impl Extent {
    fn length(&self) -> usize {
        self.pieces.iter().map(|piece| piece.length).sum()
    }
}

/// Waits for all; returns the first error.
async fn all(futures: Vec<LocalFuture<Result<(), DeviceError>>>) -> Result<(), DeviceError> {
    runtime::join_all(futures).await.into_iter().collect()
}

impl Disk for Raid0 {
    fn name(&self) -> &str {
        &self.name
    }
    fn geometry(&self) -> Geometry {
        self.geometry
    }
    fn physical_sector(&self) -> u32 {
        let sectors = self.disks.iter().map(|disk| disk.physical_sector());
        sectors.max().unwrap_or(self.geometry.logical_sector)
    }
    fn read(&self, at: u64, length: usize) -> LocalFuture<Result<Buffer, DeviceError>> {
        if let Err(error) = self.check(Operation::Read, at, length as u64) {
            return Box::pin(async { Err(error) });
        }
        let extents = self.extents(at, length as u64);
        let reads = extents
            .iter()
            .map(|extent| self.disks[extent.disk].read(extent.at, extent.length()))
            .collect();
        Box::pin(async move {
            let mut whole = Buffer::zeroed(length);
            for (extent, read) in extents.iter().zip(runtime::join_all(reads).await) {
                let (read, mut from) = (read?, 0);
                for piece in &extent.pieces {
                    let to = piece.offset..piece.offset + piece.length;
                    whole[to].copy_from_slice(&read[from..from + piece.length]);
                    from += piece.length;
                }
            }
            Ok(whole)
        })
    }
    fn write(
        &self,
        at: u64,
        parts: Vec<Rc<Buffer>>,
        durability: Durability,
    ) -> LocalFuture<Result<(), DeviceError>> {
        let length = parts.iter().map(|part| part.len() as u64).sum();
        if let Err(error) = self.check(Operation::Write, at, length) {
            return Box::pin(async { Err(error) });
        }
        let extents = self.extents(at, length);
        if let [only] = &extents[..] {
            return self.disks[only.disk].write(only.at, parts, durability);
        }
        let whole: Vec<u8> = parts.iter().flat_map(|part| part.iter().copied()).collect();
        let writes = extents.into_iter().map(|extent| {
            let bytes = |piece: &Piece| {
                Rc::new(Buffer::copy_of(&whole[piece.offset..piece.offset + piece.length]))
            };
            let parts = extent.pieces.iter().map(bytes).collect();
            self.disks[extent.disk].write(extent.at, parts, durability)
        });
        Box::pin(all(writes.collect()))
    }
    fn flush(&self) -> LocalFuture<Result<(), DeviceError>> {
        Box::pin(all(self.disks.iter().map(|disk| disk.flush()).collect()))
    }
    fn discard(&self, at: u64, length: u64) -> LocalFuture<Result<(), DeviceError>> {
        if let Err(error) = self.check(Operation::Discard, at, length) {
            return Box::pin(async { Err(error) });
        }
        let extents = self.extents(at, length).into_iter();
        let discards = extents
            .map(|extent| self.disks[extent.disk].discard(extent.at, extent.length() as u64));
        Box::pin(all(discards.collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryDisk;
    use runtime::{SplitMix, VirtualWorld};

    fn raid(world: &VirtualWorld, sizes: &[u64], chunk: u64) -> (Vec<MemoryDisk>, Raid0) {
        let disks: Vec<MemoryDisk> =
            sizes.iter().map(|size| MemoryDisk::new(Rc::new(world.clone()), *size)).collect();
        let members = disks.iter().map(|disk| Rc::new(disk.clone()) as Rc<dyn Disk>).collect();
        (disks, Raid0::new(members, chunk))
    }

    #[test]
    fn chunks_are_dealt_round_robin() {
        let (_, raid) = raid(&VirtualWorld::new(1), &[1 << 20, (1 << 20) + 512, 3 << 20], 65536);
        assert_eq!(raid.geometry().size, 3 << 20);
        let pieces = raid.pieces(65536 - 512, 65536 * 3 + 1024);
        let places: Vec<_> =
            pieces.iter().map(|piece| (piece.disk, piece.at, piece.length)).collect();
        let expected =
            [(0, 65024, 512), (1, 0, 65536), (2, 0, 65536), (0, 65536, 65536), (1, 65536, 512)];
        assert_eq!(places, expected);
        // The pieces of disk 0 and of disk 1 are contiguous there: one request each.
        assert_eq!(raid.extents(65536 - 512, 65536 * 3 + 1024).len(), 3);
    }
    #[test]
    fn images_are_dealt_as_the_disks_would_have_been_written() {
        for chunk in [512, 4096, 12288, 65536] {
            let world = VirtualWorld::new(1);
            let (disks, raid) = raid(&world, &[1 << 20, (1 << 20) + 512, 1 << 20], chunk);
            let size = raid.geometry().size;
            let bytes: Vec<u8> = (0..size).map(|at| (at / 512 * 37 + at) as u8).collect();
            let part = Rc::new(Buffer::copy_of(&bytes));
            world.run(async move {
                raid.write(0, vec![part], Durability::Cached).await.expect("a write")
            });
            let image = Image::of_bytes(&bytes);
            let dealt = Raid0::deal(&image, 3, 1 << 20, chunk);
            for (disk, dealt) in disks.iter().zip(&dealt) {
                let mut written = vec![0; 1 << 20];
                disk.image().read(0, &mut written);
                assert!(Image::of_bytes(&written) == *dealt, "chunks of {chunk}");
            }
            assert!(Raid0::gather(&dealt, chunk) == image, "chunks of {chunk}");
        }
    }
    #[test]
    fn bytes_come_back_from_where_they_were_put_and_a_flush_makes_them_durable() {
        let world = VirtualWorld::new(1);
        let (disks, raid) = raid(&world, &[256 << 10; 3], 4096);
        world.run(async move {
            let random = SplitMix::new(5);
            let size = raid.geometry().size;
            let mut expected = vec![0u8; size as usize];
            for step in 1..200u8 {
                let at = random.next() % (size / 512) * 512;
                let length = (1 + random.next() % 80).min((size - at) / 512) * 512;
                let range = at as usize..(at + length) as usize;
                expected[range.clone()].fill(step);
                let part = Rc::new(Buffer::copy_of(&expected[range.clone()]));
                raid.write(at, vec![part], Durability::Cached).await.expect("a write");
                let read = raid.read(0, size as usize).await.expect("a read");
                assert!(read[..] == expected[..], "step {step}");
            }
            raid.flush().await.expect("a flush");
            for (number, disk) in disks.iter().enumerate() {
                let image = disk.crash(crate::CrashPolicy::LoseAll);
                let mut chunk = [0; 4096];
                image.read(4096, &mut chunk);
                assert_eq!(chunk[..], expected[(3 + number) * 4096..][..4096], "disk {number}");
            }
            assert!(
                raid.write(size, vec![Rc::new(Buffer::zeroed(512))], Durability::Cached)
                    .await
                    .is_err()
            );
        });
    }
}
