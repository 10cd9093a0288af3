//! Listing a directory in chunks, while other tasks change it.
//!
//! A cookie records where a chunk ended. In a linear directory it is a byte offset: names stay
//! where they are. In an indexed directory, and in one of a single block that may become indexed,
//! names move when leaves are split. There the order is that of the hashes, and the cookie is the
//! hash of the last name: 31 bits major, 32 bits minor. (The legacy hash has no minor part; a
//! checksum of the name replaces it.)

use super::{Directory, Kind};
use crate::{DirectoryEntry, FileType, Result};
use format::ext4::checksum::crc32c;
use format::ext4::directory::{RawEntry, entry_type};
use format::ext4::hash::{END_OF_DIRECTORY, HashVersion, NameHasher};
use std::cell::Cell;
use units::{FileBlock, InodeNumber};

/// Cookies of a listing by hash: 0 the start, 1 behind `.`, 2 behind `..`, then `position + 3`
/// behind a name.
const AFTER_DOT: u64 = 1;
const AFTER_DOTDOT: u64 = 2;

/// Bound on names with one and the same position, between which a listing must not stop. (Two of
/// 2^63 collide only in damaged directories, or by an attacker's work. Then names may be left out
/// rather than be repeated for ever.)
const TWINS_MAX: usize = 8;

/// Names in the second chunk after a change; each further one may hold twice as many.
const CHUNK_AFTER_CHANGE: usize = 64;

/// Blocks in memory that are walked before other tasks run.
const STEPS_AT_ONCE: u32 = 256;

/// Lets other tasks run now and then in a walk over all blocks of a directory, which may all be in
/// memory.
pub(super) async fn yield_behind(at: u32) {
    if (at + 1) % STEPS_AT_ONCE == 0 {
        runtime::yield_now().await;
    }
}

/// Listing state of a directory in memory.
///
/// A lister delays each change of the directory by one chunk. So while names are added and removed
/// a chunk is one leaf; and leaves that are known to be empty are not walked again.
#[derive(Default)]
pub(crate) struct Listing {
    /// Chunks read since a name was last added or removed.
    undisturbed: Cell<u32>,
    /// Position before which the index has no name.
    empty_before: Cell<u64>,
}

impl Listing {
    pub(super) fn name_came(&self) {
        self.undisturbed.set(0);
        self.empty_before.set(0);
    }
    pub(super) fn name_went(&self) {
        self.undisturbed.set(0);
    }
    /// Number of names that end a chunk of at most `count`.
    fn enough(&self, count: usize) -> usize {
        let calm = self.undisturbed.get();
        self.undisturbed.set(calm.saturating_add(1));
        match calm.checked_sub(1) {
            None => 1,
            Some(calm) => count.min(CHUNK_AFTER_CHANGE << calm.min(16)),
        }
    }
}

impl Directory<'_> {
    /// The entries behind `cookie` (0: all), `count` or a few more; empty only at the end.
    pub async fn read(&self, cookie: u64, count: usize) -> Result<Vec<DirectoryEntry>> {
        let single = self.blocks()? == 1;
        match self.default_hasher() {
            _ if self.is_indexed() => self.read_by_hash(cookie, count, None).await,
            Some(hasher) if single => self.read_by_hash(cookie, count, Some(hasher)).await,
            _ => self.read_linear(cookie, count).await,
        }
    }

    /// Whether there are no names but `.` and `..` in any block. An index is not followed, as the
    /// kernel does not follow it: a damaged one may not lead to all blocks.
    pub async fn is_empty(&self) -> Result<bool> {
        for at in 0..self.blocks()? {
            if self.has_name(FileBlock(at)).await? {
                return Ok(false);
            }
            yield_behind(at).await;
        }
        Ok(true)
    }

    async fn has_name(&self, at: FileBlock) -> Result<bool> {
        if self.is_indexed() {
            if at == FileBlock(0) {
                // That nothing stands behind `.` and `..` is checked.
                let root = self.block(at, Kind::Root).await?;
                return self.table(&root, Kind::Root).map(|_| false);
            }
            if self.is_node(at).await? {
                return self.block(at, Kind::Node).await.map(|_| false);
            }
        }
        let leaf = self.leaf_bytes(at).await?;
        for entry in self.format.entries(&leaf) {
            let entry = entry.map_err(|error| self.damaged_leaf(at, error))?;
            if entry.inode.is_some() && !is_dots(entry.name) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    async fn read_linear(&self, cookie: u64, count: usize) -> Result<Vec<DirectoryEntry>> {
        let shift = self.settings.block_size.shift();
        let enough = self.inode.listing.enough(count);
        let mut listed = Vec::new();
        for at in u32::try_from(cookie >> shift).unwrap_or(u32::MAX)..self.blocks()? {
            let leaf = self.leaf_bytes(FileBlock(at)).await?;
            let start = u64::from(at) << shift;
            for entry in self.format.entries(&leaf) {
                let entry = entry.map_err(|error| self.damaged_leaf(FileBlock(at), error))?;
                let Some(inode) = entry.inode else { continue };
                // A cookie may point into an entry that has absorbed the space of others.
                if start + entry.at as u64 >= cookie {
                    listed.push(self.entry(&entry, inode, start + entry.end() as u64));
                }
            }
            if listed.len() >= enough {
                break;
            }
            yield_behind(at).await;
        }
        listed.truncate(count.max(1));
        Ok(listed)
    }

    async fn read_by_hash(
        &self,
        cookie: u64,
        count: usize,
        single: Option<NameHasher>,
    ) -> Result<Vec<DirectoryEntry>> {
        let mut listed = Vec::new();
        let dot = |name: &[u8], inode, cookie| DirectoryEntry {
            inode,
            file_type: FileType::Directory,
            name: name.to_vec(),
            cookie,
        };
        if cookie < AFTER_DOT {
            listed.push(dot(b".", self.inode.number, AFTER_DOT));
        }
        if cookie < AFTER_DOTDOT {
            listed.push(dot(b"..", self.parent().await?, AFTER_DOTDOT));
        }
        let mut from = cookie.saturating_sub(AFTER_DOTDOT);
        if single.is_none() {
            from = from.max(self.inode.listing.empty_before.get());
        }
        if from >> 31 >= u64::from(END_OF_DIRECTORY) {
            return Ok(listed);
        }
        if let Some(hasher) = single {
            let mut found = Vec::new();
            self.collect(FileBlock(0), &hasher, from, &mut found).await?;
            deliver(&mut found, &mut listed);
        } else {
            self.read_index(from, count, &mut listed).await?;
        }
        listed.truncate(count.max(1));
        Ok(listed)
    }

    async fn read_index(
        &self,
        from: u64,
        count: usize,
        listed: &mut Vec<DirectoryEntry>,
    ) -> Result<()> {
        let mut path = self.probe_by(|_| (from >> 32 << 1) as u32).await?;
        let listing = &self.inode.listing;
        let (enough, begin) = (listing.enough(count.saturating_sub(listed.len())), listed.len());
        // No name begins before this position.
        let mut first =
            (from <= listing.empty_before.get()).then_some(u64::from(END_OF_DIRECTORY) << 31);
        let mut found: Vec<(u64, DirectoryEntry)> = Vec::new();
        loop {
            let (leaf, _) = self.leaf(&path).await?;
            self.collect(leaf, &path.hasher, from, &mut found).await?;
            let next = self.advance(&mut path).await?;
            if path.leaves % STEPS_AT_ONCE == 0 {
                runtime::yield_now().await;
            }
            if next.is_some_and(|lowest| lowest & 1 != 0) {
                // Names of the last hash go on in the next leaf, and their order is not known
                // before. What exceeds the chunk is read again for the next one.
                found.sort_by_key(|(position, _)| *position);
                found.truncate(count + TWINS_MAX);
                continue;
            }
            if let (Some(end), Some(earliest)) =
                (first, found.iter().map(|(position, _)| *position).min())
            {
                first = Some(end.min(earliest));
            }
            deliver(&mut found, listed);
            if next.is_none() || listed.len() >= begin + enough {
                if let Some(first) = first {
                    listing.empty_before.set(first);
                }
                return Ok(());
            }
        }
    }

    /// Adds the names of a leaf whose positions are `from` or later.
    async fn collect(
        &self,
        at: FileBlock,
        hasher: &NameHasher,
        from: u64,
        found: &mut Vec<(u64, DirectoryEntry)>,
    ) -> Result<()> {
        let leaf = self.leaf_bytes(at).await?;
        for entry in self.format.entries(&leaf) {
            let entry = entry.map_err(|error| self.damaged_leaf(at, error))?;
            let Some(inode) = entry.inode.filter(|_| !is_dots(entry.name)) else { continue };
            let position = position(hasher, entry.name);
            if position >= from {
                found.push((position, self.entry(&entry, inode, position + AFTER_DOTDOT + 1)));
            }
        }
        Ok(())
    }

    fn entry(&self, entry: &RawEntry<'_>, inode: InodeNumber, cookie: u64) -> DirectoryEntry {
        let known = self.format.file_types;
        let file_type = if known { file_type(entry.file_type) } else { FileType::Unknown };
        DirectoryEntry { inode, file_type, name: entry.name.to_vec(), cookie }
    }
}

/// Moves the found entries to the list, in order. Of several names in one position all but the last
/// carry a cookie that returns to the first.
fn deliver(found: &mut Vec<(u64, DirectoryEntry)>, listed: &mut Vec<DirectoryEntry>) {
    found.sort_by(|a, b| (a.0, &a.1.name).cmp(&(b.0, &b.1.name)));
    let mut twins = 0;
    for index in 1..found.len() {
        twins = if found[index - 1].0 == found[index].0 { twins + 1 } else { 0 };
        if (1..TWINS_MAX).contains(&twins) {
            found[index - 1].1.cookie -= 1;
        }
    }
    listed.extend(found.drain(..).map(|(_, entry)| entry));
}

/// Position of a name in the order of hashes; below 2^63 - 3.
fn position(hasher: &NameHasher, name: &[u8]) -> u64 {
    let hash = hasher.hash(name);
    let minor = if hasher.version == HashVersion::Legacy { crc32c(0, name) } else { hash.minor };
    u64::from(hash.major >> 1) << 32 | u64::from(minor)
}

fn is_dots(name: &[u8]) -> bool {
    name == b"." || name == b".."
}

pub(crate) fn file_type(stored: u8) -> FileType {
    match stored {
        entry_type::REGULAR => FileType::Regular,
        entry_type::DIRECTORY => FileType::Directory,
        entry_type::CHARACTER_DEVICE => FileType::CharacterDevice,
        entry_type::BLOCK_DEVICE => FileType::BlockDevice,
        entry_type::FIFO => FileType::Fifo,
        entry_type::SOCKET => FileType::Socket,
        entry_type::SYMLINK => FileType::Symlink,
        _ => FileType::Unknown,
    }
}
