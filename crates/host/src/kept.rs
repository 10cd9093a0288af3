//! What a door's kernel may keep: the attributes of a file while its token is held, and of
//! directories what the mount allows.
//!
//! 1. Those of a file are kept only if one token was held from before the store was asked until the
//!    answer. It must not be recalled then, and nobody may be changing the file.
//! 2. The kernel is told to forget them before the token is returned, and before a name of the file
//!    changes.
//! 3. They are kept for [`KEPT`] at most. A daemon that stands still tells nothing; by then the
//!    store has given the token to nobody.
//! 4. Directories have no tokens, and no store tells of their changes. Names and attributes of them
//!    are kept for [`crate::HostOptions::directories`], by default not at all. Names of anything
//!    else are never kept.

use crate::error::HostError;
use crate::files::File;
use crate::host::{Forget, Host};
use std::time::Duration;
use store::{FileAttributes, FileId, FileKind, Token};

/// Less than what a store waits for a recalled token, in any case: the helper of Ceph gives one
/// back by itself after 100 ms.
pub const KEPT: Duration = Duration::from_millis(50);

impl Host {
    /// How a door has its kernel forget.
    pub fn on_forget(&self, forget: Forget) {
        *self.forget.borrow_mut() = Some(forget);
    }

    /// Attributes, and for how long they may be kept.
    pub async fn attributes_to_keep(
        &self,
        id: FileId,
    ) -> Result<(FileAttributes, Duration), HostError> {
        let before = self.certain(id);
        let attributes = self.attributes(id).await?;
        if attributes.kind == FileKind::Directory {
            return Ok((attributes, self.options.directories));
        }
        let is_certain = before.is_some() && self.certain(id) == before;
        let Some(file) = self.files.get(id).filter(|_| is_certain) else {
            return Ok((attributes, Duration::ZERO));
        };
        file.kept.set(true);
        Ok((attributes, KEPT))
    }

    /// For how long a name of this file may be kept, and the attributes that come with it: see
    /// rule 4. Those of other files may not, as a kernel to which they are new takes them though it
    /// was told to forget meanwhile.
    pub fn keeps_found(&self, found: &FileAttributes) -> Duration {
        match found.kind {
            FileKind::Directory if units::fault!("host-directories-kept") => KEPT,
            FileKind::Directory => self.options.directories,
            _ => Duration::ZERO,
        }
    }

    /// Which token makes it certain that nobody else changes the file; `None` without one, or while
    /// it is being changed here.
    fn certain(&self, id: FileId) -> Option<u64> {
        // Where programs change files past the store, a token makes nothing certain.
        let file = self.files.get(id).filter(|_| self.store.counts_every_change())?;
        let is_held = matches!(file.token.get(), Some(Token::ExclusiveWrite | Token::SharedRead));
        let is_settled = !file.recalled.get() && !file.lock.is_written() && self.check().is_ok();
        (is_held && is_settled).then(|| file.grant.get())
    }

    /// See rule 2.
    pub(crate) fn forget_kept(&self, file: &File) {
        if units::fault!("host-attributes-not-forgotten") {
            return;
        }
        if file.kept.replace(false)
            && let Some(forget) = &*self.forget.borrow()
        {
            forget(file.id);
        }
    }
    /// The store has given it, with the attributes as of then.
    pub(crate) fn begin_token(&self, file: &File, token: Token, attributes: &FileAttributes) {
        file.token.set(Some(token));
        file.grant.set(file.grant.get() + 1);
        file.told.set(attributes.version);
        file.nameless.set(attributes.links == 0);
    }
    /// What the file had; it is to be returned now.
    pub(crate) fn end_token(&self, file: &File) -> Option<Token> {
        self.forget_kept(file);
        file.token.take()
    }
}
