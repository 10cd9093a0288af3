//! The cache of a front end's kernel: the attributes of a file while its token is held, and those
//! of directories as the mount allows.
//!
//! 1. Attributes of a file are cached only if one token was held from before the request to the
//!    store until its answer, is not recalled, and no task is changing the file.
//! 2. The kernel forgets them before the token is returned, and before a name of the file changes.
//! 3. They are cached for [`ATTRIBUTE_TIMEOUT`] at most. A daemon that is stopped cannot invalidate
//!    them; by then the store has granted the token to nobody.
//! 4. Directories have no tokens, and no store reports their changes. Their names and attributes
//!    are cached for [`crate::HostOptions::directories`], by default not at all. Names of anything
//!    else are never cached.

use crate::error::HostError;
use crate::files::File;
use crate::host::{Forget, Host};
use crate::removals::Removal;
use std::time::Duration;
use store::{FileAttributes, FileId, FileKind, Token};

/// Time for which the kernel may cache attributes. Always less than a store waits for a recalled
/// token: Ceph's helper returns one by itself after 100 ms.
pub const ATTRIBUTE_TIMEOUT: Duration = Duration::from_millis(50);

impl Host {
    /// Sets how a front end makes its kernel forget a file.
    pub fn on_forget(&self, forget: Forget) {
        *self.forget.borrow_mut() = Some(forget);
    }

    /// Returns the attributes, and how long they may be cached.
    pub async fn attributes_to_cache(
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
        file.cached_by_kernel.set(true);
        Ok((attributes, ATTRIBUTE_TIMEOUT))
    }

    /// Returns how long a name of this file, and the attributes that come with it, may be cached:
    /// see rule 4. Attributes of other files are not: a kernel to which the file is new accepts
    /// them even if it was asked to forget them while the answer was in flight.
    pub fn lookup_timeout(&self, found: &FileAttributes) -> Duration {
        match found.kind {
            FileKind::Directory if units::fault!("host-directories-kept") => ATTRIBUTE_TIMEOUT,
            FileKind::Directory => self.options.directories,
            _ => Duration::ZERO,
        }
    }

    /// Returns the token that guarantees that no other client changes the file; `None` without one,
    /// or while it is being changed here.
    fn certain(&self, id: FileId) -> Option<u64> {
        // Where programs change files past the store, a token guarantees nothing.
        let file = self.files.get(id).filter(|_| self.store.counts_every_change())?;
        let is_held = matches!(file.token.get(), Some(Token::ExclusiveWrite | Token::SharedRead));
        let is_settled = !file.recalled.get() && !file.lock.is_written() && self.check().is_ok();
        (is_held && is_settled).then(|| file.grant.get())
    }

    /// Applies rule 2 to a file.
    pub(crate) fn invalidate_attributes(&self, file: &File) {
        if units::fault!("host-attributes-not-forgotten") {
            return;
        }
        if file.cached_by_kernel.replace(false) {
            if let Some(forget) = &*self.forget.borrow() {
                forget(file.id);
            }
        }
    }
    /// Records a token that the store granted, and the attributes that came with it.
    pub(crate) fn begin_token(&self, file: &File, token: Token, attributes: &FileAttributes) {
        file.token.set(Some(token));
        file.grant.set(file.grant.get() + 1);
        file.reported.set(attributes.version);
        file.was_taken_over.set(false);
        file.nameless.set(attributes.links == 0);
        if attributes.links > 0 {
            // An earlier removal here was not of the last name.
            file.last_removal.set(Removal::default());
        } else if file.last_removal.get() == Removal::default() {
            // Others have removed the last name, wherever it was.
            file.last_removal.set(self.removals.add_anywhere());
        }
    }
    /// Ends the token, which is to be returned, and returns it.
    pub(crate) fn end_token(&self, file: &File) -> Option<Token> {
        self.invalidate_attributes(file);
        file.token.take()
    }
}
