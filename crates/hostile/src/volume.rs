//! Whole volumes with damaged metadata: opened, walked, changed, closed, in virtual time.

use crate::golden;
use crate::patches::Input;
use crate::seal;
use crate::volume::roles::{Roles, SUPERBLOCK_OF_JOURNAL};
use device::{Disk, World};
use disks::{Image, MemoryDisk};
use engine::{DataMode, EngineOptions};
use ext4::{
    Access, Caller, Error, FileType, Inode, OpenParts, RangeMode, RenameMode, SeekWhat,
    SetAttributes, TreeFindings, Volume, VolumeOptions, WriteFlags,
};
use ext4::{Existence, SetXattr, SyncWhat};
use runtime::{Either, VirtualWorld, race};
use std::cell::OnceCell;
use std::collections::BTreeSet;
use std::hint::black_box;
use std::rc::Rc;
use std::time::Duration;
use units::{FileBlock, InodeNumber};

mod bitmaps;
mod read;
mod roles;
pub use bitmaps::lie_in_bitmaps;
pub use roles::places_of_file;

const BASES: [&str; 14] = [
    "attributes",
    "ext3",
    "ext4-1k",
    "htree",
    "deep-extents",
    "dirty-wasteless-1k",
    "orphan-file",
    "orphan-list",
    "ext4-no-checksums",
    "okeanos-written",
    "ext4",
    "external-journal",
    "ext4-small-inodes",
    "revokes",
];
/// Base of inputs whose first byte is one of the last, so that those of the corpus keep their
/// volumes.
const PACKED: &str = "dirty-packed-1k";
const PACKED_FROM: u8 = 240;
const MODES: [DataMode; 5] = [
    DataMode::Wasteless,
    DataMode::Ordered,
    DataMode::Journal,
    DataMode::Selective,
    DataMode::Writeback,
];

/// Virtual time within which everything must have ended; a volume of a few MiB needs seconds of it.
const PATIENCE: Duration = Duration::from_secs(3600);
/// Inodes that the walk visits at most, as a loop of directories never ends.
const INODES_MAX: usize = 400;
const ENTRIES_MAX: usize = 600;
const READ_MAX: u64 = 64 << 10;

struct Base {
    home: Image,
    journal: Option<Image>,
    roles: Roles,
}

thread_local! {
    static LOADED: [OnceCell<Base>; BASES.len() + 1] =
        const { [const { OnceCell::new() }; BASES.len() + 1] };
}

pub fn run(bytes: &[u8]) {
    let Some(input) = Input::parse(bytes) else { return };
    let (index, name) = match usize::from(input.base) % BASES.len() {
        _ if input.base >= PACKED_FROM => (BASES.len(), PACKED),
        index => (index, BASES[index]),
    };
    let (home, journal) = LOADED.with(|loaded| {
        let base = loaded[index].get_or_init(|| Base::load(name));
        let (mut home, mut journal) = (base.home.clone(), base.journal.clone());
        let touched = base.roles.damage(&mut home, &input);
        // One in four is left with wrong checksums.
        let sealed = input.choice & 3 != 0;
        if sealed {
            base.roles.seal(&mut home, &touched);
        }
        if let Some(journal) = &mut journal {
            damage_journal(journal, &input, sealed);
        }
        (home, journal)
    });
    let access = if input.choice & 12 == 12 { Access::ReadOnly } else { Access::ReadWrite };
    visit(home, journal, access, MODES[usize::from(input.choice >> 4) % MODES.len()]);
}

/// Damages the journal's device with every other patch: its superblocks, and the blocks behind
/// them.
fn damage_journal(journal: &mut Image, input: &Input<'_>, sealed: bool) {
    const BLOCK: u64 = 4096;
    for patch in input.patches().step_by(2) {
        let at = u64::from(patch.place) % 4 * BLOCK + u64::from(patch.offset) % BLOCK;
        journal.write(at, patch.bytes);
    }
    let mut superblock = [0; 1024];
    journal.read(BLOCK, &mut superblock);
    if sealed && superblock.starts_with(&SUPERBLOCK_OF_JOURNAL) {
        seal::journal_superblock(&mut superblock);
        journal.write(BLOCK, &superblock);
    }
}

impl Base {
    fn load(name: &str) -> Base {
        let (home, journal) = golden::load(name);
        Base { roles: Roles::of(&home), home, journal }
    }
}

/// Opens the unchanged golden image in every possible way.
pub fn visit_golden(name: &str) {
    let (home, journal) = golden::load(name);
    visit(home.clone(), journal.clone(), Access::ReadOnly, DataMode::Ordered);
    for mode in MODES {
        visit(home.clone(), journal.clone(), Access::ReadWrite, mode);
    }
}

/// Opens the volume, walks it, changes a little, closes it. Panics when that never ends.
pub fn visit(home: Image, journal: Option<Image>, access: Access, data: DataMode) {
    let virtual_world = VirtualWorld::new(1);
    let world: Rc<dyn World> = Rc::new(virtual_world.clone());
    let disk = |image| Rc::new(MemoryDisk::from_image(world.clone(), image)) as Rc<dyn Disk>;
    let engine = EngineOptions { data, ..EngineOptions::default() };
    let options = VolumeOptions { access, engine, ..VolumeOptions::default() };
    let parts =
        OpenParts { world: world.clone(), home: disk(home), journal: journal.map(disk), options };
    let outcome = virtual_world.run(async move {
        let limit = world.sleep_until(world.now().plus(PATIENCE));
        race(Box::pin(open_and_walk(parts)), limit).await
    });
    virtual_world.end();
    match outcome {
        Either::Left(Ok(()) | Err(_)) => (),
        Either::Right(()) => panic!("not over after {PATIENCE:?} of virtual time"),
    }
}

async fn open_and_walk(parts: OpenParts) -> Result<(), Error> {
    let _ = ext4::recover(&parts, true).await;
    let volume = Volume::open(parts).await?;
    let _ = volume.statfs().await;
    let mut counted = CountedFindings(0);
    let report = volume.check_tree(&mut counted).await;
    black_box((report, counted.0));
    let found = walk(&volume).await;
    for inode in &found {
        let _ = read_whole(&volume, inode).await;
    }
    for (index, inode) in found.iter().enumerate().filter(|(index, _)| index % 5 == 0).take(24) {
        let _ = change(&volume, inode, index).await;
    }
    // Inodes are held to the end, as the kernel holds them.
    for inode in &found {
        let _ = volume.free_if_unused(inode).await;
    }
    let _ = volume.sync().await;
    volume.close().await
}

/// A tree check's findings, counted and discarded.
struct CountedFindings(usize);

impl TreeFindings for CountedFindings {
    fn problem(&mut self, what: String) {
        self.0 += what.len();
    }
}

/// Visits every inode with a name, each once, and reads all that it has.
async fn walk(volume: &Rc<Volume>) -> Vec<Rc<Inode>> {
    let mut seen = BTreeSet::from([InodeNumber(2)]);
    let mut found = Vec::new();
    let mut next = vec![InodeNumber(2)];
    while let Some(number) = next.pop() {
        let Ok(inode) = volume.inode(number).await else { continue };
        found.push(inode.clone());
        let _ = look(volume, &inode).await;
        let Ok(entries) = list(volume, &inode).await else { continue };
        for (name, number) in entries {
            let _ = volume.lookup(&inode, &name).await;
            if seen.len() < INODES_MAX && seen.insert(number) {
                next.push(number);
            }
        }
    }
    found
}

async fn list(
    volume: &Rc<Volume>,
    inode: &Rc<Inode>,
) -> Result<Vec<(Vec<u8>, InodeNumber)>, Error> {
    let (mut all, mut cookie) = (Vec::new(), 0);
    while all.len() < ENTRIES_MAX {
        let Ok(entries) = volume.readdir(inode, cookie, 100).await else { break };
        let Some(last) = entries.last() else { break };
        cookie = last.cookie;
        for entry in entries {
            assert!(
                !entry.name.is_empty() && !entry.name.contains(&b'/') && !entry.name.contains(&0)
            );
            black_box(entry.file_type == FileType::Unknown);
            all.push((entry.name, entry.inode));
        }
    }
    Ok(all)
}

async fn look(volume: &Rc<Volume>, inode: &Rc<Inode>) -> Result<(), Error> {
    let size = volume.getattr(inode).size;
    let _ = volume.readlink(inode).await;
    if let Ok(names) = volume.list_xattrs(inode, || true).await {
        for name in names.split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
            let _ = volume.get_xattr(inode, name).await;
        }
    }
    let _ = volume.extents(inode, FileBlock(0), FileBlock(u32::MAX), 1000).await;
    let _ = volume.seek(inode, 0, SeekWhat::Hole).await;
    let _ = volume.seek(inode, 0, SeekWhat::Data).await;
    for at in [0, size.saturating_sub(READ_MAX / 2), u64::from(u32::MAX) << 12, u64::MAX - 10] {
        if let Ok(content) = volume.read(inode, at, READ_MAX as usize).await {
            black_box(content.to_vec());
        }
    }
    Ok(())
}

/// Reads a file from start to end, or as far as there is data nearby.
async fn read_whole(volume: &Rc<Volume>, inode: &Rc<Inode>) -> Result<(), Error> {
    const PIECE: u64 = 1 << 20;
    for at in (0..volume.getattr(inode).size).step_by(PIECE as usize).take(16) {
        black_box(volume.read(inode, at, PIECE as usize).await?.to_vec());
    }
    Ok(())
}

/// Tries every change on an inode; most of them fail, as they do not suit it.
async fn change(volume: &Rc<Volume>, inode: &Rc<Inode>, index: usize) -> Result<(), Error> {
    let root = volume.inode(InodeNumber(2)).await?;
    let caller = Caller::ROOT;
    let name = format!("made-{index}");
    let (name, other) = (name.as_bytes(), b"other".as_slice());
    let size = volume.getattr(inode).size;
    for offset in [0, size, size / 2 + 5000] {
        let _ = volume.write(inode, &caller, offset, &[7; 6000], WriteFlags::default()).await;
    }
    let value = [b'v'; 300];
    for key in ["user.more", "system.posix_acl_access", "security.capability"] {
        let (name, existence) = (key.as_bytes(), Existence::Any);
        let set =
            SetXattr { name, value: &value[..60 + index % 240], existence, clear_set_group: false };
        let _ = volume.set_xattr(inode, &caller, set).await;
        let _ = volume.remove_xattr(inode, name).await;
    }
    let mode = SetAttributes { mode: Some(0o640), ..SetAttributes::default() };
    let _ = volume.setattr(inode, &caller, mode).await;
    let _ = volume.fallocate(inode, &caller, RangeMode::PunchHole, true, 1000, 9000).await;
    let _ = volume.fallocate(inode, &caller, RangeMode::Zero, true, 500, 7000).await;
    let _ = volume.fallocate(inode, &caller, RangeMode::Allocate, false, 0, 20_000).await;
    let _ = volume.truncate(inode, size / 2).await;
    for parent in [inode, &root] {
        let made = volume.mknod(parent, name, &caller, 0o100_644, 0).await;
        if let Ok(made) = made {
            let _ = volume.write(&made.value, &caller, 0, &[8; 3000], WriteFlags::default()).await;
        }
        let _ = volume.mkdir(parent, other, &caller, 0o755).await;
        let _ = volume.symlink(parent, b"link", &caller, &[b't'; 200]).await;
        let _ =
            volume.rename((parent, name), (&root, b"moved"), &caller, RenameMode::Replace).await;
        let _ = volume.rename((parent, other), (inode, other), &caller, RenameMode::Replace).await;
        let _ = volume.link(inode, parent, b"hard", &caller).await;
        let _ = volume.unlink(parent, b"hard").await;
        let _ = volume.rmdir(parent, other).await;
    }
    let first = list(volume, inode).await?;
    for (name, _) in first.iter().skip(2).take(4) {
        let _ = volume.unlink(inode, name).await;
        let _ = volume.rmdir(inode, name).await;
    }
    let _ = volume.sync_file(inode, SyncWhat::All).await;
    Ok(())
}
