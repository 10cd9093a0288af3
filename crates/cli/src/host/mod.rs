//! `okeanos host`: a journal on this host in front of a shared store.

mod line;
mod mount;
mod options;
mod recover;
mod store;

use crate::error::CliError;
use crate::options::page::{OptionWords, help};
use clap::Subcommand;
use std::path::{Path, PathBuf};

const EXAMPLES: &str = "\
Examples:
  truncate -s 1G /var/lib/okeanos.journal
  okeanos host mount --store dir:/srv/shared --journal /var/lib/okeanos.journal /mnt/shared
  okeanos stats /mnt/shared                 dirty bytes: in memory alone, in the journal
  okeanos umount /mnt/shared                everything goes to the store
  okeanos host mount --store ceph: --user mail --journal /dev/nvme0n1p4 /mnt/mail
  okeanos host recover --dry-run --store dir:/srv/shared --journal /var/lib/okeanos.journal
  okeanos host recover --force --store dir:/mnt/nfs --journal /var/lib/okeanos.journal";

const MOUNT_EXAMPLES: &str = "\
Examples:
  okeanos host mount --store dir:/srv/shared --journal /var/lib/okeanos.journal /mnt/shared
A line of /etc/fstab:
  ceph:  /mnt/mail  fuse.okeanos-host  journal=/dev/nvme0n1p4,name=mail,allow_other,_netdev,nofail  0 0";

/// A journal on this host in front of a shared file system
///
/// What is synced is promised once it is in the journal, and goes to the store later; what others
/// want goes there at once. docs/modes/host_journal.md says what holds when.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct HostArguments {
    #[command(subcommand)]
    command: HostCommand,
}

#[derive(Subcommand)]
enum HostCommand {
    /// Mount a store with its journal; recovers first what a crash has left
    Mount(HostMountArguments),
    /// Bring what a crash has left in the journal to the store, as mounting does
    Recover(HostRecoverArguments),
}

#[derive(clap::Args)]
struct Where {
    /// The shared file system: dir:PATH, ceph:CONF, or ceph:CONF:/DIR for a directory of it
    #[arg(long, value_name = "KIND:PLACE")]
    store: String,
    /// ceph: the user, client.NAME without client.; admin if not given
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// ceph: the file system, where the cluster has several
    #[arg(long, value_name = "NAME")]
    file_system: Option<String>,
    /// ceph: the file with the user's key, if it is not where the configuration says
    #[arg(long, value_name = "FILE")]
    keyring: Option<PathBuf>,
    /// A file or block device of this host
    #[arg(long, value_name = "FILE|DEVICE")]
    journal: PathBuf,
}

/// Notes behind the long help of `mount`.
fn mount_notes() -> String {
    format!("{}\n{MOUNT_EXAMPLES}", help(options::SECTIONS, |_| true))
}

#[derive(clap::Args)]
#[command(after_long_help = mount_notes())]
struct HostMountArguments {
    #[command(flatten)]
    place: Where,
    /// Make a journal on the device though it does not begin with zeros. What is there already is
    /// named and kept, unless --force is given
    #[arg(long)]
    format: bool,
    /// With --format: overwrite the file system or partition table that is there already. Also:
    /// take a dir: store on a file system that is known to keep no locks and change times that
    /// hosts agree on
    #[arg(short = 'F', long)]
    force: bool,
    /// Stay in the foreground, and report errors there
    #[arg(long, short)]
    foreground: bool,
    /// Mount options, separated by commas; --help lists them
    #[arg(short, value_name = "OPTIONS", value_delimiter = ',',
          value_parser = OptionWords(options::words), hide_possible_values = true)]
    options: Vec<String>,
    /// Directory to mount on
    directory: PathBuf,
}

#[derive(clap::Args)]
struct HostRecoverArguments {
    #[command(flatten)]
    place: Where,
    /// Only report what would be replayed
    #[arg(long)]
    dry_run: bool,
    /// Take a dir: store on a file system that is known to keep no locks and change times that
    /// hosts agree on
    #[arg(short = 'F', long)]
    force: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Mounts what a line of fstab(5) says.
pub fn mount_line(source: &Path, directory: PathBuf, options: Vec<String>) -> Result<(), CliError> {
    mount::run(line::arguments(source, directory, options)?)
}

pub fn run(arguments: HostArguments) -> Result<(), CliError> {
    match arguments.command {
        HostCommand::Mount(arguments) => mount::run(arguments),
        HostCommand::Recover(arguments) => recover::run(arguments),
    }
}
