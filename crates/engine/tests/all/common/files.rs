use super::rig::{STALE, Setup};
use device::{Buffer, DeviceError, Disk, Durability, LocalFuture};
use disks::{Image, MemoryDisk};
use engine::{DurabilityScope, Home};
use std::ops::Range;
use std::rc::Rc;
use units::{BlockSize, HomeBlock};

pub const FILE_BLOCKS: u64 = 16;
const FIRST_SLOT: u64 = 7;
const SLOT_SHIFT: u32 = 40;

/// WHOSE: a store for tests. An address is a file's slot above and a block of the file below; each
/// file is made durable by itself.
pub struct Files {
    files: Vec<Rc<dyn Disk>>,
    /// Index of the file that is missing.
    gone: Option<u64>,
    block_size: BlockSize,
}

impl Files {
    pub fn new(setup: &Setup, files: &[MemoryDisk]) -> Files {
        let files = files.iter().map(|file| -> Rc<dyn Disk> { Rc::new(file.clone()) }).collect();
        Files { files, gone: None, block_size: setup.block_size }
    }
    /// Returns the files without the one that holds this home block.
    pub fn without(self, number: u64) -> Files {
        Files { gone: Some(FIRST_SLOT + number / FILE_BLOCKS), ..self }
    }

    /// Fresh files, as many as hold all home blocks.
    pub fn images(setup: &Setup) -> impl Iterator<Item = Image> {
        let bytes = FILE_BLOCKS << setup.block_size.shift();
        (0..setup.home_blocks.div_ceil(FILE_BLOCKS)).map(move |_| {
            let mut file = Image::new(bytes);
            file.fill(0, bytes, STALE);
            file
        })
    }

    pub fn address(number: u64) -> HomeBlock {
        HomeBlock((FIRST_SLOT + number / FILE_BLOCKS) << SLOT_SHIFT | (number % FILE_BLOCKS))
    }

    /// Returns the file, and the byte in it.
    fn place(&self, at: HomeBlock) -> (&Rc<dyn Disk>, u64) {
        let (slot, block) = (at.get() >> SLOT_SHIFT, at.get() & ((1 << SLOT_SHIFT) - 1));
        (&self.files[(slot - FIRST_SLOT) as usize], block << self.block_size.shift())
    }

    fn slots(&self) -> Range<u64> {
        FIRST_SLOT..FIRST_SLOT + self.files.len() as u64
    }
}

impl Home for Files {
    fn contains(&self, at: HomeBlock, count: u64) -> bool {
        let (slot, block) = (at.get() >> SLOT_SHIFT, at.get() & ((1 << SLOT_SHIFT) - 1));
        let is_there = self.slots().contains(&slot) && self.gone != Some(slot);
        is_there && block.checked_add(count).is_some_and(|end| end <= FILE_BLOCKS)
    }
    fn end(&self) -> u64 {
        self.slots().end << SLOT_SHIFT
    }
    fn read(&self, at: HomeBlock, count: usize) -> LocalFuture<Result<Buffer, DeviceError>> {
        let (file, byte) = self.place(at);
        file.read(byte, count << self.block_size.shift())
    }
    fn write(
        &self,
        at: HomeBlock,
        blocks: Vec<Rc<Buffer>>,
        durability: Durability,
    ) -> LocalFuture<Result<(), DeviceError>> {
        assert_eq!(durability, Durability::Cached, "a store has no durable writes");
        let (file, byte) = self.place(at);
        file.write(byte, blocks, durability)
    }
    fn write_log(
        &self,
        _at: u64,
        _parts: Vec<Rc<Buffer>>,
        _durability: Durability,
    ) -> LocalFuture<Result<(), DeviceError>> {
        unreachable!("no log lies inside a store")
    }
    fn read_log(&self, _at: u64, _length: usize) -> LocalFuture<Result<Buffer, DeviceError>> {
        unreachable!("no log lies inside a store")
    }
    fn physical_sector(&self) -> u32 {
        self.files[0].physical_sector()
    }
    fn make_durable(&self, what: DurabilityScope) -> LocalFuture<Result<(), DeviceError>> {
        let mut files: Vec<usize> = match what {
            DurabilityScope::Everything => (0..self.files.len()).collect(),
            DurabilityScope::Of(blocks) => blocks
                .iter()
                .map(|blocks| ((blocks.start.get() >> SLOT_SHIFT) - FIRST_SLOT) as usize)
                .collect(),
        };
        files.sort_unstable();
        files.dedup();
        let files: Vec<_> = files.into_iter().map(|file| self.files[file].clone()).collect();
        Box::pin(async move {
            for file in files {
                file.flush().await?;
            }
            Ok(())
        })
    }
    fn has_durable_writes(&self) -> bool {
        false
    }
}
