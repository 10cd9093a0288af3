//! Images that a power cut may leave of a small world's disk.

use disks::{Image, MemoryDisk};
use std::fmt;
use std::str::FromStr;

/// Writes, of those that are not durable, that a cut leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SurvivingWrites {
    /// A bit for each write in its order: whether it is there.
    pub whole: u64,
    /// The write that is there in part.
    pub torn: Option<Torn>,
}

/// A write that is there in part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Torn {
    pub write: usize,
    /// Number of its first sectors that are there, or that alone are missing.
    pub sectors: usize,
    pub are_there: bool,
}

/// Maximum number of writes of which all subsets are left; of more none, all, each alone, and all
/// but each.
const SUBSETS_MAX: usize = 4;
/// Sectors between two places where a write is torn.
const TEAR_EVERY: usize = 2;

impl SurvivingWrites {
    /// Returns all that a cut may leave now.
    pub(super) fn all(disk: &MemoryDisk) -> Vec<SurvivingWrites> {
        let writes = disk.volatile_writes();
        // If there are more writes than bits, the last ones are lost.
        let count = writes.len().min(63);
        let everything = (1u64 << count) - 1;
        let whole = |whole| SurvivingWrites { whole, torn: None };
        let mut all: Vec<SurvivingWrites> = if count <= SUBSETS_MAX {
            (0..=everything).map(whole).collect()
        } else {
            let each = (0..count).flat_map(|write| [1 << write, everything ^ 1 << write]);
            [0, everything].into_iter().chain(each).map(whole).collect()
        };
        for (write, length) in writes.into_iter().enumerate().take(count) {
            for sectors in (1..length).step_by(TEAR_EVERY) {
                for (others, are_there) in
                    [(0, true), (0, false), (everything, true), (everything, false)]
                {
                    let torn = Some(Torn { write, sectors, are_there });
                    all.push(SurvivingWrites { whole: others & !(1 << write), torn });
                }
            }
        }
        all
    }

    pub(super) fn of(self, disk: &MemoryDisk) -> Image {
        disk.crash_with(|write, sector| match self.torn {
            Some(torn) if torn.write == write => (sector < torn.sectors) == torn.are_there,
            _ => write < 63 && self.whole >> write & 1 == 1,
        })
    }
}

/// Formats as `0b101` and `0b101/2<3`, `0b101/2>=3`: of write 2 the first three sectors, or all
/// others.
impl fmt::Display for SurvivingWrites {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#b}", self.whole)?;
        match self.torn {
            None => Ok(()),
            Some(Torn { write, sectors, are_there: true }) => write!(f, "/{write}<{sectors}"),
            Some(Torn { write, sectors, are_there: false }) => write!(f, "/{write}>={sectors}"),
        }
    }
}
impl FromStr for SurvivingWrites {
    type Err = String;
    fn from_str(text: &str) -> Result<SurvivingWrites, String> {
        let wrong = || format!("{text}: not what a cut leaves, as in 0b101 or 0b101/2<3");
        let (whole, torn) = match text.split_once('/') {
            Some((whole, torn)) => (whole, Some(torn)),
            None => (text, None),
        };
        let whole = whole.strip_prefix("0b").and_then(|bits| u64::from_str_radix(bits, 2).ok());
        let parse = |torn: &str| {
            let (write, sectors, are_there) = match torn.split_once(">=") {
                Some((write, sectors)) => (write, sectors, false),
                None => torn.split_once('<').map(|(write, sectors)| (write, sectors, true))?,
            };
            let (write, sectors) = (write.parse().ok()?, sectors.parse().ok()?);
            Some(Torn { write, sectors, are_there })
        };
        let torn = match torn {
            Some(torn) => Some(parse(torn).ok_or_else(wrong)?),
            None => None,
        };
        Ok(SurvivingWrites { whole: whole.ok_or_else(wrong)?, torn })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_can_be_written_down_and_read_again() {
        for text in ["0b0", "0b1011", "0b1/3<2", "0b0/0>=7"] {
            assert_eq!(text.parse::<SurvivingWrites>().unwrap().to_string(), text);
        }
        for text in ["", "1", "0b2", "0b1/", "0b1/2", "0b1/a<1"] {
            assert!(text.parse::<SurvivingWrites>().is_err(), "{text}");
        }
    }
}
