//! Recalls: reported to the daemon, and watched until the token is returned.
//!
//! T1: a write that enters the library while its file is recalled waits for the token's return. The
//! daemon may wait for that very write before it returns the token. So a recalled file with a
//! running call is made durable and its token returned from here, by a thread kept for that.
//! Earlier writes are at the servers then; the late write goes straight through. That of a recovery
//! ends the connection instead: no ledger would have the state after it.

use super::file_queues::{CallOrder, FileQueues};
use super::files::{File, Files, lock};
use super::output::Output;
use crate::library::Errno;
use crate::wire::Report;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};
use store::{FileId, Token};

/// Sent by the library's own threads, which must not be delayed.
pub enum LibraryNotice {
    Recalled(u64),
    Changed(u64),
}

/// Time for which a recalled file may have a running call before its token is returned without the
/// daemon.
const STUCK: Duration = Duration::from_millis(100);
const CHECK_INTERVAL: Duration = Duration::from_millis(20);
const IDLE: Duration = Duration::from_secs(3600);

pub struct Recalls {
    files: Arc<Files>,
    output: Arc<Output>,
    returning: Arc<FileQueues>,
    /// Open recalled files, each with the number of its grant.
    open: Vec<(u64, Arc<File>, Instant)>,
}

impl Recalls {
    pub fn watch(
        notices: Receiver<LibraryNotice>,
        files: Arc<Files>,
        output: Arc<Output>,
        returning: Arc<FileQueues>,
    ) {
        let mut recalls = Recalls { files, output, returning, open: Vec::new() };
        std::thread::spawn(move || {
            loop {
                let patience = if recalls.open.is_empty() { IDLE } else { CHECK_INTERVAL };
                match notices.recv_timeout(patience) {
                    Ok(LibraryNotice::Recalled(number)) => recalls.begin(number),
                    Ok(LibraryNotice::Changed(inode)) => {
                        recalls.output.send(&Report::Changed { file: FileId(inode) })
                    }
                    Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => return,
                }
                recalls.look();
            }
        });
    }

    fn begin(&mut self, number: u64) {
        let Some(file) = lock(&self.files.grants).get(&number).cloned() else {
            return self.files.gate.open(number);
        };
        let now = Instant::now();
        let token = {
            let mut state = file.state();
            match &mut state.held {
                Some(held) if held.number == number && held.recalled.is_none() => {
                    held.recalled = Some(now);
                    held.token
                }
                _ => return self.files.gate.open(number),
            }
        };
        self.output.send(&Report::Recall { file: file.id, token });
        // After the report: a write that returns the token is answered after it.
        let is_journaled = {
            let state = file.state();
            // A recovery acknowledges nothing while it waits for a sync, whose states it has noted.
            let to_recover = state.held.as_ref().is_some_and(|held| held.to_recover);
            state.is_settled() || (to_recover && state.syncing > 0)
        };
        if token != Token::ExclusiveWrite || is_journaled {
            self.files.acknowledge_recall(file.id);
        }
        self.open.push((number, file, now));
    }

    fn look(&mut self) {
        let limit = Duration::from_millis(self.files.mount.recall_ms()) + Duration::from_secs(1);
        let (files, output, returning) = (&self.files, &self.output, &self.returning);
        self.open.retain_mut(|(number, file, since)| {
            let (is_busy, is_recovered) = {
                let state = file.state();
                match &state.held {
                    Some(held) if held.number == *number => (state.busy > 0, held.to_recover),
                    _ => return false,
                }
            };
            if since.elapsed() > limit {
                // The library has cut itself off (T4).
                output.lost(true, "a token was not returned in time");
            }
            if is_busy && since.elapsed() > STUCK && is_recovered {
                // The change would follow the return of the token, or has made a state that the
                // daemon does not know.
                output.lost(false, "a recovery's change of a file met the recall of its token");
            }
            if is_busy && since.elapsed() > STUCK {
                let (files, file, output) = (files.clone(), file.clone(), output.clone());
                let order = CallOrder { file: Some(file.id), shares: false, is_awaited: true };
                let give_back = move || {
                    // Another error stays with the file, for the daemon's own return.
                    let returned = files.give_back(&file);
                    if let Err(Errno(code @ (libc::ENOTCONN | libc::ESHUTDOWN))) = returned {
                        output.lost(code == libc::ESHUTDOWN, "a token could not be returned")
                    }
                };
                returning.add(order, Box::new(give_back));
                return false;
            }
            true
        });
    }
}
