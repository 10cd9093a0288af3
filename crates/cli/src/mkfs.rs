//! `okeanos mkfs`: mke2fs with the options that suit Okeanos, image files, and external journals.

use crate::daemon::file_size::{refuse_beyond_limit, refuse_longer_than_limit};
use crate::daemon::reporter::complain;
use crate::disk::coerce::{COPY_LATER, ZonePlan};
use crate::disk::content::refuse_to_overwrite;
use crate::disk::open_disk::{claim, open_disk, refuse_same};
use crate::error::CliError;
use crate::look::{refuse_no_disk, superblock_of};
use crate::mke2fs_options::Mke2fsOptions;
use crate::programs::{self, TemporaryLoop};
use crate::text::output::print;
use crate::text::quantity::{exact_size, format_size, parse_size};
use crate::text::shell::word;
use device::{Disk, World};
use disks::{Claim, DiskAccess};
use format::ext4::feature;
use runtime::RealWorld;
use rustix::process::{getegid, geteuid};
use std::ffi::OsString;
use std::fs::OpenOptions;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;
use units::Refusal;

const EXAMPLES: &str = "\
Examples:
  okeanos mkfs disk.img 1G                             an image file that takes space only as it fills
  okeanos mkfs --journal-size 256M /dev/sdb1           a large journal inside the volume
  okeanos mkfs --journal-device /dev/sdc1 /dev/sdb1    the journal on a disk of its own
  okeanos mkfs --journal-device log.img --journal-size 64M disk.img 1G
  okeanos mkfs --scattered-logs disk.img 4G            for synchronous writes beside long reads on a disk with an arm
  okeanos mkfs --flush-zone drive.profile /dev/sdb1    for a drive that ignores flushes
  okeanos mkfs disk.img 1G -- -b 1024 -L mail          more for mke2fs: block size, label

What is there already is named and kept, unless --force is given: on a device what blkid(8) or Okeanos knows,
in a file anything at its start. The root directory belongs to the user who makes the volume; where root does,
to root.";

/// Make a volume in an image file or on a block device
///
/// Calls mke2fs: the result is an ext4 volume that any Linux mounts, too.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct MkfsArguments {
    /// Size of the journal; mke2fs chooses if not given
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    journal_size: Option<u64>,
    /// Put the journal on this device or image file, which is made a journal first
    #[arg(long, value_name = "IMAGE|DEVICE")]
    journal_device: Option<PathBuf>,
    /// Make a flush zone behind the journal, for a drive that ignores flushes (mount -o
    /// barrier=coerce). PROFILE is the file that okeanos fingerprint wrote for it, or the name of
    /// an emulated drive's profile (hitachi-7k80)
    #[arg(long, value_name = "PROFILE")]
    flush_zone: Option<PathBuf>,
    /// Profile of the journal's own device; as --flush-zone if not given
    #[arg(long, value_name = "PROFILE", requires = "journal_device", requires = "flush_zone")]
    journal_flush_zone: Option<PathBuf>,
    /// Take the profile even if it is of another drive, or the drive does not report its model
    #[arg(long)]
    force_profile: bool,
    /// Make logs all over the volume (mount -o log=scattered), one at the end of each group. They
    /// take 10 MiB in every 100 MiB, or what is given: log-size=SIZE,group-size=SIZE
    #[arg(long, value_name = "SIZES", num_args = 0..=1, require_equals = true,
          default_missing_value = "", value_parser = LogSizes::parse)]
    scattered_logs: Option<LogSizes>,
    /// Overwrite what is there already
    #[arg(short = 'F', long)]
    force: bool,
    /// An image file or block device
    #[arg(value_name = "IMAGE|DEVICE")]
    target: PathBuf,
    /// Size of an image file that does not exist yet
    #[arg(value_parser = parse_size)]
    size: Option<u64>,
    /// More arguments for mke2fs
    #[arg(last = true, value_name = "MKE2FS ARGUMENTS")]
    extra: Vec<OsString>,
}

/// Block size of volumes with an external journal or scattered logs, unless `-b` says otherwise. An
/// external journal and its volume must agree, and the groups must be as long as a log.
const BLOCK_SIZE: &str = "4096";
const BLOCK_BYTES: u64 = 4096;

/// Bytes below which mke2fs makes no volume, whatever its options.
const SIZE_MIN: u64 = 32 << 10;

/// Bytes of an external journal whose image has to be made: the paper's default.
const EXTERNAL_JOURNAL_SIZE: u64 = 128 << 20;

pub fn run(arguments: MkfsArguments) -> Result<(), CliError> {
    let MkfsArguments { journal_size, journal_device, target, size, extra, .. } = &arguments;
    let (target, journal) = (target.as_path(), journal_device.as_deref());
    if arguments.scattered_logs.is_some() {
        refuse_scattered_logs(target, journal, extra)?;
    }
    refuse_trial(&arguments)?;
    let of_internal = internal_journal(journal_size.filter(|_| journal.is_none()))?;
    crate::daemon::mounted::refuse_if_its_daemon_died(target)?;
    let of_journal = arguments.journal_flush_zone.as_ref().or(arguments.flush_zone.as_ref());
    let zones = ZonePlan::new(
        arguments.flush_zone.as_deref().map(|profile| (profile, target)),
        of_journal.map(PathBuf::as_path).zip(journal),
        arguments.force_profile,
    )?;
    let options = Mke2fsOptions::of(extra);
    let force = arguments.force || options.has('F');
    journal.map_or(Ok(()), |journal| refuse_journal(target, journal, force))?;
    let (made, mut held) = prepare(target, *size)?;
    if !made {
        // The check takes the same locks.
        drop(held);
        check_unused(target)?;
        held = claim(target)?;
        // Behind the claim: another command may have made something while this one waited.
        if !force {
            refuse_to_overwrite(target, false, "okeanos mkfs --force")?;
        }
    }
    let is_trial = options.is_trial();
    let owner = maker().filter(|_| !names_owner(&options));
    let mut extra = with_defaults(extra, force, owner);
    if arguments.scattered_logs.is_some() && !options.has('b') {
        // mke2fs gives small volumes blocks of 1 KiB, in whose groups a log of 10 MiB does not fit.
        extra.extend(["-b".into(), BLOCK_SIZE.into()]);
    }
    let extra = &extra;
    let fits = match is_trial {
        true => Ok(()),
        false => refuse_what_does_not_fit(&arguments, &of_internal, extra, zones.home_room()),
    };
    let result = fits.and_then(|()| match journal {
        None => make(target, of_internal.clone(), extra),
        Some(journal) => {
            make_with_external_journal(target, journal, *journal_size, zones.journal_room(), extra)
        }
    });
    // Programs that walk over the volume of an ordinary user would complain of a directory of
    // root's.
    let owner = owner.filter(|_| !is_trial);
    let give = |(user, group)| programs::give_file(target, "/lost+found", user, group);
    let result = result.and_then(|()| owner.map_or(Ok(()), give));
    if result.is_err() || is_trial {
        if made {
            remove_image(target, held);
        }
        return result;
    }
    // These open the disk themselves.
    drop(held);
    let result = zones.make(target, journal);
    let result =
        result.and_then(|()| arguments.scattered_logs.map_or(Ok(()), |sizes| sizes.make(target)));
    if result.is_err() && made {
        remove_unless_used(target);
    }
    result?;
    print_next_step(&arguments, extra)
}

/// Refuses the volume itself as its journal; and content there, unless `force`.
fn refuse_journal(target: &Path, journal: &Path, force: bool) -> Result<(), CliError> {
    refuse_same(target, journal)?;
    match journal.exists() {
        true => refuse_to_overwrite(journal, force, "okeanos mkfs --force … --journal-device"),
        false => Ok(()),
    }
}

/// Refuses, before anything is overwritten, a volume that is too small for a journal, for the
/// requested logs, or for a flush zone. A trial of mke2fs shows what it would make.
fn refuse_what_does_not_fit(
    arguments: &MkfsArguments,
    of_internal: &[OsString],
    extra: &[OsString],
    zone_bytes: u64,
) -> Result<(), CliError> {
    let target = arguments.target.as_path();
    let mut trial = vec![OsString::from("-n"), "-F".into()];
    trial.extend(arguments_for_mke2fs(target, of_internal.to_vec(), extra));
    let output = Command::new(programs::find("mke2fs")?).env("LC_ALL", "C").args(trial).output();
    let output = output.map_err(|error| CliError::system("mke2fs", error))?;
    let name = target.display();
    let has_none = Mke2fsOptions::of(extra).value('O').is_some_and(|features| {
        features.to_string_lossy().split(',').any(|it| it == "^has_journal" || it == "none")
    });
    let is_too_small = String::from_utf8_lossy(&output.stderr).contains("too small for a journal");
    if is_too_small && !has_none && arguments.journal_device.is_none() {
        return Err(CliError::new(format!("{name} is too small for a journal")).with_remedy(
            "Make it larger (8 MiB are enough). Without a journal a crash may lose what was \
             synced: -- -O ^has_journal.",
        ));
    }
    let Some((blocks, block)) = counted_by(&String::from_utf8_lossy(&output.stdout)) else {
        // mke2fs refuses, and says why.
        return Ok(());
    };
    if zone_bytes >= blocks * block {
        return Err(CliError::new(format!(
            "{name}: the flush zone needs {}, and the volume has {}",
            format_size(zone_bytes),
            format_size(blocks * block)
        ))
        .with_remedy("Make the volume larger, or its journal smaller (--journal-size)."));
    }
    arguments.scattered_logs.map_or(Ok(()), |sizes| sizes.check(target, blocks, block))
}

/// Returns the blocks of a volume, and the bytes of each, from what a trial of mke2fs prints:
/// `Creating filesystem with 1024 4k blocks and 128 inodes`.
fn counted_by(printed: &str) -> Option<(u64, u64)> {
    let line = printed.lines().find_map(|line| line.strip_prefix("Creating filesystem with "))?;
    let mut words = line.split(' ');
    let blocks = words.next()?.parse().ok()?;
    let block: u64 = words.next()?.strip_suffix('k')?.parse().ok()?;
    Some((blocks, block << 10))
}

/// Removes an image that this program has made, and nobody can have used since: it would be in the
/// way of the next attempt.
fn remove_image(target: &Path, held: Claim) {
    let _ = std::fs::remove_file(target);
    drop(held);
}

/// Removes an image as [`remove_image`] does, unless another process has it, or has mounted it
/// while nobody had it claimed.
fn remove_unless_used(target: &Path) {
    let is_new = || superblock_of(target).is_none_or(|found| found.last_mounted[0] == 0);
    match claim(target) {
        Ok(held) if is_new() => remove_image(target, held),
        _ => {}
    }
}

/// Prints how the new volume is mounted.
fn print_next_step(arguments: &MkfsArguments, extra: &[OsString]) -> Result<(), CliError> {
    let (target, journal) = (&arguments.target, arguments.journal_device.as_deref());
    let mut options = Vec::new();
    options.extend(journal.map(|journal| format!("journal_dev={}", word(journal))));
    options.extend(arguments.scattered_logs.is_some().then(|| "log=scattered".to_string()));
    options.extend(arguments.flush_zone.is_some().then(|| "barrier=coerce".to_string()));
    if has_long_blocks(&Mke2fsOptions::of(extra)) {
        print(
            &"Okeanos mounts blocks longer than 4096 bytes everywhere; most kernels' own ext4 does \
              not.\n",
        )?;
    }
    let options =
        if options.is_empty() { String::new() } else { format!(" -o {}", options.join(",")) };
    print(&format_args!("Mount it with: okeanos mount{options} {} DIR\n", word(target)))
}

/// Refuses mke2fs's trial where more than mke2fs makes is asked for.
fn refuse_trial(arguments: &MkfsArguments) -> Result<(), CliError> {
    let MkfsArguments { journal_device, scattered_logs, flush_zone, extra, .. } = arguments;
    let wants_more = journal_device.is_some() || scattered_logs.is_some() || flush_zone.is_some();
    if !wants_more || !Mke2fsOptions::of(extra).is_trial() {
        return Ok(());
    }
    Err(CliError::new("-n or -V has mke2fs make nothing, and more than mke2fs makes is asked for")
        .with_remedy(
            "Leave out -n and -V, or --journal-device, --scattered-logs and --flush-zone.",
        ))
}

/// Sizes of the requested scattered logs, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogSizes {
    pub log: u64,
    pub group: u64,
}

impl LogSizes {
    /// Sizes in the Manylogs paper.
    const DEFAULT: LogSizes = LogSizes { log: 10 << 20, group: 100 << 20 };

    pub fn parse(text: &str) -> Result<LogSizes, String> {
        let mut sizes = LogSizes::DEFAULT;
        for word in text.split(',').filter(|word| !word.is_empty()) {
            match word.split_once('=') {
                Some(("log-size", size)) => sizes.log = parse_size(size)?,
                Some(("group-size", size)) => sizes.group = parse_size(size)?,
                _ => return Err(format!("{word}: log-size=SIZE or group-size=SIZE is needed")),
            }
        }
        Ok(sizes)
    }

    /// Refuses sizes that no volume of `blocks` blocks can have, as
    /// [`ext4::Volume::make_scattered_logs`] would.
    fn check(self, target: &Path, blocks: u64, block: u64) -> Result<(), CliError> {
        const LOG_BLOCKS_MIN: u64 = 256;
        const LOGS_BLOCKS_MIN: u64 = 512;
        let (log, group) = (self.log / block, self.group / block);
        // A bitmap of one block counts the blocks of a group.
        let most = 8 * block;
        let size = |blocks: u64| exact_size(blocks * block);
        let why = if !(LOG_BLOCKS_MIN..=most).contains(&log) {
            format!("a log may have from {} to {}", size(LOG_BLOCKS_MIN), size(most))
        } else if group < 2 * log {
            format!("logs of {} in groups of {}: more than a half", size(log), size(group))
        } else if blocks.div_ceil(group) * log < LOGS_BLOCKS_MIN || log > blocks {
            let least = size(LOGS_BLOCKS_MIN);
            format!("logs of {} in {}: together they need {least}", size(log), size(blocks))
        } else {
            return Ok(());
        };
        Err(logs_not_made(target, &ext4::Error::LogSizes(why)))
    }

    /// Makes the logs on a fresh volume.
    fn make(self, target: &Path) -> Result<(), CliError> {
        let features = superblock_of(target).map(|found| found.features);
        match features {
            Some(features) if !features.has(feature::EXTENTS) => return Err(no_extents(target)),
            Some(features) if !features.has(feature::HAS_JOURNAL) => {
                return Err(no_journal(target));
            }
            _ => {}
        }
        let world = RealWorld::new().map_err(CliError::no_ring)?;
        let disk: Rc<dyn Disk> = Rc::new(open_disk(&world, target, DiskAccess::ReadWrite)?);
        let shared: Rc<dyn World> = Rc::new(world.clone());
        let options = ext4::VolumeOptions::default();
        let parts = ext4::OpenParts { world: shared, home: disk, journal: None, options };
        let made = world.run(async move {
            let volume = ext4::Volume::open(parts).await?;
            let made = volume.make_scattered_logs(self.log, self.group).await;
            made.map(drop).and(volume.close().await)
        });
        world.end();
        made.map_err(|error: ext4::Error| logs_not_made(target, &error))
    }
}

fn logs_not_made(target: &Path, error: &ext4::Error) -> CliError {
    let plain = CliError::new(format!("{}: {error}", target.display()));
    match error {
        ext4::Error::LogSizes(_) => {
            plain.with_remedy("Give other sizes: --scattered-logs=log-size=SIZE,group-size=SIZE.")
        }
        ext4::Error::Refused(Refusal::NoSpace) => plain.with_remedy(
            "Make the volume larger, or with more inodes (-N); or leave out --scattered-logs.",
        ),
        ext4::Error::OnlyReadable { .. } => {
            plain.with_remedy("Leave out these features (-O); or leave out --scattered-logs.")
        }
        ext4::Error::NotFirst { .. } => plain.with_remedy(COPY_LATER),
        _ => plain,
    }
}

/// Refuses volumes that cannot have scattered logs, before anything is made.
fn refuse_scattered_logs(
    target: &Path,
    journal: Option<&Path>,
    extra: &[OsString],
) -> Result<(), CliError> {
    if journal.is_some() {
        return Err(CliError::new("scattered logs need the journal inside the volume")
            .with_remedy("Leave out --journal-device or --scattered-logs."));
    }
    if has_no_extents(&Mke2fsOptions::of(extra)) { Err(no_extents(target)) } else { Ok(()) }
}

/// Returns whether the options name a kind of volume whose files have no extents.
fn has_no_extents(options: &Mke2fsOptions) -> bool {
    matches!(options.value('t').and_then(|kind| kind.to_str()), Some("ext2" | "ext3"))
}

fn no_extents(target: &Path) -> CliError {
    let name = target.display();
    CliError::new(format!("{name}: scattered logs need a volume whose files have extents (ext4)"))
        .with_remedy("Leave out -t ext2, -t ext3 and -O ^extent; or leave out --scattered-logs.")
}

fn no_journal(target: &Path) -> CliError {
    let name = target.display();
    CliError::new(format!("{name}: scattered logs need a journal inside the volume"))
        .with_remedy("Leave out -O ^has_journal; or leave out --scattered-logs.")
}

/// Refuses a volume that another computer has mounted, which it shows if it has the feature mmp.
fn check_unused(target: &Path) -> Result<(), CliError> {
    let metadata =
        std::fs::metadata(target).map_err(|error| CliError::system(target.display(), error))?;
    if metadata.is_file() && metadata.len() == 0 {
        return Ok(());
    }
    let world = match RealWorld::new() {
        Ok(world) => world,
        // mke2fs needs no readable volume.
        Err(error) => {
            let (name, why) = (target.display(), CliError::no_ring(error));
            complain(&format!(
                "okeanos: {name}: whether another computer uses it could not be seen: {why}"
            ));
            return Ok(());
        }
    };
    let (for_run, path) = (world.clone(), target.to_path_buf());
    let checked = world.run(async move {
        let disk: Rc<dyn Disk> = Rc::new(open_disk(&for_run, &path, DiskAccess::ReadOnly)?);
        let world: Rc<dyn World> = Rc::new(for_run.clone());
        match ext4::check_unused(&world, &disk).await {
            Err(error @ ext4::Error::InUse(_)) => {
                Err(CliError::new(format!("{}: {error}", path.display())))
            }
            // Other damage does not matter, as the content is overwritten.
            _ => Ok(()),
        }
    });
    world.end();
    checked
}

/// Adds defaults where the arguments for mke2fs do not decide.
fn with_defaults(extra: &[OsString], force: bool, owner: Option<(u32, u32)>) -> Vec<OsString> {
    let options = Mke2fsOptions::of(extra);
    let mut arguments = extra.to_vec();
    // For long blocks mke2fs would ask for confirmation, because few kernels mount these. The
    // content was checked before.
    if (force || has_long_blocks(&options)) && !options.has('F') {
        arguments.push("-F".into());
    }
    if let Some((user, group)) = owner {
        // An ordinary user could not write to a root directory of root's. Of several -E the last
        // counts alone.
        let mut extended = options.value('E').unwrap_or_default().to_owned();
        if !extended.is_empty() {
            extended.push(",");
        }
        extended.push(format!("root_owner={user}:{group}"));
        arguments.extend(["-E".into(), extended]);
    }
    arguments
}

/// Returns user and group of an ordinary user; root's volumes belong to root.
fn maker() -> Option<(u32, u32)> {
    let (user, group) = (geteuid().as_raw(), getegid().as_raw());
    (user != 0).then_some((user, group))
}

/// Whether the options name the owner of the root directory.
fn names_owner(options: &Mke2fsOptions) -> bool {
    let names = |word: &str| word.starts_with("root_owner");
    options.value('E').is_some_and(|value| value.to_string_lossy().split(',').any(names))
}

/// Returns arguments for mke2fs, which takes a number of MiB.
fn internal_journal(size: Option<u64>) -> Result<Vec<OsString>, CliError> {
    let Some(size) = size else { return Ok(Vec::new()) };
    let number = size >> 20;
    if number == 0 || number << 20 != size {
        let (size, less) = (exact_size(size), number.max(1));
        return Err(CliError::new(format!(
            "--journal-size {size}: mke2fs makes journals of whole MiB"
        ))
        .with_remedy(format!("Give {less}M or {}M.", less + 1)));
    }
    Ok(vec!["-J".into(), format!("size={number}").into()])
}

fn make_with_external_journal(
    target: &Path,
    journal: &Path,
    size: Option<u64>,
    room_behind: u64,
    extra: &[OsString],
) -> Result<(), CliError> {
    let exists = journal.exists();
    let room = size.unwrap_or(EXTERNAL_JOURNAL_SIZE) + room_behind;
    let (_, _claim) = prepare(journal, (!exists).then_some(room))?;
    let size = match (exists, size) {
        (_, None) if room_behind > 0 => Some(EXTERNAL_JOURNAL_SIZE),
        (false, _) if room_behind == 0 => None,
        (_, size) => size,
    };
    let options = Mke2fsOptions::of(extra);
    let block_size = options.value('b').unwrap_or(BLOCK_SIZE.as_ref()).to_owned();
    let mut of_journal =
        vec![OsString::from("-O"), "journal_dev".into(), "-b".into(), block_size.clone()];
    for letter in ['F', 'q'].into_iter().filter(|letter| options.has(*letter)) {
        of_journal.push(format!("-{letter}").into());
    }
    // mke2fs joins a volume to journals on block devices only.
    let attached =
        if is_block_device(journal)? { None } else { Some(TemporaryLoop::attach(journal)?) };
    let device = attached.as_ref().map_or(journal, |attached| attached.path());
    of_journal.push(device.into());
    if let Some(size) = size {
        of_journal.push((size / block_bytes(&options)).to_string().into());
    }
    programs::run("mke2fs", &of_journal)?;
    let mut join = vec![OsString::from("-b"), block_size, "-J".into()];
    let mut option = OsString::from("device=");
    option.push(device);
    join.push(option);
    make(target, join, extra)
}

fn make(target: &Path, of_journal: Vec<OsString>, extra: &[OsString]) -> Result<(), CliError> {
    programs::run("mke2fs", &arguments_for_mke2fs(target, of_journal, extra))
}

fn arguments_for_mke2fs(
    target: &Path,
    of_journal: Vec<OsString>,
    extra: &[OsString],
) -> Vec<OsString> {
    let mut arguments = of_journal;
    if !Mke2fsOptions::of(extra).has('t') {
        arguments.extend(["-t".into(), "ext4".into()]);
    }
    arguments.extend_from_slice(extra);
    arguments.push(target.into());
    arguments
}

/// Whether the kernel's own ext4 may refuse blocks of that size.
fn has_long_blocks(options: &Mke2fsOptions) -> bool {
    const PAGE: u64 = 4096;
    block_bytes(options) > PAGE
}

/// Returns the bytes of a block that `-b` asks for; the default where mke2fs refuses its value.
fn block_bytes(options: &Mke2fsOptions) -> u64 {
    let given = options.value('b').and_then(|value| parse_size(value.to_str()?).ok());
    given.filter(|bytes| *bytes > 0).unwrap_or(BLOCK_BYTES)
}

/// Claims the target, so that nobody mounts it while mke2fs writes, and refuses one in use. Makes
/// the image file if a size is given; returns whether it made one.
fn prepare(target: &Path, size: Option<u64>) -> Result<(bool, Claim), CliError> {
    let (name, named) = (target.display(), word(target));
    let exists = target.exists();
    refuse_no_disk(target)?;
    match size {
        None if !exists => Err(CliError::new(format!("{name} does not exist"))
            .with_remedy(format!("Give a size to make an image file: okeanos mkfs {named} 1G"))),
        Some(size) if size < SIZE_MIN => {
            Err(CliError::new(format!("{name}: no volume fits into {}", format_size(size)))
                .with_remedy(format!("Give its size: okeanos mkfs {named} 1G")))
        }
        Some(_) if exists && is_block_device(target)? => {
            Err(CliError::new(format!("{name} is a block device, whose size is given"))
                .with_remedy("Leave the size out: a volume takes the whole device."))
        }
        Some(size) if exists => match std::fs::metadata(target).map(|metadata| metadata.len()) {
            Ok(length) if length == size => {
                refuse_longer_than_limit(target)?;
                Ok((false, claim(target)?))
            }
            Ok(length) => {
                Err(CliError::new(format!("{name} exists and has {}", format_size(length)))
                    .with_remedy("Leave the size out to use it as it is, or remove it first."))
            }
            Err(error) => Err(CliError::system(name, error)),
        },
        Some(size) => {
            refuse_beyond_limit(target, size)?;
            // Who reads the image reads every file in it, and can lock it against a mount.
            let mut new = OpenOptions::new();
            let new = new.write(true).create_new(true).mode(0o600);
            let system = |error| CliError::system(&name, error);
            let file = new.open(target).map_err(system)?;
            // Empty until it is claimed, so that nobody else makes a volume in it. Who has claimed
            // it keeps it.
            let held = claim(target)?;
            if file.metadata().map_err(system)?.len() > 0 {
                return Err(CliError::new(format!("another program has just written to {name}"))
                    .with_remedy("Look at what it is, or remove it first."));
            }
            match file.set_len(size) {
                Ok(()) => Ok((true, held)),
                Err(error) => {
                    remove_image(target, held);
                    Err(system(error))
                }
            }
        }
        None => {
            refuse_longer_than_limit(target)?;
            Ok((false, claim(target)?))
        }
    }
}

fn is_block_device(path: &Path) -> Result<bool, CliError> {
    let metadata =
        std::fs::metadata(path).map_err(|error| CliError::system(path.display(), error))?;
    Ok(metadata.file_type().is_block_device())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    fn arguments(target: &Path, size: Option<u64>, extra: &[&str]) -> MkfsArguments {
        MkfsArguments {
            journal_size: Some(4 << 20),
            journal_device: None,
            flush_zone: None,
            journal_flush_zone: None,
            force_profile: false,
            scattered_logs: None,
            force: false,
            target: target.to_owned(),
            size,
            extra: extra.iter().map(OsString::from).collect(),
        }
    }

    #[test]
    fn an_image_is_made_sparse_and_is_a_volume() {
        let directory = tempfile::tempdir().unwrap();
        let image = directory.path().join("disk");
        run(arguments(&image, Some(256 << 20), &["-q"])).unwrap();
        let metadata = std::fs::metadata(&image).unwrap();
        assert_eq!(metadata.len(), 256 << 20);
        assert!(metadata.blocks() * 512 < 64 << 20, "sparse");
        let check =
            std::process::Command::new("e2fsck").args(["-fn"]).arg(&image).output().unwrap();
        assert!(check.status.success(), "{}", String::from_utf8_lossy(&check.stdout));
    }

    #[test]
    fn an_empty_file_is_in_nobodys_use() {
        let directory = tempfile::tempdir().unwrap();
        let image = directory.path().join("disk");
        std::fs::File::create(&image).unwrap();
        check_unused(&image).unwrap();
    }

    #[test]
    fn what_cannot_be_made_leaves_nothing_behind() {
        let directory = tempfile::tempdir().unwrap();
        let image = directory.path().join("disk");
        assert!(run(arguments(&image, None, &[])).is_err(), "no size, no file");
        let refused = run(arguments(&image, Some(0), &["-q"])).unwrap_err().to_string();
        assert!(refused.contains("okeanos mkfs") && !image.exists(), "{refused}");
        assert!(run(arguments(&image, Some(64 << 20), &["-q", "-O", "nonsense"])).is_err());
        assert!(!image.exists());
    }

    #[test]
    fn an_existing_image_keeps_its_size() {
        let directory = tempfile::tempdir().unwrap();
        let image = directory.path().join("disk");
        std::fs::write(&image, vec![7; 100_000]).unwrap();
        assert!(run(arguments(&image, Some(64 << 20), &["-q"])).is_err());
        assert_eq!(std::fs::read(&image).unwrap(), vec![7; 100_000]);
    }

    #[test]
    fn what_is_there_is_named_and_kept_unless_forced() {
        let directory = tempfile::tempdir().unwrap();
        let image = directory.path().join("disk");
        run(arguments(&image, Some(64 << 20), &["-q", "-L", "mail"])).unwrap();
        let before = std::fs::read(&image).unwrap();
        let refused = run(arguments(&image, None, &["-q"])).unwrap_err().to_string();
        assert!(
            refused.contains("ext4") && refused.contains("mail") && refused.contains("--force"),
            "{refused}"
        );
        assert!(std::fs::read(&image).unwrap() == before, "untouched");
        run(MkfsArguments { force: true, ..arguments(&image, None, &["-q"]) }).unwrap();
        let kept = directory.path().join("kept");
        std::fs::write(&kept, before).unwrap();
        let refused =
            MkfsArguments { journal_device: Some(kept), ..arguments(&image, None, &["-q", "-F"]) };
        assert!(run(MkfsArguments { extra: vec!["-q".into()], ..refused }).is_err());
    }

    #[test]
    fn a_journal_is_counted_in_blocks_of_the_volume() {
        let bytes = |words: &[&str]| {
            let words: Vec<_> = words.iter().map(OsString::from).collect();
            block_bytes(&Mke2fsOptions::of(&words))
        };
        assert_eq!(bytes(&[]), 4096);
        assert_eq!(bytes(&["-q", "-b", "1024"]), 1024);
        assert_eq!(bytes(&["-qb2k"]), 2048);
        assert_eq!(bytes(&["-b", "0"]), 4096);
    }

    #[test]
    fn the_owner_is_added_to_what_the_last_of_several_says() {
        let given = ["-qEnodiscard".into(), "-E".into(), "stride=4".into()];
        let all = with_defaults(&given, true, Some((1, 2)));
        assert_eq!(all[3..], ["-F", "-E", "stride=4,root_owner=1:2"]);
        assert!(names_owner(&Mke2fsOptions::of(&["-qEroot_owner=3:4".into()])));
        assert!(!names_owner(&Mke2fsOptions::of(&["-L".into(), "root_owner".into()])));
    }
}
