//! The emulated drives of a stage.

use crate::virtual_time::options::DiskChoice;
use device::Disk;
use disks::{Elevator, Image, Raid0, TraceFile, Watched};
use emulated::{CrashImage, EmulatedDisk, Model};
use runtime::VirtualWorld;
use std::cell::Cell;
use std::io;
use std::rc::Rc;

/// Requests of the host to the disks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Traffic {
    pub reads: u64,
    pub writes: u64,
    pub flushes: u64,
    pub bytes_read: u64,
    pub bytes_written: u64,
}

/// One disk of the stage: a drive, or several in a RAID-0.
pub(crate) struct Drives {
    model: Model,
    chunk: u64,
    members: Vec<EmulatedDisk>,
    pub disk: Rc<dyn Disk>,
    /// Counters at the time when counting was restarted.
    before: Cell<Traffic>,
}

impl Drives {
    pub fn new(
        world: &VirtualWorld,
        choice: &DiskChoice,
        model: Model,
        image: &Image,
    ) -> io::Result<Drives> {
        let images = match choice.drives {
            0 | 1 => vec![image.clone()],
            // A journal's disks are as large as the journal needs.
            drives => {
                let share = image.size().div_ceil(u64::from(drives)).next_multiple_of(choice.chunk);
                Raid0::deal(image, drives as usize, share, choice.chunk)
            }
        };
        Drives::of(world, choice, model, images.into_iter().map(CrashImage::whole).collect(), false)
    }

    fn of(
        world: &VirtualWorld,
        choice: &DiskChoice,
        model: Model,
        images: Vec<CrashImage>,
        again: bool,
    ) -> io::Result<Drives> {
        let member = |image| {
            EmulatedDisk::after_crash(Rc::new(world.clone()), model.clone(), choice.options, image)
        };
        let members: Vec<EmulatedDisk> = images.into_iter().map(member).collect();
        let of_host = |member: &EmulatedDisk| -> Rc<dyn Disk> {
            let drive = Rc::new(member.clone());
            match choice.elevator {
                Some(scheduler) => Rc::new(Elevator::new(Rc::new(world.clone()), drive, scheduler)),
                None => drive,
            }
        };
        let mut disk = Raid0::of(members.iter().map(of_host).collect(), choice.chunk);
        if let Some(path) = &choice.trace {
            disk = Rc::new(Watched {
                disk,
                watch: TraceFile::new(Rc::new(world.clone()), path, again)?,
            });
        }
        Ok(Drives { model, chunk: choice.chunk, members, disk, before: Cell::default() })
    }

    /// Returns the drives, after [`Drives::power_off`], with power again.
    pub fn after_crash(&self, world: &VirtualWorld, choice: &DiskChoice) -> io::Result<Drives> {
        let left = self.members.iter().map(EmulatedDisk::crash).collect();
        Drives::of(world, choice, self.model.clone(), left, true)
    }
    pub fn power_off(&self) {
        self.members.iter().for_each(EmulatedDisk::power_off);
    }

    pub fn image(&self) -> Image {
        let mut images: Vec<Image> = self.members.iter().map(EmulatedDisk::image).collect();
        if images.len() == 1 { images.remove(0) } else { Raid0::gather(&images, self.chunk) }
    }

    pub fn traffic(&self) -> Traffic {
        self.all_traffic().minus(self.before.get())
    }
    pub fn restart_counting(&self) {
        self.before.set(self.all_traffic());
    }
    fn all_traffic(&self) -> Traffic {
        self.members.iter().fold(Traffic::default(), |sum, member| {
            let one = member.statistics();
            Traffic {
                reads: sum.reads + one.reads,
                writes: sum.writes + one.writes,
                flushes: sum.flushes + one.flushes,
                bytes_read: sum.bytes_read + one.bytes_read,
                bytes_written: sum.bytes_written + one.bytes_written,
            }
        })
    }
}

impl Traffic {
    pub fn minus(self, earlier: Traffic) -> Traffic {
        Traffic {
            reads: self.reads - earlier.reads,
            writes: self.writes - earlier.writes,
            flushes: self.flushes - earlier.flushes,
            bytes_read: self.bytes_read - earlier.bytes_read,
            bytes_written: self.bytes_written - earlier.bytes_written,
        }
    }
}
