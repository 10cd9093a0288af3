//! Opening a volume: superblock, features, journal, descriptors, orphans.

use super::mmp::Protection;
use super::protected_disk::ProtectedDisk;
use super::readable::without_log;
use super::{Access, LiveOptions, OpenParts, OpenReport, Volume, journal, superblock};
use crate::allocate::Trims;
use crate::groups::{Groups, SystemZone, Trust};
use crate::inode_table::{InodeCache, ROOT};
use crate::{Error, Result};
use device::Disk;
use engine::{CommitPacing, Credits, Engine, NoPacing};
use format::ext4::superblock::state;
use format::ext4::{InodeLayout, VolumeSuperblock, feature};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use units::{HomeBlock, Timestamp};

impl Volume {
    /// Reads the superblock, refuses what is not supported, replays the journal if need be, marks
    /// the volume as in use, and cleans up orphans. Read-only: nothing is written but what the
    /// journal's replay writes.
    pub async fn open(parts: OpenParts) -> Result<Rc<Volume>> {
        Volume::open_with_pacing(parts, Rc::new(NoPacing)).await
    }

    /// [`Volume::open`] where commits wait as `pacing` says: used by experiments.
    pub async fn open_with_pacing(
        mut parts: OpenParts,
        pacing: Rc<dyn CommitPacing>,
    ) -> Result<Rc<Volume>> {
        let first = superblock::read(&*parts.home).await?;
        check_features(&first, parts.options.access)?;
        if parts.options.without_journal {
            return Volume::open_without_journal(&parts, first).await;
        }
        let replays = first.features.has(feature::RECOVER);
        let protection = match parts.options.access == Access::ReadWrite || replays {
            true => {
                Protection::begin(&parts.world, &parts.home, &first, &parts.options.node).await?
            }
            false => None,
        };
        let protected = ProtectedDisk::put_under(&mut parts, &first, protection.as_ref());
        let opened = Volume::open_protected(&parts, pacing, first, protection.as_deref()).await;
        if let Ok(volume) = &opened {
            *volume.protected.borrow_mut() = protected;
        }
        if let Some(protection) = protection {
            match &opened {
                Ok(volume) if !volume.is_read_only() => {
                    *volume.protection.borrow_mut() = Some(protection)
                }
                // If the release cannot be written, others wait a while. They wait after a failure
                // of the engine, too: a note of it may be in flight to the journal's superblock.
                _ => {
                    let may_be_noted = opened.is_err() && protection.guards();
                    let _ = protection.end(!may_be_noted).await;
                }
            }
        }
        opened
    }

    async fn open_protected(
        parts: &OpenParts,
        pacing: Rc<dyn CommitPacing>,
        first: VolumeSuperblock,
        protection: Option<&Protection>,
    ) -> Result<Rc<Volume>> {
        let mut found = journal::find(parts, &first).await?;
        found.parts.pacing = pacing;
        let (recovery, kept) = journal::restart(parts, &first, &found).await?;
        // The journal may have held a newer one.
        let mut fresh = superblock::read(&*parts.home).await?;
        check_features(&fresh, parts.options.access)?;
        journal::take_over_error(&found.parts, &mut fresh).await?;
        let mut report = OpenReport { recovery, ..OpenReport::default() };
        warn_of_state(&fresh, &mut report);
        report.warnings.extend(found.parts.warnings());
        let runs = found.runs.clone();
        let engine = found.open(kept).await?;
        let guarded = protection.map_or(Ok(()), |protection| protection.guard(&engine));
        let started = match guarded {
            Ok(()) => Volume::start(parts, &engine, fresh, &runs, &mut report).await,
            Err(error) => Err(error),
        };
        match started {
            Ok(volume) => {
                *volume.opened.borrow_mut() = report;
                Ok(volume)
            }
            Err(error) => {
                // The engine's tasks must end; the first error is returned.
                let _ = engine.shutdown().await;
                Err(error)
            }
        }
    }

    /// Opens the volume as it is at home, a possible mixture of old and new.
    async fn open_without_journal(
        parts: &OpenParts,
        superblock: VolumeSuperblock,
    ) -> Result<Rc<Volume>> {
        if parts.options.access == Access::ReadWrite {
            return Err(Error::Journal("without its journal a volume can only be read".into()));
        }
        let mut report = OpenReport::default();
        if superblock.features.has(feature::RECOVER) {
            report.journal_not_replayed = true;
            report
                .warnings
                .push("the journal is not replayed: what only it holds is missing".into());
        }
        warn_of_state(&superblock, &mut report);
        let engine = without_log(parts, &superblock).await?;
        let volume = Volume::assemble(parts, engine, superblock, &[], Trust::All).await?;
        *volume.opened.borrow_mut() = report;
        Ok(volume)
    }

    /// Starts everything after the journal. Nothing is written before the descriptors are known to
    /// be sound.
    async fn start(
        parts: &OpenParts,
        engine: &Rc<Engine>,
        superblock: VolumeSuperblock,
        journal: &[(HomeBlock, u64)],
        report: &mut OpenReport,
    ) -> Result<Rc<Volume>> {
        let volume =
            Volume::assemble(parts, engine.clone(), superblock, journal, Trust::All).await?;
        volume.check_root().await?;
        if parts.options.access == Access::ReadWrite {
            let begun = volume.begin_changes(report).await;
            if begun.is_err() {
                volume.end_marking().await;
            }
            begun?;
        }
        Ok(volume)
    }

    /// Allows changes, over an engine that already writes.
    pub(super) async fn begin_changes(self: &Rc<Self>, report: &mut OpenReport) -> Result<()> {
        let now = self.engine.world().wall_clock();
        mark_in_use(&mut self.superblock.borrow_mut(), now, &self.options.mount_point);
        self.write_mark().await?;
        self.engine.keep_others_out().await?;
        self.is_marked_in_use.set(true);
        // A reader may have found damage since the mark was serialized.
        self.record_damage_soon();
        if !self.was_writable.get() {
            report.orphans = self.clean_up_orphans(&mut report.warnings).await?;
            self.engine.world().spawn(Box::pin(self.clone().store_old_access_times()));
            self.was_writable.set(true);
        }
        Ok(())
    }

    /// Writes the superblock's mark. Over a log that a restart has kept it is logged as any other
    /// change: a record of the block in that log would be replayed over a direct write; and home
    /// says already that there is something to replay.
    async fn write_mark(&self) -> Result<()> {
        if self.engine.has_begun_log() {
            let mut handle = self.engine.start(Credits(1)).await?;
            self.change_superblock(&mut handle);
            return Ok(self.engine.commit(handle.stop()).await?);
        }
        self.write_superblock_home().await
    }

    /// Checks that the root is a directory, without which nothing can be reached.
    async fn check_root(&self) -> Result<()> {
        let unusable = |why: &str| Error::corrupt_inode(ROOT, format!("the root directory {why}"));
        let root = self.load_inode(ROOT).await.map_err(|error| match error {
            Error::Refused(_) => unusable("is free"),
            error => error,
        })?;
        match (root.is_directory(), root.fields.borrow().links) {
            (false, _) => Err(unusable("is no directory")),
            (true, 0) => Err(unusable("has no links")),
            (true, _) => Ok(()),
        }
    }

    /// A volume over an engine. `journal`: the runs of the hidden journal inode, as far as they are
    /// known.
    pub(super) async fn assemble(
        parts: &OpenParts,
        engine: Rc<Engine>,
        mut superblock: VolumeSuperblock,
        journal: &[(HomeBlock, u64)],
        trust: Trust,
    ) -> Result<Rc<Volume>> {
        let superblock_block = engine.metadata(superblock::place(superblock.block_size).0).await?;
        let groups = Groups::load(&engine, &superblock, trust).await?;
        // Before recovery descriptors may be torn.
        if trust == Trust::All && !parts.options.without_journal {
            SystemZone::check_groups(&superblock, &groups).await?;
        }
        let zone = SystemZone::new(&superblock, &groups, journal).await;
        // The superblock's counts are as old as the last unmount; the descriptors are current.
        let totals = groups.states.borrow().iter().fold((0u64, 0u64), |(blocks, inodes), state| {
            (
                blocks + u64::from(state.descriptor.free_blocks),
                inodes + u64::from(state.descriptor.free_inodes),
            )
        });
        (superblock.free_blocks, superblock.free_inodes) = (totals.0, totals.1 as u32);
        let was_valid = superblock.state & state::VALID != 0;
        let checksums = superblock.features.has(feature::METADATA_CSUM);
        let layout = InodeLayout {
            inode_size: superblock.inode_size,
            block_size: superblock.block_size,
            huge_file: superblock.features.has(feature::HUGE_FILE),
            large_dir: superblock.features.has(feature::LARGEDIR),
            checksum_seed: checksums.then_some(superblock.checksum_seed),
        };
        Ok(Rc::new_cyclic(|this| Volume {
            this: this.clone(),
            engine,
            home: parts.home.clone(),
            options: parts.options.clone(),
            superblock: RefCell::new(superblock),
            superblock_block,
            superblock_is_behind: Cell::default(),
            layout,
            groups,
            zone,
            withheld: RefCell::default(),
            frees: Default::default(),
            trims: Trims::default(),
            inodes: RefCell::new(InodeCache::default()),
            access_times: Default::default(),
            orphans: RefCell::default(),
            unreferenced: RefCell::default(),
            protection: RefCell::default(),
            protected: RefCell::default(),
            renames: Rc::default(),
            journal_end: journal.last().map(|(start, count)| start.plus(*count)),
            access: Cell::new(parts.options.access),
            access_changes: Rc::default(),
            was_writable: Cell::default(),
            was_valid,
            is_marked_in_use: Cell::default(),
            damage_mark: Cell::default(),
            live: Cell::new(LiveOptions {
                atime: parts.options.atime,
                on_error: parts.options.on_error,
                commit: parts.options.engine.commit,
                barrier: parts.options.engine.barrier,
            }),
            opened: RefCell::default(),
            kernel_page: Cell::new(crate::file::PAGE_MAX),
            closed: Cell::new(false),
        }))
    }

    pub(crate) fn home_disk(&self) -> &Rc<dyn Disk> {
        &self.home
    }
}

/// Refuses unsupported features, by name.
pub(super) fn check_features(superblock: &VolumeSuperblock, access: Access) -> Result<()> {
    let names = superblock.features.read_only();
    if access == Access::ReadWrite && !names.is_empty() {
        return Err(Error::OnlyReadable { names });
    }
    Ok(())
}

fn warn_of_state(superblock: &VolumeSuperblock, report: &mut OpenReport) {
    if superblock.state & state::ERROR != 0 {
        report.warnings.push("errors were found on this volume earlier; run e2fsck".into());
    } else if superblock.state & state::VALID == 0 {
        let why = match superblock.features.has(feature::HAS_JOURNAL) {
            true => "the volume is marked for a check; run e2fsck",
            false => "the volume was not unmounted cleanly and has no journal; run e2fsck",
        };
        report.warnings.push(why.into());
    }
}

/// Updates the superblock as the kernel does on mounting: counts and times, and the flags that show
/// e2fsck what a crash leaves.
fn mark_in_use(superblock: &mut VolumeSuperblock, now: Timestamp, mount_point: &str) {
    superblock::stamp(superblock, now);
    superblock.mount_time = now.seconds as u32;
    superblock.mount_time_high = (now.seconds >> 32) as u8;
    superblock.mount_count = superblock.mount_count.wrapping_add(1);
    if !mount_point.is_empty() {
        let name = mount_point.as_bytes();
        let length = name.len().min(superblock.last_mounted.len());
        superblock.last_mounted = [0; 64];
        superblock.last_mounted[..length].copy_from_slice(&name[..length]);
    }
    if superblock.features.has(feature::HAS_JOURNAL) {
        superblock.features.set(feature::RECOVER);
    } else {
        superblock.state &= !state::VALID;
    }
    if superblock.features.has(feature::ORPHAN_FILE) {
        superblock.features.set(feature::ORPHAN_PRESENT);
    }
}
