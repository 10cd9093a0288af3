//! Disks below a volume: a loop device over a file of zeros, or over a disk that is emulated in
//! real time.

use crate::real_time::installed::Programs;
use crate::real_time::rig::{self, LoopDevice, MountedDirectory, RigError, Workspace, daemon};
use std::path::{Path, PathBuf};
use std::process::Stdio;

/// Location of the volumes that are compared.
#[derive(Clone, Debug)]
pub struct Environment {
    /// Directory of the images.
    pub directory: PathBuf,
    /// Model of the disk that is emulated instead; its content is in memory.
    pub model: Option<String>,
    pub programs: Programs,
}

/// A disk. Fields are in drop order.
pub(crate) struct Disk {
    pub device: LoopDevice,
    served: Option<MountedDirectory>,
}

impl Disk {
    /// Starts a fresh `okeanos-lab disk serve`, and a loop device on its file.
    pub fn emulated(
        programs: &Programs,
        model: &str,
        size: u64,
        directory: &Path,
    ) -> Result<Disk, RigError> {
        let mut command = daemon(&programs.lab);
        command.args(["disk", "serve", "-f", "--model", model, "--size", &size.to_string()]);
        // At its end the program prints the drive's statistics; the kernel's own count is used
        // here.
        command.stdout(Stdio::null());
        let served = Some(MountedDirectory::by(command, directory)?);
        Ok(Disk { device: LoopDevice::attach(&directory.join("disk"))?, served })
    }
    fn on_image(image: &Path) -> Result<Disk, RigError> {
        rig::wipe_image(image)?;
        Ok(Disk { device: LoopDevice::attach(image)?, served: None })
    }
    pub fn take_down(self) -> Result<(), RigError> {
        drop(self.device);
        self.served.map_or(Ok(()), MountedDirectory::unmount)
    }
}

/// Source of the disks of a comparison.
pub(crate) enum Disks {
    /// A file of real zeros for each.
    Images(Vec<PathBuf>),
    Emulated {
        model: String,
        size: u64,
        directory: PathBuf,
    },
}

impl Disks {
    /// Provides `count` disks of `size` bytes, to be used one after the other.
    pub fn new(
        place: &Workspace,
        model: Option<&str>,
        count: usize,
        size: u64,
    ) -> Result<Disks, RigError> {
        if let Some(model) = model {
            return Ok(Disks::Emulated {
                model: model.into(),
                size,
                directory: place.directory("disk")?,
            });
        }
        let images: Vec<_> = (0..count).map(|index| place.image(&index.to_string())).collect();
        images.iter().try_for_each(|image| rig::fill_image(image, size))?;
        Ok(Disks::Images(images))
    }
    /// Returns a disk without traces of an earlier use.
    pub fn fresh(&self, index: usize, programs: &Programs) -> Result<Disk, RigError> {
        match self {
            Disks::Images(images) => Disk::on_image(&images[index]),
            Disks::Emulated { model, size, directory } => {
                Disk::emulated(programs, model, *size, directory)
            }
        }
    }
}
