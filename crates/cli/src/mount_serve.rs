//! The daemon of one mount: brings the volume up, serves it, and sees it home.
//!
//! Order: porter forked; disk opened exclusively; volume opened and recovered; claim handed to the kernel (fuseblk);
//! mounted by the porter; served. From the mount on, this process looks at no path: it would wait for itself, and as
//! root it has none left.

use crate::coerce::{Wanted, coerce};
use crate::control::{About, Ask, End, socket_directory};
use crate::control_server::{Answers, ControlServer, ControlSocket, no_control};
use crate::daemon::{self, Herald};
use crate::error::CliError;
use crate::loop_device::LoopDevice;
use crate::mount::MountPlan;
use crate::mount_options::Barrier;
use crate::open_disk::open_disk;
use crate::porter::{Porter, Standing};
use crate::reporter::Reporter;
use device::Disk;
use disks::{Access, FileDisk};
use eviction::CoercedDisk;
use ext4::{OpenParts, Volume, VolumeOptions};
use format::ext4::Superblock;
use format::ext4::superblock::SUPERBLOCK_OFFSET;
use fuse::{DoorOptions, Kind, MountOptions, Session, Transport, VolumeDoor};
use journal::{DataMode, WriteThreshold};
use runtime::{Either, RealWorld, Signals, race, spawn_with_result};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// The superblock, and as much before it, in whole sectors of any disk.
const SUPERBLOCK_END: usize = 4096;

const SYNCS_END: &str = "this kernel (before Linux 6.18) does not pass sync(2) and syncfs(2) on: they return before the \
                         volume is durable. fsync(2), O_SYNC and umount(2) are not concerned, and a change is durable \
                         after commit=TIME all the same";

/// Serves until the volume is unmounted, or a signal says so. The exit code tells whether everything is home.
pub fn serve(plan: MountPlan, herald: Herald) -> Result<(), CliError> {
    let reporter = Reporter::open(herald.is_background());
    if let Err(error) = runtime::block_signals() {
        return herald.failed(CliError::system("signals", error));
    }
    // What it lies on is busy where the caller is, too, not only where the daemon will be.
    let image = std::fs::OpenOptions::new().read(true).custom_flags(libc::O_PATH).open(&plan.source);
    let started = image
        .map_err(|error| CliError::system(plan.source.display(), error))
        .and_then(|image| Ok((image, Porter::start(&plan.directory, &|text| reporter.tell(text))?)));
    let (_image, porter) = match started {
        Ok(started) => started,
        Err(error) => return herald.failed(error),
    };
    let world = match RealWorld::new() {
        Ok(world) => world,
        Err(error) => return herald.failed(CliError::no_ring(error)),
    };
    let result = world.run(run(world.clone(), plan, porter, reporter, herald));
    world.end();
    result
}

async fn run(
    world: RealWorld,
    plan: MountPlan,
    porter: Porter,
    reporter: Reporter,
    herald: Herald,
) -> Result<(), CliError> {
    match Mounted::bring_up(&world, &plan, porter, reporter).await {
        Ok(mounted) => mounted.serve(&world, &plan, herald).await,
        Err(error) => herald.failed(error),
    }
}

struct Mounted {
    volume: Rc<Volume>,
    door: Rc<VolumeDoor>,
    session: Rc<Session<VolumeDoor>>,
    porter: Porter,
    reporter: Reporter,
    signals: Signals,
    control: ControlSocket,
    device: (u32, u32),
    /// With `barrier=coerce`: home, then the journal's disk.
    coerced: Vec<CoercedDisk>,
    /// Lives as long as the mount.
    _loop_device: Option<LoopDevice>,
    data: DataMode,
}

impl Mounted {
    async fn bring_up(
        world: &RealWorld,
        plan: &MountPlan,
        porter: Porter,
        reporter: Reporter,
    ) -> Result<Mounted, CliError> {
        let signals = world.signals().map_err(|error| CliError::system("signals", error))?;
        let control = ControlSocket::bind(&socket_directory()).map_err(no_control)?;
        let read_only = plan.settings.read_only;
        let wants_loop = !plan.is_block_device && plan.is_root && plan.settings.loop_device;
        // A loop device on it would be what is called empty.
        if wants_loop && std::fs::metadata(&plan.source).is_ok_and(|image| image.len() == 0) {
            let source = plan.source.display();
            return Err(CliError::new(format!("{source} is empty: make a volume on it first")));
        }
        let loop_device = wants_loop.then(|| LoopDevice::attach(&plan.source, read_only)).transpose()?;
        let path = loop_device.as_ref().map_or(&plan.source, |device| &device.path);
        let access = if read_only { Access::ReadOnly } else { Access::ReadWrite };
        let disk = open_disk(world, path, access)?;
        let journal = match &plan.settings.journal_device {
            Some(path) => Some(Rc::new(open_disk(world, path, access)?) as Rc<dyn Disk>),
            None => None,
        };
        let (volume, coerced) = open_volume(world, plan, path, &disk, journal).await?;
        for warning in volume.open_report().warnings {
            reporter.tell(&format!("{}: {warning}", plan.source.display()));
        }
        let told = reporter.clone();
        let door_options = DoorOptions {
            synchronous_directories: plan.settings.synchronous_directories,
            report: Box::new(move |text| told.tell(text)),
        };
        let door = VolumeDoor::new(volume.clone(), door_options);
        daemon::settle_in();
        match mount(plan, &porter, path, &disk, &volume) {
            Ok(Standing { connection, device }) => {
                let transport = plan.settings.transport;
                let session = Session::new(world.clone(), connection, door.clone(), transport);
                let data = volume.options().engine.data;
                Ok(Mounted {
                    volume,
                    door,
                    session,
                    porter,
                    reporter,
                    signals,
                    control,
                    device,
                    coerced,
                    _loop_device: loop_device,
                    data,
                })
            }
            Err(error) => {
                // The volume was marked as mounted; leave it as we found it.
                let _ = door.close().await;
                Err(error)
            }
        }
    }

    async fn serve(self, world: &RealWorld, plan: &MountPlan, herald: Herald) -> Result<(), CliError> {
        let answers = self.answers(world, plan);
        let Mounted { door, session, porter, reporter, signals, control, device, .. } = self;
        let serving = session.clone();
        let mut served = spawn_with_result(world, async move { serving.serve().await });
        let begun = race(&mut served, session.until_begun()).await;
        let refused = match &begun {
            Either::Right(agreed) if plan.settings.transport == Transport::Uring && !agreed.uring => Some(
                CliError::new("transport=uring: the kernel does not offer FUSE over io_uring").with_remedy(
                    "Linux 6.14 or later is needed, and: echo 1 > /sys/module/fuse/parameters/enable_uring",
                ),
            ),
            _ => None,
        };
        let control = match refused {
            None => ControlServer::start(world, control, device, answers).map_err(no_control),
            Some(error) => Err(error),
        };
        let control = match control {
            Ok(control) => control,
            Err(error) => {
                porter.end(world, &session, served, signals).await;
                return herald.failed(error);
            }
        };
        let warning = match &begun {
            Either::Right(agreed) if !agreed.passes_syncs() && !plan.settings.read_only => Some(SYNCS_END),
            _ => None,
        };
        if let Some(warning) = warning.filter(|_| !herald.is_background()) {
            reporter.tell(warning);
        }
        herald.up(warning);
        let result = match begun {
            Either::Left(result) => result,
            Either::Right(_) => porter.until_over(world, &session, served, signals).await,
        };
        let clean = door.close().await.is_ok();
        control.end(End { clean });
        match result {
            Some(Ok(())) if clean => Ok(()),
            Some(Err(error)) => {
                reporter.tell(&error.to_string());
                Err(CliError::new(error.to_string()))
            }
            _ => Err(CliError::new(format!("{}: not everything came home", plan.source.display()))),
        }
    }

    fn answers(&self, world: &RealWorld, plan: &MountPlan) -> Box<Answers> {
        let about = About {
            process: std::process::id(),
            version: env!("CARGO_PKG_VERSION").into(),
            source: plan.source.display().to_string(),
            directory: plan.directory.display().to_string(),
            data: self.data.to_string(),
        };
        let (volume, session, ring) = (self.volume.clone(), self.session.clone(), world.ring().clone());
        let coerced = self.coerced.clone();
        Box::new(move |ask| match ask {
            Ask::About | Ask::End => serde_json::json!(about),
            Ask::Stats => {
                let (door, ring) = (session.statistics(), ring.statistics());
                serde_json::json!({
                    "about": about,
                    "transport": match session.negotiated() {
                        Some(agreed) if agreed.uring => "io_uring",
                        _ => "classic",
                    },
                    "engine": volume.engine().statistics(),
                    "coerced": coerced.iter().map(CoercedDisk::statistics).collect::<Vec<_>>(),
                    "door": {
                        "requests": door.requests,
                        "ring_requests": door.ring_requests,
                        "malformed": door.malformed,
                        "interrupts": door.interrupts,
                    },
                    "ring": {
                        "operations": ring.operations,
                        "enters": ring.enters,
                        "failed_sends": ring.failed_sends,
                        "full_queues": ring.full_queues,
                    },
                })
            }
        })
    }
}

async fn open_volume(
    world: &RealWorld,
    plan: &MountPlan,
    path: &Path,
    disk: &FileDisk,
    journal: Option<Rc<dyn Disk>>,
) -> Result<(Rc<Volume>, Vec<CoercedDisk>), CliError> {
    let mut engine = plan.settings.engine();
    if plan.settings.threshold.is_none()
        && let Ok(start) = disk.read(0, SUPERBLOCK_END).await
        && let Ok(superblock) = Superblock::parse(&start[SUPERBLOCK_OFFSET as usize..])
    {
        engine.threshold = WriteThreshold(superblock.block_size.bytes() as u64);
    }
    let parts = OpenParts {
        world: Rc::new(world.clone()),
        home: Rc::new(disk.clone()),
        journal,
        options: VolumeOptions {
            access: if plan.settings.read_only { ext4::Access::ReadOnly } else { ext4::Access::ReadWrite },
            atime: plan.settings.atime,
            engine,
            mount_point: plan.directory.display().to_string(),
        },
    };
    let (parts, coerced) = match plan.settings.barrier {
        Barrier::Coerce => {
            coerce(parts, path, plan.settings.journal_device.as_deref(), Wanted::Required).await?
        }
        Barrier::None | Barrier::Flush => (parts, Vec::new()),
    };
    match Volume::open(parts).await {
        Ok(volume) => Ok((volume, coerced)),
        Err(error) => Err(CliError::new(format!("{}: {error}", plan.source.display()))),
    }
}

fn mount(
    plan: &MountPlan,
    porter: &Porter,
    path: &Path,
    disk: &FileDisk,
    volume: &Volume,
) -> Result<Standing, CliError> {
    let kind = if disk.is_block_device() && plan.is_root {
        // Now the kernel is to hold the claim.
        disk.release_claim().map_err(|error| CliError::new(error.to_string()))?;
        Kind::Block { device: PathBuf::from(path), block_size: volume.block_size().bytes() as u32 }
    } else {
        Kind::Plain { name: plan.source.display().to_string() }
    };
    let read_only = if plan.settings.read_only { libc::MS_RDONLY } else { 0 };
    let options =
        MountOptions { kind, flags: plan.settings.flags | read_only, allow_other: plan.settings.allow_other };
    porter.mount(&options)
}
