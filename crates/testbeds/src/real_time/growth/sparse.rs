//! A volume on a sparse image, which takes space only for written blocks.

use super::Bench;
use super::memory::{Resident, resident};
use crate::real_time::rig::{self, LoopDevice, MountedDirectory, RigError, timed};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use workloads::{Limit, StreamOptions, SyncKind};

/// Bytes of a journal, where the journal is not what grows.
pub(super) const JOURNAL: u64 = 64 << 20;

/// Bytes of a record.
pub(super) const RECORD: usize = 128;

/// Writers of the load before each kill, and appends of each.
const LOAD_WRITERS: u32 = 4;
const LOAD_APPENDS: u64 = 64;

/// A volume on a sparse image. Fields are in drop order.
pub(super) struct SparseVolume<'a> {
    mounted: Option<MountedDirectory>,
    device: LoopDevice,
    _image: Removed,
    program: &'a Path,
    mount_point: PathBuf,
    /// Number of names given so far.
    names: u32,
}

/// A file that is removed at the end.
struct Removed(PathBuf);

impl Drop for Removed {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_file(&self.0) {
            rig::complain(&format!("{}: {error}", self.0.display()));
        }
    }
}

impl<'a> SparseVolume<'a> {
    /// Makes a volume. `inodes`: mke2fs's default if `None`.
    pub fn make(
        bench: &Bench<'a>,
        size: u64,
        journal: u64,
        inodes: Option<u64>,
    ) -> Result<SparseVolume<'a>, RigError> {
        let image = Removed(bench.place.image("sparse"));
        let path = &image.0;
        let sized = File::create(path).and_then(|file| file.set_len(size));
        sized.map_err(RigError::at(path.display()))?;
        // Unwritten parts read as zeros, so nothing has to be zeroed.
        let mut command = Command::new("mke2fs");
        command.args([
            "-q",
            "-F",
            "-t",
            "ext4",
            "-b",
            "4096",
            "-J",
            &format!("size={}", journal >> 20),
        ]);
        command.args(["-E", "nodiscard,lazy_itable_init=1,lazy_journal_init=1"]);
        if let Some(inodes) = inodes {
            command.args(["-N", &inodes.to_string()]);
        }
        rig::run(command.arg(path))?;
        let device = LoopDevice::attach(path)?;
        let (program, mount_point) =
            (bench.options.programs.okeanos.as_path(), bench.place.mount_point());
        Ok(SparseVolume { mounted: None, device, _image: image, program, mount_point, names: 0 })
    }
    pub fn path(&self, name: &str) -> PathBuf {
        self.mount_point.join(name)
    }
    /// Returns a name that no file of the volume has.
    pub fn fresh_name(&mut self) -> String {
        self.names += 1;
        format!("fresh-{}-", self.names)
    }
    /// Mounts the volume; returns seconds since the start of the program.
    pub fn mount(&mut self, options: &str) -> Result<f64, RigError> {
        let options = format!("data=wasteless{options}");
        let (mounted, seconds) = timed(|| {
            MountedDirectory::okeanos(
                Command::new(self.program),
                &options,
                &self.device.path,
                &self.mount_point,
            )
        })?;
        self.mounted = Some(mounted);
        Ok(seconds)
    }
    /// Mounts the volume with the kernel's ext4 while `work` runs.
    pub fn with_kernel<T>(
        &self,
        options: &str,
        work: impl FnOnce(&Path) -> Result<T, RigError>,
    ) -> Result<T, RigError> {
        let mounted =
            MountedDirectory::kernel("ext4", options, &self.device.path, &self.mount_point)?;
        let done = work(&self.mount_point);
        mounted.unmount()?;
        done
    }
    pub fn memory(&self) -> Result<Resident, RigError> {
        let process = self.mounted.as_ref().and_then(MountedDirectory::process);
        resident(process.ok_or_else(|| RigError::new("there is no daemon"))?)
    }
    /// Appends a fixed number of records synchronously.
    pub fn small_load(&mut self) -> Result<(), RigError> {
        let streams = StreamOptions {
            writers: LOAD_WRITERS,
            size: RECORD,
            limit: Limit::Count(LOAD_APPENDS),
            rate: None,
            sync: SyncKind::OSync,
            prefix: self.fresh_name(),
        };
        rig::play_streams(&self.mount_point, &streams, "the small load").map(drop)
    }
    /// Kills the daemon, as a power cut would; the mount is removed.
    pub fn kill(&mut self) -> Result<(), RigError> {
        let mut mounted = self.mounted.take().ok_or_else(|| RigError::new("nothing is mounted"))?;
        mounted.kill_daemon()?;
        mounted.unmount()
    }
    pub fn unmount(&mut self) -> Result<(), RigError> {
        self.mounted.take().map_or(Ok(()), MountedDirectory::unmount)
    }
}
