//! The daemon of one mount: brings the volume up, serves it, and sees it home.
//!
//! Order: disk opened exclusively; volume opened and recovered; claim handed to the kernel (fuseblk); mounted;
//! served. From the mount on, this process never looks at a path inside it: it would wait for itself.

use crate::coerce::{Wanted, coerce};
use crate::control::{About, Ask, End, socket_path};
use crate::control_server::ControlServer;
use crate::daemon::{self, Herald};
use crate::error::CliError;
use crate::loop_device::LoopDevice;
use crate::mount::MountPlan;
use crate::mount_options::Barrier;
use crate::mount_table;
use crate::open_disk::open_disk;
use crate::umount;
use device::{Disk, World};
use disks::{Access, FileDisk};
use eviction::CoercedDisk;
use ext4::{OpenParts, Volume, VolumeOptions};
use format::ext4::Superblock;
use format::ext4::superblock::SUPERBLOCK_OFFSET;
use fuse::{DoorOptions, Kind, MountOptions, Session, Transport, VolumeDoor};
use journal::{DataMode, WriteThreshold};
use runtime::{Either, RealWorld, Signals, race, spawn_with_result};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

/// The superblock, and as much before it, in whole sectors of any disk.
const SUPERBLOCK_END: usize = 4096;
/// How long, after SIGTERM, those who still have files open may finish.
const GRACE: Duration = Duration::from_secs(10);

/// Serves until the volume is unmounted, or a signal says so. The exit code tells whether everything is home.
pub fn serve(plan: MountPlan, herald: Herald) -> Result<(), CliError> {
    let world = match runtime::block_signals().and_then(|()| RealWorld::new()) {
        Ok(world) => world,
        Err(error) => return herald.failed(CliError::no_ring(error)),
    };
    let result = world.run(run(world.clone(), plan, herald));
    world.end();
    result
}

async fn run(world: RealWorld, plan: MountPlan, herald: Herald) -> Result<(), CliError> {
    let background = herald.is_background();
    let mounted = match Mounted::bring_up(&world, &plan, background).await {
        Ok(mounted) => mounted,
        Err(error) => return herald.failed(error),
    };
    mounted.serve(&world, &plan, herald).await
}

struct Mounted {
    volume: Rc<Volume>,
    door: Rc<VolumeDoor>,
    session: Rc<Session<VolumeDoor>>,
    signals: Signals,
    /// With `barrier=coerce`: home, then the journal's disk.
    coerced: Vec<CoercedDisk>,
    /// Lives as long as the mount.
    _loop_device: Option<LoopDevice>,
    data: DataMode,
}

impl Mounted {
    async fn bring_up(world: &RealWorld, plan: &MountPlan, background: bool) -> Result<Mounted, CliError> {
        let signals = world.signals().map_err(|error| CliError::system("signals", error))?;
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
        let report = daemon::reporter(background);
        let (volume, coerced) = open_volume(world, plan, path, &disk, journal).await?;
        for warning in volume.open_report().warnings {
            report(&format!("{}: {warning}", plan.source.display()));
        }
        let door_options = DoorOptions {
            synchronous_directories: plan.settings.synchronous_directories,
            report: Box::new(report),
        };
        let door = VolumeDoor::new(volume.clone(), door_options);
        match mount(plan, path, &disk, &volume) {
            Ok(connection) => {
                let transport = plan.settings.transport;
                let session = Session::new(world.clone(), connection, door.clone(), transport);
                let data = volume.options().engine.data;
                Ok(Mounted { volume, door, session, signals, coerced, _loop_device: loop_device, data })
            }
            Err(error) => {
                // The volume was marked as mounted; leave it as we found it.
                let _ = door.close().await;
                Err(error)
            }
        }
    }

    async fn serve(mut self, world: &RealWorld, plan: &MountPlan, herald: Herald) -> Result<(), CliError> {
        let report = daemon::reporter(herald.is_background());
        let session = self.session.clone();
        let mut served = spawn_with_result(world, async move { session.serve().await });
        let begun = race(&mut served, self.session.until_begun()).await;
        if plan.settings.transport == Transport::Uring
            && matches!(begun, Either::Right(agreed) if !agreed.uring)
        {
            take_away(plan);
            served.await;
            return herald.failed(no_ring(self.session.why_no_ring()));
        }
        if let Either::Left(Some(Err(error))) = &begun {
            take_away(plan);
            let _ = self.door.close().await;
            return herald.failed(CliError::new(error.to_string()));
        }
        if let Some(why) = self.session.why_no_ring() {
            report(&format!("requests come by the classic channel, not over io_uring: {why}"));
        }
        let control = self.start_control(world, plan).unwrap_or_else(|error| {
            report(&format!("no control socket, so stats and umount cannot reach this daemon: {error}"));
            None
        });
        daemon::settle_in();
        herald.up();
        let result = match begun {
            Either::Left(result) => result,
            Either::Right(_) => self.until_over(world, plan, served).await,
        };
        let clean = self.door.close().await.is_ok();
        if let Some(control) = control {
            control.end(End { clean });
        }
        match result {
            Some(Ok(())) if clean => Ok(()),
            Some(Err(error)) => {
                report(&error.to_string());
                Err(CliError::new(error.to_string()))
            }
            _ => Err(CliError::new(format!("{}: not everything came home", plan.source.display()))),
        }
    }

    /// The session's end; a signal brings it about.
    async fn until_over(
        &mut self,
        world: &RealWorld,
        plan: &MountPlan,
        mut served: runtime::Receiver<Result<(), fuse::SessionError>>,
    ) -> Option<Result<(), fuse::SessionError>> {
        if let Either::Left(result) = race(&mut served, self.signals.next()).await {
            return result;
        }
        take_away(plan);
        let patience = race(world.sleep_until(world.now().plus(GRACE)), self.signals.next());
        if let Either::Left(result) = race(&mut served, patience).await {
            return result;
        }
        self.session.stop();
        served.await
    }

    fn start_control(
        &self,
        world: &RealWorld,
        plan: &MountPlan,
    ) -> std::io::Result<Option<Rc<ControlServer>>> {
        let mounts = mount_table::mounts()?;
        let Some(mount) = mounts.into_iter().rfind(|mount| mount.directory == plan.directory) else {
            return Ok(None);
        };
        let about = About {
            process: std::process::id(),
            version: env!("CARGO_PKG_VERSION").into(),
            source: plan.source.clone(),
            directory: plan.directory.clone(),
            data: self.data.to_string(),
        };
        let (volume, session, ring) = (self.volume.clone(), self.session.clone(), world.ring().clone());
        let coerced = self.coerced.clone();
        let answers = move |ask| match ask {
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
        };
        ControlServer::start(world, socket_path(mount.device), Box::new(answers)).map(Some)
    }
}

/// `transport=uring` cannot be had.
fn no_ring(why: Option<String>) -> CliError {
    match why {
        Some(why) => CliError::new(format!("transport=uring: {why}"))
            .with_remedy("Mount with transport=classic, or allow the daemon more memory."),
        None => CliError::new("transport=uring: the kernel does not offer FUSE over io_uring").with_remedy(
            "Linux 6.14 or later is needed, and: echo 1 > /sys/module/fuse/parameters/enable_uring",
        ),
    }
}

/// Lets nobody in any more; the session ends when those who are in have left. umount(2) waits for this thread
/// to answer, so another one calls it.
fn take_away(plan: &MountPlan) {
    let directory = plan.directory.clone();
    std::thread::spawn(move || umount::unmount(&directory, libc::MNT_DETACH));
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
    path: &Path,
    disk: &FileDisk,
    volume: &Volume,
) -> Result<fuse::Connection, CliError> {
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
    fuse::mount(&plan.directory, &options).map_err(|error| CliError::new(error.to_string()))
}
