//! WHAT is logged: for each update of one block of file data, the bytes, the block, or nothing (the
//! data is written home).
//!
//! One small file per mode. Metadata is always logged and asks no policy. A policy sees one update
//! and the block's [`UpdateSequence`]; it keeps no state of its own, except what it learns of the
//! disk. Whatever depends on the mode is asked of its policy: no code outside this folder names a
//! mode to decide by it.

mod adaptive;
mod journal;
mod ordered;
mod overrides;
mod selective;
mod sequence;
mod threshold;
mod wasteless;
mod write_costs;
mod writeback;

pub use overrides::PolicyOverrides;
pub use sequence::UpdateSequence;
pub use threshold::AutoThreshold;
pub use write_costs::{CommitCost, TimedWrites};

use std::fmt;
use std::str::FromStr;
use units::{BlockRange, BlockSize};

/// The `data=` option of a mount.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum DataMode {
    Writeback,
    #[default]
    Ordered,
    Journal,
    Wasteless,
    Selective,
    Adaptive,
}

/// Threshold below which requests count as small (selective mode).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WriteThreshold {
    /// Requests shorter than this many bytes (paper: the page size).
    Fixed(u64),
    /// Learnt from the cost of writes on this disk.
    Auto,
}

/// An update of one block of file data, as policies see it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Update {
    /// Bytes of the block that change. Not empty.
    pub range: BlockRange,
    pub block_size: BlockSize,
    /// Bytes of the whole write request that the update is a part of.
    pub request: u64,
    /// Whether the request belongs to a long sequential stream of one transaction: each request
    /// begins where the one before ended.
    pub sequential: bool,
    /// The state of the block's update sequence, ended ones already cleared
    /// ([`UpdateSequence::current`]).
    pub sequence: UpdateSequence,
    /// Whether the update changes only bytes that the file had already, in a block that no
    /// transaction in progress makes reachable. Without it only older bytes of the file would be
    /// visible.
    pub in_place: bool,
    /// Whether the update is logged whatever the mode prefers. Durability is enough for the file,
    /// or replay could undo data that bypasses the log, because the log holds a record of the
    /// block.
    pub must_log: bool,
}

impl Update {
    pub fn is_whole_block(&self) -> bool {
        self.range == self.block_size.whole()
    }
    /// Returns the decision for data that bypasses the log: a commit waits only for data that it
    /// makes reachable.
    fn past_log(&self) -> Decision {
        if self.in_place { Decision::HomeWhenever } else { Decision::HomeBeforeCommit }
    }
}

/// Way in which an update reaches the disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Decision {
    /// Logs the changed bytes in a multiwrite block.
    LogBytes,
    /// Logs the whole block, as it is when the transaction is locked, as a regular block.
    LogBlock,
    /// Does not log the block; it is written home before the transaction commits.
    HomeBeforeCommit,
    /// Does not log the block; write-back writes it home at any time.
    HomeWhenever,
}

impl Decision {
    pub fn is_logged(self) -> bool {
        matches!(self, Decision::LogBytes | Decision::LogBlock)
    }
}

/// Default of the `logged_write_size=` option of a mount, in bytes.
pub const LOGGED_WRITE_SIZE: u64 = 32 << 10;

/// A mode of journaling.
pub trait Policy {
    fn decide(&self, update: &Update) -> Decision;
    /// Sets the longest request that is logged, in bytes, where that alone decides for a random
    /// one.
    fn set_logged_write_size(&mut self, _bytes: u64) {}
    /// Whether data can be logged, so that handles reserve log space for it.
    fn logs_data(&self) -> bool {
        false
    }
    /// Whether [`Decision::LogBytes`] is possible: then the records must hold parts of blocks.
    fn logs_bytes(&self) -> bool {
        false
    }
    /// Whether `decide` looks at the block's update sequence, which must then be kept.
    fn keeps_sequences(&self) -> bool {
        false
    }
    /// Whether `decide` looks at [`Update::must_log`], which the caller must then determine.
    fn looks_into_log(&self) -> bool {
        false
    }
    /// Returns what the policy learns from the cost of writes; `None` if nothing, so that no cost
    /// need be measured.
    fn learns(&self) -> Option<&AutoThreshold> {
        None
    }
    /// Returns the size below which requests are small now, if that decides.
    fn threshold(&self) -> Option<u64> {
        None
    }
    /// Whether an update of a part of a block may need the rest of the block before the commit.
    fn needs_base(&self) -> bool {
        true
    }
}

impl DataMode {
    pub const ALL: [DataMode; 6] = [
        DataMode::Writeback,
        DataMode::Ordered,
        DataMode::Journal,
        DataMode::Wasteless,
        DataMode::Selective,
        DataMode::Adaptive,
    ];

    pub fn name(self) -> &'static str {
        match self {
            DataMode::Writeback => "writeback",
            DataMode::Ordered => "ordered",
            DataMode::Journal => "journal",
            DataMode::Wasteless => "wasteless",
            DataMode::Selective => "selective",
            DataMode::Adaptive => "adaptive",
        }
    }

    /// Returns what the log holds of file data, for lists of modes.
    pub fn summary(self) -> &'static str {
        match self {
            DataMode::Writeback => "nothing; after a crash, files may hold old bytes",
            DataMode::Ordered => "nothing, but data is home before its commit",
            DataMode::Journal => "every changed block",
            DataMode::Wasteless => "the changed bytes, many writes packed into one block",
            DataMode::Selective => {
                "the changed bytes of small requests; large ones as in ordered mode"
            }
            DataMode::Adaptive => {
                "the blocks of small or random requests; others as in ordered mode"
            }
        }
    }

    /// Returns the policy of this mode. Only selective looks at `threshold`.
    pub fn policy(self, threshold: WriteThreshold) -> Box<dyn Policy> {
        match self {
            DataMode::Writeback => Box::new(writeback::Writeback),
            DataMode::Ordered => Box::new(ordered::Ordered),
            DataMode::Journal => Box::new(journal::Journal),
            DataMode::Wasteless => Box::new(wasteless::Wasteless),
            DataMode::Selective => Box::new(selective::Selective::new(threshold)),
            DataMode::Adaptive => Box::new(adaptive::Adaptive::default()),
        }
    }
}

/// Returns the policy of a mode with the overrides of a mount.
pub fn with_overrides(mode: Box<dyn Policy>, overrides: PolicyOverrides) -> Box<dyn Policy> {
    Box::new(overrides::PolicyWithOverrides { mode, overrides })
}

impl fmt::Display for DataMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("data={0}: unknown mode; known are {list}", list = DataMode::ALL.map(DataMode::name).join(", "))]
pub struct UnknownMode(pub String);

impl FromStr for DataMode {
    type Err = UnknownMode;
    fn from_str(name: &str) -> Result<DataMode, UnknownMode> {
        let found = DataMode::ALL.into_iter().find(|mode| mode.name() == name);
        found.ok_or_else(|| UnknownMode(name.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use units::TransactionId;

    const THRESHOLD: WriteThreshold = WriteThreshold::Fixed(4096);

    fn update(range: BlockRange, request: u64, sequence: UpdateSequence) -> Update {
        let (block_size, sequential) = (BlockSize::new(4096).unwrap(), false);
        Update {
            range,
            block_size,
            request,
            sequential,
            sequence,
            in_place: false,
            must_log: false,
        }
    }

    fn decisions(mode: DataMode, sequence: UpdateSequence) -> [Decision; 3] {
        let policy = mode.policy(THRESHOLD);
        let (partial, whole) = (BlockRange::new(100, 228), BlockRange::new(0, 4096));
        [
            policy.decide(&update(partial, 128, sequence)),
            policy.decide(&update(partial, 8192, sequence)),
            policy.decide(&update(whole, 8192, sequence)),
        ]
    }

    #[test]
    fn each_mode_decides_as_its_page_says() {
        use Decision::*;
        let last = TransactionId(7);
        let new = UpdateSequence::None;
        assert_eq!(decisions(DataMode::Writeback, new), [HomeWhenever; 3]);
        assert_eq!(decisions(DataMode::Ordered, new), [HomeBeforeCommit; 3]);
        assert_eq!(decisions(DataMode::Journal, new), [LogBlock; 3]);
        assert_eq!(decisions(DataMode::Wasteless, new), [LogBytes, LogBytes, LogBlock]);
        assert_eq!(
            decisions(DataMode::Selective, new),
            [LogBytes, HomeBeforeCommit, HomeBeforeCommit]
        );
        let journalled = UpdateSequence::Journalled { last };
        assert_eq!(decisions(DataMode::Selective, journalled), [LogBytes, LogBytes, LogBlock]);
        let bypassed = UpdateSequence::Bypassed { last };
        assert_eq!(decisions(DataMode::Selective, bypassed), [HomeBeforeCommit; 3]);
        assert_eq!(decisions(DataMode::Adaptive, new), [LogBlock; 3]);
        assert_eq!(decisions(DataMode::Adaptive, journalled), [LogBlock; 3]);
        assert_eq!(decisions(DataMode::Adaptive, bypassed), [HomeBeforeCommit; 3]);
    }

    #[test]
    fn no_commit_waits_for_an_overwrite_in_place_that_bypasses_the_log() {
        for mode in DataMode::ALL {
            for sequence in
                [UpdateSequence::None, UpdateSequence::Bypassed { last: TransactionId(7) }]
            {
                let (policy, whole) = (mode.policy(THRESHOLD), BlockRange::new(0, 4096));
                let other = update(whole, 1 << 20, sequence);
                let expected = match policy.decide(&other) {
                    Decision::HomeBeforeCommit => Decision::HomeWhenever,
                    decision => decision,
                };
                assert_eq!(policy.decide(&Update { in_place: true, ..other }), expected, "{mode}");
            }
        }
    }

    #[test]
    fn durable_only_is_logged_compactly_in_every_mode() {
        let sequence = UpdateSequence::Bypassed { last: TransactionId(7) };
        for mode in DataMode::ALL {
            let durable_only = PolicyOverrides { durable_only: true, ..PolicyOverrides::default() };
            let (plain, policy) =
                (mode.policy(THRESHOLD), with_overrides(mode.policy(THRESHOLD), durable_only));
            for range in [BlockRange::new(100, 228), BlockRange::new(0, 4096)] {
                let other = update(range, 1 << 20, sequence);
                assert_eq!(policy.decide(&other), plain.decide(&other), "{mode}");
                let decided = policy.decide(&Update { must_log: true, ..other });
                match plain.decide(&other) {
                    logged if logged.is_logged() => assert_eq!(decided, logged, "{mode}"),
                    _ => assert_eq!(decided, Decision::LogBlock, "{mode}"),
                }
            }
        }
    }

    #[test]
    fn ordered_overwrites_are_written_home_as_reachable_data() {
        let ordered = PolicyOverrides { ordered_overwrites: true, ..PolicyOverrides::default() };
        for mode in DataMode::ALL {
            let other = update(BlockRange::new(0, 4096), 1 << 20, UpdateSequence::None);
            let policy = with_overrides(mode.policy(THRESHOLD), ordered);
            let decided = policy.decide(&Update { in_place: true, ..other });
            assert_eq!(decided, mode.policy(THRESHOLD).decide(&other), "{mode}");
        }
    }

    #[test]
    fn a_threshold_per_block_looks_at_what_changes_of_one_block() {
        let per_block = PolicyOverrides { threshold_per_block: true, ..PolicyOverrides::default() };
        let policy = with_overrides(DataMode::Selective.policy(THRESHOLD), per_block);
        let of =
            |end| policy.decide(&update(BlockRange::new(0, end), 1 << 20, UpdateSequence::None));
        assert_eq!((of(128), of(4096)), (Decision::LogBytes, Decision::HomeBeforeCommit));
    }

    #[test]
    fn adaptive_sends_long_requests_and_long_rows_home() {
        let policy = DataMode::Adaptive.policy(THRESHOLD);
        let of = |request, sequential, sequence| {
            policy.decide(&Update {
                sequential,
                ..update(BlockRange::new(0, 4096), request, sequence)
            })
        };
        let none = UpdateSequence::None;
        assert_eq!(of(LOGGED_WRITE_SIZE, false, none), Decision::LogBlock);
        assert_eq!(of((32 << 10) + 1, false, none), Decision::HomeBeforeCommit);
        assert_eq!(of(4096, true, none), Decision::HomeBeforeCommit);
        let journalled = UpdateSequence::Journalled { last: TransactionId(7) };
        assert_eq!(of(1 << 20, true, journalled), Decision::LogBlock);

        let mut other = DataMode::Adaptive.policy(THRESHOLD);
        other.set_logged_write_size(64 << 10);
        let of = |request| other.decide(&update(BlockRange::new(0, 4096), request, none));
        assert_eq!(
            (of(64 << 10), of((64 << 10) + 1)),
            (Decision::LogBlock, Decision::HomeBeforeCommit)
        );
    }

    /// A policy's description of itself must hold for all of its decisions.
    #[test]
    fn no_mode_decides_otherwise_than_it_announces() {
        let last = TransactionId(7);
        let sequences = [
            UpdateSequence::None,
            UpdateSequence::Journalled { last },
            UpdateSequence::Bypassed { last },
        ];
        let thresholds = [THRESHOLD, WriteThreshold::Auto];
        for (mode, threshold) in
            DataMode::ALL.into_iter().flat_map(|mode| thresholds.map(|one| (mode, one)))
        {
            let policy = mode.policy(threshold);
            let all = sequences.map(|sequence| decisions(mode, sequence));
            let any = |wanted: fn(Decision) -> bool| {
                all.as_flattened().iter().any(|found| wanted(*found))
            };
            assert_eq!(any(Decision::is_logged), policy.logs_data(), "{mode}");
            assert_eq!(any(|found| found == Decision::LogBytes), policy.logs_bytes(), "{mode}");
            assert_eq!(all[1..] != [all[0]; 2], policy.keeps_sequences(), "{mode}");
            let parts = all.iter().flat_map(|[small, large, _whole]| [small, large]);
            let needs_base = parts.into_iter().any(|found| *found != Decision::LogBytes);
            assert_eq!(needs_base, policy.needs_base(), "{mode}");
        }
    }

    #[test]
    fn names_are_read_back() {
        for mode in DataMode::ALL {
            assert_eq!(mode.name().parse(), Ok(mode));
        }
        assert!("lazy".parse::<DataMode>().unwrap_err().to_string().contains("lazy"));
    }
}
