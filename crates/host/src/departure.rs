//! Asks the store, after an unlink was answered, how many names the file has left. If none, its
//! dirty bytes are dropped.
//!
//! 1. Only the store knows. On Ceph the question makes the metadata server write its journal and
//!    wait for that, so the questions of a while are sent together: one write serves them all.
//! 2. The file's lock is held until the answer: the file is neither written nor destaged.
//! 3. The number of waiting files is bounded. Beyond half of the bound, or when the journal is
//!    short, questions are sent at once. At the bound unlinks wait. A file that the store does not
//!    answer for counts no longer after a while.

use crate::departures::Departure;
use crate::destage::{DESTAGE_MAX, Work, at_once};
use crate::files::File;
use crate::host::Host;
use runtime::race;
use runtime::sync::WriteGuard;
use std::rc::Rc;
use std::time::Duration;

/// Time for which a question waits for others to join it.
const WHILE: Duration = Duration::from_secs(1);
/// Questions sent at once; leaves threads of the store for other requests.
const QUESTIONS: usize = 16;

impl Host {
    pub(crate) async fn add_departure(&self, file: Rc<File>, settled: WriteGuard) {
        let bytes = file.held_bytes();
        let may = || (self.departures.has_space(bytes) || self.check().is_err()).then_some(());
        self.departures.changed.until(may).await;
        if self.check().is_ok() {
            self.departures.add(Departure { file, settled, bytes });
        }
    }

    pub(crate) async fn follow_departures(self: Rc<Self>) {
        let _busy = self.busy();
        let (departures, log) = (&self.departures, self.log());
        let is_over = || self.closed.get() || self.check().is_err();
        loop {
            let some = departures.changed.until(|| (!departures.is_empty()).then_some(()));
            race(some, self.ended.until(|| is_over().then_some(()))).await;
            if is_over() {
                break;
            }
            let no_longer = departures.changed.until(|| {
                (departures.is_half_full() || self.closing.get() || self.check().is_err())
                    .then_some(())
            });
            // Waiting files hold the tail of a journal that is short.
            let no_longer = race(no_longer, log.until_short());
            race(self.world.sleep_until(self.world.now().plus(WHILE)), no_longer).await;
            let work = departures.take().into_iter().map(|one| self.follow(one));
            at_once(work.collect(), QUESTIONS).await;
        }
        // After a lost connection the recovery takes care of these files.
        departures.take().iter().for_each(|one| departures.end(one.bytes));
    }

    /// Asks for one file in a task of its own: one that the store does not answer for counts no
    /// longer after a while, and the others go on.
    fn follow(self: &Rc<Self>, Departure { file, settled, bytes }: Departure) -> Work<'_> {
        Box::pin(async move {
            let (host, one) = (self.clone(), file.clone());
            let followed = self.bounded(async move {
                let _busy = host.busy();
                one.destaging.set(Some(host.world.now()));
                // Errors are recorded with the connection, or the records stay until the file is
                // destaged.
                let _ = host.follow_name(one.clone(), settled).await;
                one.destaging.set(None);
                host.note_not_stuck(&one);
            });
            if followed.await.is_none() {
                self.note_stuck(&file, DESTAGE_MAX);
            }
            // The task could not, beside this reference.
            self.files.forget(&file);
            self.departures.end(bytes);
            Ok(())
        })
    }
}
