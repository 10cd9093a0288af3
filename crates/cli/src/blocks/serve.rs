//! The daemon of an attached volume.

use super::detach::detach_unless_used;
use super::device_kind::DeviceKind;
use super::{driver_device, failed, grow, nbd_device, ublk_device, zones};
use crate::checkpoint::Checkpointer;
use crate::daemon::control::{About, Ask, DriverDevice, Place};
use crate::daemon::control_server::Answers;
use crate::daemon::io_path;
use crate::daemon::mount_helper::MountHelper;
use crate::daemon::privileges;
use crate::daemon::reporter::{Level, Reporter};
use crate::daemon::{self, StartNotifier};
use crate::disk::coerce::Wanted;
use crate::disk::exported;
use crate::disk::front_end::NAME;
use crate::disk::open_disk::open_disk;
use crate::error::CliError;
use crate::mount::options::MountSettings;
use crate::mount::run_table::{self, MadeFile};
use crate::nbd::{LOSES, end_connections};
use crate::recover;
use crate::text::output::print;
use crate::text::shell::word;
use blocks::{BlockParts, BlockVolume, BlocksDisk, Persistence, find_superblock};
use device::{Disk, LocalFuture, World};
use disks::{DiskAccess, FileDisk};
use engine::LogKind;
use eviction::CoercedDisk;
use nbd::{Connections, Export, Listener};
use runtime::{Either, RealWorld, race};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

/// Time limit for the note of a failure in the journal.
const NOTE: Duration = Duration::from_secs(10);

/// A volume that is open.
struct OpenedVolume {
    volume: BlockVolume,
    /// Coerced disks with `barrier=coerce`: home, then the journal's disk.
    coerced: Vec<CoercedDisk>,
    /// The volume's disk itself, and the journal's.
    disk: FileDisk,
    journal: Option<FileDisk>,
}

impl OpenedVolume {
    /// Waits until the journal's note of a failure is on its disk, or cannot be: a task of its own
    /// writes it. The next daemon refuses clients by it.
    async fn failure_noted(&self, world: &RealWorld) {
        let noted = async {
            // The note waits for an earlier write of the same block.
            for _ in 0..2 {
                runtime::yield_now().await;
                for disk in [Some(&self.disk), self.journal.as_ref()].into_iter().flatten() {
                    disk.until_idle(world).await;
                }
            }
        };
        race(noted, world.sleep_until(world.now().plus(NOTE))).await;
    }
}

/// Plan of an attachment: the disks and the options.
pub struct AttachPlan {
    pub source: PathBuf,
    pub log: Option<PathBuf>,
    /// Options behind `-o`.
    pub words: Vec<String>,
    pub settings: MountSettings,
    pub persistence: Persistence,
    pub read_only: bool,
}

impl AttachPlan {
    /// Opens a disk. The replay writes even if nothing else does.
    fn disk(&self, world: &RealWorld, path: &Path) -> Result<FileDisk, CliError> {
        open_disk(world, path, DiskAccess::ReadWrite)
    }

    async fn open(&self, world: &RealWorld) -> Result<OpenedVolume, CliError> {
        let disk = self.disk(world, &self.source)?;
        let wrong = |error| failed(&self.source, &error);
        let has_logs = match find_superblock(&disk).await.map_err(wrong)? {
            BlocksDisk::Volume(found) => {
                self.settings.check_log_unit(found.superblock.block_size)?;
                found.superblock.groups.is_some()
            }
            BlocksDisk::Journal(_) => false,
        };
        let journal = self.log.as_deref().map(|path| self.disk(world, path)).transpose()?;
        let mut options = self.settings.engine_of_blocks();
        options.read_only = self.read_only;
        if has_logs && !self.words.iter().any(|word| word == "log=circular") {
            options.log = LogKind::Scattered;
        }
        let remedy = match has_logs {
            true => "Leave log=circular out, or mtl=.",
            false => "Leave mtl= out, or make a volume with --scattered-logs.",
        };
        self.settings.check_run_table(options.log, remedy)?;
        let table = self.settings.journal.run_table.as_deref();
        let (run_table, made) = run_table::open_if_asked(world, table)?;
        options.run_table = run_table;
        let parts = BlockParts {
            world: Rc::new(world.clone()),
            disk: Rc::new(disk.clone()),
            journal: journal.clone().map(|disk| Rc::new(disk) as Rc<dyn Disk>),
            options,
            persistence: self.persistence,
        };
        let paths = (self.source.as_path(), self.log.as_deref());
        let (parts, coerced) = match self.settings.journal.coerces {
            true => zones::coerce(parts, paths, Wanted::Required).await?,
            false => (parts, Vec::new()),
        };
        let volume = BlockVolume::open(parts).await.map_err(wrong)?;
        MadeFile::keep(made);
        Ok(OpenedVolume { volume, coerced, disk, journal })
    }

    fn about(&self, directory: &Path, volume: &BlockVolume) -> About {
        let write_through =
            (self.persistence == Persistence::WriteThrough).then(|| "write_through".to_owned());
        About {
            process: std::process::id(),
            version: crate::VERSION.into(),
            source: self.source.display().to_string(),
            directory: directory.join(NAME).display().to_string(),
            data: volume.engine().options().data.to_string(),
            options: self.words.iter().cloned().chain(write_through).collect(),
            live: None,
        }
    }
}

/// Serves the volume as a file in `place`, until that is unmounted, and as the device of a driver.
///
/// The file is what a loop device stands on. Of any attachment it is what commands find the daemon
/// by.
pub fn as_device(
    plan: AttachPlan,
    place: Place,
    kind: DeviceKind,
    mut notifier: StartNotifier,
) -> Result<(), CliError> {
    let directory = place.0.clone();
    let reporter = Reporter::open(notifier.is_background(), Level::Info, None);
    if let Err(error) = runtime::block_signals() {
        return notifier.failed(CliError::system("signals", error));
    }
    let helper = match start_helper(&plan, &directory, kind, &reporter) {
        Ok(helper) => Rc::new(helper),
        Err(error) => return notifier.failed(error),
    };
    let world = match RealWorld::new() {
        Ok(world) => world,
        Err(error) => return notifier.failed(CliError::no_ring(error)),
    };
    let own = world.clone();
    let result = world.run(async move {
        let opened = match plan.open(&own).await {
            Ok(opened) => opened,
            Err(error) => return notifier.failed(error),
        };
        let volume = opened.volume.clone();
        io_path::report(&own, &reporter);
        recorded_error(&volume).into_iter().for_each(|text| notifier.warn(text));
        report_opened(&volume, &|text| reporter.report_at(Level::Info, text));
        let driven = of_driver(&own, &plan, (&place, kind, &*helper), &volume).await;
        let ServedDriver { stop, failure } = match driven {
            Ok(served) => served,
            Err(error) => {
                close(&volume, &|text| reporter.report(text)).await;
                return notifier.failed(error);
            }
        };
        let answers = answers(&own, &plan, (&directory, kind, helper.clone()), opened);
        let disk: Rc<dyn Disk> = Rc::new(volume.clone());
        daemon::settle_in_for_write_back().into_iter().for_each(|text| {
            reporter.report_at(Level::Warning, &text);
            notifier.warn(text);
        });
        let (is_background, reports) = (notifier.is_background(), reporter.clone());
        let failure = async move {
            let error = failure.await;
            // In the foreground it is printed at the end.
            if is_background {
                reports.report(&error.to_string());
            }
            error
        };
        let close = async || {
            // An answer with the error of a closed volume would reach the file system above.
            stop();
            close(&volume, &|text| reporter.report(text)).await
        };
        let at = (&*directory, &*helper);
        exported::serve(&own, &disk, at, notifier, answers, failure, close).await
    });
    world.end();
    if kind == DeviceKind::Ublk {
        // The driver gives up the slots of a device that goes on when this process ends, and no
        // sooner: the ring would wait for them in vain.
        std::mem::forget(world);
    }
    result
}

/// Starts the mount helper. A loop device holds the mount's file, and is detached with it; under no
/// other device may the mount be unmounted: the volume would close.
fn start_helper(
    plan: &AttachPlan,
    directory: &Path,
    kind: DeviceKind,
    reporter: &Reporter,
) -> Result<MountHelper, CliError> {
    if kind != DeviceKind::Loop {
        return Ok(MountHelper::start(directory, &|text| reporter.report(text))?.hold());
    }
    let detach = Some(detach_unless_used as fn(&Path) -> bool);
    let helper = MountHelper::start_beneath(directory, detach, &|text| reporter.report(text))?;
    let (reporter, source) = (reporter.clone(), plan.source.clone());
    Ok(helper.refuse_signals_in_use(move || reporter.report(&in_use(&source))))
}

fn in_use(source: &Path) -> String {
    let (name, named) = (source.display(), word(source));
    format!(
        "the loop device of {name} is in use, and is served on: unmount what is on it, then \
         okeanos blocks detach {named}"
    )
}

/// A driver that is served.
struct ServedDriver {
    /// Ends it: nothing is answered any more.
    stop: Box<dyn FnOnce()>,
    /// Returns if the driver has lost this daemon.
    failure: LocalFuture<CliError>,
}

impl ServedDriver {
    fn until(stop: impl FnOnce() + 'static) -> ServedDriver {
        ServedDriver { stop: Box::new(stop), failure: Box::pin(std::future::pending()) }
    }
}

/// Begins to serve the volume to the driver of its block device.
async fn of_driver(
    world: &RealWorld,
    plan: &AttachPlan,
    (place, kind, helper): (&Place, DeviceKind, &MountHelper),
    volume: &BlockVolume,
) -> Result<ServedDriver, CliError> {
    let disk = Rc::new(volume.clone());
    let (read_only, rotational) = (plan.read_only, false);
    let volatile_cache = plan.persistence == Persistence::WriteBack;
    let on = driver_device::disk_of(&plan.source)?;
    let recovery = &volume.report().recovery;
    let refuse = |device| driver_device::refuse_incomplete(place, device, recovery);
    let mark = |device| match recover::lacks_some(recovery) {
        true => place.mark_unchecked(device),
        false => Ok(()),
    };
    let system = |error| CliError::system(place.0.display(), error);
    match kind {
        DeviceKind::Ublk => {
            let export = ublk::ExportedDisk { disk, read_only, volatile_cache, rotational };
            let (number, server) = ublk_device::serve(world, place, &export, refuse).await?;
            let linked = place.link_ublk(number, &on);
            linked.and_then(|()| mark(DriverDevice::Ublk(number))).map_err(system)?;
            Ok(ServedDriver::until(move || server.stop()))
        }
        DeviceKind::Nbd => {
            let export = Export { disk, read_only, rotational };
            let served =
                nbd_device::serve(world, (place, on), export, !volatile_cache, refuse).await;
            let (device, connection, failure) = served?;
            mark(DriverDevice::Nbd(device.number())).map_err(system)?;
            if volatile_cache {
                helper.disconnect_at_end(&device);
            }
            Ok(ServedDriver { stop: Box::new(move || drop(connection)), failure })
        }
        DeviceKind::Loop => Ok(ServedDriver::until(|| ())),
    }
}

fn recorded_error(volume: &BlockVolume) -> Option<String> {
    let why = recover::recorded_error(&volume.report().recovery)?;
    Some(format!("the journal records an error: {why}. {}", super::CLEAR))
}

fn report_opened(volume: &BlockVolume, say: &dyn Fn(&str)) {
    let report = volume.report();
    for disk in &report.superblocks_restored {
        say(&format!("the superblock of {disk} was damaged, and is restored from its copy"));
    }
    report.warnings.iter().for_each(|warning| say(warning));
    recorded_error(volume).into_iter().for_each(|text| say(&text));
    recover::at_mount(&report.recovery).into_iter().for_each(|text| say(&text));
}

/// Returns whether everything is home.
async fn close(volume: &BlockVolume, say: &dyn Fn(&str)) -> bool {
    let closed = volume.close().await;
    closed.inspect_err(|error| say(&error.to_string())).is_ok()
}

fn answers(
    world: &RealWorld,
    plan: &AttachPlan,
    (directory, kind, helper): (&Path, DeviceKind, Rc<MountHelper>),
    opened: OpenedVolume,
) -> Box<Answers> {
    let OpenedVolume { volume, coerced, disk, .. } = opened;
    let about = plan.about(directory, &volume);
    let checkpointer = Checkpointer::new(world, volume.engine());
    Box::new(move |ask| {
        if ask == Ask::Grow {
            let (disk, volume) = (disk.clone(), volume.clone());
            return Box::pin(async move { serde_json::json!(grow::answer(&disk, &volume).await) });
        }
        if ask == Ask::End {
            helper.release();
        }
        let answer = match ask {
            // There is nothing to change.
            Ask::About | Ask::End | Ask::Change(_) | Ask::Grow => serde_json::json!(about),
            Ask::Checkpoint | Ask::Checkpointing => checkpointer.answer(ask),
            Ask::Stats => statistics(&about, kind, (&volume, &coerced)),
        };
        Box::pin(async { answer })
    })
}

fn statistics(
    about: &About,
    kind: DeviceKind,
    (volume, coerced): (&BlockVolume, &[CoercedDisk]),
) -> serde_json::Value {
    let failed = volume.failure().or(volume.engine().check().err().map(|it| it.to_string()));
    let recovery = &volume.report().recovery;
    let needs_check = recovery.is_incomplete() || recovery.recorded_error != 0;
    serde_json::json!({
        "about": about,
        "read_only": volume.engine().options().read_only,
        "needs_check": needs_check,
        "failed": failed,
        "transport": kind.word(),
        "engine": volume.statistics(),
        "long_steps": crate::stats::long_steps(&**volume.engine().world()),
        "blocks": volume.requests(),
        "coerced": coerced.iter().map(CoercedDisk::statistics).collect::<Vec<_>>(),
        "volatile_cache": volume.persistence() == Persistence::WriteBack,
        "atomic_write_bytes": volume.atomic_bytes(),
    })
}

/// Refuses clients that may have waited for this daemon over a volume that may lack some of what
/// was acknowledged: nobody knows which have waited, and they would go on.
fn refuse_clients(plan: &AttachPlan, volume: &BlockVolume) -> Result<(), CliError> {
    let report = &volume.report().recovery;
    let why = recover::recorded_error(report)
        .or(report.is_incomplete().then_some("this recovery left out what was committed"));
    let Some(why) = why.filter(|_| !plan.read_only && !units::fault!("waiting-left-behind")) else {
        return Ok(());
    };
    let name = plan.source.display();
    Err(CliError::new(format!(
        "{name}: {why}: a client that connects again would go on without what may be lost"
    ))
    .with_remedy(
        "End the clients. Check what is above the volume (okeanos blocks attach --via loop, \
         e2fsck, okeanos blocks detach), and clear the error then: okeanos blocks drain \
         --clear-error. --read-only serves it as it is.",
    ))
}

/// Serves NBD clients on a Unix socket, in the foreground.
pub fn over_nbd(plan: AttachPlan, socket: &Path) -> Result<(), CliError> {
    runtime::standard_error::print_panics_without_waiting();
    runtime::block_signals().map_err(|error| CliError::system("signals", error))?;
    let world = RealWorld::new().map_err(CliError::no_ring)?;
    let (own, socket) = (world.clone(), socket.to_owned());
    let result = world.run(async move {
        let opened = plan.open(&own).await?;
        let volume = &opened.volume;
        // A volume that is open keeps a second server of it from replacing the socket.
        let listener = refuse_clients(&plan, volume).and_then(|()| {
            Listener::unix(&socket).map_err(|error| CliError::new(error.to_string()))
        });
        let listener = match listener {
            Ok(listener) => listener,
            Err(error) => {
                close(volume, &|_| ()).await;
                return Err(error);
            }
        };
        let complain = |text: &str| crate::daemon::reporter::complain(&format!("okeanos: {text}"));
        io_path::report_with(&own, &complain);
        report_opened(volume, &complain);
        daemon::settle_in_for_write_back().iter().for_each(|text| complain(text));
        let mut signals = own.signals().map_err(|error| CliError::system("signals", error))?;
        let uri = listener.uri();
        let disk = Rc::new(volume.clone());
        let export = Rc::new(Export { disk, read_only: plan.read_only, rotational: false });
        let connections = Connections::default();
        let served = nbd::serve(own.clone(), listener, export, connections.clone());
        let mut serving = Box::pin(served);
        print(&format_args!("{uri}\n"))?;
        // From here on it reads requests.
        if let Err(error) = privileges::give_up() {
            complain(&privileges::kept_rights(&error));
        }
        own.ring().renew_threads();
        let served = race(&mut serving, signals.next()).await;
        // Nothing is answered while the volume is closed: a request that is not answered is sent
        // again to the next daemon, and an error would reach the file system above.
        connections.hold();
        drop(serving);
        // The log has all that was acknowledged then, also if it cannot be emptied.
        let is_flushed = volume.flush().await.is_ok();
        let clean = close(volume, &complain).await;
        if !clean {
            opened.failure_noted(&own).await;
        }
        let has_cache = plan.persistence == Persistence::WriteBack && !plan.read_only;
        let loses = has_cache && !is_flushed && !clean;
        end_connections(&own, &connections, loses.then(|| LOSES.into()), &mut signals).await;
        match served {
            Either::Left(Err(error)) => Err(CliError::system(uri, error)),
            _ if clean => Ok(()),
            _ => Err(daemon::not_home(plan.source.display())),
        }
    });
    world.end();
    result
}
