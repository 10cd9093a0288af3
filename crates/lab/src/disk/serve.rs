//! `okeanos-lab disk serve`: an emulated disk in real time, as a file for a loop device.

use super::{DriveArguments, Switch, find};
use crate::error::CliError;
use crate::text::output;
use crate::text::quantity::{format_size, parse_size};
use clap::{Args, ValueEnum};
use cli::daemon::control::{About, Ask};
use cli::daemon::control_server::Answers;
use cli::daemon::mount_helper::MountHelper;
use cli::daemon::mount_table;
use cli::daemon::reporter::{Level, Reporter};
use cli::daemon::{self, Side, StartNotifier};
use cli::disk::exported;
use cli::disk::front_end::NAME;
use cli::disk::served::ServedDisk;
use device::{Disk, World};
use emulated::{CacheMode, DriveOptions, EmulatedDisk, Lies, Model, SECTOR, shipped};
use runtime::RealWorld;
use std::path::{Path, PathBuf};
use std::rc::Rc;

const HELP: &str = "\
The disk is full of zeros at first, costs memory only for what is written, and is gone when this program ends.
It sees every request, sync and forced write of the file, and takes as long for each as the model says.

Examples: a file system of the kernel on it (as root; direct I/O keeps the loop device from caching):
  mkdir /tmp/served && okeanos-lab disk serve --model cheetah-15k5 --size 8G /tmp/served
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
    /// Size of each drive; less than the model's (512M, 8G; whole sectors)
    #[arg(long, value_parser = parse_size)]
    size: Option<u64>,
    /// The drive's write cache
    #[arg(long, value_enum, default_value_t = Switch::On)]
    cache: Switch,
    /// Guarantees that the drive only pretends to give: flush (forced writes too), cache-off
    #[arg(long, value_enum, value_delimiter = ',', value_name = "LIES")]
    lies: Vec<Lie>,
    /// Stay in the foreground, and report at the end what the drive has done
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
    cli::daemon::mounted::refuse_if_its_daemon_died(&arguments.directory)?;
    let directory = mount_table::resolve(&arguments.directory)
        .map_err(|error| CliError::system(arguments.directory.display(), error))?;
    if !directory.is_dir() {
        return Err(CliError::new(format!("{} is not a directory", directory.display())));
    }
    if arguments.foreground {
        return serve(&arguments.drives, model, options, directory, StartNotifier::foreground());
    }
    match daemon::detach()? {
        Side::Starter(starter) => starter.wait(),
        Side::Daemon(notifier) => serve(&arguments.drives, model, options, directory, notifier),
    }
}

fn options(arguments: &ServeArguments, model: &Model) -> Result<DriveOptions, CliError> {
    if let Some(size) = arguments.size {
        let wrong = if size == 0 || size % SECTOR != 0 {
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
    Ok(DriveOptions { cache: arguments.cache.mode(), lies, size: arguments.size })
}

/// Returns the disk's parameters, for commands that find a volume on it.
fn begun_as(drives: &DriveArguments, options: &DriveOptions) -> ServedDisk {
    let file = std::fs::canonicalize(&drives.model).ok().map(|path| path.display().to_string());
    let is_shipped = shipped().any(|(name, _)| name == drives.model);
    ServedDisk {
        model: file.filter(|_| !is_shipped).unwrap_or_else(|| drives.model.clone()),
        drives: drives.drives,
        chunk: drives.chunk,
        caches: options.cache == CacheMode::On,
        size: options.size,
    }
}

/// State of a served disk.
struct Served {
    begun_as: ServedDisk,
    drives: Vec<EmulatedDisk>,
    disk: Rc<dyn Disk>,
}

fn serve(
    drives: &DriveArguments,
    model: Model,
    options: DriveOptions,
    directory: PathBuf,
    notifier: StartNotifier,
) -> Result<(), CliError> {
    let reporter = Reporter::open(notifier.is_background(), Level::Info, None);
    if let Err(error) = runtime::block_signals() {
        return notifier.failed(CliError::system("signals", error));
    }
    let helper = match MountHelper::start(&directory, &|text| reporter.report(text)) {
        Ok(helper) => helper,
        Err(error) => return notifier.failed(error),
    };
    let world = match RealWorld::new() {
        Ok(world) => world,
        Err(error) => return notifier.failed(CliError::no_ring(error)),
    };
    let in_world: Rc<dyn World> = Rc::new(world.clone());
    let begun_as = begun_as(drives, &options);
    let (drives, disk) = drives.disk(&in_world, &model, options);
    let result = world.run(run_on(
        world.clone(),
        Served { begun_as, drives, disk },
        directory,
        helper,
        notifier,
    ));
    world.end();
    result
}

async fn run_on(
    world: RealWorld,
    served: Served,
    directory: PathBuf,
    helper: MountHelper,
    notifier: StartNotifier,
) -> Result<(), CliError> {
    let background = notifier.is_background();
    let answers = answers(&served, &directory);
    let disk = served.disk.clone();
    let (at, failure) = ((&*directory, &helper), std::future::pending());
    daemon::settle_in();
    exported::serve(&world, &disk, at, notifier, answers, failure, async || true).await?;
    if !background {
        for drive in &served.drives {
            output::print(&format_args!("{}\n", serde_json::json!(drive.statistics())))?;
        }
    }
    Ok(())
}

fn answers(served: &Served, directory: &Path) -> Box<Answers> {
    let about = About {
        process: std::process::id(),
        version: terminal::VERSION.into(),
        source: served.disk.name().to_owned(),
        directory: directory.join(NAME).display().to_string(),
        data: "none".to_owned(),
        options: Vec::new(),
        live: None,
    };
    let (drives, begun_as) = (served.drives.clone(), served.begun_as.clone());
    Box::new(move |ask| {
        let answer = match ask {
            // There is nothing to change.
            Ask::About | Ask::End | Ask::Change(_) | Ask::Grow => serde_json::json!(about),
            Ask::Checkpoint | Ask::Checkpointing => {
                cli::checkpoint::refused("an emulated drive has no log")
            }
            Ask::Stats => {
                let drives: Vec<_> = drives.iter().map(EmulatedDisk::statistics).collect();
                serde_json::json!({ "about": about, "served": begun_as, "drives": drives })
            }
        };
        Box::pin(async { answer })
    })
}
