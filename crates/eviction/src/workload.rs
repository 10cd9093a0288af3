use serde::{Deserialize, Serialize};
use std::fmt;

/// In which order the places of an eviction's writes come.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pattern {
    /// One after the other, as one stream.
    Sequential,
    /// Anywhere in the zone, by the dice.
    Random,
}

impl Pattern {
    /// As in files and tables.
    pub fn name(self) -> &'static str {
        match self {
            Pattern::Sequential => "sequential",
            Pattern::Random => "random",
        }
    }
}

/// The writes that push everything older out of a drive's cache (the paper's "flush workload").
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EvictionWorkload {
    pub pattern: Pattern,
    /// At least 1.
    pub writes: u32,
    /// Of all writes together; each writes an equal share, rounded up to whole sectors.
    pub bytes: u64,
}

/// No drive of the paper needed more than 2560 writes or 128 MiB.
pub const WRITES_MAX: u32 = 1 << 16;
pub const BYTES_MAX: u64 = 4 << 30;

impl EvictionWorkload {
    /// Bytes of one write.
    pub fn write_size(&self, sector: u32) -> u64 {
        self.bytes
            .div_ceil(u64::from(self.writes.max(1)))
            .next_multiple_of(u64::from(sector))
            .max(u64::from(sector))
    }
    /// Whether the numbers are such as a drive may need; the problem if not.
    pub fn check(&self) -> Result<(), String> {
        if self.writes == 0 || self.writes > WRITES_MAX {
            return Err(format!("{} writes: 1 to {WRITES_MAX} are possible", self.writes));
        }
        if self.bytes == 0 || self.bytes > BYTES_MAX {
            return Err(format!("{} bytes: 1 to {BYTES_MAX} are possible", self.bytes));
        }
        Ok(())
    }
}

impl fmt::Display for EvictionWorkload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let megabytes = self.bytes as f64 / 1e6;
        match self.writes {
            // In any order.
            1 => write!(f, "1 write of {megabytes:.2} MB"),
            writes => write!(f, "{writes} {} writes, {megabytes:.2} MB in all", self.pattern.name()),
        }
    }
}
