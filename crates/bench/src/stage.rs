//! Emulated disks with a volume on them, in virtual time: where a workload is played as the papers played theirs.

use crate::VirtualFiles;
use device::Disk;
use disks::{Image, Raid0};
use e2fsprogs::{Images, Journal, Request};
use emulated::{CrashImage, EmulatedDisk, Model};
use engine::{BarrierKind, DataMode, EngineOptions};
use ext4::{OpenParts, Volume, VolumeOptions};
use runtime::VirtualWorld;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::rc::Rc;
use std::time::Duration;

/// A disk of the stage.
#[derive(Clone, Debug)]
pub struct DiskChoice {
    /// A model that comes with the program, or the path of a model file.
    pub model: String,
    /// Drives of a RAID-0; 1: the drive itself.
    pub drives: u32,
    /// Bytes of a RAID-0's chunk.
    pub chunk: u64,
    pub options: emulated::Options,
}

/// How the volume is made, by the real mke2fs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Layout {
    /// `mke2fs -t ext3 -I 128`: as the papers' volumes were.
    Ext3Paper,
    /// `mke2fs -t ext4`, as today.
    Ext4,
}

#[derive(Clone, Debug)]
pub struct StageOptions {
    pub home: DiskChoice,
    /// `None`: the journal is a hidden inode of the volume.
    pub journal: Option<DiskChoice>,
    pub layout: Layout,
    /// Bytes.
    pub block_size: u32,
    pub journal_size: u64,
    /// Data mode, barrier, and the times of commit and write-back.
    pub engine: EngineOptions,
    /// Decides everything that chance decides.
    pub seed: u64,
}

impl StageOptions {
    /// What the Okeanos paper measured on: two Cheetahs, ext3 with 4 KiB blocks, 128 MiB of journal on a disk of its own,
    /// write-back every 5 s of what is older than 30 s. Of the 3 GiB of memory there the cache may have 2.
    pub fn of_paper(data: DataMode) -> StageOptions {
        let cheetah = DiskChoice {
            model: "cheetah-15k5-300".into(),
            drives: 1,
            chunk: 64 << 10,
            options: emulated::Options::default(),
        };
        StageOptions {
            home: cheetah.clone(),
            journal: Some(cheetah),
            layout: Layout::Ext3Paper,
            block_size: 4096,
            journal_size: 128 << 20,
            engine: EngineOptions {
                data,
                barrier: BarrierKind::None,
                commit: Duration::from_secs(5),
                writeback: Duration::from_secs(5),
                expire: Duration::from_secs(30),
                cache_bytes: 2 << 30,
                ..EngineOptions::default()
            },
            seed: 1,
        }
    }
}

/// What the host asked of the disks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Traffic {
    pub reads: u64,
    pub writes: u64,
    pub flushes: u64,
    pub bytes_read: u64,
    pub bytes_written: u64,
}

/// An open volume on emulated disks.
pub struct Stage {
    world: VirtualWorld,
    options: StageOptions,
    home: Drives,
    journal: Option<Drives>,
    /// `None` only while it is mounted anew.
    volume: Option<Rc<Volume>>,
}

#[derive(Debug, thiserror::Error)]
pub enum StageError {
    #[error("no disk model is called {name:?}, and as a file: {error}")]
    NoModel { name: String, error: std::io::Error },
    #[error("disk model {name}: {error}")]
    Model { name: String, error: emulated::ModelError },
    #[error("cannot make the volume: {0}")]
    Make(#[from] std::io::Error),
    #[error("{0}")]
    Volume(#[from] ext4::Error),
    #[error("e2fsck found damage: {0}")]
    Damaged(String),
}

impl Stage {
    /// Makes the disks and a fresh volume, as large as the home disk, and opens it. The clock stands at zero. If the
    /// journal has a disk of its own, that one is as large as the journal.
    pub fn build(options: &StageOptions) -> Result<Stage, StageError> {
        Stage::build_in(VirtualWorld::new(options.seed), options)
    }

    /// As [`Stage::build`], beside another stage: both have one clock, and that of the first decides about chance. The
    /// first that is dropped ends what goes on in both.
    pub fn build_in(world: VirtualWorld, options: &StageOptions) -> Result<Stage, StageError> {
        let home_model = options.home.find_model()?;
        let journal_model = options.journal.as_ref().map(DiskChoice::find_model).transpose()?;
        let images = make(options, options.home.size(&home_model))?;
        let home = Drives::new(&world, &options.home, home_model, &images.home);
        let journal = match (&options.journal, journal_model, &images.journal) {
            (Some(choice), Some(model), Some(image)) => Some(Drives::new(&world, choice, model, image)),
            _ => None,
        };
        let mut stage = Stage { world, options: options.clone(), home, journal, volume: None };
        stage.mount()?;
        stage.restart_counting();
        Ok(stage)
    }

    fn mount(&mut self) -> Result<(), StageError> {
        let engine = self.options.engine.clone();
        let parts = OpenParts {
            world: Rc::new(self.world.clone()),
            home: self.home.disk.clone(),
            journal: self.journal.as_ref().map(|drives| drives.disk.clone()),
            options: VolumeOptions { engine, ..VolumeOptions::default() },
        };
        self.volume = Some(self.world.run(Volume::open(parts))?);
        Ok(())
    }

    pub fn volume(&self) -> &Rc<Volume> {
        self.volume.as_ref().expect("a volume between two calls")
    }
    pub fn world(&self) -> &VirtualWorld {
        &self.world
    }

    /// Plays a workload to its end; virtual time goes on as far as it takes.
    pub fn run<T: 'static, W: Future<Output = T> + 'static>(
        &self,
        workload: impl FnOnce(VirtualFiles) -> W,
    ) -> T {
        self.world.run(workload(self.files()))
    }
    pub fn files(&self) -> VirtualFiles {
        VirtualFiles::new(self.world.clone(), self.volume().clone())
    }

    /// Since the stage was built or [`Stage::restart_counting`] was called. Nothing if the journal is a hidden inode:
    /// then its traffic is the home disk's.
    pub fn journal_traffic(&self) -> Traffic {
        self.journal.as_ref().map(Drives::traffic).unwrap_or_default()
    }
    pub fn home_traffic(&self) -> Traffic {
        self.home.traffic()
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

    /// Unmounts and mounts again: everything is home, and the caches (ours, not the drives') are cold.
    pub fn remount(&mut self) -> Result<(), StageError> {
        self.unmount()?;
        self.mount()
    }

    fn unmount(&mut self) -> Result<(), StageError> {
        let volume = self.volume.take().expect("a volume between two calls");
        Ok(self.world.run(async move { volume.close().await })?)
    }

    /// Cuts the power, and recovers what the drives kept. The volume is open again afterwards. Whoever used it before
    /// is gone.
    pub fn crash_and_recover(&mut self) -> Result<engine::RecoveryReport, StageError> {
        self.drives().for_each(Drives::power_off);
        self.world.end();
        self.volume = None;
        self.home = self.home.after_crash(&self.world, &self.options.home);
        let journal = self.journal.as_ref().zip(self.options.journal.as_ref());
        self.journal = journal.map(|(drives, choice)| drives.after_crash(&self.world, choice));
        self.mount()?;
        Ok(self.volume().open_report().recovery)
    }

    /// What the disks hold, their caches included.
    pub fn images(&self) -> Images {
        Images { home: self.home.image(), journal: self.journal.as_ref().map(Drives::image) }
    }

    /// Writes everything home; what the disks then hold is given to `e2fsck -fn`.
    pub fn close_and_check(mut self) -> Result<(), StageError> {
        self.unmount()?;
        self.images().check().map_err(StageError::Damaged)
    }
}

/// Tasks hold their world.
impl Drop for Stage {
    fn drop(&mut self) {
        self.world.end();
    }
}

/// Volumes that are remembered.
const MADE_MAX: usize = 2;

thread_local! {
    /// The last volumes that were made, and what was asked for: mke2fs takes seconds for one as large as the papers'.
    static MADE: RefCell<VecDeque<(String, Images)>> = const { RefCell::new(VecDeque::new()) };
}

fn make(options: &StageOptions, size: u64) -> std::io::Result<Images> {
    let mebibytes = format!("size={}", options.journal_size >> 20);
    let mut mke2fs: Vec<&str> = match options.layout {
        Layout::Ext3Paper => vec!["-t", "ext3", "-I", "128"],
        Layout::Ext4 => vec!["-t", "ext4"],
    };
    let journal = match &options.journal {
        Some(_) => Journal::Outside { size: options.journal_size },
        None => {
            mke2fs.extend(["-J", &mebibytes]);
            Journal::Inside
        }
    };
    let block_size = options.block_size.into();
    let request = &Request { options: &mke2fs, block_size, size, journal, stale: None };
    let name = format!("{request:?}");
    let known =
        |made: &VecDeque<(String, Images)>| made.iter().find(|it| it.0 == name).map(|it| it.1.clone());
    if let Some(images) = MADE.with_borrow(known) {
        return Ok(images);
    }
    let images = e2fsprogs::make(request)?;
    MADE.with_borrow_mut(|made| {
        made.push_front((name, images.clone()));
        made.truncate(MADE_MAX);
    });
    Ok(images)
}

impl DiskChoice {
    fn find_model(&self) -> Result<Model, StageError> {
        let name = self.model.clone();
        let text = match emulated::shipped().find(|(shipped, _)| *shipped == name) {
            Some((_, text)) => text.to_owned(),
            None => match std::fs::read_to_string(&name) {
                Ok(text) => text,
                Err(error) => return Err(StageError::NoModel { name, error }),
            },
        };
        Model::parse(&text).map_err(|error| StageError::Model { name, error })
    }
    /// Bytes of one drive.
    fn drive_size(&self, model: &Model) -> u64 {
        self.options.size.unwrap_or(model.size.get())
    }
    /// Bytes of all.
    fn size(&self, model: &Model) -> u64 {
        match self.drives {
            0 | 1 => self.drive_size(model),
            drives => self.drive_size(model) / self.chunk * self.chunk * u64::from(drives),
        }
    }
}

/// One disk of the stage: a drive, or several in a RAID-0.
struct Drives {
    model: Model,
    chunk: u64,
    members: Vec<EmulatedDisk>,
    disk: Rc<dyn Disk>,
    /// What was counted when counting began anew.
    before: Cell<Traffic>,
}

impl Drives {
    fn new(world: &VirtualWorld, choice: &DiskChoice, model: Model, image: &Image) -> Drives {
        let images = match choice.drives {
            0 | 1 => vec![image.clone()],
            // A journal's disks are as large as the journal needs.
            drives => {
                let share = image.size().div_ceil(u64::from(drives)).next_multiple_of(choice.chunk);
                Raid0::deal(image, drives as usize, share, choice.chunk)
            }
        };
        Drives::of(world, choice, model, images.into_iter().map(CrashImage::whole).collect())
    }

    fn of(world: &VirtualWorld, choice: &DiskChoice, model: Model, images: Vec<CrashImage>) -> Drives {
        let member =
            |image| EmulatedDisk::after_crash(Rc::new(world.clone()), model.clone(), choice.options, image);
        let members: Vec<EmulatedDisk> = images.into_iter().map(member).collect();
        let mut disks: Vec<Rc<dyn Disk>> =
            members.iter().map(|member| Rc::new(member.clone()) as Rc<dyn Disk>).collect();
        let disk = match disks.len() {
            1 => disks.remove(0),
            _ => Rc::new(Raid0::new(disks, choice.chunk)) as Rc<dyn Disk>,
        };
        Drives { model, chunk: choice.chunk, members, disk, before: Cell::default() }
    }

    /// The same drives, after [`Drives::power_off`], with power again.
    fn after_crash(&self, world: &VirtualWorld, choice: &DiskChoice) -> Drives {
        let left = self.members.iter().map(EmulatedDisk::crash).collect();
        Drives::of(world, choice, self.model.clone(), left)
    }
    fn power_off(&self) {
        self.members.iter().for_each(EmulatedDisk::power_off);
    }

    fn image(&self) -> Image {
        let mut images: Vec<Image> = self.members.iter().map(EmulatedDisk::image).collect();
        if images.len() == 1 { images.remove(0) } else { Raid0::gather(&images, self.chunk) }
    }

    fn traffic(&self) -> Traffic {
        self.all_traffic().minus(self.before.get())
    }
    fn restart_counting(&self) {
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
    pub(crate) fn minus(self, earlier: Traffic) -> Traffic {
        Traffic {
            reads: self.reads - earlier.reads,
            writes: self.writes - earlier.writes,
            flushes: self.flushes - earlier.flushes,
            bytes_read: self.bytes_read - earlier.bytes_read,
            bytes_written: self.bytes_written - earlier.bytes_written,
        }
    }
}
