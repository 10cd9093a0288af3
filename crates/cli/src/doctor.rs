//! `okeanos doctor`: examines this machine and a disk, and gives advice.

use crate::error::CliError;
use crate::text::output::{print, print_json};
use crate::text::quantity::format_duration;
use device::{Buffer, Durability};
use runtime::{File, IoChoice, RealWorld};
use serde::Serialize;
use std::fs::{self, OpenOptions};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};

const NOTES: &str = "\
With a DIRECTORY, a scratch file of 4 MiB is made there without a name, written in place and flushed for a few
seconds. A DEVICE is only read. Times are medians; other work on the disk makes them longer.

Examples:
  okeanos doctor
  okeanos doctor /srv
  okeanos doctor --json /dev/sdb1";

/// Report what this machine and a disk provide, and what follows
#[derive(clap::Args)]
#[command(after_help = NOTES)]
pub struct DoctorArguments {
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// A block device, or a directory on the disk that is meant
    #[arg(value_name = "DEVICE|DIR")]
    target: Option<PathBuf>,
}

/// Bytes of the scratch file.
const SCRATCH: u64 = 4 << 20;
const BLOCK: usize = 4096;
/// Time limit of each kind of measurement, and maximum number of requests.
const MEASURED_FOR: Duration = Duration::from_millis(700);
const REQUESTS_MAX: usize = 200;

#[derive(Serialize)]
struct Report {
    version: &'static str,
    machine: Machine,
    disk: Option<Disk>,
    advice: Vec<String>,
    limits: Vec<String>,
}

#[derive(Serialize, Default)]
struct Machine {
    kernel: String,
    processors: usize,
    /// The kernel's name of their model, where it has one.
    processor: Option<String>,
    io_uring: bool,
    /// Reason of a refusal.
    io_uring_refused: Option<String>,
    fuse: bool,
    /// Reason why `/dev/fuse` cannot be opened.
    fuse_refused: Option<String>,
    /// Absent from this kernel if `None`.
    fuse_over_io_uring: Option<bool>,
    loop_devices: bool,
    /// The driver is loaded.
    ublk: bool,
    fusermount3: Option<PathBuf>,
    root: bool,
    /// Whether the kernel drops mapped pages behind a write past the page cache.
    #[serde(skip)]
    drops_written_pages: bool,
}

#[derive(Serialize, Default)]
struct Disk {
    target: PathBuf,
    is_device: bool,
    /// Sector size in /sys/dev/block; absent where the file system has a number of its own.
    logical_sector: Option<u64>,
    physical_sector: Option<u64>,
    rotational: Option<bool>,
    /// The kernel's words: `write back`, `write through`.
    write_cache: Option<String>,
    /// Whether the scratch file or device was read and written past the page cache.
    direct: bool,
    /// Whether the file system makes a write durable by itself (RWF_DSYNC). Of others a durable
    /// write is a write and a flush.
    durable_by_itself: bool,
    times: Times,
    flush: Flush,
}

/// Medians, in nanoseconds; for a device only reads.
#[derive(Serialize, Default, Clone, Copy)]
struct Times {
    read: Option<u64>,
    write: Option<u64>,
    flush: Option<u64>,
    durable_write: Option<u64>,
}

/// Conclusion on flushes from the times.
#[derive(Serialize, Default, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(rename_all = "snake_case")]
enum Flush {
    #[default]
    NotMeasured,
    /// The kernel reports no volatile cache.
    NotNeeded,
    /// The time is plausible for such a disk.
    Plausible,
    /// The time is too short for a disk of this kind with a volatile cache.
    Suspicious,
}

pub fn run(arguments: DoctorArguments) -> Result<(), CliError> {
    let machine = machine()?;
    let disk = arguments.target.as_deref().map(examine).transpose()?;
    let (advice, limits) = (advice(&machine, disk.as_ref()), limits(&machine));
    let report = Report { version: crate::VERSION, machine, disk, advice, limits };
    if arguments.json { print_json(&report) } else { print(&page(&report)) }
}

/// Describes the machine and the disk of a directory in one line, as tables of measurements need
/// it.
///
/// # Errors
/// The directory cannot be written.
pub fn measured_on(directory: &Path) -> Result<String, CliError> {
    let machine = machine()?;
    let write = examine(directory)?.times.durable_write;
    let write = write.map_or("unknown".into(), |time| format!("{} us", time / 1000));
    let processor = machine.processor.as_deref().unwrap_or("of unknown model");
    let (kernel, count) = (&machine.kernel, machine.processors);
    Ok(format!(
        "Linux {kernel}, {count} processors ({processor}), a durable write of 4 KiB: {write}"
    ))
}

/// Finds the model's name in the text of `/proc/cpuinfo`.
fn model_of(cpuinfo: &str) -> Option<String> {
    let mut lines = cpuinfo.lines().filter_map(|line| line.split_once(':'));
    let (_, model) = lines.find(|(key, _)| key.trim() == "model name")?;
    Some(model.trim().to_owned()).filter(|model| !model.is_empty())
}

fn machine() -> Result<Machine, CliError> {
    let auto = RealWorld::over(IoChoice::Auto).map_err(CliError::no_ring)?;
    let fuse_refused = opened("/dev/fuse").err().map(|error| error.to_string());
    let refused = auto.ring().no_ring().map(ToString::to_string);
    let parameter = fs::read_to_string("/sys/module/fuse/parameters/enable_uring").ok();
    let path = std::env::var_os("PATH").unwrap_or_default();
    // SAFETY: geteuid has no preconditions.
    let root = unsafe { libc::geteuid() } == 0;
    Ok(Machine {
        kernel: fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().into(),
        processors: std::thread::available_parallelism().map_or(1, usize::from),
        processor: fs::read_to_string("/proc/cpuinfo").ok().and_then(|text| model_of(&text)),
        io_uring: refused.is_none(),
        io_uring_refused: refused,
        fuse: fuse_refused.is_none(),
        fuse_refused,
        fuse_over_io_uring: parameter.map(|value| value.trim() == "Y"),
        loop_devices: opened("/dev/loop-control").is_ok(),
        ublk: Path::new(ublk::abi::CONTROL_PATH).exists(),
        fusermount3: std::env::split_paths(&path)
            .map(|directory| directory.join("fusermount3"))
            .find(|program| program.exists()),
        root,
        drops_written_pages: fuse::drops_written_pages(),
    })
}

/// Opens a device as a mount does: a node without its module, or without rights, is of no use.
fn opened(device: &str) -> std::io::Result<fs::File> {
    OpenOptions::new().read(true).write(true).open(device)
}

fn examine(target: &Path) -> Result<Disk, CliError> {
    let open_failed = |error| CliError::system(target.display(), error);
    let metadata = fs::metadata(target).map_err(open_failed)?;
    let is_device = metadata.file_type().is_block_device();
    if !is_device && !metadata.is_dir() {
        return Err(CliError::new(format!(
            "{}: neither a block device nor a directory",
            target.display()
        ))
        .with_remedy("Name the directory that the image file is in."));
    }
    let number = if is_device { metadata.rdev() } else { metadata.dev() };
    let queue = |name: &str| queue_of(number, name);
    let mut disk = Disk {
        target: target.into(),
        is_device,
        logical_sector: queue("logical_block_size").and_then(|it| it.parse().ok()),
        physical_sector: queue("physical_block_size").and_then(|it| it.parse().ok()),
        rotational: queue("rotational").map(|it| it == "1"),
        write_cache: queue("write_cache"),
        ..Disk::default()
    };
    let (file, direct) = open(target, is_device).map_err(open_failed)?;
    disk.direct = direct;
    disk.durable_by_itself = is_device || disks::honours_dsync(&file);
    let world = RealWorld::new().map_err(CliError::no_ring)?;
    let durability = match disk.durable_by_itself {
        true => Durability::Durable,
        false => Durability::Cached,
    };
    let measuring = measure(world.clone(), Rc::new(file.into()), is_device, durability);
    disk.times = world.run(measuring).map_err(open_failed)?;
    disk.flush = judge_flush(&disk);
    Ok(disk)
}

/// Reads a line of the block device's queue; a partition has that of its disk.
fn queue_of(number: u64, name: &str) -> Option<String> {
    let device = format!("/sys/dev/block/{}:{}", libc::major(number), libc::minor(number));
    let read = |queue: &str| fs::read_to_string(Path::new(&device).join(queue).join(name)).ok();
    let line = read("queue").or_else(|| read("../queue"))?;
    Some(line.trim().to_owned())
}

/// Opens the device for reading, or a file without a name; and whether past the page cache.
fn open(target: &Path, is_device: bool) -> std::io::Result<(fs::File, bool)> {
    let open = |flags: i32| {
        let mut options = OpenOptions::new();
        options.read(true);
        if is_device {
            return options.custom_flags(flags).open(target);
        }
        options.write(true).mode(0o600).custom_flags(flags | libc::O_TMPFILE).open(target)
    };
    match open(libc::O_DIRECT) {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Ok((open(0)?, false)),
        opened => Ok((opened?, true)),
    }
}

/// Measures the file or device. `durability`: of the write that a durable one is made of; a flush
/// follows one that is cached.
async fn measure(
    world: RealWorld,
    file: File,
    is_device: bool,
    durability: Durability,
) -> std::io::Result<Times> {
    let ring = world.ring();
    let mut times = Times::default();
    if is_device {
        let read = async |at: u64| ring.read(&file, at, BLOCK).await.map(drop);
        times.read = Some(median(read).await?);
        return Ok(times);
    }
    // Measured in place: the times include no allocation and no change of the size.
    let zeros = Rc::new(Buffer::zeroed(SCRATCH as usize));
    ring.write(&file, 0, &[zeros], Durability::Cached).await?;
    ring.sync_data(&file).await?;
    let block = [Rc::new(Buffer::copy_of(&[0xa5; BLOCK]))];
    let write = async |at, durability| ring.write(&file, at, &block, durability).await;
    let durable_write = async |at| {
        write(at, durability).await?;
        match durability {
            Durability::Durable => Ok(()),
            Durability::Cached => ring.sync_data(&file).await,
        }
    };
    times.durable_write = Some(median(durable_write).await?);
    times.write = Some(median(async |at| write(at, Durability::Cached).await).await?);
    let mut flushes = Vec::new();
    let begin = Instant::now();
    while flushes.len() < REQUESTS_MAX && begin.elapsed() < MEASURED_FOR || flushes.is_empty() {
        // Each flush has a block to make durable.
        write(place(flushes.len()), Durability::Cached).await?;
        let before = Instant::now();
        ring.sync_data(&file).await?;
        flushes.push(before.elapsed());
    }
    times.flush = Some(middle(flushes));
    times.read = Some(median(async |at| ring.read(&file, at, BLOCK).await.map(drop)).await?);
    Ok(times)
}

/// Returns nanoseconds of a request, at places all over the scratch file.
async fn median(request: impl AsyncFn(u64) -> std::io::Result<()>) -> std::io::Result<u64> {
    let (mut times, begin) = (Vec::new(), Instant::now());
    while times.len() < REQUESTS_MAX && begin.elapsed() < MEASURED_FOR || times.is_empty() {
        let before = Instant::now();
        request(place(times.len())).await?;
        times.push(before.elapsed());
    }
    Ok(middle(times))
}

/// Scatters places: neighbours would be read ahead, or be written as one.
fn place(number: usize) -> u64 {
    const STRIDE: u64 = 389;
    let blocks = SCRATCH / BLOCK as u64;
    number as u64 * STRIDE % blocks * BLOCK as u64
}

fn middle(mut times: Vec<Duration>) -> u64 {
    times.sort();
    times.get(times.len() / 2).map_or(0, |time| time.as_nanos() as u64)
}

/// Half a revolution at 15,000 rpm: the mean wait of the fastest hard disk for a sector. None
/// writes to its platters in a quarter of that repeatedly.
const REVOLUTION_PART: u64 = 500_000;
/// Minimum time of a disk's interface for a command; only the kernel is faster.
const COMMAND: u64 = 2_000;

fn judge_flush(disk: &Disk) -> Flush {
    let Some(flush) = disk.times.flush else { return Flush::NotMeasured };
    match (disk.write_cache.as_deref(), disk.rotational) {
        (Some("write through"), _) => Flush::NotNeeded,
        (None, _) => Flush::NotMeasured,
        (_, Some(true)) if flush < REVOLUTION_PART => Flush::Suspicious,
        (_, Some(false)) if flush < COMMAND => Flush::Suspicious,
        _ => Flush::Plausible,
    }
}

/// Nanoseconds from which on writers should share a durable write.
const EXPENSIVE: u64 = 300_000;

fn advice(machine: &Machine, disk: Option<&Disk>) -> Vec<String> {
    let mut advice = Vec::new();
    let Some(disk) = disk else {
        advice.push("Name a directory on the disk, or the disk, to have it measured.".into());
        return advice;
    };
    match disk.times.durable_write {
        Some(time) if time >= EXPENSIVE => advice.push(
            "Durable writes are expensive here: the default, data=selective, or data=wasteless; \
             many writers share one write."
                .into(),
        ),
        Some(_) => advice.push(
            "Durable writes are cheap here: processors limit small syncs, not the disk; measure \
             beside the kernel's ext4 (okeanos-lab bench compare)."
                .into(),
        ),
        None => advice.push("Name a directory on the device to have writes measured.".into()),
    }
    match disk.flush {
        Flush::NotNeeded => advice.push(
            "The kernel says that this disk has no volatile cache: flushes cost nothing, \
             barrier=flush is right."
                .into(),
        ),
        Flush::Suspicious => advice.push(
            "Flushes end sooner than such a disk can write: see okeanos powercut, okeanos \
             fingerprint and barrier=coerce."
                .into(),
        ),
        Flush::Plausible | Flush::NotMeasured => {}
    }
    if disk.rotational == Some(true) {
        advice.push("A disk with an arm that others keep busy: see log=scattered.".into());
    }
    if machine.root && !disk.is_device && !machine.loop_devices {
        advice.push("There are no loop devices: mount image files with -o noloop.".into());
    }
    advice
}

fn limits(machine: &Machine) -> Vec<String> {
    let mut limits = Vec::new();
    if let Some(why) = &machine.io_uring_refused {
        limits.push(format!("Threads do what io_uring would: {why}."));
    }
    if let Some(why) = &machine.fuse_refused {
        limits.push(format!(
            "No mount: /dev/fuse: {why} (modprobe fuse; in a container: docs/CONTAINERS.md)."
        ));
    }
    if !machine.root && machine.fusermount3.is_none() {
        limits.push("No mount for this user: fusermount3 is missing (package fuse3).".into());
    }
    if is_before(&machine.kernel, (5, 4)) {
        limits.push("No mount: Linux 5.4 or later is needed.".into());
    }
    if is_before(&machine.kernel, (6, 18)) {
        limits.push(
            "Before Linux 6.18, sync(2) and syncfs(2) return before the volume is durable; fsync \
             does not."
                .into(),
        );
    }
    if !machine.drops_written_pages {
        limits.push(
            "Before Linux 6.19 (6.18.4, 6.12.64), a mapped page may stay as it was beside an \
             O_SYNC write (docs/POSIX.md)."
                .into(),
        );
    }
    if machine.processors == 1 {
        limits.push("One processor: answers are not polled for.".into());
    }
    limits
}

/// Whether a release such as `6.1.0-26-amd64` is older. One that cannot be parsed is not.
fn is_before(release: &str, wanted: (u32, u32)) -> bool {
    let mut numbers = release.split(|it: char| !it.is_ascii_digit()).map(str::parse);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => (major, minor) < wanted,
        _ => false,
    }
}

fn page(report: &Report) -> String {
    let Report { machine, disk, .. } = report;
    let mut lines = vec![
        ("kernel", machine.kernel.clone()),
        ("processors", machine.processors.to_string()),
        ("model", or_unknown(machine.processor.clone())),
        ("io_uring", machine.io_uring_refused.clone().unwrap_or_else(|| "yes".into())),
        ("/dev/fuse", yes_no(machine.fuse)),
        (
            "FUSE over io_uring",
            match machine.fuse_over_io_uring {
                Some(true) if machine.io_uring => "yes".into(),
                Some(_) => "switched off".into(),
                None => "not in this kernel (Linux 6.14)".into(),
            },
        ),
        ("loop devices", yes_no(machine.loop_devices)),
        (
            "ublk devices",
            if machine.ublk { "yes" } else { "no driver is loaded (ublk_drv)" }.into(),
        ),
        ("fusermount3", or_missing(machine.fusermount3.as_deref())),
    ];
    lines.extend(disk.iter().flat_map(disk_lines));
    let width = lines.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let mut text: String =
        lines.iter().map(|(name, value)| format!("{name:width$}  {value}\n")).collect();
    for (head, items) in [("What suits", &report.advice), ("Limits here", &report.limits)] {
        if !items.is_empty() {
            text += &format!("\n{head}:\n");
            text.extend(items.iter().map(|item| format!("- {item}\n")));
        }
    }
    text
}

fn disk_lines(disk: &Disk) -> Vec<(&'static str, String)> {
    let sectors = [disk.logical_sector, disk.physical_sector];
    let sectors = sectors.map(|bytes| or_unknown(bytes.map(|bytes| bytes.to_string())));
    let time = |nanoseconds: Option<u64>| {
        let time = nanoseconds.map(|time| format_duration(Duration::from_nanos(time)));
        time.unwrap_or_else(|| "not measured".into())
    };
    vec![
        ("disk", disk.target.display().to_string()),
        ("sectors", format!("{} bytes, physical {}", sectors[0], sectors[1])),
        ("rotational", or_unknown(disk.rotational.map(yes_no))),
        ("write cache", or_unknown(disk.write_cache.clone())),
        ("past the page cache", yes_no(disk.direct)),
        ("read of 4 KiB", time(disk.times.read)),
        ("write of 4 KiB", time(disk.times.write)),
        ("flush behind it", time(disk.times.flush)),
        ("durable write", time(disk.times.durable_write)),
        (
            "it is",
            match disk.durable_by_itself {
                true => "one request (FUA, or RWF_DSYNC)",
                false => "a write and a flush: RWF_DSYNC is not relied on here",
            }
            .into(),
        ),
        (
            "flushes are",
            match disk.flush {
                Flush::NotMeasured => "not judged",
                Flush::NotNeeded => "not needed",
                Flush::Plausible => "plausible",
                Flush::Suspicious => "suspicious",
            }
            .into(),
        ),
    ]
}

fn yes_no(yes: bool) -> String {
    if yes { "yes" } else { "no" }.to_owned()
}

fn or_unknown(text: Option<String>) -> String {
    text.unwrap_or_else(|| "unknown".into())
}

fn or_missing(program: Option<&Path>) -> String {
    program.map_or_else(|| "missing".into(), |path| path.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flush(cache: Option<&str>, rotational: bool, nanoseconds: u64) -> Flush {
        judge_flush(&Disk {
            write_cache: cache.map(Into::into),
            rotational: Some(rotational),
            times: Times { flush: Some(nanoseconds), ..Times::default() },
            ..Disk::default()
        })
    }

    #[test]
    fn a_flush_faster_than_its_disk_is_suspicious() {
        let back = Some("write back");
        assert_eq!(flush(back, true, 100_000), Flush::Suspicious);
        assert_eq!(flush(back, true, 8_000_000), Flush::Plausible);
        assert_eq!(flush(back, false, 100_000), Flush::Plausible);
        assert_eq!(flush(back, false, 1_000), Flush::Suspicious);
        assert_eq!(flush(Some("write through"), false, 1_000), Flush::NotNeeded);
        assert_eq!(flush(None, false, 1_000), Flush::NotMeasured);
        assert_eq!(judge_flush(&Disk::default()), Flush::NotMeasured);
    }

    #[test]
    fn releases_are_compared_by_number() {
        for (release, is_older) in [
            ("5.14.0-427.el9.x86_64", true),
            ("6.1.0-26-amd64", true),
            ("6.18.44", false),
            ("6.20.0", false),
            ("10.0", false),
            ("?", false),
        ] {
            assert_eq!(is_before(release, (6, 18)), is_older, "{release}");
        }
    }

    #[test]
    fn tables_name_machine_and_disk() {
        let directory = tempfile::tempdir().unwrap();
        let line = measured_on(directory.path()).unwrap();
        for part in ["Linux ", " processors (", "a durable write of 4 KiB: "] {
            assert!(line.contains(part), "{part}: {line}");
        }
        assert!(line.ends_with(" us"), "{line}");
    }

    #[test]
    fn the_model_is_that_of_the_first_processor() {
        let text =
            "processor\t: 0\nmodel\t\t: 1\nmodel name\t: Some CPU: 3 GHz\n\nprocessor\t: 1\n";
        assert_eq!(model_of(text).as_deref(), Some("Some CPU: 3 GHz"));
        assert_eq!(model_of("processor\t: 0\n"), None);
    }

    #[test]
    fn limits_are_those_of_the_machine() {
        let modern = Machine {
            kernel: "6.19.1".into(),
            processors: 4,
            fuse: true,
            root: true,
            drops_written_pages: true,
            ..Machine::default()
        };
        assert_eq!(limits(&modern), Vec::<String>::new());
        let refused = Some("kernel.io_uring_disabled=2".into());
        let old = Machine {
            kernel: "5.14.0".into(),
            root: false,
            io_uring_refused: refused,
            fuse_refused: Some("Permission denied".into()),
            drops_written_pages: false,
            ..modern
        };
        let text = limits(&old).join("\n");
        for part in
            ["io_uring_disabled=2", "fusermount3", "sync(2)", "mapped page", "fuse: Permission"]
        {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(!text.contains("read again"), "a write leaves cached pages: {text}");
    }

    #[test]
    fn places_cover_the_scratch_file_and_stay_within() {
        let places: std::collections::BTreeSet<u64> = (0..1024).map(place).collect();
        assert_eq!(places.len(), 1024);
        assert!(places.iter().all(|at| at + BLOCK as u64 <= SCRATCH));
    }
}
