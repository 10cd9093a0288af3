//! The daemon of one mount: opens the volume, serves it, and closes it.
//!
//! Order: mount helper forked; disk opened exclusively; volume opened and recovered; claim handed
//! to the kernel (fuseblk); mounted by the helper; served. From the mount on, this process looks at
//! no path: it would wait for itself, and as root it has none left.

use crate::checkpoint::Checkpointer;
use crate::daemon::control::{About, Ask, End, public_directory, socket_directory_beside};
use crate::daemon::control_server::{Answers, ControlServer, ControlSocket, no_control};
use crate::daemon::io_path;
use crate::daemon::mount_helper::{EstablishedMount, MountHelper};
use crate::daemon::privileges;
use crate::daemon::reporter::{Level, Reporter};
use crate::daemon::{self, StartNotifier, ended_at_once, mount_table};
use crate::disk::coerce::{Wanted, coerce};
use crate::disk::content::not_opened_as_volume;
use crate::disk::open_disk::{open_disk, open_disk_over};
use crate::error::CliError;
use crate::mount::MountPlan;
use crate::mount::changing::Changing;
use crate::mount::loop_device::{self, LoopDevice, Stands};
use crate::mount::run_table::{self, MadeFile};
use crate::recover::at_mount;
use crate::text::quantity::exact_duration;
use device::Disk;
use disks::{DiskAccess, FileDisk};
use engine::{BarrierKind, EngineOptions};
use eviction::CoercedDisk;
use ext4::{OpenParts, Volume, VolumeOptions};
use format::ext4::superblock::SUPERBLOCK_OFFSET;
use format::ext4::{Features, VolumeSuperblock, feature};
use fuse::{FrontEndOptions, VolumeFrontEnd};
use fuse_session::{MountKind, MountOptions, Session, Transport};
use runtime::{Either, RealWorld, Signals, race, spawn_with_result};
use std::fs::File;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

/// End of the superblock, rounded up to whole sectors of any disk.
const SUPERBLOCK_END: usize = 4096;

/// Returns the warning where sync(2) does not reach the volume. A mount that is no block device's
/// gets no request before umount(2) returns, either.
fn warning_of_syncs(
    is_block: bool,
    forwards_syncs: bool,
    engine: &EngineOptions,
) -> Option<String> {
    let (what, instead) = match (is_block, forwards_syncs) {
        (true, true) => return None,
        (true, false) => ("this kernel (before Linux 6.18)", "fsync(2), O_SYNC, or umount(2)"),
        (false, _) => (
            "on a mount without a block device (an ordinary user's, or noloop) the kernel",
            "fsync(2), O_SYNC, or okeanos umount (umount(8) and fusermount3 do not wait, either)",
        ),
    };
    let content = engine.expire + engine.writeback + Duration::from_secs(1);
    Some(format!(
        "{what} does not pass sync(2) and syncfs(2) on: they return before the volume is durable\n\
         What must be durable needs {instead}.\n\
         All else is durable within {} (commit=), content that is not logged within {} (expire=, \
         writeback=).",
        exact_duration(engine.commit),
        exact_duration(content)
    ))
}

/// Serves until the volume is unmounted, or a signal comes. The exit code shows whether everything
/// is home.
pub fn serve(plan: MountPlan, notifier: StartNotifier) -> Result<(), CliError> {
    let log = plan.log_file.as_deref().map(open_log).transpose();
    let log = match log {
        Ok(log) => log,
        Err(error) => return notifier.failed(error),
    };
    let reporter = Reporter::open(notifier.is_background(), plan.level, log);
    if let Err(error) = runtime::block_signals() {
        return notifier.failed(CliError::system("signals", error));
    }
    // The image's file system must be busy in the caller's namespace, too, not only in the
    // daemon's.
    let started = loop_device::hold(&plan.source).and_then(|image| {
        Ok((image, MountHelper::start(&plan.directory, &|text| reporter.report(text))?))
    });
    let (image, helper) = match started {
        Ok(started) => started,
        Err(error) => return notifier.failed(error),
    };
    let world = match RealWorld::new() {
        Ok(world) => world,
        Err(error) => return notifier.failed(CliError::no_ring(error)),
    };
    world.poll_at_most(plan.settings.daemon.poll);
    if plan.settings.daemon.keep_awake {
        // Before the daemon leaves the paths of the system behind.
        world.keep_others_awake();
    }
    let result = world.run(run(world.clone(), plan, image, helper, reporter, notifier));
    world.end();
    result
}

/// Opens a log that others may read; each report is appended, so that a rotation may copy and cut
/// it. A pipe whose reader is slow, or away, delays no request: reports are lost and counted.
fn open_log(path: &Path) -> Result<std::fs::File, CliError> {
    let mut options = std::fs::OpenOptions::new();
    options.append(true).create(true).mode(0o640);
    options.custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY);
    options.open(path).map_err(|error| {
        let has_no_reader = error.raw_os_error() == Some(libc::ENXIO);
        let error = CliError::system(format!("log_file {}", path.display()), error);
        match has_no_reader {
            true => error.with_remedy("Start the reader of the pipe first, or name a file."),
            false => error,
        }
    })
}

async fn run(
    world: RealWorld,
    plan: MountPlan,
    image: File,
    helper: MountHelper,
    reporter: Reporter,
    notifier: StartNotifier,
) -> Result<(), CliError> {
    match Mounted::bring_up(&world, &plan, &image, helper, reporter).await {
        Ok(mounted) => mounted.serve(&world, &plan, notifier).await,
        Err(error) => notifier.failed(error),
    }
}

/// Recipients of a reply.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Audience {
    /// The user who mounted, and root.
    Owner,
    /// Users who may access the volume.
    Everybody,
}

struct Mounted {
    volume: Rc<Volume>,
    front_end: Rc<VolumeFrontEnd>,
    session: Rc<Session<VolumeFrontEnd>>,
    helper: MountHelper,
    reporter: Reporter,
    signals: Signals,
    control: ControlSocket,
    /// Socket for all users who may access the volume.
    public: Option<ControlSocket>,
    device: (u32, u32),
    /// Coerced disks with `barrier=coerce`: home, then the journal's disk.
    coerced: Vec<CoercedDisk>,
    /// File of `mtl=`, if this mount has made it.
    made_table: Option<MadeFile>,
    /// Warnings that are in the log already, for the user at a terminal.
    warnings: Vec<String>,
    /// Loop device for the life of the mount.
    loop_device: Option<LoopDevice>,
    /// Disks of home and the journal.
    disks: Vec<FileDisk>,
}

impl Mounted {
    async fn bring_up(
        world: &RealWorld,
        plan: &MountPlan,
        image: &File,
        helper: MountHelper,
        reporter: Reporter,
    ) -> Result<Mounted, CliError> {
        let signals = world.signals().map_err(|error| CliError::system("signals", error))?;
        let control =
            ControlSocket::bind(&socket_directory_beside(&plan.directory)).map_err(no_control)?;
        // Without it only root gets answers.
        let public = (plan.is_root && plan.settings.session.allow_other)
            .then(|| ControlSocket::bind_public(&public_directory()).ok())
            .flatten();
        let wants_loop = !plan.is_block_device && plan.is_root && plan.settings.daemon.loop_device;
        if wants_loop {
            refuse_short(&plan.source)?;
        }
        let access = access_to(plan)?;
        let for_loop = || LoopDevice::attach(&plan.source, image, access, Stands::UntilLastUser);
        let loop_device = wants_loop.then(for_loop).transpose()?;
        let path = loop_device.as_ref().map_or(&plan.source, |device| &device.path);
        let behind = loop_device.as_ref().map(|device| &device.image);
        let disk = open_disk_over(world, path, access, behind)?;
        let journal_device = plan.settings.journal.device.as_deref();
        let journal = journal_device.map(|path| open_disk(world, path, access)).transpose()?;
        let disks: Vec<FileDisk> = std::iter::once(&disk).chain(&journal).cloned().collect();
        let journal = journal.map(|disk| Rc::new(disk) as Rc<dyn Disk>);
        let (volume, coerced, made_table) =
            open_volume(world, plan, path, &disks, journal, &reporter).await?;
        if !disk.is_block_device() {
            refuse_kernel(plan, &volume).await?;
        }
        let opened = volume.open_report();
        if let Some(recovered) = at_mount(&opened.recovery) {
            reporter.report_at(Level::Info, &format!("{}: {recovered}", plan.source.display()));
        }
        let source = plan.source.display();
        let mut warnings: Vec<String> =
            opened.warnings.iter().map(|warning| format!("{source}: {warning}")).collect();
        warnings.extend(daemon::settle_in_for_write_back());
        warnings.iter().for_each(|warning| reporter.report_at(Level::Warning, warning));
        let requests = reporter.clone();
        let front_end_options = FrontEndOptions {
            synchronous: plan.settings.is_synchronous(),
            synchronous_directories: plan.settings.has_synchronous_directories(),
            kernel_checks_flags: fuse::checks_flags(),
            kernel_strips_set_group: fuse::strips_set_group(),
            kernel_drops_written_pages: fuse::drops_written_pages(),
            without_open: plan.settings.daemon.without_open,
            attributes: plan.settings.volume.attributes,
        };
        let report = Box::new(move |text: &str| requests.report(text));
        let front_end = VolumeFrontEnd::new(volume.clone(), front_end_options, report);
        match mount(plan, &helper, path, &disk, &volume).await {
            Ok(EstablishedMount { connection, device }) => {
                // From here on it reads requests, and bytes of the image that it acts upon.
                if let Err(error) = privileges::give_up() {
                    reporter.report_at(Level::Warning, &privileges::kept_rights(&error));
                }
                world.ring().renew_threads();
                let transport = plan.settings.session.transport;
                let session = Session::new(world.clone(), connection, front_end.clone(), transport);
                if plan.settings.ignores_access_lists() {
                    session.disable_acls();
                }
                if plan.settings.daemon.idmapped {
                    session.allow_idmapped_mounts();
                }
                Ok(Mounted {
                    volume,
                    front_end,
                    session,
                    helper,
                    reporter,
                    signals,
                    control,
                    public,
                    device,
                    coerced,
                    made_table,
                    warnings,
                    loop_device,
                    disks,
                })
            }
            Err(NotMounted { error, is_ours }) => {
                // The volume was marked as mounted; the mark is removed again.
                if is_ours {
                    let _ = front_end.close().await;
                }
                Err(error)
            }
        }
    }

    async fn serve(
        self,
        world: &RealWorld,
        plan: &MountPlan,
        notifier: StartNotifier,
    ) -> Result<(), CliError> {
        let answers = self.answers(world, plan, Audience::Owner);
        let public_answers = self.answers(world, plan, Audience::Everybody);
        let is_block = is_mounted_as_block(plan, &self.disks[0]);
        let mut warnings = self.warnings;
        let Mounted {
            volume,
            front_end,
            session,
            helper,
            reporter,
            signals,
            control,
            public,
            device,
            made_table,
            ..
        } = self;
        if plan.level == Level::Debug {
            let reporter = reporter.clone();
            session.trace(move |text| reporter.report_at(Level::Debug, text));
        }
        let serving = session.clone();
        let mut served = spawn_with_result(world, async move { serving.serve().await });
        let begun = race(&mut served, session.until_started()).await;
        let refused = match &begun {
            Either::Right(agreed)
                if plan.settings.session.transport == Transport::Uring && !agreed.uring =>
            {
                Some(no_ring(world, session.fallback_reason()))
            }
            Either::Right(agreed) if plan.settings.daemon.idmapped && !agreed.idmapped => Some(
                CliError::new("idmap: the kernel offers no mapped users and groups for FUSE")
                    .with_remedy("Linux 6.12 or later is needed; or mount without idmap."),
            ),
            Either::Left(ended) if session.negotiated().is_none() => Some(ended_at_once(ended)),
            _ => None,
        };
        let control = match refused {
            None => ControlServer::start(world, control, device, answers).map_err(no_control),
            Some(error) => Err(error),
        };
        let control = match control {
            Ok(control) => control,
            Err(error) => {
                match begun {
                    Either::Left(_) => helper.unmount(),
                    Either::Right(_) => drop(helper.end(world, &session, served, signals).await),
                }
                // Reported already.
                let _ = front_end.close().await;
                return notifier.failed(error);
            }
        };
        let public = public
            .and_then(|socket| ControlServer::start(world, socket, device, public_answers).ok());
        let of_syncs = match &begun {
            Either::Right(agreed) if !plan.settings.session.read_only => {
                warning_of_syncs(is_block, agreed.forwards_syncs(), &volume.options().engine)
            }
            _ => None,
        };
        if let Some(warning) = of_syncs {
            if !notifier.is_background() {
                reporter.report_at(Level::Warning, &warning);
            }
            warnings.push(warning);
        }
        io_path::report(world, &reporter);
        let (source, at, data) =
            (plan.source.display(), plan.directory.display(), volume.options().engine.data);
        reporter.report_at(Level::Info, &format!("{source} is mounted on {at}, data={data}"));
        MadeFile::keep(made_table);
        notifier.up(&warnings);
        let result = match begun {
            Either::Left(result) => result,
            Either::Right(_) => helper.until_over(world, &session, served, signals).await,
        };
        let clean = front_end.close().await.is_ok();
        control.end(End { clean });
        public.inspect(|public| public.end(End { clean }));
        match result {
            Some(Ok(())) if clean => {
                reporter
                    .report_at(Level::Info, &format!("{source} is unmounted: everything is home"));
                Ok(())
            }
            Some(Err(error)) => {
                reporter.report(&error.to_string());
                Err(CliError::new(error.to_string()))
            }
            _ => Err(daemon::not_home(plan.source.display())),
        }
    }

    fn answers(&self, world: &RealWorld, plan: &MountPlan, audience: Audience) -> Box<Answers> {
        let device = self.loop_device.as_ref().map_or(&plan.source, |device| &device.path);
        let shown = device.display().to_string();
        let changing = Changing::new(&self.volume, &self.disks, &self.reporter, plan);
        let (volume, session, ring) =
            (self.volume.clone(), self.session.clone(), world.ring().clone());
        let coerced = self.coerced.clone();
        let checkpointer = Checkpointer::new(world, self.volume.engine());
        let (steps, io) = (world.clone(), io_path::about(world));
        let stats = move |about: About| {
            let (front_end, ring) = (session.statistics(), ring.statistics());
            serde_json::json!({
                "about": about,
                "read_only": volume.is_read_only(),
                "needs_check": volume.needs_check(),
                "journal_not_replayed": volume.open_report().journal_not_replayed,
                "failed": volume.engine().check().err().map(|error| error.to_string()),
                "transport": io_path::transport(session.negotiated()),
                "io": io,
                "engine": volume.engine().statistics(),
                "long_steps": crate::stats::long_steps(&steps),
                "coerced": coerced.iter().map(CoercedDisk::statistics).collect::<Vec<_>>(),
                "front_end": {
                    "requests": front_end.requests,
                    "ring_requests": front_end.ring_requests,
                    "malformed": front_end.malformed,
                    "interrupts": front_end.interrupts,
                    "by_operation": requests_by_name(&session),
                },
                "ring": {
                    "operations": ring.operations,
                    "enters": ring.enters,
                    "failed_sends": ring.failed_sends + session.failed_replies(),
                    "full_queues": ring.full_queues,
                    "polls": ring.polls,
                    "polls_in_vain": ring.polls_in_vain,
                    "keeps_awake": ring.keeps_awake,
                },
            })
        };
        Box::new(move |ask| match ask {
            Ask::Change(live) => {
                let changing = changing.clone();
                Box::pin(async move { serde_json::json!(changing.change(live).await) })
            }
            Ask::Checkpoint | Ask::Checkpointing => {
                let progress = checkpointer.answer(ask);
                Box::pin(async { progress })
            }
            ask => {
                let about = match audience {
                    Audience::Owner => changing.about(),
                    Audience::Everybody => changing.about().for_everybody(&shown),
                };
                let answer =
                    if ask == Ask::Stats { stats(about) } else { serde_json::json!(about) };
                Box::pin(async { answer })
            }
        })
    }
}

fn requests_by_name(
    session: &Session<VolumeFrontEnd>,
) -> serde_json::Map<String, serde_json::Value> {
    session.requests_by_operation().map(|(name, count)| (name.to_owned(), count.into())).collect()
}

/// Reports that `transport=uring` is not available.
fn no_ring(world: &RealWorld, why: Option<String>) -> CliError {
    let refused = world.ring().no_ring();
    match refused.map(ToString::to_string).or(why) {
        Some(why) => CliError::new(format!("transport=uring: {why}")).with_remedy(match refused {
            Some(_) => "Mount with transport=classic, or have io_uring allowed.",
            None => "Mount with transport=classic, or allow the daemon more memory.",
        }),
        None => CliError::new("transport=uring: the kernel does not offer FUSE over io_uring")
            .with_remedy(
                "Linux 6.14 or later is needed, and: \
                 echo 1 > /sys/module/fuse/parameters/enable_uring",
            ),
    }
}

/// Returns the access needed. A read-only mount replays the journal, too; and a remount makes it
/// writable. For that the disk must be writable.
fn access_to(plan: &MountPlan) -> Result<DiskAccess, CliError> {
    let settings = &plan.settings;
    let mut disks =
        std::iter::once(plan.source.as_path()).chain(settings.journal.device.as_deref());
    if !settings.session.read_only {
        return match disks.find(|path| is_write_protected(path)) {
            Some(path) => Err(CliError::new(format!("{} is write-protected", path.display()))
                .with_remedy("Make it writable, or mount it read-only: -o ro.")),
            None => Ok(DiskAccess::ReadWrite),
        };
    }
    if settings.volume.without_journal {
        return Ok(DiskAccess::ReadOnly);
    }
    let may_not_write = |path: &Path| {
        let refused = open_for_writing(path).err().and_then(|error| error.raw_os_error());
        matches!(refused, Some(libc::EACCES | libc::EPERM))
    };
    match disks.find(|path| may_not_write(path) || is_write_protected(path)) {
        None if plan.needs_replay => Ok(DiskAccess::ReadWrite),
        // A remount may make it writable.
        None => Ok(DiskAccess::ReadFirst),
        Some(_) if !plan.needs_replay => Ok(DiskAccess::ReadOnly),
        Some(path) => Err(CliError::new(format!(
            "{} was not unmounted: its journal must be replayed, and {} is write-protected",
            plan.source.display(),
            path.display()
        ))
        .with_remedy(
            "Make it writable, or mount with -o ro,noload: that shows the volume without what only \
             its journal holds.",
        )),
    }
}

fn open_for_writing(path: &Path) -> std::io::Result<File> {
    std::fs::OpenOptions::new().read(true).write(true).open(path)
}

fn is_write_protected(path: &Path) -> bool {
    match open_for_writing(path) {
        Err(error) => error.raw_os_error() == Some(libc::EROFS),
        // A block device that is read-only is opened for writing all the same.
        Ok(file) => file
            .metadata()
            .is_ok_and(|it| it.file_type().is_block_device() && is_read_only(it.rdev())),
    }
}

fn is_read_only(device: u64) -> bool {
    let path = format!("/sys/dev/block/{}:{}/ro", libc::major(device), libc::minor(device));
    std::fs::read_to_string(path).is_ok_and(|text| text.trim() != "0")
}

/// Refuses an image file that ends before its superblock would: the loop device on it would be
/// reported in its place.
fn refuse_short(image: &Path) -> Result<(), CliError> {
    let what = match std::fs::metadata(image).map(|image| image.len()) {
        Ok(0) => "is empty",
        Ok(size) if size < SUPERBLOCK_END as u64 => "is too small to hold a volume",
        _ => return Ok(()),
    };
    Err(CliError::new(format!("{} {what}: make a volume on it first", image.display())))
}

/// Keeps the kernel off an image file, on which no claim does. From now on the journal's state
/// does, except for a loop device that was made before.
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
    disks: &[FileDisk],
    journal: Option<Rc<dyn Disk>>,
    reporter: &Reporter,
) -> Result<(Rc<Volume>, Vec<CoercedDisk>, Option<MadeFile>), CliError> {
    let (settings, disk) = (&plan.settings, &disks[0]);
    let failed = |error: ext4::Error| not_opened_as_volume(&plan.source, &error);
    let superblock = ext4::read_superblock(disk).await.map_err(failed)?;
    settings.check_log_unit(superblock.block_size)?;
    let mut engine = settings.engine(&superblock);
    engine.keep_others_out = !disk.is_block_device();
    let table = settings.journal.run_table.as_deref().filter(|_| !settings.volume.without_journal);
    let (run_table, made) = run_table::open_if_asked(world, table)?;
    engine.run_table = run_table;
    let parts = OpenParts {
        world: Rc::new(world.clone()),
        home: Rc::new(disk.clone()),
        journal,
        options: VolumeOptions {
            access: if settings.session.read_only {
                ext4::Access::ReadOnly
            } else {
                ext4::Access::ReadWrite
            },
            atime: settings.volume.atime,
            engine,
            mount_point: plan.directory.display().to_string(),
            on_error: settings.volume.on_error,
            group_of_directory: settings.volume.group_of_directory,
            ignores_access_lists: settings.ignores_access_lists(),
            durable_only: settings.journal.durable_only.clone(),
            without_journal: settings.volume.without_journal,
            node: crate::disk::open_disk::node_name(),
        },
    };
    let (parts, coerced) = match settings.journal.coerces {
        true => coerce(parts, path, settings.journal.device.as_deref(), Wanted::Required).await?,
        false => (parts, Vec::new()),
    };
    // Asked again behind the claim: another daemon may have had the volume until then, and died.
    if superblock.features.has(feature::RECOVER) && !settings.volume.without_journal {
        let claimed = disks.iter().try_for_each(FileDisk::begin_writing);
        claimed.map_err(|error| CliError::new(error.to_string()))?;
        recover_first(plan, path, &parts, reporter).await?;
    }
    let volume = Volume::open(parts).await.map_err(failed)?;
    Ok((volume, coerced, made))
}

/// Recovers the volume before it is opened where opening it would not do: read-only, and where
/// only the recovery evicts. An earlier mount with `barrier=coerce` may have left the log, so its
/// blocks must be evicted before it is emptied, whatever barriers this mount has.
async fn recover_first(
    plan: &MountPlan,
    path: &Path,
    parts: &OpenParts,
    reporter: &Reporter,
) -> Result<(), CliError> {
    let source = plan.source.display();
    let failed = |error: ext4::Error| not_opened_as_volume(&plan.source, &error);
    let journal = &plan.settings.journal;
    let flushes = !journal.coerces && parts.options.engine.barrier == BarrierKind::Flush;
    let (through, coerced) = match flushes {
        true => coerce(parts.clone(), path, journal.device.as_deref(), Wanted::IfThere).await?,
        false => (parts.clone(), Vec::new()),
    };
    if plan.settings.session.read_only {
        return recover_for_reading(&through).await.map_err(failed);
    }
    if !coerced.is_empty() {
        let report = ext4::recover(&through, false).await.map_err(failed)?;
        at_mount(&report)
            .into_iter()
            .for_each(|text| reporter.report_at(Level::Info, &format!("{source}: {text}")));
    }
    Ok(())
}

/// Recovers the volume as a mount for writing and its unmount would: journal replayed, orphans
/// deleted, marked clean.
async fn recover_for_reading(parts: &OpenParts) -> Result<(), ext4::Error> {
    let mut writing = parts.clone();
    writing.options.access = ext4::Access::ReadWrite;
    writing.options.engine.read_only = false;
    writing.options.mount_point.clear();
    match Volume::open(writing).await {
        Ok(volume) => volume.close().await,
        // A volume that may not be changed can still be replayed.
        Err(ext4::Error::OnlyReadable { .. }) => ext4::recover(parts, false).await.map(|_| ()),
        Err(error) => Err(error),
    }
}

/// Reason for a failed mount, and whether the disk still belongs to this process.
struct NotMounted {
    error: CliError,
    is_ours: bool,
}

/// Returns whether the kernel gets the block device (fuseblk).
fn is_mounted_as_block(plan: &MountPlan, home: &FileDisk) -> bool {
    home.is_block_device() && plan.is_root
}

/// Mounts. Nobody holds the exclusive claim between its release and the kernel's taking it.
/// Programs of Okeanos keep off by a lock; whether others did, the superblock shows.
async fn mount(
    plan: &MountPlan,
    helper: &MountHelper,
    path: &Path,
    disk: &FileDisk,
    volume: &Volume,
) -> Result<EstablishedMount, NotMounted> {
    let failed = |error: &dyn std::fmt::Display| CliError::new(error.to_string());
    let read_only = if plan.settings.session.read_only { libc::MS_RDONLY } else { 0 };
    let (flags, allow_other) =
        (plan.settings.session.flags | read_only, plan.settings.session.allow_other);
    let subtype = mount_table::subtype(Some(&volume.options().engine.data.to_string()));
    let read_ahead = plan.settings.daemon.read_ahead;
    if !is_mounted_as_block(plan, disk) {
        let kind = MountKind::Plain { name: plan.source.display().to_string() };
        let mounted = helper.mount(&MountOptions { kind, subtype, flags, allow_other }, read_ahead);
        return mounted.map_err(|error| NotMounted { error, is_ours: true });
    }
    let marks = marks_of_use(disk).await;
    let world = volume.engine().world().clone();
    let handover = disk.release_claim(&*world).await;
    let handover = handover.map_err(|error| NotMounted { error: failed(&error), is_ours: true })?;
    let kind =
        MountKind::Block { device: path.into(), block_size: volume.block_size().bytes() as u32 };
    let mounted = helper.mount(&MountOptions { kind, subtype, flags, allow_other }, read_ahead);
    let claimed = mounted.is_ok() || disk.reclaim(&*world).await.is_ok();
    let is_ours = claimed && marks.is_some() && marks_of_use(disk).await == marks;
    drop(handover);
    match mounted {
        Ok(standing) if is_ours => Ok(standing),
        Ok(standing) => {
            drop(standing);
            helper.unmount();
            let why =
                format!("another program wrote to {} while it was being mounted", path.display());
            let error = CliError::new(why).with_remedy("Check it with e2fsck, and mount it again.");
            Err(NotMounted { error, is_ours })
        }
        Err(error) => Err(NotMounted { error, is_ours }),
    }
}

/// Fields that change when another program makes, checks or mounts the volume, and never while this
/// process has it.
#[derive(PartialEq, Eq)]
struct MarksOfUse {
    uuid: [u8; 16],
    features: Features,
    mounts: (u16, u32),
    last_check: u32,
}

async fn marks_of_use(disk: &FileDisk) -> Option<MarksOfUse> {
    let start = disk.read(0, SUPERBLOCK_END).await.ok()?;
    let superblock = VolumeSuperblock::parse(&start[SUPERBLOCK_OFFSET as usize..]).ok()?;
    Some(MarksOfUse {
        uuid: superblock.uuid,
        features: superblock.features,
        mounts: (superblock.mount_count, superblock.mount_time),
        last_check: superblock.last_check,
    })
}
