//! Recalls that are not answered to the servers yet.
//!
//! The library answers a recall by itself, and reports with that the attributes which it holds
//! back: size, time and number, before any content. Right before, it calls back, with its one lock
//! held. Delaying that call delays the answer, and every other call.
//!
//! 1. The answer is kept until the daemon reports that the states are in its journal, and a second
//!    at most: another client waits. Where nothing was changed it is not kept. That of a file which
//!    the daemon recovers is never sent unasked: the connection ends instead.
//! 2. A daemon that dies during that time ends this process, too. The servers then have no report.
//! 3. The thread that reads the socket may be in a call that is kept. So the stand-in takes over
//!    the post at once.

use super::post::Post;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

const KEPT_MAX: Duration = Duration::from_secs(1);
/// Time that a recovery has to record the states of a file.
const SHUT_MAX: Duration = Duration::from_secs(20);

pub struct Gate {
    /// Whether the answer may be sent, by the number of the grant.
    kept: Mutex<BTreeMap<u64, bool>>,
    /// Grants to a recovery.
    shut: Mutex<BTreeSet<u64>>,
    changed: Condvar,
    post: Arc<Post>,
}

impl Gate {
    pub fn new(post: Arc<Post>) -> Gate {
        Gate { kept: Mutex::default(), shut: Mutex::default(), changed: Condvar::new(), post }
    }
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, bool>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn shut_grants(&self) -> MutexGuard<'_, BTreeSet<u64>> {
        self.shut.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// Lets no recall of this grant be answered unasked.
    pub fn shut(&self, number: u64) {
        self.shut_grants().insert(number);
    }
    pub fn forget(&self, number: u64) {
        self.shut_grants().remove(&number);
    }

    /// Reports the recall by `notify`, and returns when it may be answered; false: its time has
    /// ended, and it must not be. The library's lock is held.
    #[must_use]
    pub fn keep(&self, number: u64, notify: impl FnOnce()) -> bool {
        self.lock().insert(number, false);
        self.post.hold_up();
        notify();
        let is_shut = self.shut_grants().contains(&number);
        let until = Instant::now() + if is_shut { SHUT_MAX } else { KEPT_MAX };
        let mut kept = self.lock();
        while kept.get(&number) == Some(&false)
            && Instant::now() < until
            && !units::fault!("ceph-recall-not-kept")
        {
            let patience = until.saturating_duration_since(Instant::now());
            kept =
                self.changed.wait_timeout(kept, patience).unwrap_or_else(PoisonError::into_inner).0;
        }
        let is_open = kept.remove(&number) == Some(true);
        drop(kept);
        self.post.go_on();
        is_open || !is_shut
    }
    pub fn open(&self, number: u64) {
        if let Some(may_go) = self.lock().get_mut(&number) {
            *may_go = true;
            self.changed.notify_all();
        }
    }
    /// Returns whether the recall of this grant is kept.
    pub fn keeps(&self, number: u64) -> bool {
        self.lock().contains_key(&number)
    }
    /// Returns whether calls of the library wait.
    pub fn keeps_any(&self) -> bool {
        self.lock().values().any(|may_go| !may_go)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn an_answer_waits_for_its_gate_and_not_for_ever() {
        let gate = Arc::new(Gate::new(Arc::default()));
        let (notify, reported) = mpsc::channel();
        for number in [1, 2] {
            let (gate, notify) = (gate.clone(), notify.clone());
            std::thread::spawn(move || {
                assert!(gate.keep(number, || notify.send(0).unwrap()));
                notify.send(number).unwrap();
            });
        }
        let patience = Duration::from_secs(60);
        assert_eq!(
            [reported.recv_timeout(patience), reported.recv_timeout(patience)],
            [Ok(0), Ok(0)]
        );
        assert!(gate.keeps_any());
        gate.open(2);
        assert_eq!(
            [reported.recv_timeout(patience), reported.recv_timeout(patience)],
            [Ok(2), Ok(1)]
        );
        assert!(!gate.keeps_any());
        // An early acknowledgement is not forgotten.
        assert!(gate.keep(3, || gate.open(3)));
        gate.open(3);
        assert!(gate.lock().is_empty());
    }
}
