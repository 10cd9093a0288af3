//! How many names are left of a file, asked behind the answer to the unlink. If none is, what is
//! dirty of it is dropped.
//!
//! 1. Only the store knows. On Ceph this question has the metadata server write its journal, and
//!    waits for that. So it comes for all files of a while at once: one write serves them all.
//! 2. Until it is answered the file's lock is held: nobody writes the file, and it goes nowhere.
//! 3. What waits is bounded. Beyond half of it, or when the journal is short, nothing waits for
//!    others to come. Beyond all of it the unlinks wait.

use crate::departures::Departure;
use crate::destage::{Work, at_once};
use crate::files::File;
use crate::host::Host;
use runtime::race;
use runtime::sync::WriteGuard;
use std::rc::Rc;
use std::time::Duration;

/// For others to come.
const WHILE: Duration = Duration::from_secs(1);
/// Questions at once: threads of the store are left for others.
const QUESTIONS: usize = 16;

impl Host {
    pub(crate) async fn add_departure(&self, file: Rc<File>, settled: Option<WriteGuard>) {
        let bytes = file.held_bytes();
        let may = || (self.departures.has_room(bytes) || self.check().is_err()).then_some(());
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
            // What waits holds the tail of a journal that is short.
            let no_longer = race(no_longer, log.until_short());
            race(self.world.sleep_until(self.world.now().plus(WHILE)), no_longer).await;
            let work = departures.take().into_iter().map(|one| self.follow(one));
            at_once(work.collect(), QUESTIONS).await;
        }
        // When the connection was lost the recovery looks after these.
        departures.take().iter().for_each(|one| departures.end(one.bytes));
    }

    fn follow(&self, Departure { file, settled, bytes }: Departure) -> Work<'_> {
        Box::pin(async move {
            // What goes wrong is noted with the connection, or its records stay until the file goes
            // to the store.
            let _ = self.follow_name(file, settled).await;
            self.departures.end(bytes);
            Ok(())
        })
    }
}
