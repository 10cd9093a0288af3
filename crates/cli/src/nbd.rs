//! `okeanos nbd`: exports any disk to NBD clients.

use crate::daemon::privileges;
use crate::daemon::reporter::complain;
use crate::disk::content;
use crate::disk::open_disk::open_disk;
use crate::error::CliError;
use crate::text::output::{print, print_json};
use ::nbd::{Connections, Export, Listener, serve as serve_clients};
use clap::Args;
use device::Disk;
use disks::DiskAccess;
use runtime::{Either, RealWorld, Signal, Signals, race};
use std::path::PathBuf;
use std::rc::Rc;

const EXAMPLES: &str = "\
Examples:
  okeanos nbd --socket /run/disk.sock disk.img             an image, as it is
  okeanos nbd --listen 127.0.0.1:10809 --read-only /dev/sdb

A disk with a journal in front of it: okeanos blocks attach --via nbd.
An emulated drive in real time: okeanos-lab nbd --help.

";

/// Notes on an export, after the examples of a command.
pub const NOTES: &str = "\
The program stays in the foreground, says on which URI it listens, and ends on SIGTERM or Ctrl-C: it flushes.

Clients:
  nbdinfo 'nbd+unix:///?socket=s'
  nbdcopy disk.img 'nbd+unix:///?socket=s'
  qemu-img info 'nbd+unix:///?socket=s'
  fio --ioengine=nbd --uri='nbd+unix:///?socket=s' --name=t --rw=randwrite --size=64M
  nbdfuse /mnt/d/disk --unix s & losetup --find --show /mnt/d/disk       a block device for the kernel

There is no TLS: only Unix sockets and loopback addresses are listened on. An address lets every
user of the machine in; a Unix socket is for the user who started the program.";

/// Printed where a client that flushed at the next server would never learn of a loss.
pub const LOSES: &str = "what was acknowledged and not flushed may be lost: requests of the \
     clients fail until they have gone; another signal ends this at once";

/// Export a disk over NBD: an image or a device, as it is
#[derive(Args)]
#[command(after_help = format!("{EXAMPLES}{NOTES}"))]
pub struct NbdArguments {
    #[command(flatten)]
    export: ExportArguments,
    /// An image file or a block device
    #[arg(value_name = "IMAGE|DEVICE")]
    disk: PathBuf,
}

/// Arguments for exporting a disk.
#[derive(Args)]
pub struct ExportArguments {
    /// Listen on a Unix socket, for this user alone
    #[arg(long, value_name = "PATH", conflicts_with = "listen")]
    socket: Option<PathBuf>,
    /// Listen on TCP, on an address of this machine's own (127.0.0.1:10809): every user of this
    /// machine can then read and change the disk. Prefer --socket
    #[arg(long, value_name = "HOST:PORT")]
    listen: Option<String>,
    /// Refuse all changes
    #[arg(long)]
    read_only: bool,
}

/// The disk beneath an export.
pub struct BackingDisk {
    pub disk: Rc<dyn Disk>,
    pub rotational: bool,
    /// Printed at the end.
    pub report: Option<Box<dyn Fn() -> serde_json::Value>>,
}

pub fn run(arguments: NbdArguments) -> Result<(), CliError> {
    let NbdArguments { export, disk: path } = arguments;
    serve_disk(export, |world, export| {
        let access = if export.read_only { DiskAccess::ReadOnly } else { DiskAccess::ReadWrite };
        let disk = Rc::new(open_disk(world, &path, access)?);
        content::refuse_raw_export(&path)?;
        Ok(BackingDisk { disk, rotational: false, report: None })
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
    let is_address = |address: &String| {
        address.rsplit_once(':').is_some_and(|(_, it)| it.parse::<u16>().is_ok())
    };
    if arguments.socket.is_none() && !arguments.listen.as_ref().is_some_and(is_address) {
        return Err(CliError::new("no address to listen on")
            .with_remedy("Give --socket PATH, or --listen HOST:PORT, such as 127.0.0.1:10809.")
            .with_code(2));
    }
    runtime::standard_error::print_panics_without_waiting();
    runtime::block_signals().map_err(|error| CliError::system("signals", error))?;
    let world = RealWorld::new().map_err(CliError::no_ring)?;
    crate::daemon::io_path::report_with(&world, &|text| complain(&format!("okeanos: {text}")));
    let BackingDisk { disk, rotational, report } = open(&world, &arguments)?;
    // A disk that is held keeps a second server of it from replacing the socket.
    let listener = match (&arguments.socket, &arguments.listen) {
        (Some(path), _) => Listener::unix(path),
        (None, address) => Listener::tcp(address.as_deref().unwrap_or_default()),
    };
    let listener = listener.map_err(|error| CliError::new(error.to_string()))?;
    if arguments.listen.is_some() {
        let may = if arguments.read_only { "read" } else { "read and change" };
        complain(&format!(
            "okeanos: warning: every user of this machine can {may} the disk; --socket is for this \
             user alone"
        ));
    }
    crate::daemon::settle_in();
    let export = Rc::new(Export { disk, read_only: arguments.read_only, rotational });
    let result = world.run(serve(world.clone(), listener, export));
    world.end();
    result?;
    report.map_or(Ok(()), |report| print_json(&report()))
}

async fn serve(world: RealWorld, listener: Listener, export: Rc<Export>) -> Result<(), CliError> {
    let mut signals = world.signals().map_err(|error| CliError::system("signals", error))?;
    let uri = listener.uri();
    let connections = Connections::default();
    let served = serve_clients(world.clone(), listener, export.clone(), connections.clone());
    let mut serving = Box::pin(served);
    // From here on it reads requests.
    if let Err(error) = privileges::give_up() {
        complain(&format!("okeanos: warning: {}", privileges::kept_rights(&error)));
    }
    world.ring().renew_threads();
    print(&format_args!("listening on {uri}\n"))?;
    let served = race(&mut serving, signals.next()).await;
    // No new clients; acknowledged writes are made durable.
    connections.hold();
    drop(serving);
    let flushed = match export.read_only {
        true => Ok(()),
        false => export.disk.flush().await.map_err(|error| CliError::new(error.to_string())),
    };
    let lost = flushed.as_ref().err().map(|error| format!("{error}; {LOSES}"));
    end_connections(&world, &connections, lost, &mut signals).await;
    match served {
        Either::Left(Err(error)) => Err(CliError::system(uri, error)),
        _ => flushed,
    }
}

/// Ends connections that are held: at once, or, if something was `lost`, when their clients have
/// had errors and gone, or another signal comes that asks for the end.
pub async fn end_connections(
    world: &RealWorld,
    connections: &Connections,
    lost: Option<String>,
    signals: &mut Signals,
) {
    // What came before this text asks for no more than the first signal did: a login session that
    // ends sends two.
    let has_one = async |signals: &mut Signals| {
        matches!(race(signals.next(), std::future::ready(())).await, Either::Left(Ok(_)))
    };
    while has_one(signals).await {}
    let all_is_durable = lost.is_none();
    if let Some(text) = lost {
        complain(&format!("okeanos: {text}"));
    }
    let another = async { while matches!(signals.next().await, Ok(Signal::HangUp)) {} };
    connections.end(world, all_is_durable, another).await;
}
