//! The post of the one thread that reads the socket, and its stand-in.
//!
//! 1. The thread that has the post may make a call of its own. Calls that are usually short may
//!    still wait: for another client, which waits for a request that nobody reads during that time.
//! 2. So a call that lasts costs its thread the post: after two checks the stand-in takes it, and
//!    another thread stands in.
//! 3. Where calls are known to wait ([`super::gate`]), the stand-in does not check twice.
//! 4. Each check costs a wake-up. Where no calls are made the stand-in sleeps, and the next call
//!    wakes it.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Interval between two checks.
pub const CHECK_INTERVAL: Duration = Duration::from_millis(2);
/// Checks without a call before the stand-in sleeps.
const QUIET: u32 = 50;

#[derive(Default)]
pub struct Post {
    state: Mutex<State>,
    /// Set when the stand-in is wanted again.
    begun: Condvar,
}

#[derive(Default)]
struct State {
    /// Number of calls begun, or taken from their threads.
    calls: u64,
    in_call: bool,
    sleeps: bool,
    /// Number of recalls that keep every call.
    held_up: usize,
}

/// A call of the thread that has the post.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Call(u64);

impl Post {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn begin(&self) -> Call {
        let mut state = self.lock();
        state.calls += 1;
        state.in_call = true;
        if std::mem::take(&mut state.sleeps) || state.held_up > 0 {
            self.begun.notify_one();
        }
        Call(state.calls)
    }
    /// States that calls wait from now on, also a running one.
    pub fn hold_up(&self) {
        let mut state = self.lock();
        state.held_up += 1;
        state.sleeps = false;
        self.begun.notify_one();
    }
    pub fn go_on(&self) {
        self.lock().held_up -= 1;
    }
    /// Ends a call. Returns false if another thread has the post by now.
    pub fn end(&self, call: Call) -> bool {
        let mut state = self.lock();
        let has_post = Call(state.calls) == call;
        if has_post {
            state.in_call = false;
        }
        has_post
    }

    /// Waits until the post is the caller's.
    pub fn stand_in(&self) {
        let (mut state, mut quiet) = (self.lock(), 0);
        loop {
            let seen = state.calls;
            let look = self
                .begun
                .wait_timeout(state, CHECK_INTERVAL)
                .unwrap_or_else(PoisonError::into_inner);
            state = look.0;
            let is_waiting = state.in_call && state.held_up > 0;
            if state.calls != seen && !is_waiting {
                quiet = 0;
            } else if (is_waiting || state.in_call && look.1.timed_out())
                && !units::fault!("ceph-reader-not-relieved")
            {
                state.calls += 1;
                state.in_call = false;
                return;
            } else {
                quiet += 1;
            }
            if quiet > QUIET {
                state.sleeps = true;
                while state.sleeps {
                    state = self.begun.wait(state).unwrap_or_else(PoisonError::into_inner);
                }
                quiet = 0;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, mpsc};

    /// Reports when the post is its own.
    fn stand_in(post: &Arc<Post>) -> mpsc::Receiver<()> {
        let (post, (notify, reported)) = (post.clone(), mpsc::channel());
        std::thread::spawn(move || {
            post.stand_in();
            notify.send(()).unwrap();
        });
        reported
    }
    const PATIENCE: Duration = Duration::from_secs(60);

    #[test]
    fn a_call_that_lasts_loses_the_post_each_time() {
        let post = Arc::new(Post::default());
        for _ in 0..3 {
            let relieved = stand_in(&post);
            let call = post.begin();
            relieved.recv_timeout(PATIENCE).expect("nobody reads any more");
            assert!(!post.end(call));
        }
    }

    #[test]
    fn a_call_that_is_held_up_loses_the_post_and_later_ones_too() {
        let post = Arc::new(Post::default());
        for begins_before in [true, false] {
            let relieved = stand_in(&post);
            let call = begins_before.then(|| post.begin());
            post.hold_up();
            let call = call.unwrap_or_else(|| post.begin());
            relieved.recv_timeout(PATIENCE).expect("nobody reads any more");
            assert!(!post.end(call));
            post.go_on();
        }
    }

    #[test]
    fn short_calls_keep_the_post_and_one_after_a_long_quiet_may_lose_it() {
        let post = Arc::new(Post::default());
        let relieved = stand_in(&post);
        let begin = std::time::Instant::now();
        // Shorter than the interval, by a clock that may stand still; a thread that was away longer
        // learns of it.
        let mut lost = false;
        while begin.elapsed() < CHECK_INTERVAL * 20 && !lost {
            let since = std::time::Instant::now();
            let kept = post.end(post.begin());
            lost = !kept;
            assert!(kept || since.elapsed() >= CHECK_INTERVAL, "lost after {:?}", since.elapsed());
        }
        if !lost {
            std::thread::sleep(CHECK_INTERVAL * 3 * QUIET);
            let call = post.begin();
            relieved.recv_timeout(PATIENCE).expect("the stand-in sleeps on");
            assert!(!post.end(call));
        }
    }
}
