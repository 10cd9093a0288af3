//! Learns on line which requests are small: `threshold=auto` of selective journaling.
//! (`docs/modes/selective.md`)
//!
//! A request that is logged costs its bytes in the log. If no later one changes the same blocks, it
//! also costs a home write at write-back. One that bypasses the log costs a home write that its
//! commit waits for. The executor of plans reports how long these took; this module chooses the
//! threshold at which the recent requests would have cost least.
//!
//! 1. Requests below [`SMALL`] bytes are always small, and those of [`LARGE`] never: the threshold
//!    lies between the two.
//! 2. It moves up only where that gains a tenth, and down where it gains anything. So it does not
//!    move back and forth under a load between the two.
//! 3. An alternative not tried recently is tried again, with a few requests, if it could gain.
//!    Trials take no more than one part in [`TRIAL_SHARE`] of the time, and become ever rarer while
//!    they change nothing.
//! 4. Requests written back later, together with their neighbours, cost what such a write costs for
//!    all of them.
//! 5. Write-back for which nobody waits costs waiting callers only as far as the disk has no idle
//!    time.
//! 6. A request for whose commit nobody waits costs the same at home, now or later: logging it only
//!    adds to that.
//! 7. Data that is overwritten in place and synced needs no commit at home. In the log it takes
//!    one, which all callers waiting at that time share.
//! 8. All requests are logged at first. That delays nobody until something has to be written back.
//! 9. Time is known only from observations passed in, and nothing is random: the same observations
//!    give the same thresholds.

use super::write_costs::{CommitCost, TimedWrites, WriteCosts};
use std::cell::{Cell, RefCell};
use std::time::Duration;
use units::Instant;

/// Requests shorter than this, in bytes, are parts of a page: at home they would take a read and a
/// write of the whole page.
const SMALL: u64 = 4096;
/// Requests of this many bytes are large on every disk: at home they cost their transfer alone.
const LARGE: u64 = 1 << 20;
/// Number of classes of requests, by powers of two between the two.
const CLASSES: usize = (LARGE / SMALL).trailing_zeros() as usize;
/// Number of requests after which earlier ones count half.
const REQUESTS_REMEMBERED: f64 = 1024.0;
/// The present threshold stays unless another one costs less than this share of its cost.
const GAIN: f64 = 0.9;
const TRIAL_SHARE: u32 = 32;
/// Maximum number of requests of a trial.
const TRIAL_REQUESTS: f64 = 8.0;
/// Maximum number of commits between trials: each that changes nothing quadruples the wait.
const PATIENCE_MAX: u64 = 64;
/// A trial that changes the estimated cost of a home write by this share is soon followed by
/// another.
const SURPRISE: f64 = 0.25;

/// Recent requests of one class.
#[derive(Clone, Copy, Default, Debug)]
struct Class {
    requests: f64,
    bytes: f64,
    /// Blocks of the requests, and how many of these no recent request had changed: each of those
    /// will be a home write.
    blocks: f64,
    fresh: f64,
    /// Commits that only this class and longer ones need, if they are logged.
    commits: f64,
}

/// Cost that the recent requests of one class would have had, in nanoseconds.
#[derive(Clone, Copy, Default, Debug)]
struct ClassCost {
    /// Cost if logged: their bytes, later write-back, and commits that nothing else needs.
    bytes: f64,
    later: f64,
    commits: f64,
    /// Cost if they bypass the log.
    home: f64,
}

impl ClassCost {
    fn logged(&self) -> f64 {
        self.bytes + self.later + self.commits
    }
}

/// Alternative that is tried until the next commit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Trial {
    Home,
    Log,
}

#[derive(Debug, Default)]
struct Learnt {
    classes: [Class; CLASSES],
    costs: WriteCosts,
    /// Commits, and syncs without one, since the last trial of each kind.
    unseen: [u64; 2],
    trial_at: Instant,
    /// Number of commits from one trial to the next.
    patience: u64,
    /// Estimated cost of a home write at the last conclusion.
    home_before: Option<f64>,
    /// Start of the last of the commits that syncs without one would have taken.
    spared: Instant,
}

impl Learnt {
    fn class_costs(&self) -> [ClassCost; CLASSES] {
        let (byte, busy, waited) =
            (self.costs.byte(), self.costs.utilization(), self.costs.waited());
        // No logged data has been written back yet, so nobody was delayed by that either.
        let (later, of_bytes) = self.costs.later().map_or((0.0, 0.0), |each| (each, 1.0));
        // While the cost is unknown, no request that a caller waits for is sent home.
        let home = self.costs.home().unwrap_or(f64::MAX / 1e12);
        self.classes.map(|class| {
            if class.requests < 1.0 {
                return ClassCost::default();
            }
            let (bytes, fresh) = (class.bytes * byte, class.fresh / class.blocks);
            let writes = self.costs.later_writes(class.requests * fresh, class.bytes * fresh);
            let later = (writes * later + fresh * bytes * of_bytes) * busy;
            ClassCost {
                bytes,
                later,
                commits: class.commits * self.costs.commit(),
                home: waited * (class.requests * home + bytes) + (1.0 - waited) * later,
            }
        })
    }
}

/// The state of `threshold=auto`.
#[derive(Debug)]
pub struct AutoThreshold {
    learnt: RefCell<Learnt>,
    present: Cell<u64>,
    trial: Cell<Option<Trial>>,
    /// Requests for which the trial continues.
    left: Cell<f64>,
    /// The class of the shortest request since the last commit, or sync without one.
    shortest: Cell<Option<usize>>,
    /// Whether since then there was a request that is small whatever the threshold.
    had_small: Cell<bool>,
}

impl Default for AutoThreshold {
    fn default() -> AutoThreshold {
        let (learnt, trial) = (RefCell::default(), Cell::default());
        let (left, shortest, had_small) = Default::default();
        AutoThreshold { learnt, present: Cell::new(LARGE), trial, left, shortest, had_small }
    }
}

impl AutoThreshold {
    /// Returns the threshold: shorter requests are small.
    pub fn present(&self) -> u64 {
        self.present.get()
    }

    /// Whether a request counts as small, if no earlier one has decided that for its blocks.
    /// `sequential`: it continues a long sequential stream of one transaction, so at home it costs
    /// its transfer alone.
    pub fn is_small(&self, request: u64, sequential: bool) -> bool {
        if !(SMALL..LARGE).contains(&request) || sequential {
            return request < SMALL;
        }
        match self.trial.get().filter(|_| self.left.get() > 0.0) {
            Some(Trial::Home) => false,
            Some(Trial::Log) => true,
            None => request < self.present.get(),
        }
    }

    /// Records that a request of `request` bytes, outside any long sequential stream, changed
    /// `bytes` bytes of a block. `fresh`: no recent request had changed the block.
    pub fn updated(&self, request: u64, bytes: u64, fresh: bool) {
        let Some(index) = class_of(request) else {
            self.had_small.set(self.had_small.get() || request < SMALL);
            return;
        };
        self.shortest.set(Some(self.shortest.get().map_or(index, |class| class.min(index))));
        self.left.set(self.left.get() - bytes as f64 / request as f64);
        let learnt = &mut *self.learnt.borrow_mut();
        let class = &mut learnt.classes[index];
        class.requests += bytes as f64 / request as f64;
        class.bytes += bytes as f64;
        class.blocks += 1.0;
        class.fresh += f64::from(u8::from(fresh));
        if class.requests > REQUESTS_REMEMBERED {
            for class in &mut learnt.classes {
                let Class { requests, bytes, blocks, fresh, commits } = class;
                for count in [requests, bytes, blocks, fresh, commits] {
                    *count /= 2.0;
                }
            }
        }
    }

    /// Records home writes that no commit waited for. `waited`: a sync did.
    pub fn note_home_writes(&self, took: &TimedWrites, waited: bool) {
        self.learnt.borrow_mut().costs.note_home_writes(took, waited);
    }

    /// Records a sync, which came at `asked`, of data that was overwritten in place: at home it
    /// takes no commit. In the log it shares one with those that come while the previous commit is
    /// in progress.
    pub fn data_sync_requested(&self, asked: Instant) {
        let learnt = &mut *self.learnt.borrow_mut();
        let (shortest, had_small) = (self.shortest.take(), self.had_small.take());
        let Some(class) = shortest.filter(|_| asked > learnt.spared) else { return };
        let took = Duration::from_nanos(learnt.costs.commit() as u64);
        learnt.spared = asked.max(learnt.spared.plus(took));
        learnt.classes[class].commits += f64::from(u8::from(!had_small));
    }
    /// Records that the sync was answered without a commit.
    pub fn data_sync_answered(&self, asked: Instant, now: Instant) {
        self.conclude(&mut self.learnt.borrow_mut(), now, now.since(asked.min(now)));
    }

    /// Records that a commit is durable. `busy`: total time that the home disk has been at work.
    pub fn committed(&self, now: Instant, busy: Duration, cost: &CommitCost) {
        let learnt = &mut *self.learnt.borrow_mut();
        learnt.costs.committed(now, busy, cost);
        self.shortest.take();
        self.had_small.take();
        let took = cost.home.nanoseconds.saturating_add(cost.log.nanoseconds);
        self.conclude(learnt, now, Duration::from_nanos(took));
    }

    /// Chooses the threshold anew after something was made durable, which took `took`, and the next
    /// trial.
    fn conclude(&self, learnt: &mut Learnt, now: Instant, took: Duration) {
        let before = self.present.get();
        self.choose(learnt);
        let differs = |now: f64, before: f64| (now - before).abs() > before * SURPRISE;
        let home = learnt.costs.home();
        let surprises =
            learnt.home_before.zip(home).is_some_and(|(before, now)| differs(now, before));
        learnt.home_before = home;
        let tried = self.trial.take().is_some();
        if self.present.get() != before || tried && surprises {
            learnt.patience = 0;
        }
        if tried {
            learnt.trial_at = now.plus(took.saturating_mul(TRIAL_SHARE));
            learnt.patience = (learnt.patience * 4).clamp(1, PATIENCE_MAX);
            return;
        }
        learnt.unseen.iter_mut().for_each(|times| *times += 1);
        if now >= learnt.trial_at && learnt.unseen.iter().all(|times| *times >= learnt.patience) {
            let trial = self.next_trial(learnt);
            self.trial.set(trial);
            self.left.set(TRIAL_REQUESTS);
            if let Some(trial) = trial {
                learnt.unseen[trial as usize] = 0;
            }
        }
    }

    /// Returns a trial of an alternative that the present threshold applied to no recent request,
    /// if there were any that could gain. Of two, the one that was not made for longer.
    fn next_trial(&self, learnt: &Learnt) -> Option<Trial> {
        let costs = learnt.class_costs();
        let (logged, sent_home) = costs.split_at(self.split());
        let sum = |of: &[ClassCost], part: fn(&ClassCost) -> f64| of.iter().map(part).sum::<f64>();
        // No home write takes less than its transfer.
        let least = |of| sum(of, |cost| cost.bytes);
        let candidates = [
            (Trial::Home, least(logged), sum(logged, ClassCost::logged)),
            (
                Trial::Log,
                least(sent_home) + sum(sent_home, |cost| cost.commits),
                sum(sent_home, |cost| cost.home),
            ),
        ];
        let wanted = candidates.into_iter().filter(|(_, least, present)| *least < present * GAIN);
        wanted.map(|(trial, ..)| trial).max_by_key(|trial| learnt.unseen[*trial as usize])
    }

    fn choose(&self, learnt: &Learnt) {
        let costs = learnt.class_costs();
        let cost = |split: usize| -> f64 {
            let logged = costs[..split].iter().map(ClassCost::logged);
            logged.chain(costs[split..].iter().map(|cost| cost.home)).sum()
        };
        let best =
            (0..=CLASSES).min_by(|left, right| cost(*left).total_cmp(&cost(*right))).unwrap_or(0);
        let present = self.split();
        // Logged data also takes memory until it is home: less of that need not gain.
        let gain = if best < present { 1.0 } else { GAIN };
        if cost(best) < cost(present) * gain {
            self.present.set(SMALL << best);
        }
    }

    /// Returns the first class that the present threshold sends home.
    fn split(&self) -> usize {
        (self.present.get() / SMALL).trailing_zeros() as usize
    }
}

/// Returns the class of a request; `None` if it is small, or large, whatever the threshold.
fn class_of(request: u64) -> Option<usize> {
    (SMALL..LARGE).contains(&request).then(|| (request / SMALL).ilog2() as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A disk and its load; all times in nanoseconds.
    struct World {
        auto: AutoThreshold,
        now: Instant,
        /// Cost of a home write that a commit waits for, of one that nobody waits for, and of a
        /// commit itself.
        home: u64,
        later: u64,
        log: u64,
        byte: u64,
        busy: Duration,
        /// Idle time of the disk between two commits.
        spare: u64,
        /// Number of logged requests written back with one write.
        together: u64,
        waited: bool,
        /// Number of home writes of a commit that the drive's cache takes at once without barriers.
        cached: Option<u64>,
        /// Number of commits that deviated from the threshold.
        trials: u64,
    }
    const DISK: (u64, u64) = (6_000_000, 1_500_000);
    const SSD: (u64, u64) = (80_000, 70_000);

    impl World {
        fn new((home, later): (u64, u64), byte: u64) -> World {
            let (auto, now, busy) = Default::default();
            let (spare, together, waited, cached, trials) = (0, 1, true, None, 0);
            World {
                auto,
                now,
                home,
                later,
                log: home / 2,
                byte,
                busy,
                spare,
                together,
                waited,
                cached,
                trials,
            }
        }
        /// Plays one commit of `count` requests, `hot` of which change blocks that others changed;
        /// logged blocks are written back at once.
        fn commit(&mut self, request: u64, count: u64, hot: u64) -> u64 {
            let (waited, durable) = (self.waited, self.cached.is_none());
            let mut cost = CommitCost { waited, durable, ..CommitCost::default() };
            let usual = request < self.auto.present();
            let mut is_trial = false;
            let mut later = TimedWrites::default();
            for number in 0..count {
                let is_small = self.auto.is_small(request, false);
                is_trial |= (SMALL..LARGE).contains(&request) && is_small != usual;
                self.auto.updated(request, request, number >= hot);
                let writes = if is_small { &mut cost.log } else { &mut cost.home };
                writes.bytes += request;
                writes.writes += 1;
                if is_small && number >= hot {
                    later.bytes += request;
                    later.writes += 1;
                }
            }
            self.trials += u64::from(is_trial);
            later.writes = later.writes.div_ceil(self.together);
            let seen = cost.home.writes > self.cached.unwrap_or(0);
            cost.home.nanoseconds =
                if seen { cost.home.writes * self.home + cost.home.bytes * self.byte } else { 0 };
            cost.log.nanoseconds = self.log + cost.log.bytes * self.byte;
            later.nanoseconds = later.writes * self.later + later.bytes * self.byte;
            let took = cost.home.nanoseconds + cost.log.nanoseconds + later.nanoseconds;
            self.now = self.now.plus(Duration::from_nanos(took + self.spare));
            if later.writes > 0 {
                self.auto.note_home_writes(&later, false);
            }
            self.busy += Duration::from_nanos(took);
            self.auto.committed(self.now, self.busy, &cost);
            took
        }
        /// Keeps the disk at work for the given nanoseconds, without any other time passing.
        fn works(&mut self, nanoseconds: u64) {
            self.now = self.now.plus(Duration::from_nanos(nanoseconds));
            self.busy += Duration::from_nanos(nanoseconds);
        }
        fn commits(&mut self, number: u64, request: u64, count: u64, hot: u64) -> u64 {
            (0..number).map(|_| self.commit(request, count, hot)).sum()
        }
    }

    #[test]
    fn seeks_make_middling_requests_small_and_a_disk_without_does_not() {
        let mut disk = World::new(DISK, 10);
        disk.commits(200, 16 << 10, 8, 0);
        assert!(disk.auto.present() > 16 << 10, "{:?}", disk.auto);
        let mut ssd = World::new(SSD, 2);
        ssd.commits(200, 64 << 10, 8, 0);
        assert_eq!(ssd.auto.present(), SMALL, "{:?}", ssd.auto);
        // Where most requests change the blocks of others, few are written back.
        ssd.commits(600, 8 << 10, 8, 7);
        assert!(ssd.auto.present() > 8 << 10, "{:?}", ssd.auto);
    }

    #[test]
    fn parts_of_pages_are_small_and_mebibytes_and_long_rows_are_not() {
        let mut disk = World::new(DISK, 10);
        for request in [128, 4095, LARGE, 64 << 20] {
            disk.commits(50, request, 4, 0);
            assert_eq!(disk.auto.is_small(request, false), request < SMALL);
        }
        disk.commits(200, 64 << 10, 4, 4);
        assert!(disk.auto.is_small(64 << 10, false) && !disk.auto.is_small(64 << 10, true));
    }

    /// The learnt threshold loses at most a tenth to the better of the two under a constant load,
    /// on any disk.
    #[test]
    fn no_load_loses_a_tenth_against_the_better_fixed_threshold() {
        for (times, byte) in
            [(DISK, 10), (SSD, 2), ((1_000_000, 900_000), 50), ((300_000, 20_000), 1)]
        {
            for request in [4096, 16 << 10, 64 << 10, 512 << 10] {
                for (count, hot) in [(1, 0), (16, 0), (16, 12), (1, 1)] {
                    let (number, mut world) = (600, World::new(times, byte));
                    let took = world.commits(number, request, count, hot);
                    let bytes = request * count * byte;
                    let fresh = (count - hot) * (times.1 + request * byte);
                    let of_log = number * (world.log + bytes + fresh);
                    let of_home = number * (world.log + count * times.0 + bytes);
                    let best = of_log.min(of_home);
                    let case = format!("{times:?} {byte} {request} {count} {hot}");
                    assert!(
                        took <= best / 10 * 11,
                        "{case}: {took}, {of_log} or {of_home}; {:?}",
                        world.auto
                    );
                }
            }
        }
    }

    #[test]
    fn a_load_that_changes_is_noticed() {
        let mut disk = World::new(DISK, 10);
        disk.commits(300, 64 << 10, 4, 4);
        assert!(disk.auto.present() > 64 << 10, "{:?}", disk.auto);
        // The seeks are gone: neighbours are written back together.
        (disk.home, disk.later) = (1000, 1000);
        disk.commits(300, 64 << 10, 4, 0);
        assert_eq!(disk.auto.present(), SMALL, "{:?}", disk.auto);
    }

    #[test]
    fn between_two_thresholds_that_cost_nearly_the_same_nothing_moves_back_and_forth() {
        let mut disk = World::new((1_310_720 + 100_000, 700_000), 10);
        disk.commits(100, 64 << 10, 4, 0);
        let (mut before, mut moved) = (disk.auto.present(), 0);
        for round in 0..500 {
            disk.later = if round % 2 == 0 { 720_000 } else { 790_000 };
            disk.commits(1, 64 << 10, 4, 0);
            moved += u64::from(disk.auto.present() != before);
            before = disk.auto.present();
        }
        assert!(moved <= 1, "{moved}: {:?}", disk.auto);
    }

    #[test]
    fn what_would_be_written_back_together_later_is_logged() {
        // One by one it costs as much to write back later as at once, and the log in addition.
        let mut disk = World::new((2_000_000, 2_000_000), 10);
        disk.commits(200, 16 << 10, 32, 0);
        assert_eq!(disk.auto.present(), SMALL, "{:?}", disk.auto);
        let mut disk = World { together: 16, ..World::new((2_000_000, 2_000_000), 10) };
        disk.commits(200, 16 << 10, 32, 0);
        assert!(disk.auto.present() > 16 << 10, "{:?}", disk.auto);
    }

    #[test]
    fn a_disk_with_time_to_spare_makes_nobody_wait_for_home() {
        let mut disk = World { spare: 1_000_000_000, ..World::new((2_000_000, 4_000_000), 10) };
        disk.commits(200, 16 << 10, 8, 0);
        assert!(disk.auto.present() > 16 << 10, "{:?}", disk.auto);
        disk.spare = 0;
        disk.commits(400, 16 << 10, 8, 0);
        assert_eq!(disk.auto.present(), SMALL, "{:?}", disk.auto);
    }

    /// A database's log: one request overwrites in place, and is synced; `writers` do this at the
    /// same time.
    fn overwrite_and_sync(disk: &mut World, request: u64, writers: u64) {
        let usual = request < disk.auto.present();
        let mut logged = TimedWrites::default();
        let began = disk.now;
        for _ in 0..writers {
            let is_small = disk.auto.is_small(request, false);
            disk.trials += u64::from(is_small != usual);
            disk.auto.updated(request, request, true);
            disk.auto.data_sync_requested(began);
            if is_small {
                logged.bytes += request;
                logged.writes += 1;
            } else {
                let took = disk.log + request * disk.byte;
                disk.auto.note_home_writes(
                    &TimedWrites { writes: 1, bytes: request, nanoseconds: took },
                    true,
                );
                disk.works(took);
                disk.auto.data_sync_answered(began, disk.now);
            }
        }
        if logged.bytes > 0 {
            let took = disk.log + logged.bytes * disk.byte;
            disk.works(took);
            let log = TimedWrites { writes: 1, bytes: logged.bytes, nanoseconds: took };
            let cost = CommitCost { log, waited: true, durable: true, ..CommitCost::default() };
            disk.auto.committed(disk.now, disk.busy, &cost);
            let took = disk.later + logged.bytes * disk.byte;
            disk.auto.note_home_writes(
                &TimedWrites { writes: 1, bytes: logged.bytes, nanoseconds: took },
                false,
            );
            disk.works(took);
        }
    }

    #[test]
    fn what_needs_no_commit_at_home_is_logged_if_many_share_one() {
        for times in [DISK, SSD] {
            let mut disk = World::new(times, 1);
            for (writers, is_logged) in [(1, false), (16, true), (1, false)] {
                for _ in 0..600 {
                    overwrite_and_sync(&mut disk, 8 << 10, writers);
                }
                assert_eq!(disk.auto.present() > 8 << 10, is_logged, "{writers}: {:?}", disk.auto);
            }
        }
    }

    #[test]
    fn what_nobody_waits_for_is_not_logged() {
        let mut disk = World { waited: false, ..World::new(DISK, 10) };
        disk.commits(50, 16 << 10, 8, 0);
        assert_eq!(disk.auto.present(), SMALL, "{:?}", disk.auto);
        disk.waited = true;
        disk.commits(200, 16 << 10, 8, 0);
        assert!(disk.auto.present() > 16 << 10, "{:?}", disk.auto);
    }

    #[test]
    fn a_cache_that_takes_a_few_home_writes_at_once_fools_nobody_twice() {
        let mut disk = World { cached: Some(10), ..World::new(DISK, 10) };
        let at_home = (0..2000).filter(|_| {
            disk.commit(16 << 10, 60, 0);
            disk.auto.present() <= 16 << 10
        });
        assert!(at_home.count() <= 1, "{:?}", disk.auto);
    }

    #[test]
    fn trials_become_rare_where_they_change_nothing() {
        let mut disk = World { spare: 1_000_000_000, ..World::new(DISK, 10) };
        disk.commits(1000, 16 << 10, 60, 0);
        assert!((5..=20).contains(&disk.trials), "{} trials", disk.trials);
    }

    #[test]
    fn the_same_observations_give_the_same_thresholds() {
        let play = || {
            let mut disk = World::new(DISK, 10);
            let rng = units::SplitMix::new(7);
            (0..500)
                .map(|_| {
                    let (request, count) = (4096 << rng.below(8), 1 + rng.below(20));
                    disk.commit(request, count, rng.below(count));
                    disk.auto.present()
                })
                .collect::<Vec<_>>()
        };
        assert_eq!(play(), play());
    }

    /// No observation leads beyond the bounds, or to no number.
    #[test]
    fn no_observation_leads_beyond_the_bounds() {
        let (auto, rng) = (AutoThreshold::default(), units::SplitMix::new(3));
        for step in 0..5000 {
            let any =
                || 1u64.checked_shl(rng.below(64) as u32).map_or(0, |most| rng.below(most.max(1)));
            let took = || TimedWrites { writes: any(), bytes: any(), nanoseconds: any() };
            auto.updated(any(), any(), rng.below(2) == 0);
            auto.note_home_writes(&took(), rng.below(2) == 0);
            auto.committed(
                Instant(any()),
                Duration::from_nanos(any()),
                &CommitCost { home: took(), log: took(), waited: true, durable: rng.below(2) == 0 },
            );
            auto.data_sync_requested(Instant(any()));
            auto.data_sync_answered(Instant(any()), Instant(any()));
            assert!((SMALL..=LARGE).contains(&auto.present()), "step {step}: {auto:?}");
        }
    }
}
