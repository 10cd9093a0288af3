//! A file system of the kernel's, or Okeanos, mounted on emulated disks that are served in real
//! time.
//!
//! This is the counterpart of [`crate::Stage`], with the same drives and the same layout. But the
//! kernel, its loop devices and FUSE lie between, and time is wall-clock time. Needs root.

use crate::real_time::contender::{Contender, ext4_options, mode_option};
use crate::real_time::disk::Disk;
use crate::real_time::installed::Programs;
use crate::real_time::rig::{self, MountedDirectory, RigError, Workspace, daemon};
use crate::virtual_time::Traffic;
use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::process::Command;

#[derive(Clone, Debug)]
pub struct RealStageOptions {
    /// File system. ext4 gets the layout of the papers' volumes: `mke2fs -t ext3 -I 128`.
    pub contender: Contender,
    /// Model of both disks.
    pub model: String,
    /// Bytes of the home disk. The journal lies on a disk of its own; btrfs has none.
    pub home_size: u64,
    pub journal_size: u64,
    /// Parent of the mount points.
    pub directory: PathBuf,
    pub programs: Programs,
}

/// A fresh, mounted file system. Fields are in drop order.
pub struct RealStage {
    mounted: MountedDirectory,
    home: Disk,
    journal: Disk,
    place: Workspace,
    /// Counters at the time when counting was restarted.
    before: Cell<(Traffic, Traffic)>,
}

impl RealStage {
    /// Builds the stage, hiding mounts of this thread, and of those it starts, from others.
    pub fn build(options: &RealStageOptions) -> Result<RealStage, RigError> {
        rig::hide_mounts()?;
        let place = Workspace::new(&options.directory)?;
        let served = |name, size| {
            let disk =
                Disk::emulated(&options.programs, &options.model, size, &place.directory(name)?)?;
            // As in the papers: the drive's cache is on, and nothing waits for it to be flushed.
            disk.device.ignore_flushes()?;
            Ok::<_, RigError>(disk)
        };
        let journal = served("journal", options.journal_size)?;
        let home = served("home", options.home_size)?;
        make(options, &home.device.path, &journal.device.path)?;
        let mounted =
            mount(options, &home.device.path, &journal.device.path, &place.mount_point())?;
        let stage = RealStage { mounted, home, journal, place, before: Cell::default() };
        stage.restart_counting()?;
        Ok(stage)
    }

    pub fn mount_point(&self) -> PathBuf {
        self.place.mount_point()
    }
    /// Returns the requests of the file system to the journal's device since the stage was built or
    /// counting was restarted.
    pub fn journal_traffic(&self) -> Result<Traffic, RigError> {
        Ok(self.journal.device.traffic()?.minus(self.before.get().0))
    }
    pub fn home_traffic(&self) -> Result<Traffic, RigError> {
        Ok(self.home.device.traffic()?.minus(self.before.get().1))
    }
    pub fn restart_counting(&self) -> Result<(), RigError> {
        self.before.set((self.journal.device.traffic()?, self.home.device.traffic()?));
        Ok(())
    }
    /// Unmounts everything, as dropping the stage does, but returns failures.
    pub fn take_down(self) -> Result<(), RigError> {
        self.mounted.unmount()?;
        self.home.take_down()?;
        self.journal.take_down()
    }
}

/// Makes the file system, deferring no initialisation.
fn make(options: &RealStageOptions, home: &Path, journal: &Path) -> Result<(), RigError> {
    const BLOCK: u64 = 4096;
    const NOW: &str = "nodiscard,lazy_itable_init=0,lazy_journal_init=0";
    let journal_name = journal.display();
    match &options.contender {
        Contender::Btrfs => {
            rig::run(Command::new("mkfs.btrfs").args(["-q", "-f", "-K"]).arg(home)).map(drop)
        }
        Contender::Xfs => {
            let log = format!("logdev={journal_name},size={}", options.journal_size);
            rig::run(Command::new("mkfs.xfs").args(["-q", "-f", "-K", "-l", &log]).arg(home))
                .map(drop)
        }
        Contender::Blocks(_) => Err(above_blocks()),
        Contender::Ext4(_)
        | Contender::Okeanos(_)
        | Contender::OkeanosClassic(_)
        | Contender::OkeanosOf(..) => {
            let blocks = (options.journal_size / BLOCK).to_string();
            let outside = format!("device={journal_name}");
            let mke2fs = || {
                let mut command = Command::new("mke2fs");
                command.env("UNIX_IO_NOZEROOUT", "1").args(["-q", "-F", "-b", "4096"]);
                command
            };
            rig::run(mke2fs().args(["-O", "journal_dev"]).arg(journal).arg(blocks))?;
            rig::run(
                mke2fs().args(["-t", "ext3", "-I", "128", "-E", NOW, "-J", &outside]).arg(home),
            )
            .map(drop)
        }
    }
}

fn above_blocks() -> RigError {
    RigError::new("the papers' machines had no block volume below the file system")
}

fn mount(
    options: &RealStageOptions,
    home: &Path,
    journal: &Path,
    mount_point: &Path,
) -> Result<MountedDirectory, RigError> {
    let journal = journal.display();
    match &options.contender {
        Contender::Ext4(word) if word == "fast_commit" => {
            Err(RigError::new("fast_commit needs a journal inside the volume"))
        }
        Contender::Ext4(word) => {
            let word = ext4_options(word);
            let settings = format!("{word},nobarrier,commit=5,journal_path={journal}");
            MountedDirectory::kernel("ext4", &settings, home, mount_point)
        }
        Contender::Xfs => {
            MountedDirectory::kernel("xfs", &format!("logdev={journal}"), home, mount_point)
        }
        Contender::Blocks(_) => Err(above_blocks()),
        Contender::Btrfs => MountedDirectory::kernel("btrfs", "nobarrier", home, mount_point),
        Contender::Okeanos(data)
        | Contender::OkeanosClassic(data)
        | Contender::OkeanosOf(_, data) => {
            let settings = format!(
                "{}records=blocks,nobarrier,commit=5,writeback=5,expire=30,journal_dev={journal}",
                mode_option(data.as_deref())
            );
            let mut command = daemon(options.contender.program(&options.programs.okeanos));
            command.envs(options.contender.environment());
            command.args(["mount", "-f", "-o", &settings]).arg(home);
            MountedDirectory::by(command, mount_point)
        }
    }
}
