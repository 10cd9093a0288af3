//! The data file of a disk: its keys, checked while it is read.

mod changes;
mod layout;
mod number;
mod overheads;
mod read;
mod seek;
mod shipped;

pub use changes::{Change, ModelChange};
pub use layout::{PhysicalSector, TrackLayout};
pub use number::{NotNegative, Positive, Share};
pub use overheads::{DelayByChance, NEAR_CYLINDERS, Overheads};
pub(crate) use overheads::{ReadHit, WriteHit};
pub use read::ModelError;
pub use seek::SeekCurve;
pub use shipped::shipped;

use crate::SECTOR;
use serde::Deserialize;
use std::num::{NonZeroU32, NonZeroU64};
use std::ops::Range;

/// A disk as its file describes it: one of `mechanics`, `flash` and `volume`, and perhaps a write
/// cache.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Model {
    pub name: String,
    /// One sentence: the drive, and which of its numbers are facts.
    pub about: String,
    /// Size in bytes, a multiple of 512; at most the capacity of the layout of `mechanics`.
    pub size: NonZeroU64,
    /// Bytes that the medium writes as one, a multiple of 512. A write to a part of them must read
    /// the rest first, unless the cache has it.
    #[serde(default = "logical_sector")]
    pub physical_sector: NonZeroU32,
    pub interface: Interface,
    pub mechanics: Option<Mechanics>,
    pub flash: Option<Flash>,
    pub volume: Option<NetworkVolume>,
    /// Write cache. Without one every write is durable when it is answered.
    pub cache: Option<CacheModel>,
}

fn logical_sector() -> NonZeroU32 {
    const { NonZeroU32::new(SECTOR as u32).unwrap() }
}

/// Interface to the host.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Interface {
    /// Requests among which the drive can choose; others wait outside.
    pub queue_depth: NonZeroU32,
    pub schedule: Schedule,
    /// Number of choices by shortest positioning of which one is the oldest request: nothing
    /// starves.
    #[serde(default = "oldest_every")]
    pub oldest_every: NonZeroU32,
    /// Time of a request to the medium, beyond positioning and transfer.
    pub read_ms: NotNegative,
    pub write_ms: NotNegative,
    /// Time of a request that the cache answers, and of a flush.
    pub hit_ms: NotNegative,
    /// Rate between host and cache, in 1,000,000 bytes each second.
    pub bus_mb_s: Positive,
    /// Whether a read from the medium takes the bus, too: sectors are sent while the medium reads
    /// on, the last after it was read. If not, such a read is answered when it has been read.
    #[serde(default)]
    pub bus_paces_reads: bool,
    /// Times that differ by the kind of request and by the request before.
    #[serde(default)]
    pub overheads: Overheads,
}

fn oldest_every() -> NonZeroU32 {
    const { NonZeroU32::new(32).unwrap() }
}

/// Choice of the next waiting request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Schedule {
    ShortestPositioning,
    FirstInFirstOut,
    /// Upwards to the last request, then downwards.
    Elevator,
}

/// A rotating disk. Its layout is serpentine: `band_tracks` tracks on one surface, then those of
/// the next in reverse.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mechanics {
    /// Revolutions each minute.
    pub rpm: Positive,
    pub surfaces: NonZeroU32,
    pub band_tracks: NonZeroU32,
    pub head_switch_ms: NotNegative,
    /// Settling time after the arm moved for a write.
    pub write_settle_ms: NotNegative,
    /// Whether a write may start anywhere in its track.
    pub zero_latency_writes: bool,
    /// Angle of the platter when the world begins, in revolutions.
    pub phase: Share,
    /// Zones from the outermost inwards.
    pub zones: Vec<Zone>,
    /// Pairs of a distance in cylinders and a time, with linear interpolation between them.
    pub seek_ms: SeekCurve,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Zone {
    pub cylinders: NonZeroU32,
    /// Sectors of each track.
    pub sectors: NonZeroU32,
    /// Angle from one track to the next of the same surface, in revolutions.
    pub track_skew: Share,
    /// Time from the last track of a band on one surface to the first on the next.
    pub head_skew_ms: NotNegative,
    /// Time from the last track of a band to the first of the next band.
    pub band_skew_ms: NotNegative,
}

/// Memory cells behind channels that work at once.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Flash {
    pub channels: NonZeroU32,
    /// Time of one request on its channel, before its bytes are transferred.
    pub read_us: NotNegative,
    pub write_us: NotNegative,
    /// Rate in 1,000,000 bytes each second, all channels together.
    pub read_mb_s: Positive,
    pub write_mb_s: Positive,
    /// Time of a flush, beyond the writes that it waits for.
    pub flush_us: NotNegative,
    /// Size in bytes; a write to a block that is not among the last `open_blocks` written costs
    /// `switch_ms`. 0: no such cost.
    pub erase_block: u32,
    pub open_blocks: u32,
    pub switch_ms: NotNegative,
}

/// A network volume with caps, and credits that let it exceed the first.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NetworkVolume {
    pub latency_ms: NotNegative,
    /// Number of bytes that count as one I/O; a longer request counts as several.
    pub io_size: NonZeroU32,
    pub iops: Positive,
    pub burst_iops: Positive,
    /// I/Os that may be done at the burst rate above what the base rate earns.
    pub burst_credits: NotNegative,
    /// Rate in 1,000,000 bytes each second.
    pub mb_s: Positive,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CacheModel {
    /// Size in bytes.
    pub size: NonZeroU64,
    pub segments: NonZeroU32,
    /// Longest segment in bytes; sequential writes share one.
    pub segment_size: NonZeroU32,
    /// Unit of segments in bytes, a multiple of 512.
    #[serde(default = "logical_sector")]
    pub unit: NonZeroU32,
    /// Whether a write longer than a segment goes through one to the medium, instead of taking
    /// several.
    #[serde(default)]
    pub one_segment_per_write: bool,
    /// Whether a write that must be merged with the rest of a physical sector is answered when it
    /// is on the medium.
    #[serde(default)]
    pub merges_through: bool,
    /// Number of segments that may hold writes, also those that have reached the medium.
    pub write_segments: NonZeroU32,
    /// Bytes that they may hold together; default: all.
    write_size: Option<NonZeroU64>,
    /// Bytes of writes that may wait for the medium; default: as many as writes may hold.
    dirty_size: Option<NonZeroU64>,
    /// Bytes read beyond a request while the medium is idle. A segment that is read may hold as
    /// many.
    pub read_ahead: u32,
    /// Reading ahead goes before cached writes until another arrives, unless a writer or a flush
    /// waits for them; otherwise they go before it.
    #[serde(default)]
    pub read_ahead_first: bool,
    /// Reads that the drive reads ahead of.
    #[serde(default)]
    pub read_ahead_after: ReadAheadAfter,
    /// Whether reading ahead ends with the track, unless the read continues the one before.
    #[serde(default)]
    pub read_ahead_within_track: bool,
    /// Whether a read that continues the one before and finds its sectors in the cache makes the
    /// idle medium read ahead again, from where the cache ends.
    #[serde(default)]
    pub read_ahead_on_hits: bool,
    /// Bytes before a request, on its track, that the drive reads along with it, if it reads ahead
    /// and keeps reads. A simplification: they count as read when the request is. What is read
    /// ahead takes their space if the segment is too short for both.
    #[serde(default)]
    pub read_before: u32,
    /// Whether sectors that the host has read stay in the cache. If not, only those stay that were
    /// read ahead, until the host has read them or later ones of their segment.
    #[serde(default = "yes")]
    pub keeps_reads: bool,
    /// Whether writes that have reached the medium stay in the cache.
    #[serde(default = "yes")]
    pub keeps_writes: bool,
    pub replacement: SegmentReplacement,
    /// Whether a write that continues the one before goes straight to the medium.
    pub sequential_bypass: bool,
    /// Size in bytes above which writes go straight to the medium.
    pub bypass_above: Option<NonZeroU32>,
    /// Random choice of further writes that go straight to the medium.
    pub bypass_by_chance: Option<BypassByChance>,
    /// Bytes of a buffer that writes around the cache pass. Such a write is answered when its end
    /// is in the buffer, so that a stream keeps the rate of the medium. Without a buffer the medium
    /// answers it.
    pub stream_buffer: Option<NonZeroU32>,
    /// Whether cached writes that continue one another reach the medium as one, from the first on
    /// and without a gap. If not, each begins at a whole nanosecond, and in a stream some miss
    /// their first sector at regular intervals.
    #[serde(default)]
    pub seamless_destaging: bool,
    /// Idle time after which cached writes go to the medium.
    pub destage_delay_ms: NotNegative,
    /// Share of the write segments, or of their bytes, above which they go to the medium beside
    /// other requests.
    pub destage_above: Share,
}

fn yes() -> bool {
    true
}

/// Reads after which the drive reads ahead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReadAheadAfter {
    #[default]
    AnyRead,
    /// A read that continues the read before.
    SequentialRead,
}

/// Writes that go around the cache for no reason visible to the host.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BypassByChance {
    /// Size in bytes above which…
    pub above: u32,
    /// …this share of writes bypasses the cache.
    pub share: Share,
}

impl BypassByChance {
    pub(crate) fn takes(self, bytes: u64, chance: impl Fn() -> u64) -> bool {
        bytes > self.above.into() && (chance() as f64) < self.share.get() * 2f64.powi(64)
    }
}

impl Model {
    /// Number of sectors in a physical sector.
    pub(crate) fn together(&self) -> u64 {
        u64::from(self.physical_sector.get()) / SECTOR
    }
    /// The range, extended to whole physical sectors.
    pub(crate) fn physical(&self, sectors: &Range<u64>) -> Range<u64> {
        let together = self.together();
        sectors.start / together * together..sectors.end.next_multiple_of(together)
    }
}

impl CacheModel {
    /// Bytes that writes may hold together.
    pub fn write_size(&self) -> NonZeroU64 {
        self.write_size.unwrap_or(self.size)
    }
    /// Longest segment that is read, in bytes.
    pub fn read_segment_size(&self) -> u32 {
        self.read_ahead.max(self.segment_size.get())
    }
    /// Bytes of writes that may wait for the medium.
    pub fn dirty_size(&self) -> NonZeroU64 {
        self.dirty_size.unwrap_or(self.write_size())
    }
}

/// Choice of the segment to evict for a new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SegmentReplacement {
    LeastRecentlyUsed,
    Random,
}
