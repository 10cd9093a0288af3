use format::flush_zone::FlushZoneSuperblock;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Order of the addresses of an eviction's writes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pattern {
    /// Writes one after the other, as one sequential stream.
    Sequential,
    /// Random addresses in the zone.
    Random,
}

impl Pattern {
    /// Name in files and tables.
    pub fn name(self) -> &'static str {
        match self {
            Pattern::Sequential => "sequential",
            Pattern::Random => "random",
        }
    }
}

/// The writes that evict everything older from a drive's cache (the paper's "flush workload").
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EvictionWorkload {
    pub pattern: Pattern,
    /// Number of writes, at least 1.
    pub writes: u32,
    /// Bytes of all writes together; each writes an equal share, rounded up to whole sectors.
    pub bytes: u64,
}

/// Bound on writes. No drive of the paper needed more than 2560 writes or 128 MiB.
pub const WRITES_MAX: u32 = 1 << 16;
pub const BYTES_MAX: u64 = 4 << 30;
/// Bound on one write, which is a buffer in memory.
pub const WRITE_BYTES_MAX: u64 = 128 << 20;

impl EvictionWorkload {
    /// Bytes of one write.
    pub fn write_size(&self, sector: u32) -> u64 {
        self.bytes
            .div_ceil(u64::from(self.writes.max(1)))
            .next_multiple_of(u64::from(sector))
            .max(u64::from(sector))
    }
    /// The superblock of a zone for these writes, for any drive; the volume's fields are still
    /// empty.
    pub fn superblock(&self) -> FlushZoneSuperblock {
        FlushZoneSuperblock {
            uuid: [0; 16],
            inode: 0,
            sequential: self.pattern == Pattern::Sequential,
            writes: self.writes,
            bytes: self.bytes,
            trials: 0,
            drive_size: 0,
            model: String::new(),
            length: 0,
        }
    }
    /// Checks that the numbers are plausible for a drive; returns the problem if not.
    pub fn check(&self) -> Result<(), String> {
        if self.writes == 0 || self.writes > WRITES_MAX {
            return Err(format!("{} writes: 1 to {WRITES_MAX} are possible", self.writes));
        }
        if self.bytes == 0 || self.bytes > BYTES_MAX {
            return Err(format!("{} bytes: 1 to {BYTES_MAX} are possible", self.bytes));
        }
        let each = self.write_size(1);
        if each > WRITE_BYTES_MAX {
            return Err(format!("writes of {each} bytes: {WRITE_BYTES_MAX} are possible"));
        }
        Ok(())
    }
}

/// The writes of evictions in this zone.
impl From<&FlushZoneSuperblock> for EvictionWorkload {
    fn from(zone: &FlushZoneSuperblock) -> EvictionWorkload {
        let pattern = if zone.sequential { Pattern::Sequential } else { Pattern::Random };
        EvictionWorkload { pattern, writes: zone.writes, bytes: zone.bytes }
    }
}

impl fmt::Display for EvictionWorkload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let megabytes = self.bytes as f64 / 1e6;
        match self.writes {
            // In any order.
            1 => write!(f, "1 write of {megabytes:.2} MB"),
            writes => {
                write!(f, "{writes} {} writes, {megabytes:.2} MB in all", self.pattern.name())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_write_is_longer_than_any_drive_needs() {
        let workload =
            |writes| EvictionWorkload { pattern: Pattern::Random, writes, bytes: BYTES_MAX };
        assert!(workload(1).check().is_err());
        assert_eq!(workload(32).check(), Ok(()));
    }
}
