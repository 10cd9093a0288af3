//! Limit on the parts of figures that are played at once, of one figure or of several.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex};

/// Slots for concurrent parts, whichever figure plays them. So runs of a figure side by side fill
/// each other's gaps, and never take more memory than that number of parts needs.
pub struct Jobs {
    all: usize,
    free: Mutex<usize>,
    freed: Condvar,
}

/// A slot, returned when it is dropped.
pub(crate) struct Job<'a>(&'a Jobs);

impl Jobs {
    /// Makes at least one slot.
    pub fn new(jobs: usize) -> Jobs {
        let all = jobs.max(1);
        Jobs { all, free: Mutex::new(all), freed: Condvar::new() }
    }
    /// Waits for a slot.
    pub(crate) fn begin(&self) -> Job<'_> {
        let free = self.free.lock().expect("nobody panics while holding it");
        let mut free =
            self.freed.wait_while(free, |free| *free == 0).expect("nobody panics while holding it");
        *free -= 1;
        Job(self)
    }
    /// Lends this slot while its owner waits for the result of another slot.
    pub(crate) fn lend<R>(&self, wait: impl FnOnce() -> R) -> R {
        self.end();
        let waited = wait();
        std::mem::forget(self.begin());
        waited
    }
    fn end(&self) {
        *self.free.lock().expect("nobody panics while holding it") += 1;
        self.freed.notify_one();
    }
    /// Returns the number of slots plus one: while one figure has too few parts left for all slots,
    /// two others have more.
    pub(crate) fn figures_at_once(&self) -> usize {
        self.all + 1
    }
    /// Runs [`side_by_side`] on as many threads as there are slots. It takes no slot: `one` does.
    pub(crate) fn side_by_side<R: Send>(
        &self,
        count: usize,
        one: impl Fn(usize) -> R + Sync,
    ) -> Vec<R> {
        side_by_side(self.all, count, one)
    }
}

/// Returns `count` values in their order.
pub(crate) fn side_by_side<R: Send>(
    threads: usize,
    count: usize,
    one: impl Fn(usize) -> R + Sync,
) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let done = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..threads.min(count) {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    if index >= count {
                        return;
                    }
                    let value = one(index);
                    done.lock().expect("nobody panics while holding it").push((index, value));
                }
            });
        }
    });
    let mut done = done.into_inner().expect("all threads ended well");
    done.sort_by_key(|(index, _)| *index);
    done.into_iter().map(|(_, value)| value).collect()
}

impl Drop for Job<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_side_by_side_share_their_places_and_keep_their_order() {
        let jobs = Jobs::new(2);
        let (at_once, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let part = |part: usize| {
            let _job = jobs.begin();
            most.fetch_max(at_once.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            std::thread::yield_now();
            at_once.fetch_sub(1, Ordering::SeqCst);
            part
        };
        let all = jobs.side_by_side(5, |outer| jobs.side_by_side(4, |at| part(outer * 4 + at)));
        assert_eq!(all.concat(), (0..20).collect::<Vec<_>>());
        assert!((1..=2).contains(&most.into_inner()));
    }
    #[test]
    fn a_place_is_lent_while_its_owner_waits() {
        let jobs = Jobs::new(1);
        let (sender, receiver) = std::sync::mpsc::channel();
        let jobs = &jobs;
        let waits = move |receiver: std::sync::mpsc::Receiver<u32>| {
            let _job = jobs.begin();
            jobs.lend(|| receiver.recv().unwrap())
        };
        let heard = std::thread::scope(|scope| {
            let waits = scope.spawn(move || waits(receiver));
            let job = jobs.begin();
            sender.send(7).unwrap();
            drop(job);
            waits.join().unwrap()
        });
        assert_eq!((heard, *jobs.free.lock().unwrap()), (7, 1));
    }
}
