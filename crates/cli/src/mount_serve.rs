//! The daemon of one mount: brings the volume up, serves it, and sees it home.
//!
//! Order: disk opened exclusively; volume opened and recovered; claim handed to the kernel (fuseblk); mounted;
//! served. From the mount on, this process never looks at a path inside it: it would wait for itself.

use crate::coerce::{Wanted, coerce};
use crate::control::{About, AccessTimes, Ask, End, socket_path};
use crate::control_server::ControlServer;
use crate::daemon::{self, Herald};
use crate::error::CliError;
use crate::loop_device::{self, LoopDevice};
use crate::mount::MountPlan;
use crate::mount_options::Barrier;
use crate::mount_table;
use crate::open_disk::{open_disk, open_disk_over};
use crate::umount;
use device::{Disk, World};
use disks::{Access, FileDisk};
use eviction::CoercedDisk;
use ext4::{Atime, LiveOptions, OnError, OpenParts, Volume, VolumeOptions};
use format::ext4::superblock::SUPERBLOCK_OFFSET;
use format::ext4::{Features, Superblock};
use fuse::{DoorOptions, Kind, MountOptions, Session, Transport, VolumeDoor};
use journal::{DataMode, WriteThreshold};
use runtime::{Either, RealWorld, Signals, race, spawn_with_result};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
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
        let wants_loop = !plan.is_block_device && plan.is_root && plan.settings.loop_device;
        // A loop device on it would be what is called empty.
        if wants_loop && std::fs::metadata(&plan.source).is_ok_and(|image| image.len() == 0) {
            let source = plan.source.display();
            return Err(CliError::new(format!("{source} is empty: make a volume on it first")));
        }
        let access = access_to(plan)?;
        let for_loop = || LoopDevice::attach(&plan.source, access == Access::ReadOnly);
        let loop_device = wants_loop.then(for_loop).transpose()?;
        let path = loop_device.as_ref().map_or(&plan.source, |device| &device.path);
        let behind = loop_device.as_ref().map(|device| &device.image);
        let disk = open_disk_over(world, path, access, behind)?;
        let journal = match &plan.settings.journal_device {
            Some(path) => Some(Rc::new(open_disk(world, path, access)?) as Rc<dyn Disk>),
            None => None,
        };
        let report = daemon::reporter(background);
        let (volume, coerced) = open_volume(world, plan, path, &disk, journal).await?;
        if !disk.is_block_device() {
            refuse_kernel(plan, &volume).await?;
        }
        for warning in volume.open_report().warnings {
            report(&format!("{}: {warning}", plan.source.display()));
        }
        let door_options = DoorOptions {
            synchronous_directories: plan.settings.synchronous_directories,
            report: Box::new(report),
        };
        let door = VolumeDoor::new(volume.clone(), door_options);
        match mount(plan, path, &disk, &volume).await {
            Ok(connection) => {
                let transport = plan.settings.transport;
                let session = Session::new(world.clone(), connection, door.clone(), transport);
                let data = volume.options().engine.data;
                Ok(Mounted { volume, door, session, signals, coerced, _loop_device: loop_device, data })
            }
            Err(NotMounted { error, is_ours }) => {
                // The volume was marked as mounted; leave it as we found it.
                if is_ours {
                    let _ = door.close().await;
                }
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
            options: plan.words.clone(),
        };
        let (volume, session, ring) = (self.volume.clone(), self.session.clone(), world.ring().clone());
        let coerced = self.coerced.clone();
        let answers = move |ask| match ask {
            Ask::About | Ask::End => serde_json::json!(about),
            Ask::Change { atime, stop_on_error } => {
                volume.set_live_options(LiveOptions {
                    atime: match atime {
                        AccessTimes::Never => Atime::Never,
                        AccessTimes::Relative => Atime::Relative,
                        AccessTimes::Always => Atime::Always,
                    },
                    on_error: if stop_on_error { OnError::Stop } else { OnError::Continue },
                });
                serde_json::json!(about)
            }
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

/// A read-only mount replays the journal, too, and for that the disk must be one that can be written.
fn access_to(plan: &MountPlan) -> Result<Access, CliError> {
    let settings = &plan.settings;
    if !settings.read_only {
        return Ok(Access::ReadWrite);
    }
    if settings.without_journal || !plan.needs_replay {
        return Ok(Access::ReadOnly);
    }
    let is_refused = |path: &Path| match std::fs::OpenOptions::new().read(true).write(true).open(path) {
        Err(error) => matches!(error.raw_os_error(), Some(libc::EACCES | libc::EPERM | libc::EROFS)),
        // A block device that is read-only is opened for writing all the same.
        Ok(file) => {
            file.metadata().is_ok_and(|it| it.file_type().is_block_device() && is_read_only(it.rdev()))
        }
    };
    let disks = std::iter::once(plan.source.as_path()).chain(settings.journal_device.as_deref());
    match disks.into_iter().find(|path| is_refused(path)) {
        None => Ok(Access::ReadWrite),
        Some(path) => Err(CliError::new(format!(
            "{} was not unmounted: its journal must be replayed, and {} is write-protected",
            plan.source.display(),
            path.display()
        ))
        .with_remedy(
            "Make it writable, or mount with -o ro,noload: that shows the volume without what only its journal holds.",
        )),
    }
}

fn is_read_only(device: u64) -> bool {
    let path = format!("/sys/dev/block/{}:{}/ro", libc::major(device), libc::minor(device));
    std::fs::read_to_string(path).is_ok_and(|text| text.trim() != "0")
}

/// No claim on an image file keeps the kernel off. What the journal says from now on does, but for a loop device that
/// came before it.
async fn refuse_kernel(plan: &MountPlan, volume: &Rc<Volume>) -> Result<(), CliError> {
    let Ok(Some(device)) = loop_device::device_on(&plan.source) else { return Ok(()) };
    let _ = volume.close().await;
    let (source, device) = (plan.source.display(), device.display());
    Err(CliError::new(format!("{source} was attached to {device} while it was being mounted"))
        .with_remedy(format!("Mount {device} instead, or detach it: losetup -d {device}.")))
}

async fn open_volume(
    world: &RealWorld,
    plan: &MountPlan,
    path: &Path,
    disk: &FileDisk,
    journal: Option<Rc<dyn Disk>>,
) -> Result<(Rc<Volume>, Vec<CoercedDisk>), CliError> {
    let mut engine = plan.settings.engine();
    engine.keep_others_out = !disk.is_block_device();
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
            on_error: plan.settings.on_error,
            group_of_directory: plan.settings.group_of_directory,
            without_journal: plan.settings.without_journal,
        },
    };
    let (parts, coerced) = match plan.settings.barrier {
        Barrier::Coerce => {
            coerce(parts, path, plan.settings.journal_device.as_deref(), Wanted::Required).await?
        }
        Barrier::None | Barrier::Flush => (parts, Vec::new()),
    };
    let failed = |error: ext4::Error| CliError::new(format!("{}: {error}", plan.source.display()));
    if plan.settings.read_only && plan.needs_replay && !plan.settings.without_journal {
        recover_first(&parts).await.map_err(failed)?;
    }
    let volume = Volume::open(parts).await.map_err(failed)?;
    Ok((volume, coerced))
}

/// As a mount for writing would begin, and its unmount end: journal replayed, orphans gone, marked clean.
async fn recover_first(parts: &OpenParts) -> Result<(), ext4::Error> {
    let mut writing = parts.clone();
    writing.options.access = ext4::Access::ReadWrite;
    writing.options.engine.read_only = false;
    writing.options.mount_point.clear();
    match Volume::open(writing).await {
        Ok(volume) => volume.close().await,
        // What may not be changed can still be replayed.
        Err(ext4::Error::OnlyReadable { .. }) => ext4::recover(parts, false).await.map(|_| ()),
        Err(error) => Err(error),
    }
}

/// Why there is no mount, and whether the disk is still ours to write to.
struct NotMounted {
    error: CliError,
    is_ours: bool,
}

/// Nobody holds the exclusive claim between our giving it up and the kernel's taking it. Programs of ours keep off
/// by a lock; whether others did, the superblock tells.
async fn mount(
    plan: &MountPlan,
    path: &Path,
    disk: &FileDisk,
    volume: &Volume,
) -> Result<fuse::Connection, NotMounted> {
    let told = |error: &dyn std::fmt::Display| CliError::new(error.to_string());
    let read_only = if plan.settings.read_only { libc::MS_RDONLY } else { 0 };
    let (flags, allow_other) = (plan.settings.flags | read_only, plan.settings.allow_other);
    if !disk.is_block_device() || !plan.is_root {
        let kind = Kind::Plain { name: plan.source.display().to_string() };
        let mounted = fuse::mount(&plan.directory, &MountOptions { kind, flags, allow_other });
        return mounted.map_err(|error| NotMounted { error: told(&error), is_ours: true });
    }
    let marks = marks_of_use(disk).await;
    let handover = disk.release_claim();
    let handover = handover.map_err(|error| NotMounted { error: told(&error), is_ours: true })?;
    let kind = Kind::Block { device: path.into(), block_size: volume.block_size().bytes() as u32 };
    let mounted = fuse::mount(&plan.directory, &MountOptions { kind, flags, allow_other });
    let claimed = mounted.is_ok() || disk.reclaim().is_ok();
    let is_ours = claimed && marks.is_some() && marks_of_use(disk).await == marks;
    drop(handover);
    match mounted {
        Ok(connection) if is_ours => Ok(connection),
        Ok(connection) => {
            drop(connection);
            let _ = umount::unmount(&plan.directory, libc::MNT_DETACH);
            let why = format!("another program wrote to {} while it was being mounted", path.display());
            let error = CliError::new(why).with_remedy("Check it with e2fsck, and mount it again.");
            Err(NotMounted { error, is_ours })
        }
        Err(error) => Err(NotMounted { error: told(&error), is_ours }),
    }
}

/// What changes in the superblock when anybody else makes, checks or mounts the volume, and never while it is ours.
#[derive(PartialEq, Eq)]
struct MarksOfUse {
    uuid: [u8; 16],
    features: Features,
    mounts: (u16, u32),
    last_check: u32,
}

async fn marks_of_use(disk: &FileDisk) -> Option<MarksOfUse> {
    let start = disk.read(0, SUPERBLOCK_END).await.ok()?;
    let superblock = Superblock::parse(&start[SUPERBLOCK_OFFSET as usize..]).ok()?;
    Some(MarksOfUse {
        uuid: superblock.uuid,
        features: superblock.features,
        mounts: (superblock.mount_count, superblock.mount_time),
        last_check: superblock.last_check,
    })
}
