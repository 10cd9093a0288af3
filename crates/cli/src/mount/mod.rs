//! `okeanos mount`: checks what can be checked beforehand, goes into the background, and serves the
//! volume.

mod changing;
pub mod helper;
pub mod loop_device;
pub mod options;
mod parse;
mod remount;
pub mod run_table;
mod serve;
pub mod umount;
mod users;
mod words;

use crate::daemon::mount_table::{self, Mount};
use crate::daemon::mounted::{is_mounted, kept_open, refuse_dead};
use crate::daemon::reporter::{self, Level};
use crate::daemon::{self, Side, StartNotifier};
use crate::error::CliError;
use format::ext4::superblock::{SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE};
use format::ext4::{VolumeSuperblock, feature};
use options::MountSettings;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Mount a volume
///
/// IMAGE|DEVICE holds an ext4 or ext3 volume, as mke2fs or okeanos mkfs make it. An image file gets
/// a loop device. A volume that was not unmounted is recovered first. Returns when the volume is
/// mounted; a daemon goes on in the background.
///
/// Root mounts for everybody (permissions are checked as on any file system). An ordinary user
/// mounts an image file for himself, with the help of fusermount3.
#[derive(clap::Args, Clone)]
#[command(after_long_help = OPTIONS)]
pub struct MountArguments {
    /// Stay in the foreground, and report errors there
    #[arg(short, long)]
    pub foreground: bool,
    /// Report more: what is done; with -f, each request as well
    #[arg(short, long)]
    pub verbose: bool,
    /// Pass over mount options that are not known
    #[arg(short, long)]
    pub sloppy: bool,
    /// Mount options, separated by commas
    #[arg(short, value_name = "OPTIONS", value_delimiter = ',')]
    pub options: Vec<String>,
    /// An image file or block device; of a remount the directory is enough
    #[arg(value_name = "IMAGE|DEVICE")]
    pub source: PathBuf,
    /// Where to mount it
    #[arg(value_name = "DIR")]
    pub directory: Option<PathBuf>,
}

const OPTIONS: &str = "\
Mount options:
  data=MODE            what the journal holds of file data:
                         writeback   nothing; after a crash, files may hold old bytes
                         ordered     nothing, but data is home before its commit (default on
                                     a volume without a journal)
                         journal     every changed block
                         wasteless   the changed bytes, many writes packed into one block
                         selective   the changed bytes of small requests; large ones as ordered
                                     (default, with threshold=auto)
                         adaptive    the blocks of small or random requests; others as ordered
  threshold=SIZE|auto  selective: a request is small below SIZE, or below what the times of log and
                       home writes say (default: auto; with data=selective a block)
  logged_write_size=SIZE
                       adaptive: a random request is logged up to SIZE (default 32K)
  threshold_per=request|block
                       what is small: the request (default), or what it changes of each block
  order_overwrites     what bypasses the log waits for no commit where it overwrites what the file
                       had, as in ext4; with this it goes home before the commit, as in ext3
  barrier=flush|none|coerce
                       none only where a disk keeps its cache over a power cut; coerce for drives
                       that ignore flushes: needs a flush zone (okeanos mkfs --flush-zone)
  commit=TIME          a change is durable after TIME at the latest (default 5 s)
  writeback=TIME       how often old changed blocks are looked for (default 5 s)
  expire=TIME          how old they are to be written home (default 30 s)
  checkpoint=periodic:S|idle:S|off-hours:HH-HH|manual
                       when what the journal holds goes home, in place of expire=: everything each
                       S seconds; when the disk was idle for S seconds; between two hours of the day
                       (local time, as in 22-6); or when okeanos checkpoint says so. And in any case
                       when journal or cache are short, and at unmount
  swap_above=PERCENT|off
                       log=scattered: in idle time a log that is fuller than PERCENT moves to a cold
                       one far from where the disk works (default 80)
  mtl=PATH             log=scattered: a file or device on memory that survives a power cut. It holds a
                       table of where the log's transactions lie, written before they are. After a
                       crash the next mount with the same PATH reads it instead of searching the
                       logs. What does not fit is not believed (8 MiB; a file is made if need be)
  durable_only[=NAME:DIRECTORY/*]
                       files of which durability is enough, as a database's log: those with the
                       attribute user.okeanos.durability=only, on them or on a directory above them,
                       those of these names, as in *.wal:*/journal/*, and those of which a program
                       says so with an ioctl (docs/MOUNT_OPTIONS.md). Their data goes to the journal
                       in every mode, and home only if that or the cache is full, or at unmount
  cache=SIZE           memory for blocks: every version of them that is kept, what a commit makes
                       of them, and what goes with it (default 256M). At most 96M come on top: 64M
                       for requests, 32M for the program; with transport=uring another 128M
  journal_dev=DEVICE   the journal, where the volume has an external one
  [no]journal_checksum (default on)
  [no]transaction_checksum
                       a checksum over each transaction in every mode: a commit needs one
                       barrier less, but after a crash okeanos alone can replay the journal,
                       as always with wasteless and selective (default off)
  records=blocks|packed
                       how transactions are written: JBD2's blocks and multiwrite blocks, or one
                       run of the bytes that changed, of metadata as well; after a crash okeanos
                       alone can replay a packed journal (default: packed with wasteless and
                       selective, whose journal others cannot replay anyway; else blocks)
  log_unit=SIZE        of packed journals: what the disk writes as one, 512 up to a block (default:
                       the disk's physical sector)
  log_gap=auto|off|SIZE
                       of packed journals: what lies free between a commit and the one before it, so
                       that a disk that turns need not wait for a revolution (default auto: learnt
                       from how long commits take, and none where they do not wait)
  commits_in_flight=1|2
                       whether a commit may set out while the one before is on its way; two only
                       with packed journals (default 1)
  log=circular|scattered
                       where the log lies: in the journal (default), or in the scattered logs of the
                       volume, near where its disk works (okeanos mkfs --scattered-logs); after a
                       crash okeanos alone can replay those
  transport=auto|uring|classic
                       how requests come from the kernel; uring needs fuse.enable_uring=1
  poll=auto|off|US     how long the daemon stays awake for the next request, in microseconds,
                       while requests come so fast that it pays (default auto: 150)
  [no]keep_awake       meanwhile idle processors of others stay as quick to wake (default on)
  readahead=SIZE       how far the kernel reads ahead of a sequential reader (default 4M; an
                       ordinary user's mount keeps the kernel's own, 128K)
  log_level=error|warning|info|debug
                       what the daemon tells the system's log, or with -f standard error (default info,
                       with -f warning; debug tells of each request, as -f -v does)
  log_file=FILE        where it tells it instead; with local times
  errors=continue|remount-ro
                       what happens when damage is found; remount-ro writes nothing any more
                       (default: as the superblock says, tune2fs -e)
  [no]grpid            new files get their directory's group
  noopen               files are opened without asking the daemon: one request less for each file
                       that is read; O_SYNC and O_DSYNC of files that were there are two requests then,
                       a write and a sync
  nouser_xattr, noacl  as in ext4: no attributes user.*; modes alone decide, and access control
                       lists on the disk count for nothing
  noxattr              no extended attributes at all, file capabilities included; the kernel no longer
                       asks for them
  noload, norecovery   with ro: the volume as it is at home, without replaying its journal
  remount              change ro, rw, commit, barrier, errors, noatime, nosuid and the like of what
                       is mounted
  noloop               mount the image file itself, as plain fuse: then sync(2) does not
                       reach the volume, and umount(8) does not wait for it
  [no]allow_other      whether others than the mounting user may look in, as far as the files'
                       modes let them (default: they may not, not even where root mounts)
  ro, noatime, relatime, strictatime, nosuid, nodev, noexec, sync, dirsync
                       as for every file system

Those of ext4 that tune it or are always so (delalloc, iversion and others) are taken and
change nothing: docs/MOUNT_OPTIONS.md. Defaults of the superblock (tune2fs -o, -E mount_opts)
count where nothing else is said. K, M, G and T are binary; kB, MB, GB and TB decimal.

Examples:
  okeanos mount disk.img /mnt/a
  okeanos mount -o remount,ro /mnt/a
  mount -t fuse.okeanos -o allow_other,noatime /dev/sdb1 /mnt/a
  /dev/sdb1 /mnt/a fuse.okeanos allow_other,nofail 0 0    a line of /etc/fstab";

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

pub fn run(arguments: MountArguments) -> Result<(), CliError> {
    let asked = MountSettings::parse(&arguments.options, arguments.sloppy)?;
    if asked.remount {
        let directory = arguments.directory.as_ref().unwrap_or(&arguments.source);
        return remount::run(directory, &arguments.options, arguments.sloppy);
    }
    let Some(directory) = arguments.directory.as_deref() else {
        let source = arguments.source.display();
        return Err(CliError::new(format!("where is {source} to be mounted?")).with_remedy(
            format!("Name a directory: okeanos mount {source} DIR. What is mounted: okeanos list."),
        ));
    };
    let superblock = look_at(&arguments.source);
    let base = superblock.as_ref().map(MountSettings::of_superblock).unwrap_or_default();
    let settings = MountSettings::parse_onto(base, &arguments.options, arguments.sloppy)?;
    settings
        .warnings()
        .iter()
        .for_each(|warning| reporter::complain(&format!("okeanos: warning: {warning}")));
    let has =
        |feature| superblock.as_ref().is_some_and(|superblock| superblock.features.has(feature));
    let plan = MountPlan::check(&arguments, directory, settings, has(feature::RECOVER))?;
    let without_journal = superblock.is_some() && !has(feature::HAS_JOURNAL);
    if without_journal && !plan.settings.read_only && !plan.is_claimed_from_kernel() {
        let source = plan.source.display();
        reporter::complain(&format!(
            "okeanos: warning: {source} has no journal and no loop device: nothing keeps the kernel from mounting it, too"
        ));
    }
    if arguments.foreground {
        return serve::serve(plan, StartNotifier::foreground());
    }
    match daemon::detach()? {
        Side::Starter(starter) => starter.wait(),
        Side::Daemon(notifier) => serve::serve(plan, notifier),
    }
}

/// Returns the current superblock, before anything is claimed; opening the volume reads it again.
/// `None`: opening will report what is wrong.
pub fn look_at(source: &Path) -> Option<VolumeSuperblock> {
    let mut bytes = [0; SUPERBLOCK_SIZE];
    File::open(source).ok()?.read_exact_at(&mut bytes, SUPERBLOCK_OFFSET).ok()?;
    VolumeSuperblock::parse(&bytes).ok()
}

impl MountPlan {
    /// Whether it is a device, or will get a loop device.
    fn is_claimed_from_kernel(&self) -> bool {
        self.is_block_device || self.is_root && self.settings.loop_device
    }

    fn check(
        arguments: &MountArguments,
        directory: &Path,
        settings: MountSettings,
        needs_replay: bool,
    ) -> Result<MountPlan, CliError> {
        let source = arguments.source.as_path();
        let mounts = mount_table::mounts()
            .map_err(|error| CliError::system("/proc/self/mountinfo", error))?;
        let at = mount_table::resolve(directory).map_err(|error| no_directory(directory, error))?;
        refuse_dead(mounts.iter().rfind(|mount| mount.directory == at))?;
        if !at.is_dir() {
            return Err(CliError::new(format!("{} is not a directory", at.display())));
        }
        let from =
            source.canonicalize().map_err(|error| CliError::system(source.display(), error))?;
        let metadata = from.metadata().map_err(|error| CliError::system(from.display(), error))?;
        let is_block_device = metadata.file_type().is_block_device();
        if is_block_device {
            let device = (libc::major(metadata.rdev()), libc::minor(metadata.rdev()));
            refuse_mounted(&mounts, device, &from)?;
        } else {
            refuse_attached(&mounts, &from)?;
        }
        // SAFETY: geteuid has no preconditions.
        let is_root = unsafe { libc::geteuid() } == 0;
        if let Some(mount) = mounts.iter().rfind(|mount| mount.directory == at).filter(|_| !is_root)
        {
            // fusermount3 does not look below a mount.
            return Err(is_mounted(mount, &mount.image()));
        }
        let words = arguments.options.clone();
        let level = settings.log_level.unwrap_or(match (arguments.verbose, arguments.foreground) {
            (true, true) => Level::Debug,
            (false, true) => Level::Warning,
            (_, false) => Level::Info,
        });
        let log_file = settings.log_file.as_deref().map(std::path::absolute).transpose();
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

fn no_directory(directory: &Path, error: io::Error) -> CliError {
    let is_missing = error.kind() == io::ErrorKind::NotFound;
    let error = CliError::system(directory.display(), error);
    if is_missing {
        error.with_remedy(format!("Make it: mkdir -p {}.", directory.display()))
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
