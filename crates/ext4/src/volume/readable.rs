//! A volume as it may be read before recovery, and files whose blocks are written past the file
//! system.

use super::{Access, OnError, OpenParts, Volume};
use crate::groups::Trust;
use crate::{Error, Inode, MappingState, Result};
use engine::{DiskHome, Engine, EngineOptions, EngineParts, Home, NoPacing};
use format::ext4::VolumeSuperblock;
use runtime::WalkPace;
use std::rc::Rc;
use units::{FileBlock, HomeBlock};

/// Inodes among which the flush zone and the scattered logs are looked for. mke2fs makes lost+found
/// and perhaps an orphan file first.
pub(super) const CANDIDATES: u32 = 8;
/// Runs of a file that are visited before other tasks run.
const RUNS_AT_ONCE: usize = 1024;

/// Refuses a file that mkfs has just made where no search would find it.
pub(super) fn refuse_not_first(volume: &Volume, made: &Inode, what: &'static str) -> Result<()> {
    let last = volume.superblock.borrow().first_inode.saturating_add(CANDIDATES - 1);
    let number = made.number;
    match number.0 <= last || units::fault!("made-where-nobody-looks") {
        true => Ok(()),
        false => Err(Error::NotFirst { what, number, last }),
    }
}

/// The blocks of the volume.
pub(super) fn home_of(parts: &OpenParts, superblock: &VolumeSuperblock) -> Rc<dyn Home> {
    Rc::new(DiskHome::new(parts.home.clone(), superblock.block_size, superblock.blocks))
}

/// The volume as it may be read before recovery, straight from the disk. Descriptors are trusted
/// only as far as the place of the inode table goes. Damage is not noted: the log may have parts of
/// the superblock, which would be replayed over a mark, or be hidden by it.
pub(super) async fn readable(
    parts: &OpenParts,
    superblock: &VolumeSuperblock,
) -> Result<Rc<Volume>> {
    let engine = without_log(parts, superblock).await?;
    let mut parts = parts.clone();
    if !units::fault!("damage-marked-before-replay") {
        parts.options.access = Access::ReadOnly;
        parts.options.on_error = OnError::Continue;
    }
    Volume::assemble(&parts, engine, superblock.clone(), &[], Trust::Places).await
}

/// An engine that reads home only.
pub(super) async fn without_log(
    parts: &OpenParts,
    superblock: &VolumeSuperblock,
) -> Result<Rc<Engine>> {
    let engine_parts = EngineParts {
        world: parts.world.clone(),
        home: home_of(parts, superblock),
        block_size: superblock.block_size,
        log: None,
        options: EngineOptions { read_only: true, ..EngineOptions::default() },
        pacing: Rc::new(NoPacing),
    };
    Ok(Engine::open(engine_parts).await?)
}

/// The runs of the first `count` blocks of a file that evictions or the log write to past the file
/// system. More than `most` are refused before they take memory: pointer blocks that lead to one
/// another several times map far more blocks than they take themselves.
pub(super) async fn runs_of(
    volume: &Volume,
    inode: &Inode,
    count: u64,
    (what, most): (&str, usize),
) -> Result<Vec<(HomeBlock, u64)>> {
    let corrupt = |why: String| Error::corrupt_inode(inode.number, why);
    let twice = || corrupt(format!("{what} has one block in two places"));
    if count > volume.superblock.borrow().blocks {
        return Err(twice());
    }
    let mut runs: Vec<(HomeBlock, u64)> = Vec::new();
    let mut pace = WalkPace::new(RUNS_AT_ONCE);
    let mut at = 0;
    while at < count {
        pace.visited(1).await;
        let mapping = volume.map(inode, FileBlock(at as u32), (count - at) as u32).await?;
        let (MappingState::Written(home), true) = (mapping.state, mapping.count > 0) else {
            return Err(corrupt(format!("{what} has a hole at block {at}")));
        };
        if !volume.block_is_usable(home, mapping.count.into()) {
            return Err(corrupt(format!("{what} overlaps what is not its own")));
        }
        let has_most = runs.len() >= most && !units::fault!("runs-without-bound");
        match runs.last_mut() {
            Some((start, length)) if start.plus(*length) == home => {
                *length += u64::from(mapping.count)
            }
            _ if has_most => {
                return Err(corrupt(format!("{what} is in more than {most} pieces")));
            }
            _ => runs.push((home, mapping.count.into())),
        }
        at += u64::from(mapping.count);
    }
    let mut sorted = runs.clone();
    sorted.sort_unstable();
    match sorted.windows(2).any(|pair| pair[0].0.plus(pair[0].1) > pair[1].0) {
        true => Err(twice()),
        false => Ok(runs),
    }
}
