//! Names, as the metadata server keeps them. Each change is one message, and durable there with its
//! answer; carried out a second time it finds its own work done.

use super::Client;
use crate::attributes::{FileAttributes, FileId, FileKind};
use crate::error::{Refusal, StoreError};
use crate::event::Token;
use crate::limits::{LISTING_ENTRIES_MAX, NAME_BYTES_MAX, TARGET_BYTES_MAX};
use crate::listing::{after, cursor_of, in_order};
use crate::names::{Creator, Entry, Found, Listing, NewNode, RenameOver};
use crate::simulated::servers::{Inode, RequestKind, Session};
use std::collections::BTreeMap;

const SET_GROUP: u32 = 0o2000;

type Name = Vec<u8>;
type Inodes = BTreeMap<FileId, Inode>;

fn check(name: &[u8]) -> Result<(), Refusal> {
    match name {
        [] | b"." | b".." => Err(Refusal::Invalid),
        name if name.contains(&b'/') || name.contains(&0) => Err(Refusal::Invalid),
        name if name.len() > NAME_BYTES_MAX => Err(Refusal::NameTooLong),
        _ => Ok(()),
    }
}

fn directory(inodes: &mut Inodes, file: FileId) -> Result<&mut Inode, Refusal> {
    let inode = inodes.get_mut(&file).ok_or(Refusal::Stale)?;
    if inode.attributes.kind == FileKind::Directory {
        Ok(inode)
    } else {
        Err(Refusal::NotDirectory)
    }
}

impl Client {
    /// Counts a change of names, which changes the file's state. The holder of a held file reports
    /// it.
    fn count_change(&self, file: FileId, inode: &mut Inode) {
        let against = self.state.tokens.borrow().against_change(file, self.session_number());
        if !against.is_empty() || self.files.borrow().contains_key(&file) {
            return;
        }
        let before = inode.attributes.version;
        inode.attributes.version = self.state.next_version(before, before.size);
        inode.attributes.changed = self.now();
    }
    async fn on_names<T>(
        &self,
        request: RequestKind,
        mut carry_out: impl FnMut(&mut Inodes) -> Result<T, Refusal>,
    ) -> Result<T, StoreError> {
        let state = self.state.clone();
        Ok(self.exchange(request, 0, || carry_out(&mut state.inodes.borrow_mut())).await??)
    }
    /// Changes names; the metadata server's journal has the change soon after the answer.
    async fn change_names<T>(
        &self,
        request: RequestKind,
        mut carry_out: impl FnMut(&mut Inodes) -> Result<T, Refusal>,
    ) -> Result<T, StoreError> {
        let number = self.session_number();
        let done = self.on_names(request, |inodes| {
            *self.state.name_changes.borrow_mut().entry(number).or_default() += 1;
            carry_out(inodes)
        });
        let done = done.await;
        let state = self.state.clone();
        self.state.world.spawn(Box::pin(async move { state.journal_names().await }));
        done
    }
}

pub(super) async fn lookup(
    client: &Client,
    parent: FileId,
    name: Name,
) -> Result<Found, StoreError> {
    let found = client.on_names(RequestKind::Lookup, |inodes| {
        let file = *directory(inodes, parent)?.entries.get(&name).ok_or(Refusal::NotFound)?;
        let attributes = inodes.get(&file).ok_or(Refusal::Stale)?.attributes;
        Ok(Found { file, attributes })
    });
    found.await
}

/// Creates a file. With a holder, that client has the new file's exclusive token.
pub(super) async fn make(
    client: &Client,
    parent: FileId,
    name: Name,
    node: NewNode,
    caller: Creator,
    holder: Option<&Session>,
) -> Result<Found, StoreError> {
    check(&name)?;
    let file = client.new_file();
    let (kind, mode, target, rdev) = match node {
        NewNode::Regular { mode } => (FileKind::Regular, mode & !caller.umask, Vec::new(), 0),
        NewNode::Directory { mode } => (FileKind::Directory, mode & !caller.umask, Vec::new(), 0),
        NewNode::Symlink { target } if target.len() <= TARGET_BYTES_MAX => {
            (FileKind::Symlink, 0o777, target, 0)
        }
        NewNode::Symlink { .. } => return Err(Refusal::NameTooLong.into()),
        NewNode::Special { kind, mode, rdev } => {
            (FileKind::Special(kind), mode & !caller.umask, Vec::new(), rdev)
        }
    };
    let mut attributes = FileAttributes { rdev, ..client.made(file, kind, mode, caller) };
    attributes.version.size = target.len() as u64;
    let (state, leased) = (client.state.clone(), name.clone());
    let made = client.change_names(RequestKind::Change, move |inodes| {
        let parent = directory(inodes, parent)?;
        // In a set-group-id directory the group is inherited.
        if parent.attributes.mode & SET_GROUP != 0 {
            attributes.gid = parent.attributes.gid;
            attributes.mode |= if kind == FileKind::Directory { SET_GROUP } else { 0 };
        }
        let entries = &mut parent.entries;
        match entries.get(&name) {
            Some(found) if *found == file => {}
            Some(_) => return Err(Refusal::Exists),
            None => {
                if let Some(holder) = holder {
                    state.tokens.borrow_mut().give(file, holder.number, Token::ExclusiveWrite);
                }
                entries.insert(name.clone(), file);
                let (data, target) = (Vec::new(), target.clone());
                let (entries, xattrs) = (BTreeMap::new(), BTreeMap::new());
                inodes.insert(
                    file,
                    Inode {
                        attributes,
                        data,
                        written: Default::default(),
                        opens: 0,
                        entries,
                        target,
                        xattrs,
                    },
                );
            }
        }
        Ok(Found { file, attributes })
    });
    let found = made.await?;
    client.lease(parent, leased, file);
    Ok(found)
}

pub(super) async fn link(
    client: &Client,
    file: FileId,
    parent: FileId,
    name: Name,
) -> Result<FileAttributes, StoreError> {
    check(&name)?;
    let mut done = false;
    let linked = client.change_names(RequestKind::Change, |inodes| {
        // A file that lost its last name gets none any more.
        if inodes.get(&file).is_none_or(|inode| !done && inode.attributes.links == 0) {
            return Err(Refusal::Stale);
        }
        let entries = &mut directory(inodes, parent)?.entries;
        if !done {
            if entries.contains_key(&name) {
                return Err(Refusal::Exists);
            }
            entries.insert(name.clone(), file);
        }
        let inode = inodes.get_mut(&file).ok_or(Refusal::Stale)?;
        if !std::mem::replace(&mut done, true) {
            inode.attributes.links += 1;
            client.count_change(file, inode);
        }
        Ok(inode.attributes)
    });
    linked.await
}

pub(super) async fn unlink(
    client: &Client,
    parent: FileId,
    name: Name,
    of_directory: bool,
) -> Result<(), StoreError> {
    client.end_lease(parent, &name);
    let mut done = false;
    let unlinked = client.change_names(RequestKind::Removal, |inodes| {
        if done {
            return Ok(());
        }
        let file = *directory(inodes, parent)?.entries.get(&name).ok_or(Refusal::NotFound)?;
        check_removable(inodes, file, of_directory)?;
        directory(inodes, parent)?.entries.remove(&name);
        drop_link(client, inodes, file);
        client.lost_name(file);
        done = true;
        Ok(())
    });
    unlinked.await
}

fn check_removable(inodes: &Inodes, file: FileId, of_directory: bool) -> Result<(), Refusal> {
    let inode = inodes.get(&file).ok_or(Refusal::Stale)?;
    match (inode.attributes.kind == FileKind::Directory, of_directory) {
        (true, false) => Err(Refusal::IsDirectory),
        (false, true) => Err(Refusal::NotDirectory),
        (true, true) if !inode.entries.is_empty() => Err(Refusal::NotEmpty),
        _ => Ok(()),
    }
}

/// Removes a name. A file without a name stays while a client has it open; otherwise only its
/// number stays.
fn drop_link(client: &Client, inodes: &mut Inodes, file: FileId) {
    if let Some(inode) = inodes.get_mut(&file) {
        client.count_change(file, inode);
        let of_directory = inode.attributes.kind == FileKind::Directory;
        inode.attributes.links =
            if of_directory { 0 } else { inode.attributes.links.saturating_sub(1) };
        inode.drop_unreachable();
    }
}

pub(super) async fn rename(
    client: &Client,
    from: (FileId, Name),
    to: (FileId, Name),
    mode: RenameOver,
) -> Result<(), StoreError> {
    check(&to.1)?;
    client.end_lease(from.0, &from.1);
    client.end_lease(to.0, &to.1);
    let mut done = false;
    let renamed = client.change_names(RequestKind::Change, |inodes| {
        if done {
            return Ok(());
        }
        let file = *directory(inodes, from.0)?.entries.get(&from.1).ok_or(Refusal::NotFound)?;
        let of_directory =
            inodes.get(&file).ok_or(Refusal::Stale)?.attributes.kind == FileKind::Directory;
        if of_directory && is_within(inodes, to.0, file) {
            return Err(Refusal::Invalid);
        }
        if let Some(replaced) = directory(inodes, to.0)?.entries.get(&to.1).copied() {
            if mode == RenameOver::NoReplace {
                return Err(Refusal::Exists);
            }
            if replaced == file {
                return Ok(());
            }
            if mode == RenameOver::Exchange {
                if is_within(inodes, from.0, replaced) {
                    return Err(Refusal::Invalid);
                }
                directory(inodes, from.0)?.entries.insert(from.1.clone(), replaced);
                directory(inodes, to.0)?.entries.insert(to.1.clone(), file);
                done = true;
                return Ok(());
            }
            check_removable(inodes, replaced, of_directory)?;
            drop_link(client, inodes, replaced);
            client.lost_name(replaced);
        } else if mode == RenameOver::Exchange {
            return Err(Refusal::NotFound);
        }
        directory(inodes, from.0)?.entries.remove(&from.1);
        directory(inodes, to.0)?.entries.insert(to.1.clone(), file);
        done = true;
        Ok(())
    });
    renamed.await
}

/// Returns whether `file` is `above` or lies below it.
fn is_within(inodes: &Inodes, file: FileId, above: FileId) -> bool {
    let below = |inode: &Inode| inode.entries.values().any(|entry| is_within(inodes, file, *entry));
    file == above || inodes.get(&above).is_some_and(below)
}

pub(super) async fn list(
    client: &Client,
    parent: FileId,
    cursor: u64,
) -> Result<Listing, StoreError> {
    let listed = client.on_names(RequestKind::Lookup, |inodes| {
        let mut entries = Vec::new();
        for (name, file) in directory(inodes, parent)?.entries.clone() {
            let kind = inodes.get(&file).ok_or(Refusal::Stale)?.attributes.kind;
            let cursor = cursor_of(parent.0, &name);
            entries.push(Entry { name, file, kind, cursor });
        }
        let entries = in_order(entries);
        let rest = after(&entries, cursor);
        let some = rest.iter().take(LISTING_ENTRIES_MAX).cloned().collect();
        Ok(Listing { entries: some, is_end: rest.len() <= LISTING_ENTRIES_MAX })
    });
    listed.await
}
