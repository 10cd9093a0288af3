//! Operations of the scripts of small worlds.

use super::transactions::Content;
use std::fmt;
use std::ops::Range;
use std::str::FromStr;

/// One operation of a script. It ends when its writes are durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SmallOperation {
    /// A transaction of one block, logged near the start of the disk.
    Near,
    /// A transaction of six blocks, logged near the start of the disk.
    Large,
    /// Four transactions of one block each, one after the other, near the start of the disk.
    Burst,
    /// A transaction of one block, logged near the end of the disk.
    Far,
    /// A transaction of six blocks, logged near the end of the disk.
    FarLarge,
    /// Two transactions of one block each that no other operation writes, near the start of the
    /// disk: their content is needed for ever.
    Keep,
    /// Two transactions of one block each, the second begun when the first is in flight.
    Pair,
    /// A transaction that allocates the reused block for metadata, where it is free.
    Make,
    /// A transaction that frees it, where it is in use.
    Free,
    /// A transaction that allocates it for file data, where it is free.
    Data,
    /// An idle time of some rounds of write-back: logs are swapped, snapshots written.
    Rest,
    /// Writes back all committed blocks, and moves the tail.
    Checkpoint,
    /// A clean unmount and a mount.
    Reopen,
}

use SmallOperation::{
    Burst, Checkpoint, Data, Far, FarLarge, Free, Keep, Large, Make, Near, Pair, Reopen, Rest,
};

/// The block that records whether the reused block is in use.
pub(super) const BITMAP: u64 = 13;

const NAMES: [(SmallOperation, &str); 13] = [
    (Near, "near"),
    (Large, "large"),
    (Burst, "burst"),
    (Far, "far"),
    (FarLarge, "far-large"),
    (Keep, "keep"),
    (Pair, "pair"),
    (Make, "make"),
    (Free, "free"),
    (Data, "data"),
    (Rest, "rest"),
    (Checkpoint, "checkpoint"),
    (Reopen, "reopen"),
];

impl SmallOperation {
    /// Returns the blocks that each of its transactions writes, in order.
    #[expect(clippy::single_range_in_vec_init, reason = "one transaction, not its blocks")]
    pub(super) fn transactions(self) -> Vec<Range<u64>> {
        match self {
            Near => vec![0..1],
            Far => vec![1..2],
            Pair => vec![2..3, 3..4],
            Keep => vec![14..15, 15..16],
            Burst => (4..8).map(|block| block..block + 1).collect(),
            Large => vec![6..12],
            FarLarge => vec![8..14],
            Make | Free | Data => vec![BITMAP..BITMAP + 1],
            Rest | Checkpoint | Reopen => Vec::new(),
        }
    }

    /// Whether it may follow where the reused block holds `reused`.
    pub(super) fn is_possible(self, reused: Content) -> bool {
        let is_free = matches!(reused, Content::Stale | Content::Free);
        match self {
            Make | Data => is_free,
            Free => !is_free,
            _ => true,
        }
    }

    /// Returns what it does to the reused block, if anything.
    pub(super) fn reuse(self, number: u32) -> Option<Content> {
        match self {
            Make => Some(Content::Version(number)),
            Data => Some(Content::Data(number)),
            Free => Some(Content::Free),
            _ => None,
        }
    }
}

impl fmt::Display for SmallOperation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (_, name) = NAMES.iter().find(|(one, _)| one == self).expect("all have names");
        f.write_str(name)
    }
}
impl FromStr for SmallOperation {
    type Err = String;
    fn from_str(text: &str) -> Result<SmallOperation, String> {
        let found = NAMES.iter().find(|(_, name)| *name == text);
        found.map(|(one, _)| *one).ok_or_else(|| format!("{text}: no operation"))
    }
}
