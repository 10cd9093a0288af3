//! Renaming.
//!
//! Locks, in this order: the volume's `renames` when two directories take part, the directories (an
//! ancestor first), the moved inode, the replaced one. While `renames` is held no directory changes
//! its place, so ancestry is known before the locks are taken.

use super::link::Removal;
use super::links::{add_subdirectory, remove_subdirectory};
use super::{Intent, RenameMode, Stamped, check_name, refused};
use crate::directory::{Directory, Found};
use crate::inode_table::ROOT;
use crate::{Caller, Error, Inode, NewInode, Result, Volume};
use engine::{Block, Credits, Handle};
use format::ext4::directory::entry_type;
use format::ext4::inode::flags;
use runtime::WalkPace;
use runtime::sync::WriteGuard;
use std::collections::BTreeSet;
use std::rc::Rc;
use units::InodeNumber;
use units::Refusal;

const CHARACTER_DEVICE: u16 = 0x2000;
/// Directories on the way to the root that are visited before other tasks run.
const LEVELS_AT_ONCE: usize = 256;

/// One of the two sides of a rename, its directory locked.
struct Side<'a> {
    parent: &'a Rc<Inode>,
    directory: Directory<'a>,
    name: &'a [u8],
}

/// A rename in progress.
struct Move<'a> {
    from: Side<'a>,
    to: Side<'a>,
    source: Rc<Inode>,
    target: Option<Rc<Inode>>,
    caller: &'a Caller<'a>,
    mode: RenameMode,
}

impl Volume {
    /// Renames the file at `from` to `to`, atomically. `caller` owns the whiteout, if one is made.
    /// Returns the directories that have another parent now.
    pub async fn rename(
        self: &Rc<Self>,
        from: (&Rc<Inode>, &[u8]),
        to: (&Rc<Inode>, &[u8]),
        caller: &Caller<'_>,
        mode: RenameMode,
    ) -> Result<Stamped<Vec<InodeNumber>>> {
        check_name(from.1)?;
        check_name(to.1)?;
        let crossing = from.0.number != to.0.number;
        let (renames, above) = match crossing {
            true => {
                let renames = self.renames.write().await;
                (Some(renames), (self.ancestors(from.0).await?, self.ancestors(to.0).await?))
            }
            false => (None, Default::default()),
        };
        let directories = lock_directories(from.0, to.0, &above).await;
        let place = |(parent, name), intent| {
            Ok::<_, Error>(Side { parent, name, directory: self.changeable(parent, intent)? })
        };
        let from = place(from, Intent::Remove)?;
        let to =
            place(to, if mode == RenameMode::Exchange { Intent::Remove } else { Intent::Add })?;
        let (_, source) = self.existing(&from.directory, from.parent, from.name).await?;
        let target = match to.directory.find(to.name).await? {
            Some(found) => Some(self.entry_inode(to.parent, found.inode).await?),
            None => None,
        };
        match (&target, mode) {
            (Some(_), mode) if mode.refuses_target() => return refused(Refusal::Exists),
            (None, RenameMode::Exchange) => return refused(Refusal::NotFound),
            (Some(target), _) if target.number == source.number => {
                return Ok(Stamped { value: Vec::new(), transaction: source.last_change.get() });
            }
            (Some(_), _) if to.parent.has_flag(flags::APPEND) => {
                return refused(Refusal::NotPermitted);
            }
            _ => {}
        }
        self.check_project(to.parent, &source)?;
        if let (Some(target), RenameMode::Exchange) = (&target, mode) {
            self.check_project(from.parent, target)?;
        }
        // A directory must not be moved into itself, nor replace one of its ancestors.
        if above.1.contains(&source.number) {
            return refused(Refusal::Invalid);
        }
        if target.as_ref().is_some_and(|target| above.0.contains(&target.number)) {
            return refused(if mode == RenameMode::Exchange {
                Refusal::Invalid
            } else {
                Refusal::NotEmpty
            });
        }
        let locks = lock_children(&source, target.as_ref()).await;
        let moving = Move { from, to, source, target, caller, mode };
        let transaction = self.rename_locked(&moving).await?;
        let exchanged = moving.target.iter().filter(|_| mode == RenameMode::Exchange);
        let moved = std::iter::once(&moving.source).chain(exchanged);
        let elsewhere =
            moved.filter(|inode| crossing && inode.is_directory()).map(|inode| inode.number);
        let elsewhere = elsewhere.collect();
        let replaced = moving.target.filter(|_| mode != RenameMode::Exchange);
        drop((locks, directories, renames));
        if let Some(victim) = replaced {
            self.free_or_leave(&victim).await?;
        }
        Ok(Stamped { value: elsewhere, transaction })
    }

    /// The directory itself and all its ancestors. `renames` is held.
    async fn ancestors(self: &Rc<Self>, directory: &Rc<Inode>) -> Result<BTreeSet<InodeNumber>> {
        let mut above = BTreeSet::from([directory.number]);
        let (mut at, mut pace) = (directory.clone(), WalkPace::new(LEVELS_AT_ONCE));
        while at.number != ROOT {
            pace.visited(1).await;
            let parent = {
                let _lock = at.lock.read().await;
                if at.fields.borrow().links == 0 {
                    return refused(Refusal::NotFound);
                }
                Directory::of(self, &at)?.parent().await?
            };
            if !above.insert(parent) {
                return Err(Error::corrupt_inode(parent, "a directory lies within itself"));
            }
            at = self.entry_inode(&at, parent).await?;
        }
        Ok(above)
    }

    async fn rename_locked(self: &Rc<Self>, moving: &Move<'_>) -> Result<units::TransactionId> {
        self.check_move(moving).await?;
        let _held = self.hold_places(moving).await?;
        let credits = || self.rename_credits(moving);
        let rename = async |handle: &mut Handle, abandoned: &mut Option<Rc<Inode>>| {
            self.rename_within(handle, moving, abandoned).await
        };
        Ok(self.with_space_or_abandoned(credits, rename).await?.transaction)
    }

    async fn check_move(self: &Rc<Self>, moving: &Move<'_>) -> Result<()> {
        let Move { source, target, mode, .. } = moving;
        if source.has_flag(flags::IMMUTABLE | flags::APPEND) {
            return refused(Refusal::NotPermitted);
        }
        match target {
            Some(target) if *mode == RenameMode::Exchange => {
                let kept = target.has_flag(flags::IMMUTABLE | flags::APPEND);
                return if kept {
                    refused(Refusal::NotPermitted)
                } else {
                    self.check_subdirectories(moving)
                };
            }
            Some(target) => {
                let removal =
                    if source.is_directory() { Removal::Directory } else { Removal::File };
                self.check_victim(target, removal).await?;
            }
            None => {}
        }
        self.check_subdirectories(moving)
    }

    /// Returns EMLINK when a directory would get one subdirectory too many.
    fn check_subdirectories(&self, moving: &Move<'_>) -> Result<()> {
        let Move { from, to, source, target, mode, .. } = moving;
        let gains = |place: &Side<'_>, comes: &Inode, goes: Option<&Rc<Inode>>| {
            comes.is_directory()
                && !goes.is_some_and(|inode| inode.is_directory())
                && !self.takes_subdirectory(place.parent)
        };
        let crossing = from.parent.number != to.parent.number;
        let full = gains(to, source, target.as_ref())
            || *mode == RenameMode::Exchange
                && target.as_ref().is_some_and(|it| gains(from, it, Some(source)));
        if crossing && full {
            return refused(Refusal::TooManyLinks);
        }
        Ok(())
    }

    /// A new entry + the block of the old name + the first blocks of both, which hold `..` + the
    /// four inodes + the orphans. And a whiteout with its list, which may have to become an orphan.
    fn rename_credits(&self, moving: &Move<'_>) -> Credits {
        moving.to.directory.insert_credits()
            + Credits(1 + 2)
            + self.credits_inode() * 4
            + self.credits_orphan()
            + self.credits_create_inode()
            + self.credits_inherit_attributes()
            + self.credits_inode()
            + self.credits_orphan()
    }

    async fn rename_within(
        self: &Rc<Self>,
        handle: &mut Handle,
        moving: &Move<'_>,
        abandoned: &mut Option<Rc<Inode>>,
    ) -> Result<()> {
        let Move { from, to, source, target, mode, .. } = moving;
        // Every step that may fail.
        let slot = match target {
            Some(_) => None,
            None => Some(to.directory.make_slot(handle, moving.caller, &to.name.into()).await?),
        };
        let whiteout = match mode.leaves_whiteout() {
            true => Some(self.make_whiteout(handle, moving).await?),
            false => None,
        };
        let inherited = match &whiteout {
            Some(whiteout) => {
                self.inherit_attributes(handle, from.parent, whiteout, moving.caller).await
            }
            None => Ok(()),
        };
        let prepared = match inherited {
            Ok(()) => self.prepare(moving).await,
            Err(error) => Err(error),
        };
        let (old, new) = match prepared {
            Ok(found) => found,
            Err(error) => {
                if let Some(whiteout) = whiteout {
                    self.abandon_whiteout(handle, &whiteout).await?;
                    *abandoned = Some(whiteout);
                }
                return Err(error);
            }
        };
        // Names.
        let source_type = type_of(source);
        match (slot, &new) {
            (Some(slot), _) => {
                to.directory.put(handle, slot, source.number, source_type, to.name)?
            }
            (None, Some(new)) => {
                to.directory.replace(handle, new, to.name, source.number, source_type)?
            }
            (None, None) => unreachable!("a place was found or made"),
        }
        let takes_old_name = match mode {
            RenameMode::Exchange => target.as_ref(),
            _ => whiteout.as_ref(),
        };
        match takes_old_name {
            Some(inode) => {
                from.directory.replace(handle, &old, from.name, inode.number, type_of(inode))?;
            }
            None => from.directory.remove(handle, &old, from.name)?,
        }
        self.adopt(handle, moving).await?;
        self.settle(handle, moving).await
    }

    /// The table blocks of all inodes, and the first blocks of directories, which hold `..`.
    async fn hold_places(self: &Rc<Self>, moving: &Move<'_>) -> Result<Vec<Block>> {
        let Move { from, to, source, target, .. } = moving;
        let mut held = self.hold(&[from.parent, to.parent, source]).await?.into_vec();
        if let Some(target) = target {
            held.extend(self.hold(&[target]).await?);
        }
        for directory in
            [Some(source), target.as_ref()].into_iter().flatten().filter(|it| it.is_directory())
        {
            let names = Directory::of(self, directory)?;
            held.extend(names.first_block().await?);
            // One that cannot be given another parent keeps its place, before any name changes.
            if from.parent.number != to.parent.number {
                names.parent().await?;
            }
        }
        Ok(held)
    }

    /// Looks up both entries, with the blocks that will be changed.
    async fn prepare(self: &Rc<Self>, moving: &Move<'_>) -> Result<(Found, Option<Found>)> {
        let vanished = || Error::corrupt_inode(moving.from.parent.number, "a name has vanished");
        let old = moving.from.directory.find(moving.from.name).await?.ok_or_else(vanished)?;
        let new = match moving.target {
            Some(_) => Some(moving.to.directory.find(moving.to.name).await?.ok_or_else(vanished)?),
            None => None,
        };
        Ok((old, new))
    }

    async fn make_whiteout(
        self: &Rc<Self>,
        handle: &mut Handle,
        moving: &Move<'_>,
    ) -> Result<Rc<Inode>> {
        let Caller { uid, gid, .. } = *moving.caller;
        let parent: &Inode = moving.from.parent;
        self.create_inode(handle, NewInode { parent, mode: CHARACTER_DEVICE, uid, gid, rdev: 0 })
            .await
    }

    async fn abandon_whiteout(&self, handle: &mut Handle, whiteout: &Inode) -> Result<()> {
        whiteout.fields.borrow_mut().links = 0;
        self.orphan_add(handle, whiteout);
        self.store(handle, whiteout).await
    }

    /// Updates directories that move to another parent: their `..`, and the link counts for it.
    async fn adopt(self: &Rc<Self>, handle: &mut Handle, moving: &Move<'_>) -> Result<()> {
        let Move { from, to, source, target, mode, .. } = moving;
        let crossing = from.parent.number != to.parent.number;
        let target = target.as_ref().filter(|target| target.is_directory());
        let leaves = source.is_directory() && crossing;
        let returns = target.filter(|_| *mode == RenameMode::Exchange && crossing);
        if leaves {
            self.change_parent(handle, source, to.parent.number).await?;
            remove_subdirectory(from.parent);
        }
        if let Some(target) = returns {
            self.change_parent(handle, target, from.parent.number).await?;
        }
        if returns.is_some() || target.is_some() && *mode != RenameMode::Exchange {
            remove_subdirectory(to.parent);
        }
        // Behind all removals: a count at its maximum stays only if it is never exceeded.
        if leaves {
            add_subdirectory(to.parent);
        }
        if returns.is_some() {
            add_subdirectory(from.parent);
        }
        Ok(())
    }

    async fn change_parent(
        self: &Rc<Self>,
        handle: &mut Handle,
        directory: &Inode,
        parent: InodeNumber,
    ) -> Result<()> {
        let names = Directory::of(self, directory)?;
        let first = names.first_block().await?;
        names.set_parent(handle, first.as_ref(), parent)
    }

    /// Updates times, link counts and orphans of all inodes involved.
    async fn settle(self: &Rc<Self>, handle: &mut Handle, moving: &Move<'_>) -> Result<()> {
        let Move { from, to, source, target, mode, .. } = moving;
        self.note_change(source);
        self.store(handle, source).await?;
        self.store_names_changed(handle, from.parent).await?;
        if from.parent.number != to.parent.number {
            self.store_names_changed(handle, to.parent).await?;
        }
        match target {
            Some(target) if *mode == RenameMode::Exchange => {
                self.note_change(target);
                self.store(handle, target).await
            }
            Some(victim) => self.drop_link(handle, victim).await,
            None => Ok(()),
        }
    }
}

fn type_of(inode: &Inode) -> u8 {
    entry_type::of_mode(inode.fields.borrow().mode)
}

type Above = (BTreeSet<InodeNumber>, BTreeSet<InodeNumber>);

/// Locks an ancestor first; of two that are unrelated, the lower number.
async fn lock_directories(
    from: &Rc<Inode>,
    to: &Rc<Inode>,
    above: &Above,
) -> (WriteGuard, Option<WriteGuard>) {
    if from.number == to.number {
        return (from.lock.write().await, None);
    }
    let from_is_above = above.1.contains(&from.number);
    let to_is_above = above.0.contains(&to.number);
    let from_first = from_is_above || !to_is_above && from.number < to.number;
    let (first, second) = if from_first { (from, to) } else { (to, from) };
    let guard = first.lock.write().await;
    (guard, Some(second.lock.write().await))
}

/// Locks directories before files, else the lower number first. Neither lies within the other.
async fn lock_children(source: &Rc<Inode>, target: Option<&Rc<Inode>>) -> Vec<WriteGuard> {
    let mut children: Vec<&Rc<Inode>> = std::iter::once(source).chain(target).collect();
    children.sort_by_key(|inode| (!inode.is_directory(), inode.number));
    let mut guards = Vec::with_capacity(children.len());
    for inode in children {
        guards.push(inode.lock.write().await);
    }
    guards
}
