use device::DeviceError;
use engine::EngineError;
use format::blocks::BlocksFormatError;
use format::uuid_text;

#[derive(Debug, thiserror::Error)]
pub enum BlocksError {
    #[error(transparent)]
    Device(#[from] DeviceError),
    #[error(transparent)]
    Engine(#[from] EngineError),
    #[error("{disk}: {why}; okeanos blocks format makes one, and destroys what the disk holds")]
    NoVolume { disk: String, why: BlocksFormatError },
    #[error("{disk}: {why}")]
    Unusable { disk: String, why: BlocksFormatError },
    #[error(
        "{disk}: byte {at} holds something else than a block volume, of which the copy of the superblock is left at the disk's end"
    )]
    Overwritten { disk: String, at: u64 },
    #[error("{disk} is the journal of the block volume {}, not a volume", uuid_text(.volume))]
    IsJournal { disk: String, volume: [u8; 16] },
    #[error("{disk} is a block volume, not the journal of one")]
    IsVolume { disk: String },
    #[error(
        "{disk} has {size} bytes, and its block volume was made for {wanted}: the disk was cut, or is another"
    )]
    Shrunk { disk: String, size: u64, wanted: u64 },
    #[error(
        "the journal of this block volume is on its own device, with UUID {}: name it with --log",
        uuid_text(.0)
    )]
    JournalMissing([u8; 16]),
    #[error("{disk} was named as the journal, but the block volume has its journal inside")]
    JournalInside { disk: String },
    #[error(
        "{disk} is the journal with UUID {}, and the block volume wants {}",
        uuid_text(.found), uuid_text(.wanted)
    )]
    WrongJournal { disk: String, found: [u8; 16], wanted: [u8; 16] },
    #[error(
        "{disk} has grown beyond 2^32 blocks, for which the log must begin anew: detach the volume, grow it, and attach it again"
    )]
    GrowClosed { disk: String },
    #[error("{disk}: {why}")]
    FlushZone { disk: String, why: String },
    #[error(
        "{disk}: the volume has blocks of {block_bytes} bytes, and the disk writes whole sectors of {sector_bytes}: copy it to a disk with sectors of {block_bytes} bytes or less, or attach it there"
    )]
    SmallBlocks { disk: String, block_bytes: usize, sector_bytes: u32 },
    #[error("{disk}: {why}")]
    BadSizes { disk: String, why: String },
}
