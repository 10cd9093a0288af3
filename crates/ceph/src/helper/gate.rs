//! Recalls that the servers have no answer to yet.
//!
//! The library answers a recall by itself, and tells with that the attributes which it holds back: size, time and number, before
//! any content. Right before, it calls back, with its one lock held. Whoever keeps that call keeps the answer, and every other call.
//!
//! 1. It is kept until the daemon says that the states are in its journal: another client waits. Where nothing was changed it is
//!    not kept.
//! 2. An answer without that is never given: after a crash its states would count as another's. If it lasts, this process ends.
//!    The session must not end before: the library cannot renew it meanwhile.
//! 3. A daemon that dies meanwhile takes this process along. The servers have heard of nothing then.
//! 4. Whoever reads the socket may be in a call that is kept. So the stand-in has his post at once.

use super::post::Post;
use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// What an answer waited for did not come.
#[derive(PartialEq, Eq, Debug)]
pub struct Unacknowledged;

pub struct Gate {
    /// By the number of the grant: whether the answer may go.
    kept: Mutex<BTreeMap<u64, bool>>,
    changed: Condvar,
    post: Arc<Post>,
}

impl Gate {
    pub fn new(post: Arc<Post>) -> Gate {
        Gate { kept: Mutex::default(), changed: Condvar::new(), post }
    }
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, bool>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells others of the recall by `tell`, and returns when it may be answered. The library's lock is held.
    pub fn keep(&self, number: u64, patience: Duration, tell: impl FnOnce()) -> Result<(), Unacknowledged> {
        self.lock().insert(number, false);
        self.post.hold_up();
        tell();
        let until = Instant::now() + patience;
        let mut kept = self.lock();
        while kept.get(&number) == Some(&false) && Instant::now() < until {
            let patience = until.saturating_duration_since(Instant::now());
            kept = self.changed.wait_timeout(kept, patience).unwrap_or_else(PoisonError::into_inner).0;
        }
        let may_go = kept.remove(&number) == Some(true);
        drop(kept);
        self.post.go_on();
        if may_go { Ok(()) } else { Err(Unacknowledged) }
    }
    pub fn open(&self, number: u64) {
        if let Some(may_go) = self.lock().get_mut(&number) {
            *may_go = true;
            self.changed.notify_all();
        }
    }
    /// Calls of the library wait.
    pub fn keeps_any(&self) -> bool {
        self.lock().values().any(|may_go| !may_go)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    const PATIENCE: Duration = Duration::from_secs(60);

    #[test]
    fn an_answer_is_kept_until_its_own_gate_opens() {
        let gate = Arc::new(Gate::new(Arc::default()));
        let (tell, told) = mpsc::channel();
        for number in [1, 2] {
            let (gate, tell) = (gate.clone(), tell.clone());
            std::thread::spawn(move || {
                gate.keep(number, PATIENCE, || tell.send(0).unwrap()).unwrap();
                tell.send(number).unwrap();
            });
        }
        assert_eq!([told.recv_timeout(PATIENCE), told.recv_timeout(PATIENCE)], [Ok(0), Ok(0)]);
        assert!(gate.keeps_any());
        gate.open(2);
        assert_eq!(told.recv_timeout(PATIENCE), Ok(2));
        assert!(gate.keeps_any());
        gate.open(1);
        assert_eq!(told.recv_timeout(PATIENCE), Ok(1));
        assert!(!gate.keeps_any());
        // What is told early is not forgotten.
        assert_eq!(gate.keep(3, Duration::ZERO, || gate.open(3)), Ok(()));
        gate.open(3);
        assert!(gate.lock().is_empty());
    }

    #[test]
    fn an_answer_that_nobody_acknowledges_is_refused_and_not_kept_for_ever() {
        let gate = Gate::new(Arc::default());
        assert_eq!(gate.keep(1, Duration::from_millis(5), || gate.open(2)), Err(Unacknowledged));
        assert!(!gate.keeps_any());
    }
}
