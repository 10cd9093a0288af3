//! Emulated disks with a volume on them, in virtual time, for workloads as in the papers.

use crate::virtual_time::drives::{Drives, Traffic};
use crate::virtual_time::error::StageError;
use crate::virtual_time::options::{DiskChoice, StageOptions};
use crate::virtual_time::ticks::Ticks;
use crate::virtual_time::virtual_files::VirtualFiles;
use crate::virtual_time::volumes;
use engine::EngineOptions;
use eviction::{CoercedDisk, CoercionStatistics, FlushZone};
use ext4::{OpenParts, Volume, VolumeOptions};
use runtime::VirtualWorld;
use std::future::Future;
use std::rc::Rc;
use units::InodeNumber;
use volume_images::Images;

const ROOT: InodeNumber = InodeNumber(2);

/// An open volume on emulated disks.
pub struct Stage {
    world: VirtualWorld,
    options: StageOptions,
    home: Drives,
    journal: Option<Drives>,
    /// The home disk of discreet stages, as the volume sees it; since the last mount.
    coerced: Option<CoercedDisk>,
    /// The open volume; `None` only during a remount.
    volume: Option<Rc<Volume>>,
    /// Directory of the workloads.
    directory: InodeNumber,
}

impl Stage {
    /// Makes the disks and a fresh volume, as large as the home disk, and opens it. The clock
    /// stands at zero. A journal disk of its own is as large as the journal.
    pub fn build(options: &StageOptions) -> Result<Stage, StageError> {
        Stage::build_in(VirtualWorld::new(options.seed), options)
    }

    /// Builds a stage as [`Stage::build`] does, beside another stage: both share one clock and the
    /// first stage's seed. Dropping either ends the tasks of both.
    pub fn build_in(world: VirtualWorld, options: &StageOptions) -> Result<Stage, StageError> {
        if options.journal.is_some() && (options.eviction.is_some() || options.directory) {
            return Err(StageError::JournalOutside);
        }
        let home_model = options.home.find_model()?;
        let journal_model = options.journal.as_ref().map(DiskChoice::find_model).transpose()?;
        let images = volumes::make(options, options.home.size(&home_model))?;
        let home = Drives::new(&world, &options.home, home_model, &images.home)?;
        let journal = match (&options.journal, journal_model, &images.journal) {
            (Some(choice), Some(model), Some(image)) => {
                Some(Drives::new(&world, choice, model, image)?)
            }
            _ => None,
        };
        let mut stage = Stage {
            world,
            options: options.clone(),
            home,
            journal,
            coerced: None,
            volume: None,
            directory: ROOT,
        };
        stage.mount()?;
        stage.restart_counting();
        Ok(stage)
    }

    fn mount(&mut self) -> Result<(), StageError> {
        let durable_only = self.options.durable_only.clone();
        let engine =
            EngineOptions { durable_only: durable_only.is_some(), ..self.options.engine.clone() };
        let mut parts = OpenParts {
            world: Rc::new(self.world.clone()),
            home: self.home.disk.clone(),
            journal: self.journal.as_ref().map(|drives| drives.disk.clone()),
            options: VolumeOptions { engine, durable_only, ..VolumeOptions::default() },
        };
        if let Some(workload) = self.options.eviction {
            let of_search = parts.clone();
            let found = self.world.run(async move { ext4::find_flush_zones(&of_search).await });
            let extents = found.0?.map(|zone| zone.extents).unwrap_or_default();
            let sector = parts.home.geometry().logical_sector;
            let zone = FlushZone::new(workload, &extents, sector)?;
            let mut coerced = CoercedDisk::new(parts.world.clone(), parts.home.clone(), zone);
            if self.options.home.elevator.is_some() {
                coerced = coerced.all_at_once();
            }
            parts.home = Rc::new(coerced.clone());
            self.coerced = Some(coerced);
        }
        let mut pacing = Ticks::new(self.options.tick, parts.options.engine.commit);
        pacing.separates_barriers = self.options.separate_barriers;
        let volume = self.world.run(Volume::open_with_pacing(parts, Rc::new(pacing)))?;
        self.volume = Some(volume.clone());
        if self.options.directory {
            let find = async move {
                let root = volume.inode(ROOT).await?;
                volume.lookup(&root, volumes::DIRECTORY.as_bytes()).await
            };
            self.directory = self.world.run(find)?.number;
        }
        Ok(())
    }

    pub fn volume(&self) -> &Rc<Volume> {
        self.volume.as_ref().expect("a volume between two calls")
    }
    pub fn world(&self) -> &VirtualWorld {
        &self.world
    }

    /// Plays a workload to its end; virtual time advances as far as it takes.
    pub fn run<T: 'static, W: Future<Output = T> + 'static>(
        &self,
        workload: impl FnOnce(VirtualFiles) -> W,
    ) -> T {
        self.world.run(workload(self.files()))
    }
    pub fn files(&self) -> VirtualFiles {
        let (world, volume) = (self.world.clone(), self.volume().clone());
        VirtualFiles::new(world, volume, self.directory)
            .played_with(&self.options)
            .evicting(self.coerced.clone())
    }

    /// Returns traffic since the stage was built or [`Stage::restart_counting`] was called. Empty
    /// if the journal is a hidden inode: then it is the home disk's.
    pub fn journal_traffic(&self) -> Traffic {
        self.journal.as_ref().map(Drives::traffic).unwrap_or_default()
    }
    pub fn home_traffic(&self) -> Traffic {
        self.home.traffic()
    }
    /// Returns barriers and evictions since the volume was mounted; none unless the stage is
    /// discreet.
    pub fn coercion(&self) -> CoercionStatistics {
        self.coerced.as_ref().map(CoercedDisk::statistics).unwrap_or_default()
    }
    pub fn restart_counting(&self) {
        self.drives().for_each(Drives::restart_counting);
    }
    fn drives(&self) -> impl Iterator<Item = &Drives> {
        [Some(&self.home), self.journal.as_ref()].into_iter().flatten()
    }
    pub fn statistics(&self) -> engine::Statistics {
        self.volume().engine().statistics()
    }

    /// Unmounts and mounts again: everything is home, and the host's caches, but not the drives',
    /// are cold.
    pub fn remount(&mut self) -> Result<(), StageError> {
        self.unmount()?;
        self.mount()
    }

    fn unmount(&mut self) -> Result<(), StageError> {
        let volume = self.volume.take().expect("a volume between two calls");
        Ok(self.world.run(async move { volume.close().await })?)
    }

    /// Cuts the power, and recovers the content that the drives retained. The volume is open again
    /// afterwards; its earlier users have ended.
    pub fn crash_and_recover(&mut self) -> Result<engine::RecoveryReport, StageError> {
        self.drives().for_each(Drives::power_off);
        self.world.end();
        self.volume = None;
        self.home = self.home.after_crash(&self.world, &self.options.home)?;
        let journal = self.journal.as_ref().zip(self.options.journal.as_ref());
        self.journal =
            journal.map(|(drives, choice)| drives.after_crash(&self.world, choice)).transpose()?;
        self.mount()?;
        Ok(self.volume().open_report().recovery)
    }

    /// Returns the content of the disks, their caches included.
    pub fn images(&self) -> Images {
        Images {
            home: self.home.image(),
            journal: self.journal.as_ref().map(Drives::image),
            table: None,
        }
    }

    /// Writes everything home, and checks the disks' content with `e2fsck -fn`.
    pub fn close_and_check(mut self) -> Result<(), StageError> {
        self.unmount()?;
        self.images().check().map_err(StageError::Damaged)
    }
}

/// Breaks a cycle: tasks hold their world.
impl Drop for Stage {
    fn drop(&mut self) {
        self.world.end();
    }
}
