//! `okeanos nbd`: exports any disk to NBD clients, with scattered logs in front of it or without.

mod scattered;

use crate::daemon::reporter::complain;
use crate::disk::open_disk::open_disk;
use crate::error::CliError;
use crate::text::output::{print, print_json};
use crate::text::quantity::format_duration;
use ::nbd::{Export, Listener, serve as serve_clients};
use ::scattered::{RestartReport, ScatteredDisk, ScatteredStatistics};
use clap::Args;
use device::{Disk, World};
use disks::DiskAccess;
use runtime::{Either, RealWorld, race};
use scattered::ScatteredArguments;
use std::path::PathBuf;
use std::rc::Rc;

const EXAMPLES: &str = "\
Examples:
  okeanos nbd --socket /run/disk.sock disk.img             an image, as it is
  okeanos nbd --socket s --scattered --format --logged-write-size 256K /dev/sdb
                                                           scattered logs on a drive; its content is lost
  okeanos nbd --socket s --scattered /dev/sdb              the same drive another time

An emulated drive in real time: okeanos-lab nbd --help.

";

/// Notes on an export, after the examples of a command.
pub const NOTES: &str = "\
The program stays in the foreground, says on which URI it listens, and ends on SIGTERM or Ctrl-C: it flushes, and with scattered
logs saves the mapping table, so that the next start reads no log.

Clients:
  nbdinfo 'nbd+unix:///?socket=s'
  nbdcopy disk.img 'nbd+unix:///?socket=s'
  qemu-img info 'nbd+unix:///?socket=s'
  fio --ioengine=nbd --uri='nbd+unix:///?socket=s' --name=t --rw=randwrite --size=64M
  nbdfuse /mnt/d/disk --unix s & losetup --find --show /mnt/d/disk       a block device for the kernel

A scattered log takes --log-size at the end of each --group-size. Writes of at most --logged-write-size go to the log nearest to where the disk's arm is;
larger ones go home. There is no TLS: only Unix sockets and loopback addresses are listened on. An address lets every
user of the machine in; a Unix socket is for the user who started the program.

A disk that holds scattered logs is not exported without --scattered. --format names what is there already, and keeps
it, unless --force is given.";

/// Export a disk over NBD: an image or a device; with scattered logs in front of it if wanted
#[derive(Args)]
#[command(after_help = format!("{EXAMPLES}{NOTES}"))]
pub struct NbdArguments {
    #[command(flatten)]
    export: ExportArguments,
    /// An image file or a block device
    #[arg(value_name = "IMAGE|DEVICE")]
    disk: PathBuf,
}

/// How a disk is exported.
#[derive(Args)]
pub struct ExportArguments {
    /// Listen on a Unix socket, for this user alone
    #[arg(
        long,
        value_name = "PATH",
        conflicts_with = "listen",
        required_unless_present = "listen"
    )]
    socket: Option<PathBuf>,
    /// Listen on TCP, on an address of this machine's own (127.0.0.1:10809): every user of this
    /// machine can then read and change the disk. Prefer --socket
    #[arg(long, value_name = "ADDR")]
    listen: Option<String>,
    /// Refuse all changes
    #[arg(long, conflicts_with = "scattered")]
    read_only: bool,
    #[command(flatten)]
    logs: ScatteredArguments,
    /// At the end, copy home what is logged: then the logs are empty, and only then
    #[arg(long, requires = "scattered")]
    checkpoint_at_end: bool,
    /// Print what the logs (and an emulated drive) did, as JSON, at the end
    #[arg(long)]
    json: bool,
}

/// The disk beneath an export.
pub struct BackingDisk {
    pub disk: Rc<dyn Disk>,
    /// Statistics of an emulated drive, which is new.
    pub emulated: Option<Box<dyn Fn() -> serde_json::Value>>,
}

pub fn run(arguments: NbdArguments) -> Result<(), CliError> {
    let NbdArguments { export, disk: path } = arguments;
    serve_disk(export, |world, export| {
        let access = if export.read_only { DiskAccess::ReadOnly } else { DiskAccess::ReadWrite };
        let disk = Rc::new(open_disk(world, &path, access)?);
        export.logs.check_content(&path)?;
        Ok(BackingDisk { disk, emulated: None })
    })
}

/// Exports the disk that `open` returns, until a signal comes.
///
/// # Errors
/// The address is not this machine's, `open` fails, or the disk does.
pub fn serve_disk(
    arguments: ExportArguments,
    open: impl FnOnce(&RealWorld, &ExportArguments) -> Result<BackingDisk, CliError>,
) -> Result<(), CliError> {
    runtime::standard_error::print_panics_without_waiting();
    runtime::block_signals().map_err(|error| CliError::system("signals", error))?;
    let listener = match (&arguments.socket, &arguments.listen) {
        (Some(path), _) => Listener::unix(path),
        (None, address) => Listener::tcp(address.as_deref().unwrap_or_default()),
    };
    let listener = listener.map_err(|error| CliError::new(error.to_string()))?;
    if arguments.listen.is_some() {
        let may = if arguments.read_only { "read" } else { "read and change" };
        complain(&format!(
            "okeanos: warning: every user of this machine can {may} the disk; --socket is for this user alone"
        ));
    }
    let world = RealWorld::new().map_err(CliError::no_ring)?;
    crate::daemon::io_path::report_with(&world, &|text| complain(&format!("okeanos: {text}")));
    let BackingDisk { disk, emulated } = open(&world, &arguments)?;
    let in_world: Rc<dyn World> = Rc::new(world.clone());
    let json = arguments.json;
    let result =
        world.run(serve(world.clone(), in_world, listener, (disk, emulated.is_some()), arguments));
    world.end();
    let mut printed = serde_json::Map::new();
    if let Some(logs) = result? {
        printed.insert("logs".to_owned(), serde_json::json!(logs));
    }
    if let Some(statistics) = emulated {
        printed.insert("drive".to_owned(), statistics());
    }
    if json && !printed.is_empty() { print_json(&printed) } else { Ok(()) }
}

async fn serve(
    world: RealWorld,
    in_world: Rc<dyn World>,
    listener: Listener,
    (beneath, is_emulated): (Rc<dyn Disk>, bool),
    arguments: ExportArguments,
) -> Result<Option<ScatteredStatistics>, CliError> {
    let logs = scattered::open(&world, &in_world, &beneath, &arguments.logs, is_emulated).await?;
    if let Some((_, report)) = &logs {
        print(&restart_line(report))?;
    }
    let logs = logs.map(|(disk, _)| disk);
    let disk: Rc<dyn Disk> = logs.clone().map_or(beneath, |logs| Rc::new(logs));
    let rotational = arguments.logs.scattered || is_emulated;
    let export = Rc::new(Export { disk: disk.clone(), read_only: arguments.read_only, rotational });
    let mut signals = world.signals().map_err(|error| CliError::system("signals", error))?;
    let uri = listener.uri();
    let mut serving = Box::pin(serve_clients(world.clone(), listener, export));
    print(&format_args!("listening on {uri}\n"))?;
    if let Either::Left(result) = race(&mut serving, signals.next()).await {
        return result.map(|()| None).map_err(|error| CliError::system(uri, error));
    }
    // No new clients; acknowledged writes are made durable.
    drop(serving);
    let failed = |error: device::DeviceError| CliError::new(error.to_string());
    if !arguments.read_only {
        disk.flush().await.map_err(failed)?;
    }
    if arguments.checkpoint_at_end {
        checkpoint(logs.as_ref()).await?;
    }
    if let Some(logs) = &logs {
        logs.snapshot().await.map_err(failed)?;
    }
    Ok(logs.map(|logs| logs.statistics()))
}

fn restart_line(report: &RestartReport) -> String {
    format!(
        "scattered logs: {} blocks are logged; {} logs read ({} records, {} grown) in {}\n",
        report.entries,
        report.logs_read,
        report.records,
        report.logs_grown,
        format_duration(report.took)
    )
}

async fn checkpoint(logs: Option<&ScatteredDisk>) -> Result<(), CliError> {
    let Some(logs) = logs else { return Ok(()) };
    let report = logs.checkpoint().await.map_err(|error| CliError::new(error.to_string()))?;
    print(&format_args!(
        "checkpoint: {} blocks in {} writes; {:.0} % of the writes and {:.0} % of the blocks were spared\n",
        report.blocks,
        report.home_writes,
        100.0 * report.writes_reduced(),
        100.0 * report.blocks_reduced()
    ))
}
