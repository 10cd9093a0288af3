//! A disk: what the kernel reports of it, and what its requests cost.

use crate::error::CliError;
use device::{Buffer, Durability};
use runtime::{File, RealWorld};
use serde::Serialize;
use std::fs::{self, OpenOptions};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Bytes of the scratch file.
const SCRATCH: u64 = 4 << 20;
const BLOCK: usize = 4096;
/// Time limit of each kind of measurement, and maximum number of requests.
const MEASURED_FOR: Duration = Duration::from_millis(700);
const REQUESTS_MAX: usize = 200;

#[derive(Serialize, Default)]
pub struct Disk {
    pub target: PathBuf,
    pub is_device: bool,
    /// Sector size in /sys/dev/block; absent where the file system has a number of its own.
    pub logical_sector: Option<u64>,
    pub physical_sector: Option<u64>,
    pub rotational: Option<bool>,
    /// The kernel's words: `write back`, `write through`.
    pub write_cache: Option<String>,
    /// Whether the scratch file or device was read and written past the page cache.
    pub direct: bool,
    /// Whether the file system makes a write durable by itself (RWF_DSYNC). Of others a durable
    /// write is a write and a flush.
    pub durable_by_itself: bool,
    pub times: Times,
    pub flush: Flush,
}

/// Medians, in nanoseconds; for a device only reads.
#[derive(Serialize, Default, Clone, Copy)]
pub struct Times {
    pub read: Option<u64>,
    pub write: Option<u64>,
    pub flush: Option<u64>,
    pub durable_write: Option<u64>,
}

/// Conclusion on flushes from the times.
#[derive(Serialize, Default, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(rename_all = "snake_case")]
pub enum Flush {
    #[default]
    NotMeasured,
    /// The kernel reports no volatile cache.
    NotNeeded,
    /// The time is plausible for such a disk.
    Plausible,
    /// The time is too short for a disk of this kind with a volatile cache.
    Suspicious,
}

pub fn examine(target: &Path) -> Result<Disk, CliError> {
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
    fn places_cover_the_scratch_file_and_stay_within() {
        let places: std::collections::BTreeSet<u64> = (0..1024).map(place).collect();
        assert_eq!(places.len(), 1024);
        assert!(places.iter().all(|at| at + BLOCK as u64 <= SCRATCH));
    }
}
