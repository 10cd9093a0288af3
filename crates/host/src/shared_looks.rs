//! Looks at the same thing that wait at the same time ask the store once.
//!
//! 1. A look counts only for those who came before it began. So they see whatever was changed until
//!    they came.
//! 2. Who comes while one is under way waits for its end. Then one of those who wait begins the
//!    next, for all of them.
//! 3. Whoever has begun a look may be dropped; another of those who wait begins anew.

use runtime::sync::Event;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

pub(crate) struct SharedLooks<K: Ord, T> {
    asked: RefCell<BTreeMap<K, Rc<Asked<T>>>>,
}
impl<K: Ord, T> Default for SharedLooks<K, T> {
    fn default() -> SharedLooks<K, T> {
        SharedLooks { asked: RefCell::default() }
    }
}

/// What somebody looks at, or waits to.
struct Asked<T> {
    /// How many looks have begun.
    begun: Cell<u64>,
    is_under_way: Cell<bool>,
    /// Which look the last answer is of.
    answer: RefCell<Option<(u64, T)>>,
    changed: Event,
}

impl<K: Ord + Clone, T: Clone> SharedLooks<K, T> {
    pub async fn look(&self, at: K, ask: impl AsyncFnOnce() -> T) -> T {
        let user = User::of(self, at);
        let asked = &user.asked;
        let first = asked.begun.get() + u64::from(!units::fault!("host-look-under-way"));
        let told = asked.changed.until(|| match &*asked.answer.borrow() {
            Some((number, answer)) if *number >= first => Some(Some(answer.clone())),
            _ if asked.is_under_way.get() => None,
            _ => {
                asked.is_under_way.set(true);
                Some(None)
            }
        });
        if let Some(answer) = told.await {
            return answer;
        }
        let under_way = UnderWay(asked);
        let number = asked.begun.get() + 1;
        asked.begun.set(number);
        let answer = ask().await;
        if Rc::strong_count(asked) > ALONE {
            asked.answer.replace(Some((number, answer.clone())));
        }
        drop(under_way);
        answer
    }
}

/// References to what nobody else looks at: the table's and the user's.
const ALONE: usize = 2;

/// The last one takes it out of the table.
struct User<'a, K: Ord, T> {
    looks: &'a SharedLooks<K, T>,
    at: K,
    asked: Rc<Asked<T>>,
}
impl<'a, K: Ord + Clone, T> User<'a, K, T> {
    fn of(looks: &'a SharedLooks<K, T>, at: K) -> User<'a, K, T> {
        let fresh = || {
            Rc::new(Asked {
                begun: Cell::new(0),
                is_under_way: Cell::new(false),
                answer: RefCell::new(None),
                changed: Event::default(),
            })
        };
        let asked = looks.asked.borrow_mut().entry(at.clone()).or_insert_with(fresh).clone();
        User { looks, at, asked }
    }
}
impl<K: Ord, T> Drop for User<'_, K, T> {
    fn drop(&mut self) {
        if Rc::strong_count(&self.asked) == ALONE {
            self.looks.asked.borrow_mut().remove(&self.at);
        }
    }
}

/// A look, until it has ended or was dropped.
struct UnderWay<'a, T>(&'a Asked<T>);
impl<T> Drop for UnderWay<'_, T> {
    fn drop(&mut self) {
        self.0.is_under_way.set(false);
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
        looks: SharedLooks<u32, u64>,
        value: Cell<u64>,
        asked: Cell<u64>,
    }
    impl Stage {
        async fn sleep(&self, time: u64) {
            self.world.sleep_until(self.world.now().plus(Duration::from_micros(time))).await;
        }
        /// As the store does it: the answer is as of some moment while the look is under way.
        async fn look(&self) -> u64 {
            let ask = async || {
                self.asked.set(self.asked.get() + 1);
                self.sleep(self.world.random() % 50).await;
                let value = self.value.get();
                self.sleep(self.world.random() % 50).await;
                value
            };
            self.looks.look(7, ask).await
        }
        async fn look_often(&self, seed: u64) {
            for _ in 0..OFTEN {
                self.sleep(self.world.random() % 100).await;
                let before = self.value.get();
                let seen = self.look().await;
                assert!(seen >= before, "seed {seed}: {seen} seen, {before} was there before");
            }
        }
    }
    fn run<F: Future<Output = ()> + 'static>(seed: u64, work: impl FnOnce(Rc<Stage>) -> F) {
        let world = VirtualWorld::new(seed);
        let (looks, value, asked) = (SharedLooks::default(), Cell::new(0), Cell::new(0));
        world.run(work(Rc::new(Stage { world: world.clone(), looks, value, asked })));
    }

    #[test]
    fn a_look_sees_what_was_changed_before_it_came() {
        for seed in 0..200 {
            run(seed, async move |stage| {
                let lookers: Vec<_> = (0..6)
                    .map(|_| {
                        let stage = stage.clone();
                        spawn_with_result(&stage.clone().world, async move {
                            stage.look_often(seed).await
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
                assert!(stage.looks.asked.borrow().is_empty(), "seed {seed}: something is left");
                assert!(stage.asked.get() < 6 * OFTEN, "seed {seed}: nobody shared a look");
            });
        }
    }

    #[test]
    fn those_who_wait_for_a_look_share_the_next() {
        run(1, async |stage| {
            let look = || {
                let stage = stage.clone();
                spawn_with_result(&stage.clone().world, async move { stage.look().await })
            };
            let lookers: Vec<_> = (0..16).map(|_| look()).collect();
            for looker in lookers {
                looker.await.unwrap();
            }
            assert_eq!(stage.asked.get(), 2);
        });
    }

    #[test]
    fn a_look_that_is_dropped_leaves_those_who_wait_to_look() {
        run(1, async |stage| {
            let waits = stage.clone();
            let waiting = spawn_with_result(&stage.world, async move {
                waits.sleep(1).await;
                waits.look().await
            });
            let Either::Right(()) = race(stage.look(), stage.sleep(2)).await else {
                panic!("it was too fast")
            };
            assert_eq!(waiting.await, Some(0));
            assert!(stage.looks.asked.borrow().is_empty());
        });
    }
}
