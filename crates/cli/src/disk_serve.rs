//! `okeanos disk serve`: an emulated disk in real time, as a file that a loop device can stand on.

use crate::control::{About, Ask, End, socket_path};
use crate::control_server::ControlServer;
use crate::daemon::{self, Herald, Side};
use crate::disk::{DriveArguments, Switch, find};
use crate::disk_door::{DiskDoor, NAME};
use crate::error::CliError;
use crate::mount_table;
use crate::quantity::{format_size, parse_size};
use crate::umount;
use clap::{Args, ValueEnum};
use device::{Disk, World};
use emulated::{EmulatedDisk, Lies, Model, Options, SECTOR};
use fuse::{Kind, MountOptions, Session, Transport};
use runtime::{Either, RealWorld, Signals, race, spawn_with_result};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

/// How long, after SIGTERM, those who still have the disk open may finish.
const GRACE: Duration = Duration::from_secs(10);

const HELP: &str = "\
The disk is full of zeros at first, costs memory only for what is written, and is gone when this program ends.
It sees every request, sync and forced write of the file, and takes as long for each as the model says.

A file system of the kernel on it (as root; direct I/O keeps the loop device from caching):
  mkdir /tmp/served && okeanos disk serve --model cheetah-15k5 --size 8G /tmp/served
  device=$(losetup --find --show --direct-io=on /tmp/served/disk)
  mkfs.ext4 -q $device && mount $device /mnt
  okeanos stats --json /tmp/served                     what the drive has done
  umount /mnt; losetup --detach $device; okeanos umount /tmp/served

Another queue or I/O scheduler above: /sys/block/loopN/queue/scheduler (none leaves the choice to the drive).
A loop device passes flushes on, but turns a forced write (FUA) into a write and a flush.";

#[derive(Args)]
#[command(after_help = HELP)]
pub struct ServeArguments {
    #[command(flatten)]
    drives: DriveArguments,
    /// Of each drive; less than the model's size (512M, 8G; whole sectors)
    #[arg(long, value_parser = parse_size)]
    size: Option<u64>,
    /// The drive's write cache
    #[arg(long, value_enum, default_value_t = Switch::On)]
    cache: Switch,
    /// What the drive only pretends to do: flush (forced writes too), cache-off
    #[arg(long, value_enum, value_delimiter = ',', value_name = "LIES")]
    lies: Vec<Lie>,
    /// Stay in the foreground, and tell at the end what the drive has done
    #[arg(short, long)]
    foreground: bool,
    /// An empty directory; the disk appears in it as `disk`
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Lie {
    /// Answers a flush at once
    Flush,
    /// Goes on caching with --cache off
    CacheOff,
}

pub fn run(arguments: ServeArguments) -> Result<(), CliError> {
    let model = find(&arguments.drives.model)?;
    let options = options(&arguments, &model)?;
    let directory = mount_table::resolve(&arguments.directory)
        .map_err(|error| CliError::system(arguments.directory.display(), error))?;
    if !directory.is_dir() {
        return Err(CliError::new(format!("{} is not a directory", directory.display())));
    }
    if arguments.foreground {
        return serve(&arguments.drives, model, options, directory, Herald::nobody());
    }
    match daemon::detach()? {
        Side::Starter(starter) => starter.wait(),
        Side::Daemon(herald) => serve(&arguments.drives, model, options, directory, herald),
    }
}

fn options(arguments: &ServeArguments, model: &Model) -> Result<Options, CliError> {
    if let Some(size) = arguments.size {
        let wrong = if size == 0 || !size.is_multiple_of(SECTOR) {
            format!("--size: {size} bytes are not whole sectors of {SECTOR}")
        } else if size > model.size.get() {
            format!(
                "--size: {} is more than {} has ({})",
                format_size(size),
                model.name,
                format_size(model.size.get())
            )
        } else {
            String::new()
        };
        if !wrong.is_empty() {
            return Err(CliError::new(wrong));
        }
    }
    let lies = Lies {
        ignores_flush: arguments.lies.contains(&Lie::Flush),
        ignores_cache_off: arguments.lies.contains(&Lie::CacheOff),
    };
    Ok(Options { cache: arguments.cache.mode(), lies, size: arguments.size })
}

/// What is served.
struct Served {
    drives: Vec<EmulatedDisk>,
    disk: Rc<dyn Disk>,
}

fn serve(
    drives: &DriveArguments,
    model: Model,
    options: Options,
    directory: PathBuf,
    herald: Herald,
) -> Result<(), CliError> {
    let world = match runtime::block_signals().and_then(|()| RealWorld::new()) {
        Ok(world) => world,
        Err(error) => return herald.failed(CliError::no_ring(error)),
    };
    let in_world: Rc<dyn World> = Rc::new(world.clone());
    let (drives, disk) = drives.disk(&in_world, &model, options);
    let result = world.run(run_on(world.clone(), Served { drives, disk }, directory, herald));
    world.end();
    result
}

async fn run_on(
    world: RealWorld,
    served: Served,
    directory: PathBuf,
    herald: Herald,
) -> Result<(), CliError> {
    let background = herald.is_background();
    let report = daemon::reporter(background);
    let (session, signals) = match bring_up(&world, &served.disk, &directory) {
        Ok(up) => up,
        Err(error) => return herald.failed(error),
    };
    let serving = session.clone();
    let session_over = spawn_with_result(&world, async move { serving.serve().await });
    session.until_begun().await;
    let control = start_control(&world, &served, &directory).unwrap_or_else(|error| {
        report(&format!("no control socket, so stats and umount cannot reach this disk: {error}"));
        None
    });
    daemon::settle_in();
    herald.up();
    let result = until_over(&world, &directory, signals, session_over, &session).await;
    if let Some(control) = control {
        control.end(End { clean: result.is_ok() });
    }
    if !background {
        served.drives.iter().for_each(|drive| println!("{}", serde_json::json!(drive.statistics())));
    }
    result
}

fn bring_up(
    world: &RealWorld,
    disk: &Rc<dyn Disk>,
    directory: &Path,
) -> Result<(Rc<Session<DiskDoor>>, Signals), CliError> {
    let signals = world.signals().map_err(|error| CliError::system("signals", error))?;
    let kind = Kind::Plain { name: disk.name().to_owned() };
    let options = MountOptions { kind, flags: libc::MS_NOSUID | libc::MS_NODEV, allow_other: false };
    let connection = fuse::mount(directory, &options).map_err(|error| CliError::new(error.to_string()))?;
    // SAFETY: these two calls have no preconditions.
    let owner = unsafe { (libc::geteuid(), libc::getegid()) };
    let door = DiskDoor::new(disk.clone(), owner);
    Ok((Session::new(world.clone(), connection, door, Transport::Auto), signals))
}

/// The session's end; a signal brings it about.
async fn until_over(
    world: &RealWorld,
    directory: &Path,
    mut signals: Signals,
    mut served: runtime::Receiver<Result<(), fuse::SessionError>>,
    session: &Session<DiskDoor>,
) -> Result<(), CliError> {
    let mut result = race(&mut served, signals.next()).await;
    if let Either::Right(_) = result {
        // umount(2) waits for this thread to answer, so another one calls it.
        let path = directory.to_owned();
        std::thread::spawn(move || umount::unmount(&path, libc::MNT_DETACH));
        let patience = race(world.sleep_until(world.now().plus(GRACE)), signals.next());
        result = match race(&mut served, patience).await {
            Either::Left(ended) => Either::Left(ended),
            Either::Right(_) => {
                session.stop();
                Either::Left(served.await)
            }
        };
    }
    match result {
        Either::Left(Some(Ok(()))) => Ok(()),
        Either::Left(Some(Err(error))) => Err(CliError::new(error.to_string())),
        _ => Err(CliError::new("the disk's session was lost")),
    }
}

fn start_control(
    world: &RealWorld,
    served: &Served,
    directory: &Path,
) -> std::io::Result<Option<Rc<ControlServer>>> {
    let mounts = mount_table::mounts()?;
    let Some(mount) = mounts.into_iter().rfind(|mount| mount.directory == directory) else {
        return Ok(None);
    };
    let about = About {
        process: std::process::id(),
        version: env!("CARGO_PKG_VERSION").into(),
        source: PathBuf::from(served.disk.name()),
        directory: directory.join(NAME),
        data: "none".to_owned(),
        options: Vec::new(),
    };
    let drives = served.drives.clone();
    let answers = move |ask| match ask {
        // There is nothing to change.
        Ask::About | Ask::End | Ask::Change { .. } => serde_json::json!(about),
        Ask::Stats => {
            let drives: Vec<_> = drives.iter().map(EmulatedDisk::statistics).collect();
            serde_json::json!({ "about": about, "drives": drives })
        }
    };
    ControlServer::start(world, socket_path(mount.device), Box::new(answers)).map(Some)
}
