//! Block devices, past the page cache.

use device::{Buffer, Durability, World};
use runtime::{Either, File, IoChoice, RealWorld, join_all, race, yield_now};
use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::process::{Child, Command, Stdio};
use std::rc::Rc;
use std::sync::mpsc;
use std::time::Duration;

over_both!(
    a_device_takes_short_and_long_requests_past_the_cache,
    cached_pages_do_not_hinder_writes_past_the_cache,
    a_device_whose_queue_is_full_holds_nobody_else,
);

fn filled(length: usize, byte: u8) -> Rc<Buffer> {
    Rc::new(Buffer::copy_of(&vec![byte; length]))
}
fn past_the_cache(device: &str) -> File {
    let mut options = OpenOptions::new();
    let file = options.read(true).write(true).custom_flags(libc::O_DIRECT).open(device);
    Rc::new(file.unwrap().into())
}

/// A loop device over a file, removed on drop.
struct LoopDevice(String);
impl LoopDevice {
    fn new(length: u64) -> Option<LoopDevice> {
        let image = tempfile::NamedTempFile::new().unwrap();
        image.as_file().set_len(length).unwrap();
        let command = std::process::Command::new("losetup")
            .args(["--find", "--show"])
            .arg(image.path())
            .output();
        let output = command.ok().filter(|output| output.status.success())?;
        Some(LoopDevice(String::from_utf8(output.stdout).unwrap().trim().to_owned()))
    }
}
impl Drop for LoopDevice {
    fn drop(&mut self) {
        let _ = std::process::Command::new("losetup").args(["--detach", &self.0]).status();
    }
}

fn a_device_takes_short_and_long_requests_past_the_cache(io: IoChoice) {
    const UNIT: usize = 256 << 10;
    const REQUESTS: usize = 100;
    let Some(device) = LoopDevice::new((REQUESTS * UNIT) as u64) else {
        return eprintln!("NOT TESTED: no loop device (losetup, root)");
    };
    let file = past_the_cache(&device.0);
    let world = RealWorld::over(io).unwrap();
    let inner = world.clone();
    world.run(async move {
        let lengths = [4096, 512, 64 << 10, 128 << 10, UNIT];
        let tasks = (0..REQUESTS).map(|index| -> device::LocalFuture<()> {
            let (ring, file) = (inner.ring().clone(), file.clone());
            Box::pin(async move {
                let (at, length) = ((index * UNIT) as u64, lengths[index % lengths.len()]);
                let parts = [filled(512, 1), filled(length - 512, index as u8)];
                let parts = if length > 512 { &parts[..] } else { &parts[..1] };
                let durability =
                    if index % 2 == 0 { Durability::Durable } else { Durability::Cached };
                ring.write(&file, at, parts, durability).await.unwrap();
                let back = ring.read(&file, at, length).await.unwrap();
                assert!(back[..512].iter().all(|byte| *byte == 1), "{index}");
                assert!(back[512..].iter().all(|byte| *byte == index as u8), "{index}");
            })
        });
        join_all(tasks.collect()).await;
        let behind = (REQUESTS * UNIT) as u64;
        let error = inner.ring().write(&file, behind, &[filled(512, 1)], Durability::Cached).await;
        assert_eq!(error.unwrap_err().raw_os_error(), Some(libc::ENOSPC));
        let misaligned =
            inner.ring().write(&file, 100, &[filled(512, 1)], Durability::Durable).await;
        assert_eq!(misaligned.unwrap_err().raw_os_error(), Some(libc::EINVAL));
        // An operation that is in flight when the world ends.
        let parts = [filled(4096, 7)];
        let last = inner.ring().write(&file, 0, &parts, Durability::Durable);
        assert!(matches!(race(last, yield_now()).await, Either::Right(())));
    });
    drop(world);
    let mut start = [0; 4096];
    std::os::unix::fs::FileExt::read_exact_at(
        &std::fs::File::open(&device.0).unwrap(),
        &mut start,
        0,
    )
    .unwrap();
    assert_eq!(start, [7; 4096], "a write that nobody waits for is carried out");
}

fn cached_pages_do_not_hinder_writes_past_the_cache(io: IoChoice) {
    const BLOCKS: usize = 64;
    let Some(device) = LoopDevice::new((BLOCKS * 4096) as u64) else {
        return eprintln!("NOT TESTED: no loop device (losetup, root)");
    };
    let mut cached = std::fs::File::open(&device.0).unwrap();
    assert_eq!(cached.read_to_end(&mut Vec::new()).unwrap(), BLOCKS * 4096);
    let file = past_the_cache(&device.0);
    let world = RealWorld::over(io).unwrap();
    let ring = world.ring().clone();
    world.run(async move {
        for index in 0..BLOCKS {
            let at = (index * 4096) as u64;
            let durability = if index % 2 == 0 { Durability::Durable } else { Durability::Cached };
            ring.write(&file, at, &[filled(4096, index as u8)], durability).await.unwrap();
        }
        let back = ring.read(&file, 0, BLOCKS * 4096).await.unwrap();
        assert!(back.chunks(4096).enumerate().all(|(at, bytes)| bytes == [at as u8; 4096]));
    });
    let mut back = vec![0; BLOCKS * 4096];
    cached.read_exact_at(&mut back, 0).unwrap();
    assert!(back.chunks(4096).enumerate().all(|(at, bytes)| bytes == [at as u8; 4096]));
}

/// A device that queues few requests and answers no write, until it is dropped: its file is on a
/// frozen file system.
struct FrozenDevice {
    script: Child,
    device: String,
}
impl FrozenDevice {
    const REQUESTS: usize = 4;

    fn new(directory: &tempfile::TempDir) -> Option<FrozenDevice> {
        let script = "set -e; truncate -s 64M under; mke2fs -q -F -t ext4 under; mkdir m
            mount -o loop under m; trap 'umount m' EXIT; truncate -s 16M m/disk
            L=$(losetup --find --show m/disk); trap 'losetup -d $L; sleep 1; umount m' EXIT
            echo $REQUESTS >/sys/block/${L#/dev/}/queue/nr_requests
            fsfreeze -f m; echo $L; read end || true; fsfreeze -u m";
        let mut script = Command::new("unshare")
            .args(["--mount", "--propagation", "private", "sh", "-c", script])
            .env("REQUESTS", FrozenDevice::REQUESTS.to_string())
            .current_dir(directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .ok()?;
        let mut device = String::new();
        BufReader::new(script.stdout.take()?).read_line(&mut device).ok()?;
        let device = device.trim().to_owned();
        let frozen = FrozenDevice { script, device };
        (!frozen.device.is_empty()).then_some(frozen)
    }
}
impl Drop for FrozenDevice {
    fn drop(&mut self) {
        drop(self.script.stdin.take());
        let _ = self.script.wait();
    }
}

fn a_device_whose_queue_is_full_holds_nobody_else(io: IoChoice) {
    const PATIENCE: Duration = Duration::from_secs(10);
    const WRITES: usize = 2 * FrozenDevice::REQUESTS;
    let directory = tempfile::tempdir().unwrap();
    let Some(mut frozen) = FrozenDevice::new(&directory) else {
        return eprintln!("NOT TESTED: no frozen device (losetup, mke2fs, fsfreeze, root)");
    };
    let file = past_the_cache(&frozen.device);
    let thaw = frozen.script.stdin.take();
    let (went_on, goes_on) = mpsc::channel();
    let disk = std::thread::spawn(move || {
        let was_first = goes_on.recv_timeout(PATIENCE).is_ok();
        drop(thaw);
        was_first
    });
    let world = RealWorld::over(io).unwrap();
    let inner = world.clone();
    world.run(async move {
        let writes = (0..WRITES).map(|index| -> device::LocalFuture<()> {
            let (ring, file) = (inner.ring().clone(), file.clone());
            Box::pin(async move {
                let (at, parts) = (index as u64 * 4096, [filled(4096, index as u8)]);
                ring.write(&file, at, &parts, Durability::Durable).await.unwrap();
            })
        });
        let mut writes = Box::pin(join_all(writes.collect()));
        let soon = inner.sleep_until(inner.now().plus(Duration::from_millis(100)));
        assert!(matches!(race(&mut writes, soon).await, Either::Right(())), "it is frozen");
        // The other end is gone if it has waited for too long.
        let _ = went_on.send(());
        writes.await;
        let back = inner.ring().read(&file, 0, WRITES * 4096).await.unwrap();
        assert!(back.chunks(4096).enumerate().all(|(at, bytes)| bytes == [at as u8; 4096]));
    });
    drop(world);
    assert!(disk.join().unwrap(), "the world waited for the device");
}
