//! `okeanos mount`: checks what can be checked beforehand, goes into the background, and serves the
//! volume.

mod changing;
pub mod loop_device;
pub mod options;
mod parse;
pub mod remount;
pub mod renew;
pub mod run_table;
mod serve;
pub mod table;
pub mod umount;
mod users;
pub mod words;

use crate::daemon::mount_table::{self, Mount};
use crate::daemon::mounted::{is_mounted, kept_open, stopped_user_of};
use crate::daemon::reporter::{self, Level};
use crate::daemon::{self, Side, StartNotifier};
use crate::disk::content::refuse_own_format;
use crate::disk::open_disk::refuse_same;
use crate::error::CliError;
use crate::look::{has_no_journal, refuse_no_disk, superblock_of};
use crate::options::page::{OptionWords, help};
use crate::text::shell::word;
use format::ext4::feature;
use options::MountSettings;
use rustix::process::geteuid;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Mount a volume
///
/// IMAGE|DEVICE holds an ext4 or ext3 volume, as mke2fs or okeanos mkfs make it. An image file gets
/// a loop device. A volume that was not unmounted is recovered first. Returns when the volume is
/// mounted; a daemon goes on in the background.
///
/// The user who mounts has access, and with -o allow_other everybody, as far as the files' modes
/// let them; without it not even root's mount lets others in. An ordinary user mounts an image file
/// with the help of fusermount3.
#[derive(clap::Args, Clone)]
#[command(after_long_help = notes())]
pub struct MountArguments {
    /// Stay in the foreground, and report errors there
    #[arg(short, long)]
    pub foreground: bool,
    /// Say where the daemon reports; with -f, report each request here
    #[arg(short, long)]
    pub verbose: bool,
    /// Mount read-only, as with -o ro
    #[arg(short, long)]
    pub read_only: bool,
    /// Pass over mount options that are not known
    #[arg(short, long)]
    pub sloppy: bool,
    /// Mount options, separated by commas
    #[arg(short, value_name = "OPTIONS", value_delimiter = ',',
          value_parser = OptionWords(table::words), hide_possible_values = true)]
    pub options: Vec<String>,
    /// An image file or block device; of a remount the directory is enough
    #[arg(value_name = "IMAGE|DEVICE")]
    pub source: PathBuf,
    /// Directory to mount it on
    #[arg(value_name = "DIR")]
    pub directory: Option<PathBuf>,
}

/// Notes after the options of the table.
const NOTES: &str = "\
Home is the final place of a block in the volume; until it is written home, the journal has it.
Those of ext4 that tune it or are always so (delalloc, iversion and others) are taken and
change nothing: docs/MOUNT_OPTIONS.md. Defaults of the superblock (tune2fs -o, -E mount_opts)
count where nothing else is said. K, M, G and T are binary; kB, MB, GB and TB decimal.

Examples:
  okeanos mount disk.img /mnt/a                 for the user who mounts
  okeanos mount -o allow_other disk.img /mnt/a  for everybody
  okeanos mount -o remount,ro /mnt/a
  mount -t fuse.okeanos -o allow_other,noatime /dev/sdb1 /mnt/a
  /dev/sdb1 /mnt/a fuse.okeanos allow_other,nofail 0 0    a line of /etc/fstab";

fn notes() -> String {
    format!("{}\n{NOTES}", help(table::SECTIONS, |_| true))
}

/// Plan of a mount, checked as far as possible without opening the volume.
pub struct MountPlan {
    /// Options behind `-o`.
    pub words: Vec<String>,
    pub level: Level,
    /// Log file, opened before the daemon leaves its directory.
    pub log_file: Option<PathBuf>,
    /// Whether the volume was not unmounted, according to its superblock.
    pub needs_replay: bool,
    /// Absolute path, without links.
    pub source: PathBuf,
    pub directory: PathBuf,
    pub is_block_device: bool,
    pub is_root: bool,
    pub settings: MountSettings,
}

pub fn run(mut arguments: MountArguments) -> Result<(), CliError> {
    if arguments.read_only {
        arguments.options.push("ro".into());
    }
    let asked = MountSettings::parse(&arguments.options, arguments.sloppy)?;
    if asked.remount {
        let (source, directory) = match &arguments.directory {
            Some(directory) => (Some(arguments.source.as_path()), directory),
            None => (None, &arguments.source),
        };
        return remount::run(source, directory, &arguments.options, arguments.sloppy);
    }
    let Some(directory) = arguments.directory.as_deref() else {
        let (source, named) = (arguments.source.display(), word(&arguments.source));
        return Err(CliError::new(format!("where is {source} to be mounted?")).with_remedy(
            format!("Name a directory: okeanos mount {named} DIR. What is mounted: okeanos list."),
        ));
    };
    refuse_no_disk(&arguments.source)?;
    let superblock = superblock_of(&arguments.source);
    if superblock.is_none() {
        refuse_own_format(&arguments.source)?;
    }
    let base = superblock.as_ref().map(MountSettings::of_superblock).unwrap_or_default();
    let settings = MountSettings::parse_onto(base, &arguments.options, arguments.sloppy)?;
    let remedy = "Mount with -o log=scattered, or leave mtl= out.";
    settings.check_run_table(settings.engine.log, remedy)?;
    settings
        .warnings()
        .iter()
        .for_each(|warning| reporter::complain(&format!("okeanos: warning: {warning}")));
    let has =
        |feature| superblock.as_ref().is_some_and(|superblock| superblock.features.has(feature));
    let plan = MountPlan::check(&arguments, directory, settings, has(feature::RECOVER))?;
    if has_no_journal(&plan.source) && !plan.settings.session.read_only {
        warn_of_no_journal(&plan);
    }
    if arguments.foreground {
        return serve::serve(plan, StartNotifier::foreground());
    }
    if arguments.verbose {
        let log = plan.log_file.as_ref().map(|path| path.display().to_string());
        let log = log.unwrap_or_else(|| "the system's log".into());
        reporter::complain(&format!("okeanos: the daemon reports to {log}; with -f, here"));
    }
    match daemon::detach()? {
        Side::Starter(starter) => starter.wait(),
        Side::Daemon(notifier) => serve::serve(plan, notifier),
    }
}

fn warn_of_no_journal(plan: &MountPlan) {
    let source = plan.source.display();
    // Of a mode that logs data the daemon warns.
    if !plan.settings.logs_data_by_name() {
        reporter::complain(&format!(
            "okeanos: warning: {source} has no journal: after a crash run e2fsck -f; what was \
             synced may be missing then"
        ));
    }
    if !plan.is_claimed_from_kernel() {
        reporter::complain(&format!(
            "okeanos: warning: {source} has no loop device, either: nothing keeps the kernel from \
             mounting it, too"
        ));
    }
}

impl MountPlan {
    /// Whether it is a device, or will get a loop device.
    fn is_claimed_from_kernel(&self) -> bool {
        self.is_block_device || self.is_root && self.settings.daemon.loop_device
    }

    fn check(
        arguments: &MountArguments,
        directory: &Path,
        settings: MountSettings,
        needs_replay: bool,
    ) -> Result<MountPlan, CliError> {
        let source = arguments.source.as_path();
        let at = mount_table::resolve(directory).map_err(|error| no_directory(directory, error))?;
        let from =
            source.canonicalize().map_err(|error| CliError::system(source.display(), error))?;
        renew::take_dead_away(&at, &from)?;
        let mounts = mount_table::mounts()
            .map_err(|error| CliError::system("/proc/self/mountinfo", error))?;
        refuse_no_directory(&at, &mounts)?;
        let metadata = from.metadata().map_err(|error| CliError::system(from.display(), error))?;
        let is_block_device = metadata.file_type().is_block_device();
        if is_block_device {
            let device = (libc::major(metadata.rdev()), libc::minor(metadata.rdev()));
            refuse_mounted(&mounts, device, &from)?;
        } else {
            refuse_attached(&mounts, &from)?;
        }
        settings.journal.device.as_deref().map_or(Ok(()), |journal| refuse_same(&from, journal))?;
        let is_root = geteuid().is_root();
        if let Some(mount) = mounts.iter().rfind(|mount| mount.directory == at).filter(|_| !is_root)
        {
            // fusermount3 does not look below a mount.
            return Err(is_mounted(mount, &mount.image()));
        }
        let words = arguments.options.clone();
        let level =
            settings.daemon.log_level.unwrap_or(match (arguments.verbose, arguments.foreground) {
                (true, true) => Level::Debug,
                (false, true) => Level::Warning,
                (_, false) => Level::Info,
            });
        let log_file = settings.daemon.log_file.as_deref().map(std::path::absolute).transpose();
        let log_file = log_file.map_err(|error| CliError::system("log_file", error))?;
        Ok(MountPlan {
            words,
            level,
            log_file,
            needs_replay,
            source: from,
            directory: at,
            is_block_device,
            is_root,
            settings,
        })
    }
}

/// Refuses a file, and a directory that this user may not look at: root of a user's mount.
fn refuse_no_directory(at: &Path, mounts: &[Mount]) -> Result<(), CliError> {
    let name = at.display();
    match at.metadata() {
        Ok(found) if found.is_dir() => Ok(()),
        Ok(_) => Err(CliError::new(format!("{name} is not a directory"))),
        Err(error) => match mounts.iter().rfind(|mount| mount.directory == at) {
            Some(mount) if error.kind() == io::ErrorKind::PermissionDenied => {
                Err(is_mounted(mount, &mount.image()))
            }
            _ => Err(CliError::system(name, error)),
        },
    }
}

fn no_directory(directory: &Path, error: io::Error) -> CliError {
    let is_missing = error.kind() == io::ErrorKind::NotFound;
    let error = CliError::system(directory.display(), error);
    if is_missing {
        error.with_remedy(format!("Make it: mkdir -p {}.", word(directory)))
    } else {
        error
    }
}

fn refuse_mounted(mounts: &[Mount], device: (u32, u32), source: &Path) -> Result<(), CliError> {
    let mount = mounts.iter().find(|mount| mount.device == device);
    mount.map_or(Ok(()), |mount| Err(is_mounted(mount, source)))
}

/// Refuses an image with a loop device on it: mounted, or left behind.
fn refuse_attached(mounts: &[Mount], image: &Path) -> Result<(), CliError> {
    /// Attempts, as the kernel detaches a loop device a moment after its last user.
    const PATIENCE: u32 = 20;
    for attempt in 0.. {
        let found = loop_device::device_on(image);
        let Some(device) = found.map_err(|error| CliError::system(image.display(), error))? else {
            return Ok(());
        };
        if let Some(mount) = mounts.iter().find(|mount| mount.source == device) {
            refuse_mounted(mounts, mount.device, image)?;
        }
        if attempt == PATIENCE {
            if let Some(by) = stopped_user_of(image) {
                return Err(CliError::new(format!("{} is in use: {by}", image.display())));
            }
            let name = device.display();
            let error = CliError::new(format!("{} is in use by {name}", image.display()));
            let error = error
                .with_remedy(format!("Mount {name} instead, or detach it: losetup -d {name}."));
            return Err(kept_open(error, &device, image));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    unreachable!("patience ends")
}
