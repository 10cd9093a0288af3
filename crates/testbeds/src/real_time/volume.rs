//! A fresh volume on a disk, mounted, that can be mounted again.

use crate::real_time::block_volume::BlockVolume;
use crate::real_time::contender::Contender;
use crate::real_time::disk::Disk;
use crate::real_time::rig::{self, MountedDirectory, RigError};
use crate::virtual_time::Traffic;
use std::path::{Path, PathBuf};

/// A mounted volume. Fields are in drop order.
pub(crate) struct Volume<'a> {
    mounted: Option<MountedDirectory>,
    between: Option<BlockVolume>,
    disk: Disk,
    contender: &'a Contender,
    program: &'a Path,
    mount_point: PathBuf,
}

impl<'a> Volume<'a> {
    pub fn new(
        contender: &'a Contender,
        program: &'a Path,
        disk: Disk,
        mount_point: PathBuf,
    ) -> Result<Volume<'a>, RigError> {
        let between = contender.attach(program, &disk.device.path)?;
        let mut volume = Volume { mounted: None, between, disk, contender, program, mount_point };
        contender.make(volume.device())?;
        // What mkfs wrote is no part of what is measured.
        volume.between = volume.between.map(BlockVolume::drain).transpose()?;
        volume.mount()?;
        Ok(volume)
    }
    /// Returns the device that the file system is on.
    fn device(&self) -> &Path {
        self.between.as_ref().map_or(&self.disk.device.path, |between| &between.device)
    }
    fn mount(&mut self) -> Result<(), RigError> {
        let mounted = self.contender.mount(self.program, self.device(), &self.mount_point)?;
        self.mounted = Some(mounted);
        Ok(())
    }
    pub fn path(&self, name: &str) -> PathBuf {
        self.mount_point.join(name)
    }
    /// Returns the requests to its disk since the disk was set up.
    pub fn traffic(&self) -> Result<Traffic, RigError> {
        self.disk.device.traffic()
    }
    /// Returns the process that serves the volume, if one does.
    pub fn daemon(&self) -> Option<u32> {
        let below = self.between.as_ref().and_then(BlockVolume::process);
        self.mounted.as_ref().and_then(MountedDirectory::process).or(below)
    }
    /// Makes a directory of the volume to which `user` alone has access.
    pub fn directory_of(&self, name: &str, user: &str) -> Result<PathBuf, RigError> {
        let path = self.path(name);
        rig::directory_of(&path, user)?;
        Ok(path)
    }
    /// Drops all content of the volume from memory.
    pub fn forget_content(&mut self) -> Result<(), RigError> {
        if let Some(mounted) = self.mounted.take() {
            mounted.unmount()?;
        }
        self.mount()
    }
    /// Unmounts, as dropping the volume does, but returns failures.
    pub fn take_down(mut self) -> Result<(), RigError> {
        self.mounted.take().map_or(Ok(()), MountedDirectory::unmount)?;
        self.between.take().map_or(Ok(()), BlockVolume::detach)?;
        self.disk.take_down()
    }
}
