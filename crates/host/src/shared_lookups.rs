//! Lookups of the same object that wait at the same time share one request to the store.
//!
//! 1. An answer counts only for callers that arrived before its request began. So they see every
//!    change made until they arrived.
//! 2. A caller that arrives while a request is in flight waits for its end. Then one of the waiting
//!    callers sends the next, for all of them.
//! 3. The caller that sent a request may be dropped; another waiting caller then sends a new one.

use runtime::sync::Event;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

pub(crate) struct SharedLookups<K: Ord, T> {
    asked: RefCell<BTreeMap<K, Rc<Asked<T>>>>,
}
impl<K: Ord, T> Default for SharedLookups<K, T> {
    fn default() -> SharedLookups<K, T> {
        SharedLookups { asked: RefCell::default() }
    }
}

/// The state of one object's lookups.
struct Asked<T> {
    /// Number of requests that have begun.
    begun: Cell<u64>,
    is_in_flight: Cell<bool>,
    /// The last answer, and the number of its request.
    answer: RefCell<Option<(u64, T)>>,
    changed: Event,
}

impl<K: Ord + Clone, T: Clone> SharedLookups<K, T> {
    pub async fn lookup(&self, at: K, ask: impl AsyncFnOnce() -> T) -> T {
        let user = User::of(self, at);
        let asked = &user.asked;
        let first = asked.begun.get() + u64::from(!units::fault!("host-lookup-in-flight"));
        let reported = asked.changed.until(|| match &*asked.answer.borrow() {
            Some((number, answer)) if *number >= first => Some(Some(answer.clone())),
            _ if asked.is_in_flight.get() => None,
            _ => {
                asked.is_in_flight.set(true);
                Some(None)
            }
        });
        if let Some(answer) = reported.await {
            return answer;
        }
        let in_flight = InFlight(asked);
        let number = asked.begun.get() + 1;
        asked.begun.set(number);
        let answer = ask().await;
        if Rc::strong_count(asked) > ALONE {
            asked.answer.replace(Some((number, answer.clone())));
        }
        drop(in_flight);
        answer
    }
}

/// References to an object that no other caller looks up: the table's and the user's.
const ALONE: usize = 2;

/// A caller of a lookup. The last one removes the object from the table.
struct User<'a, K: Ord, T> {
    lookups: &'a SharedLookups<K, T>,
    at: K,
    asked: Rc<Asked<T>>,
}
impl<'a, K: Ord + Clone, T> User<'a, K, T> {
    fn of(lookups: &'a SharedLookups<K, T>, at: K) -> User<'a, K, T> {
        let fresh = || {
            Rc::new(Asked {
                begun: Cell::new(0),
                is_in_flight: Cell::new(false),
                answer: RefCell::new(None),
                changed: Event::default(),
            })
        };
        let asked = lookups.asked.borrow_mut().entry(at.clone()).or_insert_with(fresh).clone();
        User { lookups, at, asked }
    }
}
impl<K: Ord, T> Drop for User<'_, K, T> {
    fn drop(&mut self) {
        if Rc::strong_count(&self.asked) == ALONE {
            self.lookups.asked.borrow_mut().remove(&self.at);
        }
    }
}

/// A request in flight, until it has ended or was dropped.
struct InFlight<'a, T>(&'a Asked<T>);
impl<T> Drop for InFlight<'_, T> {
    fn drop(&mut self) {
        self.0.is_in_flight.set(false);
        self.0.changed.notify();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use device::World;
    use runtime::{Either, VirtualWorld, race, spawn_with_result};
    use std::time::Duration;

    const OFTEN: u64 = 20;

    struct Stage {
        world: VirtualWorld,
        lookups: SharedLookups<u32, u64>,
        value: Cell<u64>,
        asked: Cell<u64>,
    }
    impl Stage {
        async fn sleep(&self, time: u64) {
            self.world.sleep_until(self.world.now().plus(Duration::from_micros(time))).await;
        }
        /// Looks up as the store does: the answer is as of some point while the request is in
        /// flight.
        async fn lookup(&self) -> u64 {
            let ask = async || {
                self.asked.set(self.asked.get() + 1);
                self.sleep(self.world.random() % 50).await;
                let value = self.value.get();
                self.sleep(self.world.random() % 50).await;
                value
            };
            self.lookups.lookup(7, ask).await
        }
        async fn lookup_often(&self, seed: u64) {
            for _ in 0..OFTEN {
                self.sleep(self.world.random() % 100).await;
                let before = self.value.get();
                let seen = self.lookup().await;
                assert!(seen >= before, "seed {seed}: {seen} seen, {before} was there before");
            }
        }
    }
    fn run<F: Future<Output = ()> + 'static>(seed: u64, work: impl FnOnce(Rc<Stage>) -> F) {
        let world = VirtualWorld::new(seed);
        let (lookups, value, asked) = (SharedLookups::default(), Cell::new(0), Cell::new(0));
        world.run(work(Rc::new(Stage { world: world.clone(), lookups, value, asked })));
    }

    #[test]
    fn a_lookup_sees_changes_made_before_it() {
        for seed in 0..200 {
            run(seed, async move |stage| {
                let lookers: Vec<_> = (0..6)
                    .map(|_| {
                        let stage = stage.clone();
                        spawn_with_result(&stage.clone().world, async move {
                            stage.lookup_often(seed).await
                        })
                    })
                    .collect();
                for number in 1..100 {
                    stage.sleep(10).await;
                    stage.value.set(number);
                }
                for looker in lookers {
                    looker.await.unwrap();
                }
                assert!(stage.lookups.asked.borrow().is_empty(), "seed {seed}: something is left");
                assert!(stage.asked.get() < 6 * OFTEN, "seed {seed}: nobody shared a lookup");
            });
        }
    }

    #[test]
    fn waiting_lookups_share_the_next_request() {
        run(1, async |stage| {
            let lookup = || {
                let stage = stage.clone();
                spawn_with_result(&stage.clone().world, async move { stage.lookup().await })
            };
            let lookers: Vec<_> = (0..16).map(|_| lookup()).collect();
            for looker in lookers {
                looker.await.unwrap();
            }
            assert_eq!(stage.asked.get(), 2);
        });
    }

    #[test]
    fn a_dropped_lookup_leaves_the_others_to_look_up() {
        run(1, async |stage| {
            let waits = stage.clone();
            let waiting = spawn_with_result(&stage.world, async move {
                waits.sleep(1).await;
                waits.lookup().await
            });
            let Either::Right(()) = race(stage.lookup(), stage.sleep(2)).await else {
                panic!("it was too fast")
            };
            assert_eq!(waiting.await, Some(0));
            assert!(stage.lookups.asked.borrow().is_empty());
        });
    }
}
