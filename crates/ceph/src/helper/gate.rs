//! Recalls that are not answered to the servers yet.
//!
//! The library answers a recall by itself, and reports with that the attributes which it holds
//! back: size, time and number, before any content. Right before, it calls back, with its one lock
//! held. Delaying that call delays the answer, and every other call.
//!
//! 1. The answer is kept until the daemon reports that the states are in its journal. Where nothing
//!    was changed it is not kept. A daemon that says nothing loses the connection when the time for
//!    the recall has passed ([`super::recalls`]).
//! 2. A daemon that dies during that time ends this process, too. The servers then have no report.
//! 3. The thread that reads the socket may be in a call that is kept. So the stand-in takes over
//!    the post at once.

use super::post::Post;
use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

pub struct Gate {
    /// Whether the answer may be sent, by the number of the grant.
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

    /// Reports the recall by `notify`, and returns when it may be answered. The library's lock is
    /// held.
    pub fn keep(&self, number: u64, notify: impl FnOnce()) {
        self.lock().insert(number, false);
        self.post.hold_up();
        notify();
        let mut kept = self.lock();
        while kept.get(&number) == Some(&false) && !units::fault!("ceph-recall-not-kept") {
            kept = self.changed.wait(kept).unwrap_or_else(PoisonError::into_inner);
        }
        kept.remove(&number);
        drop(kept);
        self.post.go_on();
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
    use std::time::Duration;

    #[test]
    fn an_answer_waits_for_its_gate() {
        let gate = Arc::new(Gate::new(Arc::default()));
        let (notify, reported) = mpsc::channel();
        for number in [1, 2] {
            let (gate, notify) = (gate.clone(), notify.clone());
            std::thread::spawn(move || {
                gate.keep(number, || notify.send(0).unwrap());
                notify.send(number).unwrap();
            });
        }
        let patience = Duration::from_secs(60);
        let next = || reported.recv_timeout(patience).unwrap();
        assert_eq!([next(), next()], [0, 0]);
        for number in [2, 1] {
            assert!(gate.keeps_any() && gate.keeps(number));
            gate.open(number);
            assert_eq!(next(), number);
        }
        assert!(!gate.keeps_any());
        // An early acknowledgement is not forgotten.
        gate.keep(3, || gate.open(3));
        gate.open(3);
        assert!(gate.lock().is_empty());
    }
}
