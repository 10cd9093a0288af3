//! Tokens kept behind the last close. Taking a token anew may cost a destage
//! ([`crate::takeover`]), so a file that paid for its token keeps it for a while, as a dirty file
//! does: another host cannot have had the file in between. A recall ends it as ever.

use crate::files::File;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;
use store::Token;
use units::Instant;

/// Time for which a token stays with a file that nobody uses.
const KEPT: Duration = Duration::from_secs(60);
/// Files that stay open at the store for it.
const FILES_MAX: usize = 1024;

/// The files, and until when each keeps its token.
#[derive(Default)]
pub(crate) struct KeptTokens(RefCell<VecDeque<(Instant, Rc<File>)>>);

impl KeptTokens {
    pub fn add(&self, file: &Rc<File>, now: Instant) {
        let mut kept = self.0.borrow_mut();
        if kept.len() < FILES_MAX && !file.is_kept.replace(true) {
            kept.push_back((now.plus(KEPT), file.clone()));
        }
    }
    /// Removes a file whose time has passed.
    pub fn take_due(&self, now: Instant) -> Option<Rc<File>> {
        let mut kept = self.0.borrow_mut();
        let is_due = kept.front().is_some_and(|(until, _)| *until <= now);
        let (_, file) = if is_due { kept.pop_front()? } else { return None };
        file.is_kept.set(false);
        Some(file)
    }
}

impl File {
    /// Returns whether the file keeps its token although nobody has it open.
    pub fn keeps_token(&self) -> bool {
        let is_kept = self.is_kept.get() && self.token.get() == Some(Token::ExclusiveWrite);
        is_kept && !units::fault!("host-token-not-kept")
    }
}
