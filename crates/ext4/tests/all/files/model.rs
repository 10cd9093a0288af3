//! Model of a file: bytes in memory, and the same operations on both.

use device::World;
use ext4::{Caller, Inode, RangeMode, SeekWhat, SyncWhat, Volume, WriteFlags};
use std::rc::Rc;
use units::Refusal;

pub struct ModelFile {
    pub inode: Rc<Inode>,
    pub content: Vec<u8>,
    pub extents: bool,
    pub size_max: u64,
}

/// A small number more often than a large one, below `end`.
fn skewed(world: &dyn World, end: u64) -> u64 {
    let bits = world.random() % 64;
    (world.random() >> bits.min(48)) % end.max(1)
}

impl ModelFile {
    /// Performs one random operation on the volume and the model; returns a description.
    pub async fn step(&mut self, volume: &Rc<Volume>, world: &dyn World, block: u64) -> String {
        let pick = world.random() % 100;
        let mut offset = world.random() % self.size_max;
        let mut length = 1 + world.random() % (self.size_max / 8);
        if world.random() % 2 == 0 {
            (offset, length) = (offset / block * block, length.next_multiple_of(block));
        }
        length = length.min(self.size_max - offset).max(1);
        match pick {
            0..25 => {
                self.write(volume, offset, skewed(world, self.size_max / 8) + 1, pick as u8).await
            }
            25..45 => {
                self.write(volume, self.content.len() as u64, 1 + world.random() % 300, pick as u8)
                    .await
            }
            45..52 => self.truncate(volume, skewed(world, self.size_max)).await,
            52..66 => self.change_range(volume, RangeMode::PunchHole, true, offset, length).await,
            66..74 if self.extents => {
                self.change_range(volume, RangeMode::Zero, pick % 2 == 0, offset, length).await
            }
            74..82 if self.extents => {
                self.change_range(volume, RangeMode::Allocate, pick % 2 == 0, offset, length).await
            }
            82..92 => self.read(volume, offset, length as usize).await,
            92..96 => self.seek(volume, offset).await,
            96 => {
                let what = [SyncWhat::All, SyncWhat::Data][(world.random() % 2) as usize];
                volume.sync_file(&self.inode, what).await.unwrap();
                "fsync".into()
            }
            _ => self.read(volume, 0, usize::MAX).await,
        }
    }

    async fn write(&mut self, volume: &Rc<Volume>, offset: u64, length: u64, value: u8) -> String {
        let offset = offset.min(self.size_max - 1);
        let bytes: Vec<u8> = (0..length.min(self.size_max - offset))
            .map(|index| value ^ (index * 7 + offset) as u8)
            .collect();
        let flags = WriteFlags::default();
        let written =
            volume.write(&self.inode, &Caller::ROOT, offset, &bytes, flags).await.unwrap();
        assert_eq!(written.count, bytes.len());
        let end = offset as usize + bytes.len();
        self.content.resize(self.content.len().max(end), 0);
        self.content[offset as usize..end].copy_from_slice(&bytes);
        format!("write {} at {offset}", bytes.len())
    }

    async fn truncate(&mut self, volume: &Rc<Volume>, size: u64) -> String {
        volume.truncate(&self.inode, size).await.unwrap();
        self.content.resize(size as usize, 0);
        format!("truncate to {size}")
    }

    async fn change_range(
        &mut self,
        volume: &Rc<Volume>,
        mode: RangeMode,
        keep_size: bool,
        offset: u64,
        length: u64,
    ) -> String {
        let keep_size = keep_size || mode == RangeMode::PunchHole;
        volume
            .fallocate(&self.inode, &Caller::ROOT, mode, keep_size, offset, length)
            .await
            .unwrap();
        let end = (offset + length) as usize;
        if !keep_size && end > self.content.len() {
            self.content.resize(end, 0);
        }
        if mode != RangeMode::Allocate {
            let end = end.min(self.content.len());
            let start = (offset as usize).min(end);
            self.content[start..end].fill(0);
        }
        format!("{mode:?} {length} at {offset}, keep_size {keep_size}")
    }

    pub async fn read(&self, volume: &Rc<Volume>, offset: u64, length: usize) -> String {
        let found = volume.read(&self.inode, offset, length).await.unwrap().to_vec();
        let end = (offset as usize).saturating_add(length).min(self.content.len());
        let expected = &self.content[(offset as usize).min(end)..end];
        let same = found.iter().zip(expected).take_while(|(a, b)| a == b).count();
        assert!(
            found.len() == expected.len() && same == found.len(),
            "read of {length} at {offset}: {} bytes instead of {}, first difference at {}",
            found.len(),
            expected.len(),
            offset as usize + same,
        );
        assert_eq!(self.inode.fields.borrow().size, self.content.len() as u64);
        format!("read {length} at {offset}")
    }

    /// Compares holes: a reported hole must be zeros, and the next data and hole must not be
    /// elsewhere.
    async fn seek(&self, volume: &Rc<Volume>, offset: u64) -> String {
        let size = self.content.len() as u64;
        let data = match volume.seek(&self.inode, offset, SeekWhat::Data).await {
            Ok(data) => data,
            Err(error) => {
                assert_eq!(error.refusal(), Some(Refusal::BeyondEnd));
                size.max(offset)
            }
        };
        assert!(data >= offset);
        let zeros = self.content.get(offset as usize..data as usize).unwrap_or(&[]);
        assert!(zeros.iter().all(|byte| *byte == 0), "data in the hole {offset} .. {data}");
        if offset < size {
            let hole = volume.seek(&self.inode, offset, SeekWhat::Hole).await.unwrap();
            assert!((offset..=size).contains(&hole) && (hole == offset || data == offset));
        }
        format!("seek from {offset}")
    }
}
