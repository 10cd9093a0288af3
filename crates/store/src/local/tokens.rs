//! Tokens as locks on files, and the wishes of those who wait.

use crate::attributes::FileId;
use crate::error::StoreError;
use crate::event::{Identity, Token};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// A wish older than this is left over from someone who died.
const WISH_AGE_MAX: Duration = Duration::from_secs(60);

/// Of looks for a lock on a file that is still there.
const TRIES_MAX: u32 = 100;

struct Held {
    token: Token,
    /// Locked as long as it is open.
    lock: File,
    /// Others' wishes for it have been told.
    recalled: bool,
}

pub(super) struct LocalTokens {
    tokens: PathBuf,
    wishes: PathBuf,
    identity: Identity,
    held: RefCell<BTreeMap<FileId, Held>>,
}

impl LocalTokens {
    pub fn new(tokens: PathBuf, wishes: PathBuf, identity: Identity) -> LocalTokens {
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

    /// True if nobody holds what stands against it. Gives up what this client held of the file
    /// before.
    pub fn try_take(&self, file: FileId, token: Token) -> io::Result<bool> {
        self.give_back(file);
        let path = self.path(file);
        let access = match token {
            Token::ExclusiveWrite => disks::DiskAccess::ReadWrite,
            Token::SharedRead | Token::SharedWrite => disks::DiskAccess::ReadOnly,
        };
        for _ in 0..TRIES_MAX {
            let lock = OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .open(&path)?;
            if disks::lock_image(&path, &lock, access).is_err() {
                return Ok(false);
            }
            // Its last holder may have removed it since: a lock on a file without a name binds
            // nobody.
            if is_at(&path, &lock) {
                self.held.borrow_mut().insert(file, Held { token, lock, recalled: false });
                return Ok(true);
            }
        }
        Ok(false)
    }
    /// The last holder removes the file; only who has it for himself does so.
    pub fn give_back(&self, file: FileId) {
        let Some(held) = self.held.borrow_mut().remove(&file) else { return };
        let path = self.path(file);
        if held.token == Token::ExclusiveWrite {
            let _ = fs::remove_file(path);
            return;
        }
        drop(held.lock);
        // Others that share it have it still; or another gives it back now, and sees to the same.
        let Ok(lock) = OpenOptions::new().read(true).write(true).open(&path) else { return };
        if disks::lock_image(&path, &lock, disks::DiskAccess::ReadWrite).is_ok()
            && is_at(&path, &lock)
        {
            let _ = fs::remove_file(path);
        }
    }
    fn path(&self, file: FileId) -> PathBuf {
        self.tokens.join(file.0.to_string())
    }

    fn wish_path(&self, file: FileId) -> PathBuf {
        self.wishes.join(format!("{}.{}", file.0, self.identity.0))
    }
    pub fn wish(&self, file: FileId) -> io::Result<()> {
        File::create(self.wish_path(file)).map(drop)
    }
    pub fn end_wish(&self, file: FileId) {
        // Another may have found it too old.
        let _ = fs::remove_file(self.wish_path(file));
    }

    /// Whether another waits for the file.
    pub fn is_wished(&self, file: FileId) -> bool {
        let (prefix, own) = (format!("{}.", file.0), format!(".{}", self.identity.0));
        let wishes = fs::read_dir(&self.wishes).into_iter().flatten().flatten();
        wishes
            .filter_map(|wish| wish.file_name().into_string().ok())
            .any(|name| name.starts_with(&prefix) && !name.ends_with(&own))
    }

    /// A held file that another wants, told once.
    pub fn next_recall(&self, now: SystemTime) -> Option<(FileId, Token)> {
        let own = format!(".{}", self.identity.0);
        for wish in fs::read_dir(&self.wishes).ok()?.flatten() {
            let name = wish.file_name();
            let Some(name) = name.to_str().filter(|name| !name.ends_with(&own)) else { continue };
            let age = wish.metadata().and_then(|metadata| metadata.modified()).ok();
            if age.is_some_and(|made| now.duration_since(made).is_ok_and(|age| age > WISH_AGE_MAX))
            {
                let _ = fs::remove_file(wish.path());
                continue;
            }
            let Some(file) = name.split('.').next().and_then(|number| number.parse().ok()) else {
                continue;
            };
            if let Some(held) = self.held.borrow_mut().get_mut(&FileId(file))
                && !held.recalled
            {
                held.recalled = true;
                return Some((FileId(file), held.token));
            }
        }
        None
    }
}

fn is_at(path: &Path, file: &File) -> bool {
    match (fs::metadata(path), file.metadata()) {
        (Ok(there), Ok(here)) => (there.dev(), there.ino()) == (here.dev(), here.ino()),
        _ => false,
    }
}

/// The lock that says that the host with an identity lives.
pub(super) fn lock_life(path: &Path) -> Result<File, StoreError> {
    let cannot = |error: &io::Error| super::failed(&path.display().to_string(), "locking", error);
    let life = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path);
    let life = life.map_err(|error| cannot(&error))?;
    match disks::lock_image(path, &life, disks::DiskAccess::ReadWrite) {
        Ok(()) => Ok(life),
        Err(_) => Err(StoreError::TokenHeld),
    }
}
