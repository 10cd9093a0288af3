//! Names: the kernel carries out each call before it is answered.

use super::OWN_DIRECTORY;
use super::attributes::system_time;
use super::freed::held_long;
use super::held::{hold, path_of};
use super::listed::{LISTED_AT_ONCE, read_entries};
use super::places::Place;
use super::store::{Local, REPLACED_MAX};
use super::tokens::Excluded;
use crate::attributes::{FileAttributes, FileId};
use crate::error::{Refusal, StoreError};
use crate::limits::{LISTING_ENTRIES_MAX, NAME_BYTES_MAX, TARGET_BYTES_MAX, XATTR_BYTES_MAX};
use crate::listing::{after, in_order};
use crate::names::{Creator, Entry, Found, Listing, NewNode, RenameOver};
use runtime::sync::WriteGuard;
use rustix::fs::{
    AtFlags, CWD, FileType, Gid, Mode, RenameFlags, Uid, chownat, getxattr, linkat, mknodat,
    readlinkat, renameat_with,
};
use rustix::process::geteuid;
use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, Metadata, OpenOptions, Permissions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, SystemTime};
use units::Timestamp;

/// Some file systems store some of their times in units of two seconds.
const TIMES_DIFFER_MAX: Duration = Duration::from_secs(2);
/// Removed directories kept for callers that may still know them.
const REMOVED_MAX: usize = 1024;

/// A file that others are kept from, if there is one.
type Kept = Option<(Metadata, Excluded)>;

impl Local {
    fn place_of(&self, parent: FileId, name: &[u8]) -> Result<Place, StoreError> {
        match name {
            [] | b"." | b".." => return Err(Refusal::Invalid.into()),
            name if name.contains(&b'/') || name.contains(&0) => {
                return Err(Refusal::Invalid.into());
            }
            name if name.len() > NAME_BYTES_MAX => return Err(Refusal::NameTooLong.into()),
            name if parent == self.places.root() && name == OWN_DIRECTORY.as_bytes() => {
                return Err(Refusal::NotFound.into());
            }
            _ => {}
        }
        self.places.place_in(parent, name)
    }

    pub fn lookup(&self, parent: FileId, name: &[u8]) -> Result<Found, StoreError> {
        let place = self.place_of(parent, name)?;
        let metadata =
            fs::symlink_metadata(place).map_err(|error| self.failed("looking up", &error))?;
        if !self.places.has(&metadata) {
            return Err(Refusal::OtherDevice.into());
        }
        Ok(self.found(parent, name, &metadata))
    }
    /// Notes that a file has a name.
    fn found(&self, parent: FileId, name: &[u8], metadata: &Metadata) -> Found {
        let file = FileId(metadata.ino());
        self.places.note(file, parent, name, metadata);
        let buffered = self.files.borrow().get(&file).map(|buffered| buffered.attributes);
        let attributes = match buffered {
            // Other clients may have linked it.
            Some(buffered) => FileAttributes { links: metadata.nlink() as u32, ..buffered },
            None => self.attributes_of(metadata),
        };
        Found { file, attributes }
    }

    /// Creates a file. A regular file is returned open for reading and writing. What is returned is
    /// the file that was made, also if another client has removed it since, or put another one
    /// there.
    pub fn make(
        &self,
        parent: FileId,
        name: &[u8],
        node: &NewNode,
        caller: Creator,
    ) -> Result<(Found, File), StoreError> {
        let place = self.place_of(parent, name)?;
        let made = make_at(&place, node, caller)
            .and_then(|made| Ok((made.metadata()?, made)))
            .map_err(|error| self.failed("making", &error));
        let (metadata, made) = made?;
        if units::fault!("store-made-by-name") {
            return Ok((self.lookup(parent, name)?, made));
        }
        let file = FileId(metadata.ino());
        if metadata.created().is_err() {
            // Only its time of birth would distinguish it from one that had the number before.
            if let Err(error) = self.notes.remove(file) {
                remove_made(place.as_ref(), &made);
                return Err(self.failed("removing a note", &error));
            }
        }
        self.places.note(file, parent, name, &metadata);
        Ok((Found { file, attributes: self.attributes_of(&metadata) }, made))
    }

    pub async fn link(
        &self,
        file: FileId,
        parent: FileId,
        name: &[u8],
    ) -> Result<FileAttributes, StoreError> {
        let what = "linking";
        let places = || Ok((self.places.hold(file)?.0, self.place_of(parent, name)?));
        let (held, to) = self.searching(places).await?;
        for _ in 0..REPLACED_MAX {
            let mut one = self.exclude_found(what, || held.metadata()).await?;
            let _unflushed = self.keep_flushes_away([Some(&mut one.0), None]).await;
            self.keep_states(&[&one.0]).await?;
            if self.are_excluded(&one) {
                let linked = linkat(CWD, path_of(&held), CWD, to.as_ref(), AtFlags::SYMLINK_FOLLOW);
                linked.map_err(|error| self.failed(what, &error.into()))?;
                self.note_own_change(&one.0);
                let found = self.look_at(what, || held.metadata())?;
                return Ok(self.found(parent, name, &found).attributes);
            }
        }
        Err(StoreError::TokenHeld)
    }

    pub async fn unlink(&self, parent: FileId, name: &[u8]) -> Result<(), StoreError> {
        let place = self.searching(|| self.place_of(parent, name)).await?;
        for _ in 0..REPLACED_MAX {
            if self.try_unlink(&place).await? {
                return Ok(());
            }
        }
        Err(StoreError::TokenHeld)
    }
    /// Removes a name. Returns false if another call of this client returned the file's token, or
    /// another client put another file there.
    async fn try_unlink(&self, place: &Place) -> Result<bool, StoreError> {
        let mut one = self.exclude_found("unlinking", || fs::symlink_metadata(place)).await?;
        if one.0.is_dir() {
            return Err(Refusal::IsDirectory.into());
        }
        let unflushed = self.keep_flushes_away([Some(&mut one.0), None]).await;
        if one.0.nlink() > 1 {
            self.keep_states(&[&one.0]).await?;
        }
        // Another file may have been put there while this waited.
        let is_there = number_at(place) == Some(one.0.ino());
        if !self.are_excluded(&one) || !(is_there || units::fault!("store-name-asked-once")) {
            return Ok(false);
        }
        let (metadata, _excluded) = one;
        let held = held_long(place.as_ref(), &metadata);
        fs::remove_file(place).map_err(|error| self.failed("unlinking", &error))?;
        self.note_own_change(&metadata);
        let file = FileId(metadata.ino());
        let is_last = metadata.nlink() == 1;
        if !is_last || units::fault!("store-number-used-again") {
            self.places.forget(file);
        }
        drop(unflushed);
        // Otherwise its time of birth stays known, as a caller may know its number.
        if is_last && !self.files.borrow().contains_key(&file) {
            self.notes.forget(file);
        }
        self.close_away(held).await;
        Ok(true)
    }

    /// Removes a directory. Callers that have it open, or work in it, then see that it is empty.
    pub fn remove_directory(&self, parent: FileId, name: &[u8]) -> Result<(), StoreError> {
        let place = self.place_of(parent, name)?;
        let flags = libc::O_DIRECTORY | libc::O_NOFOLLOW;
        let held = File::options().read(true).custom_flags(flags).open(&place).ok();
        fs::remove_dir(place).map_err(|error| self.failed("removing a directory", &error))?;
        let mut removed = self.removed.borrow_mut();
        if let Some(held) = held.filter(|_| removed.len() < REMOVED_MAX) {
            // Another user may have exchanged it for the one that is gone.
            let is_gone = |found: &Metadata| {
                found.nlink() == 0 || units::fault!("store-removed-directory-unchecked")
            };
            if let Some(metadata) = held.metadata().ok().filter(is_gone) {
                self.places.forget(FileId(metadata.ino()));
                removed.insert(FileId(metadata.ino()), held);
            }
        }
        Ok(())
    }

    pub async fn rename(
        &self,
        from: (FileId, &[u8]),
        to: (FileId, &[u8]),
        mode: RenameOver,
    ) -> Result<(), StoreError> {
        let places = || Ok((self.place_of(from.0, from.1)?, self.place_of(to.0, to.1)?));
        let (old, new) = self.searching(places).await?;
        for _ in 0..REPLACED_MAX {
            if self.try_rename((&old, from), (&new, to), mode).await? {
                return Ok(());
            }
        }
        Err(StoreError::TokenHeld)
    }
    /// Excludes others from the file that is renamed, and from the one that is at the new name, in
    /// the order of their numbers; from none if both names are of one file. `None`: another client
    /// has removed the one at the new name.
    async fn exclude_for_rename(
        &self,
        old: &Place,
        new: &Place,
    ) -> Result<Option<(Kept, Kept)>, StoreError> {
        let (at_old, at_new) = (number_at(old), number_at(new));
        if at_new.is_some() && at_old == at_new {
            return Ok(Some((None, None)));
        }
        let exclude = |place| self.exclude_found("renaming", move || fs::symlink_metadata(place));
        let mut moved = None;
        if at_new.is_none() || at_old < at_new {
            moved = Some(exclude(old).await?);
        }
        let replaced = match at_new {
            None => None,
            Some(_) => match exclude(new).await {
                Err(StoreError::Refused(Refusal::NotFound))
                    if !units::fault!("store-target-asked-once") =>
                {
                    return Ok(None);
                }
                excluded => Some(excluded?),
            },
        };
        if moved.is_none() {
            moved = Some(exclude(old).await?);
        }
        Ok(Some((moved, replaced)))
    }
    /// Renames. Returns false if another call of this client returned the token of a file, or
    /// another client changed what is at one of the names.
    async fn try_rename(
        &self,
        (old, from): (&Place, (FileId, &[u8])),
        (new, to): (&Place, (FileId, &[u8])),
        mode: RenameOver,
    ) -> Result<bool, StoreError> {
        let Some((mut moved, mut replaced)) = self.exclude_for_rename(old, new).await? else {
            return Ok(false);
        };
        let both = [&mut moved, &mut replaced].map(|one| one.as_mut().map(|(found, _)| found));
        let unflushed = self.keep_flushes_away(both).await;
        let keeps_name = |found: &&Metadata| found.nlink() > 1 || mode == RenameOver::Exchange;
        let mut kept: Vec<&Metadata> = moved.iter().map(|(found, _)| found).collect();
        kept.extend(replaced.iter().map(|(found, _)| found).filter(keeps_name));
        self.keep_states(&kept).await?;
        if !are_there((old, &moved), (new, &replaced))
            || !moved.iter().chain(&replaced).all(|one| self.are_excluded(one))
        {
            return Ok(false);
        }
        let flags = match mode {
            RenameOver::Replace => RenameFlags::empty(),
            RenameOver::NoReplace => RenameFlags::NOREPLACE,
            RenameOver::Exchange => RenameFlags::EXCHANGE,
        };
        let held = replaced.as_ref().and_then(|(found, _)| held_long(new.as_ref(), found));
        renameat_with(CWD, old.as_ref(), CWD, new.as_ref(), flags)
            .map_err(|error| self.failed("renaming", &error.into()))?;
        moved.iter().chain(&replaced).for_each(|(found, _)| self.note_own_change(found));
        if units::fault!("store-made-change-refused") {
            fs::symlink_metadata(new).map_err(|error| self.failed("renaming", &error))?;
        }
        let note = |one: &Kept, (parent, name): (FileId, &[u8])| {
            if let Some((found, _)) = one {
                self.places.note(FileId(found.ino()), parent, name, found);
            }
        };
        note(&moved, to);
        if mode == RenameOver::Exchange {
            note(&replaced, from);
        }
        // Freeing may take longer than others wait for these files.
        drop((moved, replaced, unflushed));
        self.close_away(held).await;
        Ok(true)
    }

    /// Closes a file on a thread of its own: if it has no name any more, the kernel frees its
    /// blocks now. Without a thread it is closed here.
    pub async fn close_away(&self, held: Option<File>) {
        if let Some(held) = held {
            let _ = self.on_thread("freeing blocks", move || drop(held)).await;
        }
    }

    /// Records a change of names that gave a file another time of change: it is no other program's.
    pub fn note_own_change(&self, before: &Metadata) {
        if units::fault!("store-own-names-foreign") {
            return;
        }
        if let Some(buffered) = self.files.borrow_mut().get_mut(&FileId(before.ino())) {
            buffered.note_own_change(before);
        }
    }

    /// Keeps flushes of this client from files whose names change, and looks at the files again: a
    /// flush in flight would take the new time of change for another program's. Two files in the
    /// order of their numbers.
    pub async fn keep_flushes_away(&self, found: [Option<&mut Metadata>; 2]) -> Vec<WriteGuard> {
        let mut found: Vec<&mut Metadata> = found.into_iter().flatten().collect();
        found.sort_by_key(|found| found.ino());
        let mut guards = Vec::new();
        for found in found {
            let held = self
                .files
                .borrow()
                .get(&FileId(found.ino()))
                .map(|buffered| (buffered.flush_lock.clone(), buffered.handle.clone()));
            if let Some((flush_lock, handle)) = held {
                guards.push(flush_lock.write().await);
                // Without an answer the file counts as changed by others.
                *found = handle.metadata().unwrap_or(found.clone());
            }
        }
        guards
    }

    /// Writes notes of files' present states, durably, before a change of their names gives them
    /// another time of change: the journal of a dead host may build on these states, of which the
    /// change takes nothing; and this host's own, if it has the token. The caller excludes others
    /// from the files.
    async fn keep_states(&self, found: &[&Metadata]) -> Result<(), StoreError> {
        if units::fault!("store-names-are-state") {
            return Ok(());
        }
        let is_awaited = self.is_awaited();
        let mut files: Vec<Metadata> = Vec::new();
        for found in found.iter().filter(|found| found.is_file()) {
            let mut buffers = self.files.borrow_mut();
            let own = buffers.get_mut(&FileId(found.ino()));
            let is_kept = is_awaited || own.is_some();
            own.into_iter().for_each(|own| own.was_noted = true);
            files.extend(is_kept.then(|| (*found).clone()));
        }
        if files.is_empty() {
            return Ok(());
        }
        let notes = self.notes.clone();
        match self.away("noting a state", move || notes.keep(&files)).await {
            // Names are removed to make some. At worst the dead host's bytes are set aside.
            Err(StoreError::Refused(Refusal::NoSpace | Refusal::Quota)) => Ok(()),
            kept => kept,
        }
    }

    pub fn read_link(&self, file: FileId) -> Result<Vec<u8>, StoreError> {
        let target = readlinkat(self.places.hold(file)?.0, "", Vec::new())
            .map_err(|error| self.failed("reading a link", &error.into()))?;
        Ok(target.into_bytes())
    }

    /// Lists a directory. The listing is taken as a whole when a reader begins, and continued from
    /// there. Cursors do not depend on the other entries: so another reader may begin at the same
    /// time, and names may be added and removed.
    pub async fn list(&self, directory: FileId, cursor: u64) -> Result<Listing, StoreError> {
        let listed = self.listings.borrow_mut().entry(directory).or_default().clone();
        let taken = listed.taken.borrow().clone();
        let all = match taken.filter(|_| cursor != 0) {
            Some(taken) => taken,
            None => {
                // One at a time: an older listing that comes later would hide names from a reader
                // that began after they were made.
                let _one_at_a_time = listed.reading.write().await;
                let taken = Rc::new(self.read_directory(directory).await?);
                listed.taken.replace(Some(taken.clone()));
                taken
            }
        };
        let rest = match units::fault!("store-cursor-is-a-position") {
            true => all.get(cursor as usize..).unwrap_or_default(),
            false => after(&all, cursor),
        };
        let entries: Vec<Entry> = rest.iter().take(LISTING_ENTRIES_MAX).cloned().collect();
        let is_end = entries.len() == rest.len();
        if entries.is_empty() {
            self.listings.borrow_mut().remove(&directory);
        }
        Ok(Listing { entries, is_end })
    }

    /// Reads the entries in the order of their cursors: the first ones at once, the rest of a long
    /// directory on a thread of its own. Changes nothing here: a name counts as known once it is
    /// looked up.
    async fn read_directory(&self, directory: FileId) -> Result<Vec<Entry>, StoreError> {
        let is_removed = || self.removed.borrow().contains_key(&directory);
        let open = || {
            if is_removed() {
                return Ok(None);
            }
            let place = self.places.directory(directory)?;
            let opened = fs::read_dir(&place).map_err(|error| self.failed("listing", &error));
            opened.map(Some)
        };
        let Some(mut opened) = self.searching(open).await? else { return Ok(Vec::new()) };
        let seed = self.listing_seed;
        let is_root = directory == self.places.root();
        let mut entries = Vec::new();
        let most = if units::fault!("store-listed-at-once") { usize::MAX } else { LISTED_AT_ONCE };
        let begun = read_entries(&mut opened, most, seed, &mut entries);
        let read = match begun {
            Ok(true) => Ok(in_order(entries)),
            Ok(false) => {
                let rest = move || {
                    read_entries(&mut opened, usize::MAX, seed, &mut entries)?;
                    Ok(in_order(entries))
                };
                self.on_thread("listing", rest).await?
            }
            Err(error) => Err(error),
        };
        // Removed since it was opened.
        let is_gone = |error: &io::Error| error.kind() == io::ErrorKind::NotFound;
        let read = read.or_else(|error| if is_gone(&error) { Ok(Vec::new()) } else { Err(error) });
        let mut entries = read.map_err(|error| self.failed("listing", &error))?;
        entries.retain(|entry| !is_root || entry.name != OWN_DIRECTORY.as_bytes());
        Ok(entries)
    }
}

/// Returns the number of the file that has a name.
fn number_at(place: &Place) -> Option<u64> {
    fs::symlink_metadata(place).ok().map(|found| found.ino())
}
/// Returns whether the files of a rename still have its names: others may have changed either while
/// it waited.
fn are_there((old, moved): (&Place, &Kept), (new, replaced): (&Place, &Kept)) -> bool {
    let number = |kept: &Kept| kept.as_ref().map(|(found, _)| found.ino());
    let (at_old, at_new) = (number_at(old), number_at(new));
    let (is_moved, is_replaced) = match moved {
        Some(_) => (at_old == number(moved), at_new == number(replaced)),
        // Both names are of one file.
        None => (at_old == at_new, true),
    };
    (is_moved || units::fault!("store-name-asked-once"))
        && (is_replaced || units::fault!("store-target-asked-once"))
}

/// Returns whether the directory has default access lists. Then the kernel derives the file's own
/// list from them, and the umask does not count.
fn has_default_lists(directory: &Path) -> bool {
    !units::fault!("store-default-lists-masked")
        && getxattr(directory, "system.posix_acl_default", &mut [0; XATTR_BYTES_MAX][..]).is_ok()
}

/// Makes a file and returns it: a regular one open for reading and writing. A user who may write to
/// the directory can put another file there at any time, so owner and mode are set by the open
/// file.
fn make_at(place: &Place, node: &NewNode, caller: Creator) -> io::Result<File> {
    let (path, directory) = (place.as_ref(), place.directory());
    // The clock may have been set back since the directory's last change.
    let not_before = SystemTime::now().min(changed_at(&fs::metadata(&directory)?));
    let has_lists = has_default_lists(&directory);
    let umask = if has_lists { 0 } else { caller.umask };
    let (made, mode) = match node {
        NewNode::Regular { mode } => {
            let mode = mode & !umask;
            let mut options = OpenOptions::new();
            let options = options.read(true).write(true).create_new(true).mode(mode);
            (Some(options.open(path)?), Some(mode))
        }
        NewNode::Directory { mode } => {
            let mode = mode & !umask;
            DirBuilder::new().mode(mode).create(path)?;
            (None, Some(mode))
        }
        NewNode::Symlink { target } if target.len() <= TARGET_BYTES_MAX => {
            symlink(OsStr::from_bytes(target), path)?;
            (None, None)
        }
        NewNode::Symlink { .. } => return Err(io::Error::from_raw_os_error(libc::ENAMETOOLONG)),
        NewNode::Special { kind, mode, rdev } => {
            let mode = mode & !umask;
            let (kind, permissions) = (FileType::from_raw_mode(*kind), Mode::from_raw_mode(mode));
            mknodat(CWD, path, kind, permissions, u64::from(*rdev))?;
            (None, Some(mode))
        }
    };
    let made = match made {
        Some(made) => made,
        None => hold_made(path, node, not_before, [geteuid().as_raw(), caller.uid])?,
    };
    match give_to(&made, mode.filter(|_| !has_lists), caller, &directory) {
        Ok(()) => Ok(made),
        Err(error) => {
            remove_made(path, &made);
            Err(error)
        }
    }
}

/// Gives what was just made in a directory to the caller, with this mode.
fn give_to(made: &File, mode: Option<u32>, caller: Creator, directory: &Path) -> io::Result<()> {
    let (found, parent) = (made.metadata()?, fs::metadata(directory)?);
    let inherits =
        parent.mode() & libc::S_ISGID != 0 && !units::fault!("store-group-not-inherited");
    let group = if inherits { parent.gid() } else { caller.gid };
    if (found.uid(), found.gid()) != (caller.uid, group) {
        let (uid, gid) = (Uid::from_raw(caller.uid), Gid::from_raw(group));
        chownat(made, "", Some(uid), Some(gid), AtFlags::EMPTY_PATH)?;
    }
    // This process's umask is not the caller's; and a change of owner clears set-id bits.
    let set_group = if inherits && found.is_dir() { libc::S_ISGID } else { 0 };
    if let Some(mode) = mode {
        fs::set_permissions(path_of(made), Permissions::from_mode(mode | set_group))?;
    }
    Ok(())
}

/// Removes what was made and could not be given to its caller: it would keep the name from the next
/// attempt.
fn remove_made(path: &Path, made: &File) {
    let (Ok(made), Ok(found)) = (made.metadata(), fs::symlink_metadata(path)) else { return };
    if (made.dev(), made.ino()) == (found.dev(), found.ino()) {
        // The error of the attempt is what the caller learns.
        let _ = if found.is_dir() { fs::remove_dir(path) } else { fs::remove_file(path) };
    }
}

fn changed_at(metadata: &Metadata) -> SystemTime {
    let nanoseconds = metadata.ctime_nsec() as u32;
    system_time(Timestamp { seconds: metadata.ctime(), nanoseconds })
}

/// Holds what was just made. ESTALE: another file is there, which is of another kind, has another
/// name, belongs to none of `owners`, or was born before `not_before`, when the directory was
/// changed last before this.
fn hold_made(
    path: &Path,
    node: &NewNode,
    not_before: SystemTime,
    owners: [u32; 2],
) -> io::Result<File> {
    let held = hold(path)?;
    let found = held.metadata()?;
    let kind = match node {
        NewNode::Regular { .. } => libc::S_IFREG,
        NewNode::Directory { .. } => libc::S_IFDIR,
        NewNode::Symlink { .. } => libc::S_IFLNK,
        NewNode::Special { kind, .. } => *kind,
    };
    let is_older = found.created().is_ok_and(|born| born + TIMES_DIFFER_MAX < not_before);
    let is_known = found.mode() & libc::S_IFMT == kind && (found.is_dir() || found.nlink() == 1);
    // What this process makes belongs to it. What another user puts there must not become the
    // caller's.
    let is_owned = owners.contains(&found.uid()) || units::fault!("store-made-of-another-taken");
    match is_known && is_owned && !is_older {
        true => Ok(held),
        false => Err(io::Error::from_raw_os_error(libc::ESTALE)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Owner and mode would otherwise be taken for the caller's.
    #[test]
    fn what_another_put_there_is_not_held_as_made() {
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| root.path().join(name);
        let (now, owners) = (SystemTime::now(), [geteuid().as_raw(); 2]);
        let hold_made =
            |path: &Path, node, not_before| super::hold_made(path, node, not_before, owners);
        let directory = NewNode::Directory { mode: 0o755 };
        let pipe = NewNode::Special { kind: libc::S_IFIFO, mode: 0o644, rdev: 0 };
        fs::create_dir(at("directory")).unwrap();
        hold_made(&at("directory"), &directory, now).unwrap();
        let later = now + Duration::from_secs(60);
        let is_stale = |held: io::Result<File>| {
            assert_eq!(held.unwrap_err().raw_os_error(), Some(libc::ESTALE));
        };
        is_stale(hold_made(&at("directory"), &directory, later));
        is_stale(hold_made(&at("directory"), &pipe, now));
        if geteuid().is_root() {
            fs::create_dir(at("theirs")).unwrap();
            std::os::unix::fs::chown(at("theirs"), Some(4711), None).unwrap();
            is_stale(hold_made(&at("theirs"), &directory, now));
        }
        symlink("directory", at("link")).unwrap();
        is_stale(hold_made(&at("link"), &directory, now));
        let (kind, mode) = (FileType::Fifo, Mode::from_raw_mode(0o644));
        mknodat(CWD, at("pipe"), kind, mode, 0).unwrap();
        hold_made(&at("pipe"), &pipe, now).unwrap();
        fs::hard_link(at("pipe"), at("another name")).unwrap();
        is_stale(hold_made(&at("pipe"), &pipe, now));
    }
}
