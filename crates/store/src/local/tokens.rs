//! Tokens as locks on files, and the wishes of waiting clients.

use super::own_directory::OwnDirectory;
use crate::attributes::FileId;
use crate::error::StoreError;
use crate::event::{Identity, Token};
use disks::DiskAccess;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A wish older than this was left by a client that ended.
const WISH_AGE_MAX: Duration = Duration::from_secs(60);

/// Interval at which a holder is reminded of the same wish.
const AGAIN: Duration = Duration::from_secs(3);

/// Attempts to lock a file that still has its name.
const TRIES_MAX: u32 = 100;

struct HeldToken {
    token: Token,
    /// Locked as long as it is open.
    lock: File,
    /// Whether another client had not removed the file.
    was_there: bool,
    /// Time at which the recall for other clients was reported.
    recalled: Option<SystemTime>,
}

pub(super) struct LocalTokens {
    tokens: OwnDirectory,
    wishes: OwnDirectory,
    identity: Identity,
    held: RefCell<BTreeMap<FileId, HeldToken>>,
}

/// Keeps a token from every client, this one included, until it is dropped.
pub(super) struct Exclusion {
    tokens: OwnDirectory,
    name: String,
    /// Locked as long as it is open.
    _lock: File,
}

/// Result of keeping others from a file while a call changes it.
pub(super) enum Excluded {
    /// Files of this kind have no tokens.
    Needless,
    /// This client has a token. It may return it while the call waits.
    Held,
    /// Others are kept away until this is dropped.
    #[expect(dead_code, reason = "it is held")]
    Until(Exclusion),
    /// Another call of this client got a token while this one waited, and may have buffered changes
    /// since: this one starts over.
    Overtaken,
}

impl Drop for Exclusion {
    fn drop(&mut self) {
        // No other client has it locked, so no lock loses its name.
        let _ = self.tokens.remove(&self.name);
    }
}

impl LocalTokens {
    pub fn new(tokens: OwnDirectory, wishes: OwnDirectory, identity: Identity) -> LocalTokens {
        LocalTokens { tokens, wishes, identity, held: RefCell::default() }
    }
    pub fn of(&self, file: FileId) -> Option<Token> {
        self.held.borrow().get(&file).map(|held| held.token)
    }
    pub fn is_empty(&self) -> bool {
        self.held.borrow().is_empty()
    }
    pub fn held(&self) -> Vec<FileId> {
        self.held.borrow().keys().copied().collect()
    }

    /// Takes a token unless another client holds a conflicting one. First gives up this client's
    /// token of the file.
    pub fn try_take(&self, file: FileId, token: Token) -> io::Result<bool> {
        let was_there = self.was_left(file);
        self.give_back(file);
        let access = match token {
            Token::ExclusiveWrite => DiskAccess::ReadWrite,
            Token::SharedRead | Token::SharedWrite => DiskAccess::ReadOnly,
        };
        let Some((lock, is_there)) = self.lock(file, access)? else { return Ok(false) };
        let was_there = was_there || is_there;
        self.held.borrow_mut().insert(file, HeldToken { token, lock, was_there, recalled: None });
        Ok(true)
    }
    /// Returns whether the former holder may have died with the token. May be true without cause.
    pub fn was_left(&self, file: FileId) -> bool {
        self.held.borrow().get(&file).is_some_and(|held| held.was_there)
    }
    /// Takes the exclusive token for one call of a client that has none. `None`: another client has
    /// one.
    pub fn try_exclude(&self, file: FileId) -> io::Result<Option<Exclusion>> {
        let (tokens, name) = (self.tokens.clone(), file.0.to_string());
        let lock = self.lock(file, DiskAccess::ReadWrite)?;
        Ok(lock.map(|(lock, _)| Exclusion { tokens, name, _lock: lock }))
    }
    /// Locks the file of a token. Returns whether it was there before.
    fn lock(&self, file: FileId, access: DiskAccess) -> io::Result<Option<(File, bool)>> {
        let name = file.0.to_string();
        for _ in 0..TRIES_MAX {
            let (lock, was_there) = self.tokens.open_and_look(&name)?;
            if disks::lock_image(Path::new(&name), &lock, access).is_err() {
                return Ok(None);
            }
            // Its last holder may have removed it since: a lock on a file without a name binds
            // nobody.
            if self.tokens.is_at(&name, &lock) {
                return Ok(Some((lock, was_there)));
            }
        }
        Ok(None)
    }
    /// Returns the token. The last holder removes the file, under an exclusive lock.
    pub fn give_back(&self, file: FileId) {
        let Some(held) = self.held.borrow_mut().remove(&file) else { return };
        let name = file.0.to_string();
        if held.token == Token::ExclusiveWrite {
            let _ = self.tokens.remove(&name);
            return;
        }
        drop(held.lock);
        // Others share it still, or another returns it now and removes the file.
        let Ok(lock) = self.tokens.open_to_write(&name) else { return };
        if disks::lock_image(Path::new(&name), &lock, DiskAccess::ReadWrite).is_ok()
            && self.tokens.is_at(&name, &lock)
        {
            let _ = self.tokens.remove(&name);
        }
    }

    fn wish_name(&self, file: FileId) -> String {
        format!("{}.{}", file.0, self.identity.0)
    }
    /// Makes the wish, or leaves the existing one.
    pub fn wish(&self, file: FileId) -> io::Result<()> {
        match self.wishes.make_new(&self.wish_name(file)) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            made => made.map(drop),
        }
    }
    pub fn end_wish(&self, file: FileId) {
        // Another client may have removed it as too old.
        let _ = self.wishes.remove(&self.wish_name(file));
    }

    /// Returns whether another client waits for the file.
    pub fn is_wished(&self, file: FileId) -> bool {
        let (prefix, own) = (format!("{}.", file.0), format!(".{}", self.identity.0));
        let wishes = self.wishes.names().unwrap_or_default();
        wishes.iter().any(|name| name.starts_with(&prefix) && !name.ends_with(&own))
    }

    /// Returns a held file that another client wants; again after a while, as returning it may have
    /// failed.
    pub fn next_recall(&self, now: SystemTime) -> Option<(FileId, Token)> {
        let own = format!(".{}", self.identity.0);
        for name in self.wishes.names().ok()?.iter().filter(|name| !name.ends_with(&own)) {
            let made = self.wishes.metadata(name).ok().map(|found| {
                UNIX_EPOCH + Duration::from_secs(u64::try_from(found.st_mtime).unwrap_or(0))
            });
            if made.is_some_and(|made| now.duration_since(made).is_ok_and(|age| age > WISH_AGE_MAX))
            {
                let _ = self.wishes.remove(name);
                continue;
            }
            let Some(file) = name.split('.').next().and_then(|number| number.parse().ok()) else {
                continue;
            };
            let is_fresh =
                |reported: SystemTime| now.duration_since(reported).is_ok_and(|age| age < AGAIN);
            if let Some(held) = self.held.borrow_mut().get_mut(&FileId(file)) {
                if !held.recalled.is_some_and(is_fresh) {
                    held.recalled = Some(now);
                    return Some((FileId(file), held.token));
                }
            }
        }
        None
    }
}

/// Takes the lock that shows that the host with an identity is running.
pub(super) fn lock_life(lives: &OwnDirectory, identity: &Identity) -> Result<File, StoreError> {
    let name = &identity.0;
    let life = lives.open_or_make(name).map_err(|error| super::failed(name, "locking", &error))?;
    match disks::lock_image(Path::new(name), &life, DiskAccess::ReadWrite) {
        Ok(()) => Ok(life),
        Err(_) => Err(StoreError::TokenHeld),
    }
}
