//! Decides whether to poll before sleeping. Waking a sleeping processor takes longer than most
//! waits: a request's round trip is half a wake-up. But polling takes the processor from others, so
//! it must be worthwhile.
//!
//! 1. Short waits give credit, polls in vain take it. Without credit nobody polls: an idle world
//!    makes a few polls and then none.
//! 2. Replies of a disk and requests of others have credit of their own, and limits of their own.
//! 3. While polling, the processor is offered to others (sched_yield). Where another thread took it
//!    for longer than a poll may last, polling stops for a while, and for twice as long each time.
//!    Worthwhile polls shorten that little by little. A thread that takes it for less is mostly one
//!    that is waited for: a client that makes its next request, a kernel thread that carries out a
//!    write.
//! 4. On a single processor polling would delay the very threads that are waited for: never.

use std::cell::Cell;
use std::time::Duration;
use units::Instant;

/// Default of the longest poll for requests. The next of a busy program comes within 20 to 100 us.
pub const POLL_DEFAULT: Duration = Duration::from_micros(150);
/// Longest poll for an answer that is expected soon: a few flushes of a fast disk.
const ANSWER_MAX: Duration = Duration::from_micros(400);
/// Cost of a poll in vain, in short waits.
const COST: u32 = 8;
const CREDIT_MAX: u32 = 4 * COST;
/// Polls in a row after which others are kept awake: to keep them awake, and to let them sleep
/// again, costs as much as some wake-ups.
const ROW: u32 = 32;
/// Pause of polling after a lost processor, the first one and the longest.
const PAUSE_MIN: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_secs(10);
/// Number of worthwhile polls that make up for one that lost the processor: it comes back after
/// milliseconds.
const PAID_FOR: u32 = 64;

/// Reason why a wait ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ended {
    /// Something was there already, or no wait was requested.
    AtOnce,
    Completion,
    /// The next timer expired, or a signal came.
    Timer,
    /// Polling ended because others needed the processor. The wait goes on asleep.
    Contended,
}

/// Event that is waited for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Expected {
    /// A request, which may come at any time.
    Request,
    /// An answer that is expected within microseconds.
    Answer,
}

pub(crate) struct Polling {
    /// Longest poll; zero: never.
    limit: Cell<Duration>,
    requests: Cell<u32>,
    answers: Cell<u32>,
    /// Worthwhile polls since the last sleep.
    row: Cell<u32>,
    pause_until: Cell<Instant>,
    pause: Cell<Duration>,
}

impl Polling {
    pub fn new(processors: usize) -> Polling {
        Polling {
            limit: Cell::new(if processors > 1 { POLL_DEFAULT } else { Duration::ZERO }),
            requests: Cell::new(0),
            answers: Cell::new(0),
            row: Cell::new(0),
            pause_until: Cell::new(Instant(0)),
            pause: Cell::new(PAUSE_MIN),
        }
    }

    /// Sets the longest poll, where polling makes sense at all; zero turns it off.
    pub fn limit_to(&self, limit: Duration) {
        if !self.limit.get().is_zero() {
            self.limit.set(limit);
        }
    }

    fn limit_of(&self, expected: Expected) -> Duration {
        match expected {
            Expected::Answer if !self.limit.get().is_zero() => ANSWER_MAX.max(self.limit.get()),
            _ => self.limit.get(),
        }
    }
    fn credit_of(&self, expected: Expected) -> &Cell<u32> {
        match expected {
            Expected::Request => &self.requests,
            Expected::Answer => &self.answers,
        }
    }

    /// Returns how long to poll now; zero: sleep at once.
    pub fn window(&self, expected: Expected, now: Instant) -> Duration {
        if self.credit_of(expected).get() < COST || now < self.pause_until.get() {
            return Duration::ZERO;
        }
        self.limit_of(expected)
    }

    /// Whether enough polls were worthwhile, without a sleep between them, to keep the processors
    /// awake that are waited for.
    pub fn is_worthwhile(&self) -> bool {
        self.row.get() >= ROW
    }

    /// Records a wait that took `waited` until `now`, of which up to `window` awake.
    pub fn learn(
        &self,
        expected: Expected,
        ended: Ended,
        waited: Duration,
        window: Duration,
        now: Instant,
    ) {
        let credit = self.credit_of(expected);
        let is_short = waited <= self.limit_of(expected);
        if ended != Ended::AtOnce {
            let paid = ended == Ended::Completion && is_short && !window.is_zero();
            self.row.set(if paid { self.row.get().saturating_add(1) } else { 0 });
        }
        match ended {
            Ended::Completion if is_short => {
                credit.set((credit.get() + 1).min(CREDIT_MAX));
                if !window.is_zero() {
                    let pause = self.pause.get();
                    self.pause.set((pause - pause / PAID_FOR).max(PAUSE_MIN));
                }
            }
            Ended::Contended => {
                self.pause_until.set(now.plus(self.pause.get()));
                self.pause.set((self.pause.get() * 2).min(PAUSE_MAX));
            }
            Ended::Completion | Ended::Timer if !is_short && !window.is_zero() => {
                credit.set(credit.get().saturating_sub(COST));
            }
            // A timer that expired soon shows nothing, and a long sleep cost nothing.
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Expected::{Answer, Request};

    const SHORT: Duration = Duration::from_micros(30);
    const LONG: Duration = Duration::from_millis(3);

    struct Machine {
        polling: Polling,
        now: Instant,
        polled: u32,
    }
    impl Machine {
        fn new(processors: usize) -> Machine {
            Machine { polling: Polling::new(processors), now: Instant(1), polled: 0 }
        }
        fn wait(&mut self, expected: Expected, takes: Duration, contended: bool) {
            let window = self.polling.window(expected, self.now);
            self.polled += u32::from(!window.is_zero());
            self.now = self.now.plus(takes);
            let ended =
                if contended && !window.is_zero() { Ended::Contended } else { Ended::Completion };
            self.polling.learn(expected, ended, takes, window, self.now);
        }
        fn waits(&mut self, count: u32, takes: Duration) -> u32 {
            let before = self.polled;
            (0..count).for_each(|_| self.wait(Request, takes, false));
            self.polled - before
        }
    }

    #[test]
    fn polling_begins_with_requests_that_follow_each_other_closely() {
        let mut machine = Machine::new(2);
        assert_eq!(machine.waits(1000, LONG), 0, "rare requests");
        assert_eq!(machine.waits(COST, SHORT), 0, "no credit yet");
        assert_eq!(machine.waits(1000, SHORT), 1000);
        assert_eq!(machine.waits(1000, LONG), CREDIT_MAX / COST, "idle: a few polls, then none");
    }

    #[test]
    fn others_are_kept_awake_after_many_short_waits_and_not_after_a_long_one() {
        let mut machine = Machine::new(2);
        assert_eq!(machine.waits(COST + ROW - 1, SHORT), ROW - 1);
        assert!(!machine.polling.is_worthwhile());
        machine.waits(1, SHORT);
        assert!(machine.polling.is_worthwhile());
        machine.wait(Answer, LONG, false);
        assert!(!machine.polling.is_worthwhile(), "it slept, with as much credit as before");
        machine.waits(ROW, SHORT);
        assert!(machine.polling.is_worthwhile());
    }

    #[test]
    fn pairs_of_requests_are_hardly_worth_a_poll() {
        let mut machine = Machine::new(2);
        for _ in 0..1000 {
            machine.waits(1, SHORT);
            machine.waits(1, LONG);
        }
        assert!(machine.polled <= 2 * 1000 / COST, "{}", machine.polled);
    }

    #[test]
    fn a_slow_disk_is_not_polled_while_requests_are() {
        let mut machine = Machine::new(2);
        machine.waits(100, SHORT);
        for _ in 0..100 {
            assert_eq!(machine.waits(1, SHORT), 1);
            let before = machine.polled;
            machine.wait(Answer, LONG, false);
            assert_eq!(machine.polled, before);
        }
    }

    #[test]
    fn who_needs_the_processor_gets_it() {
        let mut machine = Machine::new(2);
        machine.waits(100, SHORT);
        let mut contended = 0;
        let end = machine.now.plus(Duration::from_secs(60));
        while machine.now < end {
            let before = machine.polled;
            machine.wait(Request, SHORT, true);
            contended += machine.polled - before;
        }
        assert!(contended < 20, "polled {contended} times within a minute");
        machine.now = machine.now.plus(PAUSE_MAX);
        assert_eq!(machine.waits(10, SHORT), 10, "the others are gone");
    }

    #[test]
    fn polling_is_rare_on_a_machine_that_is_often_contended() {
        let mut machine = Machine::new(2);
        machine.waits(100, SHORT);
        let mut contended = 0;
        let end = machine.now.plus(Duration::from_secs(60));
        while machine.now < end {
            let polls = !machine.polling.window(Request, machine.now).is_zero();
            let is_contended = polls && machine.polled % 10 == 0;
            contended += u32::from(is_contended);
            machine.wait(Request, SHORT, is_contended);
        }
        assert!(contended < 60, "lost the processor {contended} times within a minute");
    }

    #[test]
    fn nothing_polls_on_a_single_processor_or_where_it_is_forbidden() {
        let forbidden = Machine::new(2);
        forbidden.polling.limit_to(Duration::ZERO);
        let single = Machine::new(1);
        single.polling.limit_to(LONG);
        for mut machine in [forbidden, single] {
            assert_eq!(machine.waits(100, SHORT), 0);
            (0..100).for_each(|_| machine.wait(Answer, SHORT, false));
            assert_eq!(machine.polled, 0);
        }
    }
}
