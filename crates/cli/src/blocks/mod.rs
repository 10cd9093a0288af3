//! `okeanos blocks`: a disk with a journal in front of it, for any file system above.

mod attach;
mod detach;
mod device_kind;
mod driver_device;
mod grow;
mod make;
mod nbd_device;
pub mod offline;
mod place;
mod serve;
mod ublk_device;
mod zones;

use crate::disk::block_volume::{VolumeOnDisk, volume_on};
use crate::disk::open_disk::refuse_same;
use crate::error::CliError;
use crate::mkfs::LogSizes;
use crate::mount::table;
use crate::options::page::{OptionWords, help};
use crate::text::quantity::parse_size;
use clap::{Args, Subcommand, ValueEnum};
use std::path::PathBuf;
use std::time::Duration;

/// Time limit for others to close a device that is taken away: udev may hold it for a moment.
const PATIENCE: Duration = Duration::from_secs(10);

/// Steps that clear a recorded error.
pub const CLEAR: &str = "Attach the volume, check the file system above it, detach the volume, and \
     clear the error: okeanos blocks drain --clear-error.";

const EXAMPLES: &str = "\
Examples:
  okeanos blocks format /dev/sdb                below the kernel's ext4, on a disk with an I/O limit
  device=$(okeanos blocks attach /dev/sdb)
  mkfs.ext4 -q $device && mount $device /mnt
  okeanos stats /dev/sdb                        what the log and home were written
  umount /mnt && okeanos blocks detach /dev/sdb
  okeanos blocks drain /dev/sdb                 after a crash: replay, and leave the log empty

docs/modes/blocks.md says what is promised: a disk's contract, with flush and FUA.";

const FORMAT_EXAMPLES: &str = "\
Examples:
  okeanos blocks format /dev/sdb
  okeanos blocks format --journal-size 1G --scattered-logs disk.img
  okeanos blocks format --log /dev/nvme0n1p3 /dev/sdb     the journal on a device of its own
  okeanos blocks format --flush-zone drive.profile /dev/sdb     for a drive that ignores flushes";

const ATTACH_EXAMPLES: &str = "\
Examples:
  device=$(okeanos blocks attach /dev/sdb)
  okeanos blocks attach --via ublk --write-through /dev/sdb     I/O waits while the daemon is replaced
  okeanos blocks attach --via nbd /dev/sdb       /dev/nbdN, without nbd-client
  okeanos blocks attach --via nbd --socket /run/sdb.sock /dev/sdb     for qemu and other NBD clients";

const DETACH_EXAMPLES: &str = "\
Examples:
  umount /mnt && okeanos blocks detach /dev/sdb
  okeanos blocks detach --force /dev/ublkb0     its I/O waits, and its volume cannot be attached";

const DRAIN_EXAMPLES: &str = "\
Examples:
  okeanos blocks drain /dev/sdb
  okeanos blocks drain --json disk.img
  okeanos blocks drain --clear-error disk.img     the file system above was checked";

const GROW_EXAMPLES: &str = "\
Examples:
  lvextend -L +10G /dev/vg/disk && okeanos blocks grow /dev/vg/disk && resize2fs /dev/loop0
  truncate -s 20G disk.img && okeanos blocks grow disk.img     attached or not";

const INSPECT_EXAMPLES: &str = "\
Examples:
  okeanos blocks inspect /dev/sdb
  okeanos blocks inspect --json disk.img";

/// Notes behind the long help: the options that it shares with a mount, and the examples.
fn attach_notes() -> String {
    format!("{}\n{ATTACH_EXAMPLES}", help(table::SECTIONS, attach::is_of_blocks))
}

/// A disk exported with a journal in front of it, for any file system or virtual machine above
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct BlocksArguments {
    #[command(subcommand)]
    command: BlocksCommand,
}

#[derive(Subcommand)]
enum BlocksCommand {
    /// Make an empty block volume; what the disk holds is lost
    #[command(after_help = FORMAT_EXAMPLES)]
    Format(FormatArguments),
    /// Export a block volume as a block device, and print its name
    #[command(after_help = ATTACH_EXAMPLES, after_long_help = attach_notes())]
    Attach(AttachArguments),
    /// Flush an attached volume, write everything home, and take its block device away
    #[command(after_help = DETACH_EXAMPLES)]
    Detach(DetachArguments),
    /// Replay the log of a volume that is not attached: home is complete then, and the log empty
    #[command(after_help = DRAIN_EXAMPLES)]
    Drain(DrainArguments),
    /// Export all of a disk that has become longer, also while it is attached
    #[command(after_help = GROW_EXAMPLES)]
    Grow(GrowArguments),
    /// Print where journal and data lie, and what the log holds
    #[command(after_help = INSPECT_EXAMPLES)]
    Inspect(OfflineArguments),
}

#[derive(Args)]
struct FormatArguments {
    /// Size of the journal; 256M, or a sixteenth of a disk below 4 GiB, if not given
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    journal_size: Option<u64>,
    /// Put the journal on this device or image file, which is made a journal
    #[arg(long, value_name = "IMAGE|DEVICE")]
    log: Option<PathBuf>,
    /// Make logs all over the volume, one at the end of each group. They take 10 MiB in every
    /// 100 MiB, or what is given: log-size=SIZE,group-size=SIZE
    #[arg(long, value_name = "SIZES", num_args = 0..=1, require_equals = true,
          default_missing_value = "", value_parser = LogSizes::parse, conflicts_with = "log")]
    scattered_logs: Option<LogSizes>,
    /// Make a flush zone behind the journal, for a drive that ignores flushes (attach -o
    /// barrier=coerce). PROFILE is the file that okeanos fingerprint wrote for it, or the name of
    /// an emulated drive's profile (hitachi-7k80)
    #[arg(long, value_name = "PROFILE")]
    flush_zone: Option<PathBuf>,
    /// Profile of the journal's own device; as --flush-zone if not given
    #[arg(long, value_name = "PROFILE", requires = "log", requires = "flush_zone")]
    log_flush_zone: Option<PathBuf>,
    /// Take the profile even if it is of another drive, or the drive does not report its model
    #[arg(long)]
    force_profile: bool,
    /// Bytes of a block: 1024, 2048 or 4096
    #[arg(long, value_name = "BYTES", default_value = "4096", value_parser = parse_block_size)]
    block_size: units::BlockSize,
    /// Overwrite what is there already: on a device what blkid(8) or Okeanos knows, in a file
    /// anything at its start
    #[arg(short = 'F', long)]
    force: bool,
    /// An image file or block device
    #[arg(value_name = "IMAGE|DEVICE")]
    target: PathBuf,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Via {
    /// ublk where this kernel has it, else loop
    Auto,
    /// A block device of the kernel's ublk driver (Linux 6.5): requests reach okeanos directly,
    /// with FUA, discards and zeros
    Ublk,
    /// A loop device over a file that okeanos serves
    Loop,
    /// A block device of the kernel's NBD client (Linux 5.14): with FUA and discards. With
    /// --socket no block device, but a Unix socket for qemu and other NBD clients
    Nbd,
}

#[derive(Args)]
struct AttachArguments {
    /// Front end by which clients reach it
    #[arg(long, value_enum, default_value_t = Via::Auto)]
    via: Via,
    /// With --via nbd: the Unix socket to listen on, in place of a block device
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Options of mount that concern journal, write-back and cache, and ro, separated by commas;
    /// --help lists them
    #[arg(short = 'o', long, value_name = "OPTIONS", value_delimiter = ',',
          value_parser = OptionWords(table::words), hide_possible_values = true)]
    options: Vec<String>,
    /// Each write is durable when it is acknowledged; without it the disk has a volatile cache
    #[arg(long)]
    write_through: bool,
    /// Refuse all changes; what a crash left in the log is replayed before
    #[arg(long)]
    read_only: bool,
    /// The journal's device, of a volume that has one
    #[arg(long, value_name = "IMAGE|DEVICE")]
    log: Option<PathBuf>,
    /// Stay in the foreground; with --socket it always does
    #[arg(short, long)]
    foreground: bool,
    /// A block volume
    #[arg(value_name = "IMAGE|DEVICE")]
    source: PathBuf,
}

#[derive(Args)]
struct DetachArguments {
    /// Have I/O that waits for a daemon fail, also if the device is mounted or otherwise in use:
    /// for a volume that cannot be attached again. Unmount it then, and detach it once more
    #[arg(short, long)]
    force: bool,
    /// The volume, or the block device that it is attached as
    #[arg(value_name = "IMAGE|DEVICE")]
    device: PathBuf,
}

#[derive(Args)]
struct DrainArguments {
    /// The file system above was checked: clear the error that the journal records, of which check
    /// and attach warn
    #[arg(long)]
    clear_error: bool,
    #[command(flatten)]
    volume: OfflineArguments,
}

#[derive(Args)]
struct OfflineArguments {
    /// The journal's device, of a volume that has one
    #[arg(long, value_name = "IMAGE|DEVICE")]
    log: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// A block volume that is not attached
    #[arg(value_name = "IMAGE|DEVICE")]
    source: PathBuf,
}

#[derive(Args)]
struct GrowArguments {
    /// The journal's device, of a volume that has one and is not attached
    #[arg(long, value_name = "IMAGE|DEVICE")]
    log: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// A block volume, attached or not, or the block device that it is attached as
    #[arg(value_name = "IMAGE|DEVICE")]
    source: PathBuf,
}

fn parse_block_size(text: &str) -> Result<units::BlockSize, String> {
    let size = parse_size(text)?.try_into().ok().and_then(units::BlockSize::new);
    size.filter(|size| size.bytes() <= 4096).ok_or_else(|| "1024, 2048 or 4096".to_owned())
}

pub fn run(arguments: BlocksArguments) -> Result<(), CliError> {
    match arguments.command {
        BlocksCommand::Format(arguments) => {
            refuse_as_log(&arguments.target, arguments.log.as_deref())?;
            make::run(&arguments)
        }
        BlocksCommand::Attach(arguments) => {
            refuse_as_log(&arguments.source, arguments.log.as_deref())?;
            attach::run(arguments)
        }
        BlocksCommand::Detach(arguments) => detach::run(&arguments.device, arguments.force),
        BlocksCommand::Drain(arguments) => offline::drain(&arguments),
        BlocksCommand::Grow(arguments) => grow::run(&arguments),
        BlocksCommand::Inspect(arguments) => offline::inspect(&arguments),
    }
}

fn refuse_as_log(volume: &std::path::Path, log: Option<&std::path::Path>) -> Result<(), CliError> {
    log.map_or(Ok(()), |log| refuse_same(volume, log))
}

/// Converts an error of the volume; it names the disk itself where that matters.
fn failed(source: &std::path::Path, error: &blocks::BlocksError) -> CliError {
    if let blocks::BlocksError::Overwritten { disk, at } = error {
        return place::overwritten(std::path::Path::new(disk), *at);
    }
    if let blocks::BlocksError::NoVolume { disk, .. } = error {
        return place::no_block_volume(std::path::Path::new(disk));
    }
    let text = error.to_string();
    let name = source.display().to_string();
    CliError::new(if text.contains(&name) { text } else { format!("{name}: {text}") })
}

/// Whether a disk is a block volume, according to its superblock.
pub fn holds_volume(source: &std::path::Path) -> bool {
    matches!(volume_on(source), Ok(VolumeOnDisk::Found(_)))
}
