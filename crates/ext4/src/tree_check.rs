//! A walk over all names of an open volume, which checks what lookups, listings and `stat` rely on.
//!
//! Each directory is listed whole, and each name is followed to its inode. An indexed directory is
//! also searched for each name, as a lookup does. The names of each inode and of each indexed
//! directory are counted, for a caller that compares them with link counts and blocks.
//!
//! Bounds on a hostile volume: directories together are not listed beyond the blocks that the
//! volume has, and each gives at most the names that fit into its blocks.

use crate::directory::Directory;
use crate::inode_table::ROOT;
use crate::{DirectoryEntry, Error, FileType, Inode, Result, Volume};
use format::ext4::directory::{NAME_LENGTH_MAX, RECORD_LENGTH_MIN, entry_type};
use format::ext4::inode::flags;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::rc::Rc;
use units::{FileBlock, InodeNumber};

/// Names in a chunk of a listing.
const CHUNK: usize = 1024;
/// Directories that wait to be listed hold only their number and parent.
type Waiting = Vec<(InodeNumber, InodeNumber)>;

/// Receives what [`Volume::check_tree`] finds.
pub trait TreeFindings {
    /// Reports a contradiction, as a sentence without a full stop.
    fn problem(&mut self, what: String);
    /// Reports progress; called for each inode that a name leads to.
    fn progress(&mut self, _inodes: u64) {}
}

/// Link counts and index sizes found from a volume's names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TreeReport {
    pub directories: u64,
    /// Links from names to each inode reached: `.` and `..` are counted.
    pub links: BTreeMap<InodeNumber, u32>,
    /// Names in the listing of an indexed directory, without `.` and `..`.
    pub indexed: BTreeMap<InodeNumber, u64>,
}

impl Volume {
    /// Lists every directory from the root and follows every name. Changes nothing on a volume that
    /// is open read-only.
    pub async fn check_tree(self: &Rc<Self>, findings: &mut dyn TreeFindings) -> TreeReport {
        let blocks_left = self.superblock.borrow().blocks;
        let mut walk =
            TreeWalk { volume: self, findings, report: TreeReport::default(), blocks_left };
        // The root contains itself, and no other directory refers to it.
        walk.report.links.insert(ROOT, 2);
        let mut waiting: Waiting = vec![(ROOT, ROOT)];
        while let Some((number, parent)) = waiting.pop() {
            if let Err(error) = walk.directory(number, parent, &mut waiting).await {
                walk.findings.problem(format!("directory {}: {error}", number.get()));
            }
        }
        walk.report
    }
}

struct TreeWalk<'a> {
    volume: &'a Rc<Volume>,
    findings: &'a mut dyn TreeFindings,
    report: TreeReport,
    /// Blocks that the directories not yet listed may have.
    blocks_left: u64,
}

impl TreeWalk<'_> {
    async fn directory(
        &mut self,
        number: InodeNumber,
        parent: InodeNumber,
        waiting: &mut Waiting,
    ) -> Result<()> {
        self.report.directories += 1;
        let inode = self.volume.inode(number).await?;
        let block_bytes = self.volume.block_size().bytes() as u64;
        let (size, is_indexed) = {
            let fields = inode.fields.borrow();
            (fields.size, fields.flags & flags::INDEX != 0)
        };
        let Some(left) = self.blocks_left.checked_sub(size.div_ceil(block_bytes)) else {
            let why = "the directories have more blocks than the volume";
            return Err(Error::corrupt_inode(number, why));
        };
        self.blocks_left = left;
        self.dots(&inode, parent).await?;
        // Hashes of names: a directory of many names takes eight bytes for each.
        let mut hashes = Vec::new();
        let names_max = size / RECORD_LENGTH_MIN as u64 + 2;
        let mut cookie = 0;
        loop {
            let entries = self.volume.readdir(&inode, cookie, CHUNK).await?;
            let Some(last) = entries.last() else { break };
            cookie = last.cookie;
            for entry in entries.iter().filter(|entry| !is_dots(&entry.name)) {
                hashes.push(hash(&entry.name));
                self.entry(&inode, entry, is_indexed, waiting).await;
            }
            if hashes.len() as u64 > names_max {
                return Err(Error::corrupt_inode(number, "it lists more names than fit into it"));
            }
        }
        if is_indexed {
            self.report.indexed.insert(number, hashes.len() as u64);
        }
        self.twins(&inode, hashes).await
    }

    /// Checks that `.` refers to the directory itself, and `..` to its parent.
    async fn dots(&mut self, inode: &Rc<Inode>, parent: InodeNumber) -> Result<()> {
        let directory = Directory::of(self.volume, inode)?;
        let number = inode.number.get();
        if let Some(own) = directory.own_entry().await? {
            if own != inode.number {
                self.findings
                    .problem(format!("directory {number}: its entry . leads to {}", own.get()));
            }
        }
        let found = directory.parent().await?;
        if found != parent {
            self.findings.problem(format!(
                "directory {number}: its entry .. leads to {} instead of {}",
                found.get(),
                parent.get()
            ));
        }
        Ok(())
    }

    /// Follows a name to its inode.
    async fn entry(
        &mut self,
        directory: &Rc<Inode>,
        entry: &DirectoryEntry,
        is_indexed: bool,
        waiting: &mut Waiting,
    ) {
        let place = || {
            let name = String::from_utf8_lossy(&entry.name);
            format!("directory {}, name {name:?}", directory.number.get())
        };
        if is_indexed && !units::fault!("tree-names-not-looked-up") {
            match self.volume.lookup(directory, &entry.name).await {
                Ok(found) if found.number == entry.inode => {}
                Ok(found) => self.findings.problem(format!(
                    "{}: a lookup finds inode {}, a listing {}",
                    place(),
                    found.number.get(),
                    entry.inode.get()
                )),
                Err(error) => {
                    self.findings.problem(format!("{}: a lookup fails: {error}", place()))
                }
            }
        }
        let inode = match self.volume.inode(entry.inode).await {
            Ok(inode) => inode,
            Err(error) => {
                let (place, number) = (place(), entry.inode.get());
                return self.findings.problem(match error {
                    Error::Refused(_) => {
                        format!("{place}: it leads to inode {number}, which is free")
                    }
                    error => format!("{place}: it leads to inode {number}: {error}"),
                });
            }
        };
        let type_of_mode = entry_type::of_mode(inode.fields.borrow().mode);
        if entry.file_type != FileType::Unknown
            && entry.file_type != crate::directory::file_type(type_of_mode)
        {
            let (named, number) = (entry.file_type, inode.number.get());
            self.findings
                .problem(format!("{}: it says {named:?}, but inode {number} is none", place()));
        }
        let links = self.report.links.entry(inode.number).or_insert(0);
        *links = links.saturating_add(1);
        let is_first = *links == 1;
        if inode.is_directory() {
            if !is_first {
                return self
                    .findings
                    .problem(format!("{}: the directory has another name, too", place()));
            }
            *links += 1;
            let of_parent = self.report.links.entry(directory.number).or_insert(0);
            *of_parent = of_parent.saturating_add(1);
            waiting.push((inode.number, directory.number));
        }
        if is_first {
            self.findings.progress(self.report.links.len() as u64);
            if let Err(error) = self.content(&inode, type_of_mode).await {
                self.findings.problem(format!("{}: {error}", place()));
            }
        }
    }

    /// Checks the inode itself, except for file data.
    async fn content(&mut self, inode: &Rc<Inode>, type_of_mode: u8) -> Result<()> {
        if type_of_mode == entry_type::UNKNOWN {
            let mode = inode.fields.borrow().mode;
            let why = format!("mode {mode:#o} is of no kind of file");
            return Err(Error::corrupt_inode(inode.number, why));
        }
        let names = self.volume.list_xattrs(inode, || true).await?;
        for name in names.split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
            self.volume.get_xattr(inode, name).await?;
        }
        match type_of_mode {
            entry_type::SYMLINK => self.volume.readlink(inode).await.map(drop),
            entry_type::REGULAR => {
                let blocks = inode.fields.borrow().size >> self.volume.block_size().shift();
                let end = FileBlock(u32::try_from(blocks).unwrap_or(u32::MAX));
                self.volume.extents(inode, FileBlock(0), end, 1).await.map(drop)
            }
            _ => Ok(()),
        }
    }

    /// Reports names that the directory has twice. Equal hashes are compared again, by name.
    async fn twins(&mut self, inode: &Rc<Inode>, mut hashes: Vec<u64>) -> Result<()> {
        hashes.sort_unstable();
        let equal: BTreeSet<u64> =
            hashes.windows(2).filter(|pair| pair[0] == pair[1]).map(|pair| pair[0]).collect();
        if equal.is_empty() {
            return Ok(());
        }
        let (mut seen, mut cookie) = (BTreeSet::new(), 0);
        loop {
            let entries = self.volume.readdir(inode, cookie, CHUNK).await?;
            let Some(last) = entries.last() else { return Ok(()) };
            cookie = last.cookie;
            for entry in entries {
                if equal.contains(&hash(&entry.name)) && !seen.insert(entry.name.clone()) {
                    let name = String::from_utf8_lossy(&entry.name);
                    self.findings.problem(format!(
                        "directory {}, name {name:?}: it stands there twice",
                        inode.number.get()
                    ));
                }
            }
        }
    }
}

fn hash(name: &[u8]) -> u64 {
    debug_assert!(name.len() <= NAME_LENGTH_MAX);
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    hasher.finish()
}

fn is_dots(name: &[u8]) -> bool {
    name == b"." || name == b".."
}
