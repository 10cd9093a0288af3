//! Chooses how much of the log lies free between a transaction and the one before it.
//!
//! When a rotating disk is given a commit right after another, the end of that one has just passed
//! the head, so the new commit waits for a revolution. It need not if the log continues a little
//! farther on. How far depends on the time that disk, bus and program take in between. So the
//! distance is learnt from how long commits took that directly followed another. No geometry is
//! known, and a wrong guess costs only time.
//!
//! 1. Without a gap, a few commits in a row that waited long are a reason to try one.
//! 2. A few commits are judged together. If too many of them are late the gap is doubled, up to the
//!    longest. If even that does not help, gaps do not: it takes ever more late commits until they
//!    are tried again.
//! 3. After some that were in time a shorter gap is tried, or none. If that fails it takes ever
//!    longer until the next try.

use std::time::Duration;

/// The `log_gap=` option: bytes left free between a transaction and the one before it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum LogGap {
    #[default]
    Off,
    /// Adaptive: a gap as long as it is worthwhile.
    Auto,
    /// A fixed number of bytes, always.
    Always(u32),
}

impl LogGap {
    /// Largest gap, in bytes: three quarters of a revolution at 7,200 rpm and 80 MB/s.
    pub const MOST: u32 = 512 << 10;

    /// Returns the most bytes of a gap.
    pub fn most(self) -> u32 {
        match self {
            LogGap::Off => 0,
            LogGap::Auto => LogGap::MOST,
            LogGap::Always(bytes) => bytes,
        }
    }
}

/// The shortest gap, in bytes.
const FIRST: u32 = 32 << 10;
/// Returns the next shorter gap: halfway to half of `gap`.
fn shorter(gap: u32) -> u32 {
    if gap.is_power_of_two() { gap / 4 * 3 } else { gap / 3 * 2 }
}
/// Commits that take longer than this beyond their transfer may have waited for a revolution: half
/// of one at 15,000 rpm.
const LATE: Duration = Duration::from_millis(2);
/// Bytes per second. A commit may seem late where the transfer is slower.
const SLOW: u64 = 80_000_000;
/// Bytes per second that pass while the program works: rather too many. Surplus bytes cost their
/// own time, missing ones a revolution.
const FAST: u64 = 200_000_000;
/// Maximum idle time after which the position of the head is known; later it is lost, since the
/// rate is not known well enough.
const AT_ONCE: Duration = Duration::from_millis(1);
/// Time of writing back a block: a short seek, and half a revolution.
const GOES_HOME: Duration = Duration::from_millis(6);
/// Number of commits that are judged together, and how many of them may be late.
const JUDGED: u32 = 8;
const MAY_BE_LATE: u32 = 2;
/// Number of late commits in a row before gaps are tried, at least and at most.
const LATE_MIN: u32 = 4;
const LATE_MAX: u32 = 4096;
/// Number of times that a gap goes well before less is tried, at least and at most. A try may cost
/// three revolutions, where that many commits take some hundred.
const WELL_MIN: u32 = 32;
const WELL_MAX: u32 = 2048;

/// A commit, and its duration.
#[derive(Clone, Copy, Debug)]
pub struct TimedCommit {
    /// Gap before the commit, and bytes that it wrote.
    pub gap: u64,
    pub written: u64,
    /// Time from the end of the commit before it to its begin, and from there to its end.
    pub idle: Duration,
    pub took: Duration,
    /// Number of writes issued to the disks until now.
    pub writes: u64,
}

impl TimedCommit {
    /// Returns the time that the commit took beyond its transfer.
    fn waited(&self) -> Duration {
        self.took.saturating_sub(Duration::from_micros(self.written / (SLOW / 1_000_000)))
    }
}

#[derive(Clone, Debug)]
pub struct Gaps {
    option: LogGap,
    most: u32,
    log: u64,
    /// Bytes written by the last commit, and number of writes issued until then.
    written: u64,
    writes: u64,
    /// Bytes left free now. 0: no gap.
    gap: u32,
    /// Bytes left free before, if the gap is a try.
    before: Option<u32>,
    /// Number of commits with this gap that were judged, and how many of them were late.
    judged: u32,
    late: u32,
    /// Least wait of a late commit without a gap. A commit with a gap is late if it gains less than
    /// a third of that.
    waited: Duration,
    /// Number of times that this gap went well, and how many it takes before less is tried.
    well: u32,
    well_wanted: u32,
    /// Number of late commits in a row before gaps are tried.
    late_wanted: u32,
}

impl Gaps {
    /// Creates the state. `most`: bytes of the longest gap that recovery would look behind. `log`:
    /// bytes of the log.
    pub fn new(option: LogGap, most: u32, log: u64) -> Gaps {
        Gaps {
            option,
            most,
            log,
            written: 0,
            writes: 0,
            gap: 0,
            before: None,
            judged: 0,
            late: 0,
            waited: Duration::MAX,
            well: 0,
            well_wanted: WELL_MIN,
            late_wanted: LATE_MIN,
        }
    }

    /// Returns how many bytes are to lie free before a commit of `blocks` that begins `idle` after
    /// the one before it has ended.
    ///
    /// The gap makes the log wrap sooner. If each commit changes the same blocks, they are written
    /// back once per wrap. Where that takes longer than the gaps of a wrap save, there is none.
    pub fn wanted(&self, idle: Duration, blocks: u64) -> u32 {
        match self.option {
            LogGap::Off => 0,
            LogGap::Always(bytes) => bytes.min(self.most),
            LogGap::Auto if self.gap == 0 || idle > AT_ONCE => 0,
            LogGap::Auto => {
                let passes = idle.as_micros() as u32 * (FAST / 1_000_000) as u32;
                let gap = self.most.min(self.gap.saturating_add(passes));
                let commits = u128::from(self.log / self.written.saturating_add(gap.into()));
                let saves = commits * (self.waited / 3 * 2).as_nanos();
                if u128::from(blocks) * GOES_HOME.as_nanos() > saves { 0 } else { gap }
            }
        }
    }

    pub fn committed(&mut self, commit: &TimedCommit) {
        self.written = commit.written;
        // Otherwise the disk had other work since the commit before it.
        let is_next = std::mem::replace(&mut self.writes, commit.writes).checked_add(1)
            == Some(commit.writes);
        if self.option != LogGap::Auto || commit.idle > AT_ONCE || !is_next {
            return;
        }
        let waited = commit.waited();
        if self.gap == 0 && self.before.is_none() {
            self.judge_without(waited);
        } else if commit.gap >= u64::from(self.gap) {
            self.judge(waited);
        }
    }

    fn judge_without(&mut self, waited: Duration) {
        if waited <= LATE {
            (self.late, self.waited) = (0, Duration::MAX);
            return;
        }
        (self.late, self.waited) = (self.late + 1, self.waited.min(waited));
        if self.late >= self.late_wanted && FIRST <= self.most {
            self.take(FIRST, None);
        }
    }

    fn judge(&mut self, waited: Duration) {
        (self.judged, self.late) =
            (self.judged + 1, self.late + u32::from(waited > self.waited / 3 * 2));
        let is_bad = self.late > MAY_BE_LATE;
        match self.before {
            Some(before) if is_bad => {
                self.well_wanted = WELL_MAX.min(self.well_wanted * 2);
                self.take(before, None);
            }
            None if is_bad && self.gap < self.most => {
                self.well_wanted = WELL_MIN;
                self.take(self.most.min(self.gap * 2), None);
            }
            None if is_bad => {
                self.late_wanted = LATE_MAX.min(self.late_wanted * 4);
                self.take(0, None);
            }
            _ if self.judged == JUDGED => self.goes_well(),
            _ => {}
        }
    }

    fn goes_well(&mut self) {
        self.late_wanted = LATE_MIN;
        (self.before, self.judged, self.late, self.well) = (None, 0, 0, self.well + 1);
        if self.well >= self.well_wanted {
            let less = if self.gap > FIRST { shorter(self.gap) } else { 0 };
            self.take(less, Some(self.gap));
        }
    }

    fn take(&mut self, gap: u32, before: Option<u32>) {
        (self.gap, self.before, self.judged, self.late, self.well) = (gap, before, 0, 0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: u64 = 32 << 20;
    const MILLISECOND: Duration = Duration::from_millis(1);
    const COMMIT: TimedCommit = TimedCommit {
        gap: 0,
        written: 4096,
        idle: Duration::ZERO,
        took: Duration::ZERO,
        writes: 0,
    };

    /// Plays commits of 4 KiB, one directly behind the other, on a disk where a gap of less than
    /// `needed` bytes loses a revolution. Returns how many did, and the bytes of all gaps.
    fn play(gaps: &mut Gaps, count: u32, needed: u64) -> (u32, u64) {
        let (mut late, mut bytes) = (0, 0);
        for _ in 0..count {
            let gap = u64::from(gaps.wanted(Duration::ZERO, 0));
            let is_late = gap < needed;
            let took = if is_late { 8 * MILLISECOND } else { MILLISECOND };
            gaps.committed(&TimedCommit { gap, took, writes: gaps.writes + 1, ..COMMIT });
            (late, bytes) = (late + u32::from(is_late), bytes + gap);
        }
        (late, bytes)
    }
    fn auto() -> Gaps {
        Gaps::new(LogGap::Auto, LogGap::MOST, LOG)
    }

    #[test]
    fn the_least_gap_that_is_in_time_is_found_and_kept() {
        for (needed, found) in
            [(1, FIRST), (40_000, 48 << 10), (60_000, 64 << 10), (400_000, LogGap::MOST)]
        {
            let mut gaps = auto();
            let (late, _) = play(&mut gaps, 100, needed);
            assert!(late <= LATE_MIN + 5 * 3, "{needed}: {late} late");
            play(&mut gaps, 2000, needed);
            assert_eq!(gaps.wanted(Duration::ZERO, 0), found, "{needed}");
        }
    }

    #[test]
    fn less_is_tried_ever_more_seldom_and_soon_where_it_does() {
        let mut gaps = auto();
        let (late, _) = play(&mut gaps, 100_000, 100_000);
        assert!((10..=100).contains(&late), "{late} of 100,000");
        // Other work has kept the disk from it for a while.
        play(&mut gaps, 20, 500_000);
        assert_eq!(gaps.wanted(Duration::ZERO, 0), LogGap::MOST);
        play(&mut gaps, 2000, 100_000);
        assert_eq!(gaps.wanted(Duration::ZERO, 0), 128 << 10);
    }

    #[test]
    fn a_disk_that_does_not_turn_gets_none() {
        let mut gaps = auto();
        assert_eq!(play(&mut gaps, 10_000, 0), (0, 0));
        // A disk that answers after 8 ms whatever is left free, as over a network.
        let (_, bytes) = play(&mut gaps, 100_000, u64::MAX);
        let (_, later) = play(&mut gaps, 100_000, u64::MAX);
        assert!(later < 100_000 * 1500 && later <= bytes, "{bytes} {later}");
        // A disk that was slow for a while.
        let mut gaps = auto();
        play(&mut gaps, 50, FIRST.into());
        assert_eq!(gaps.wanted(Duration::ZERO, 0), FIRST);
        play(&mut gaps, 300, 0);
        assert_eq!(gaps.wanted(Duration::ZERO, 0), 0);
    }

    #[test]
    fn a_caller_that_pauses_gets_a_longer_gap_or_none() {
        let mut gaps = auto();
        play(&mut gaps, 100, 20_000);
        let (at_once, soon) = (gaps.wanted(Duration::ZERO, 0), gaps.wanted(MILLISECOND / 2, 0));
        assert_eq!((at_once, soon, gaps.wanted(2 * MILLISECOND, 0)), (FIRST, FIRST + 100_000, 0));
        let (gap, took) = (FIRST.into(), 8 * MILLISECOND);
        for (uninformative, writes) in [
            (TimedCommit { gap, took, idle: 3 * MILLISECOND, ..COMMIT }, 1),
            (TimedCommit { gap, took, ..COMMIT }, 2),
            (TimedCommit { gap: 512, took, ..COMMIT }, 1),
        ] {
            for _ in 0..100 {
                gaps.committed(&TimedCommit { writes: gaps.writes + writes, ..uninformative });
            }
            assert_eq!(gaps.wanted(Duration::ZERO, 0), FIRST, "{uninformative:?}");
        }
    }

    #[test]
    fn where_commits_change_many_blocks_the_log_does_not_turn_sooner() {
        let mut gaps = auto();
        play(&mut gaps, 100, 20_000);
        // 910 commits in a wrap, each of which saves two thirds of 8 ms.
        assert_eq!(
            [1, 800, 820].map(|blocks| gaps.wanted(Duration::ZERO, blocks)),
            [FIRST, FIRST, 0]
        );
    }

    #[test]
    fn nothing_that_is_observed_leads_beyond_the_longest_gap() {
        let rng = units::SplitMix::new(5);
        let mut gaps = Gaps::new(LogGap::Auto, 100 << 10, LOG);
        for step in 0..20_000 {
            let any =
                || 1u64.checked_shl(rng.below(64) as u32).map_or(0, |most| rng.below(most.max(1)));
            let time = || Duration::from_nanos(any());
            let writes = if rng.below(4) > 0 { gaps.writes.saturating_add(1) } else { any() };
            gaps.committed(&TimedCommit {
                gap: any(),
                written: any(),
                idle: time(),
                took: time(),
                writes,
            });
            assert!(gaps.wanted(time(), any()) <= 100 << 10, "step {step}: {gaps:?}");
        }
        for (gap, most, wanted) in
            [(LogGap::Off, 1 << 20, 0), (LogGap::Auto, 1000, 0), (LogGap::Always(7), 7, 7)]
        {
            let mut gaps = Gaps::new(gap, most, LOG);
            play(&mut gaps, 100, u64::MAX);
            assert_eq!(gaps.wanted(Duration::ZERO, 0), wanted);
        }
    }
}
