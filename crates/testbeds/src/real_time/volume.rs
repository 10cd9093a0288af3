//! A fresh volume on a disk, mounted, that can be mounted again.

use crate::real_time::contender::Contender;
use crate::real_time::disk::Disk;
use crate::real_time::rig::{self, MountedDirectory, RigError};
use crate::virtual_time::Traffic;
use std::path::{Path, PathBuf};

/// A mounted volume. Fields are in drop order.
pub(crate) struct Volume<'a> {
    mounted: Option<MountedDirectory>,
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
        contender.make(&disk.device.path)?;
        let mounted = Some(contender.mount(program, &disk.device.path, &mount_point)?);
        Ok(Volume { mounted, disk, contender, program, mount_point })
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
        self.mounted.as_ref().and_then(MountedDirectory::process)
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
        self.mounted =
            Some(self.contender.mount(self.program, &self.disk.device.path, &self.mount_point)?);
        Ok(())
    }
    /// Unmounts, as dropping the volume does, but returns failures.
    pub fn take_down(mut self) -> Result<(), RigError> {
        self.mounted.take().map_or(Ok(()), MountedDirectory::unmount)?;
        self.disk.take_down()
    }
}
