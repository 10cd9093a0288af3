//! The time for which a note says that a file is being brought to a state. Changes of the file
//! within it count as the writer's, if the writer dies.

use std::io;
use std::ops::Range;
use std::time::{Duration, Instant, SystemTime};

/// Initial validity of a note, and the part of it that must be left before the file changes.
const NOTED: Duration = Duration::from_secs(2);
const RENEWED: Duration = Duration::from_secs(1);

/// Some file systems store times in units of two seconds.
const TIMES_DIFFER_MAX: Duration = Duration::from_secs(2);

/// The period in which a change is in flight. The clock of the day gives the times of change, and
/// may be set; the other one is never set, and stands still while the machine sleeps.
#[derive(Clone, Copy)]
pub(super) struct InFlight {
    ends: Instant,
    from: SystemTime,
    until: SystemTime,
    /// Time since the beginning of the note.
    time: Duration,
}

pub(super) fn clocks() -> (Instant, SystemTime) {
    (Instant::now(), SystemTime::now())
}

impl InFlight {
    /// Returns a time of which enough is left for the next change of the file: `current`, or one
    /// that `write` has noted durably. That may take longer than the noted time.
    pub fn renewed(
        current: Option<InFlight>,
        clocks: impl Fn() -> (Instant, SystemTime),
        mut write: impl FnMut(Range<SystemTime>) -> io::Result<()>,
    ) -> io::Result<InFlight> {
        // A disk that took long takes long again.
        let first = current.map_or(NOTED, |current| current.time);
        let (mut current, mut time) = (current, first);
        loop {
            let (now, day) = clocks();
            match current {
                Some(current) if current.left(now, day) >= RENEWED => return Ok(current),
                Some(current) if time > first && units::fault!("store-note-expired") => {
                    return Ok(current);
                }
                _ => {}
            }
            // The file may have been changed in all of the time before, too.
            let (mut from, mut until) = (day - TIMES_DIFFER_MAX, day + time);
            if let Some(former) = current {
                (from, until) = (from.min(former.from), until.max(former.until));
            }
            write(from..until)?;
            current = Some(InFlight { ends: now + time, from, until, time });
            time *= 2;
        }
    }
    fn left(&self, now: Instant, day: SystemTime) -> Duration {
        let is_set_back = day < self.from;
        let left = if is_set_back { None } else { self.until.duration_since(day).ok() };
        left.unwrap_or_default().min(self.ends.saturating_duration_since(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::{Cell, RefCell};

    #[test]
    fn enough_is_left_whatever_a_note_takes() {
        let seconds = Duration::from_secs;
        let (began, day) = clocks();
        let [awake, asleep] = [(); 2].map(|()| Cell::new(Duration::ZERO));
        let (takes, written) = (Cell::new(seconds(3)), RefCell::new(Vec::new()));
        let renewed = |current| {
            let clocks = || (began + awake.get(), day + awake.get() + asleep.get());
            let renewed = InFlight::renewed(current, clocks, |times| {
                assert_eq!(times.start, day - TIMES_DIFFER_MAX, "as the first began");
                written.borrow_mut().push(times.end.duration_since(day).unwrap());
                awake.set(awake.get() + takes.get());
                Ok(())
            });
            let renewed = renewed.unwrap();
            let (now, day) = clocks();
            assert!(renewed.left(now, day) >= RENEWED, "{:?}", written.borrow());
            Some(renewed)
        };
        let first = renewed(None);
        assert_eq!(written.take(), [seconds(2), seconds(3 + 4)]);
        let second = renewed(first);
        assert_eq!(written.take(), []);
        // The machine sleeps.
        takes.set(seconds(0));
        asleep.set(seconds(60));
        let third = renewed(second);
        assert_eq!(written.take(), [seconds(60 + 6 + 4)]);
        awake.set(awake.get() + seconds(1));
        renewed(third);
        assert_eq!(written.take(), []);
    }
}
