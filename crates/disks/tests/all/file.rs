//! Files and block devices as disks. Tests of block devices need root and a free loop device;
//! without, they print that and pass.

use device::{Buffer, DeviceError, Disk, Durability, World};
use disks::{Claim, DiskAccess, DiskOpenError, FileDisk, Handover};
use runtime::{RealWorld, join_all};
use std::fs::File;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, RawFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;
use std::time::Duration;

const SIZE: u64 = 1 << 20;

fn new_image(directory: &tempfile::TempDir) -> PathBuf {
    let path = directory.path().join("image");
    File::create(&path).unwrap().set_len(SIZE).unwrap();
    path
}
fn filled(length: usize, byte: u8) -> Rc<Buffer> {
    Rc::new(Buffer::copy_of(&vec![byte; length]))
}
fn open(world: &RealWorld, path: &Path, access: DiskAccess) -> Result<FileDisk, DiskOpenError> {
    FileDisk::open(world.ring(), path, access)
}
/// Opens an image that this test has just closed, or a device that another test's losetup tries.
fn open_again(world: &RealWorld, path: &Path, access: DiskAccess) -> FileDisk {
    once_free(world, || open(world, path, access))
}
/// Retries `take`: another test's program has copies of these files from its fork to its exec, and
/// a loop device goes with the last of them.
fn once_free<T>(world: &RealWorld, take: impl Fn() -> Result<T, DiskOpenError>) -> T {
    for _ in 0..500 {
        match take() {
            Err(
                DiskOpenError::Locked { .. }
                | DiskOpenError::Busy { .. }
                | DiskOpenError::AttachedTwice { .. },
            ) => {
                let clock = world.clone();
                world.run(async move {
                    clock.sleep_until(clock.now().plus(Duration::from_millis(10))).await
                });
            }
            result => return result.unwrap(),
        }
    }
    panic!("it stays in use");
}
fn refusal(result: Result<FileDisk, DiskOpenError>) -> DiskOpenError {
    match result {
        Ok(disk) => panic!("{} was opened", disk.name()),
        Err(error) => error,
    }
}

/// Checks the behaviour of every writable disk.
fn check_disk(world: &RealWorld, disk: FileDisk) {
    world.run(async move {
        let unit = disk.geometry().logical_sector as usize;
        assert_eq!(disk.geometry().size, SIZE);
        disk.write(0, vec![filled(unit, 1), filled(4 * unit, 2)], Durability::Cached)
            .await
            .unwrap();
        disk.write(unit as u64, vec![filled(unit, 3)], Durability::Durable).await.unwrap();
        disk.flush().await.unwrap();
        let back = disk.read(0, 5 * unit).await.unwrap();
        let units: Vec<u8> = back.chunks(unit).map(|unit| unit[7]).collect();
        assert_eq!(units, [1, 3, 2, 2, 2]);
        if disk.geometry().discard {
            disk.discard(0, 65536).await.unwrap();
            disk.read(0, 65536).await.unwrap();
        }
        let many = (0..1000u64).map(|index| -> device::LocalFuture<()> {
            let disk = disk.clone();
            Box::pin(async move {
                let at = index * unit as u64 % (SIZE / 2);
                let byte = (at / unit as u64) as u8;
                disk.write(at, vec![filled(unit, byte)], Durability::Cached).await.unwrap();
                assert_eq!(disk.read(at, unit).await.unwrap()[unit - 1], byte);
            })
        });
        join_all(many.collect()).await;
        let beyond = disk.read(SIZE, unit).await.unwrap_err();
        assert!(matches!(beyond, DeviceError::OutOfRange { size: SIZE, .. }), "{beyond}");
        let between = disk.write(7, vec![filled(unit, 1)], Durability::Cached).await.unwrap_err();
        assert!(matches!(between, DeviceError::Unaligned { .. }), "{between}");
    });
}

#[test]
fn a_file_is_a_disk() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let world = RealWorld::new().unwrap();
    check_disk(&world, open(&world, &new_image(&directory), DiskAccess::ReadWrite).unwrap());
}

#[test]
fn a_file_without_direct_io_is_a_disk() {
    let Ok(directory) = tempfile::tempdir_in("/dev/shm") else { return };
    let world = RealWorld::new().unwrap();
    check_disk(&world, open(&world, &new_image(&directory), DiskAccess::ReadWrite).unwrap());
}

#[test]
fn one_image_is_not_opened_twice() {
    let directory = tempfile::tempdir().unwrap();
    let path = new_image(&directory);
    let world = RealWorld::new().unwrap();
    let writer = open(&world, &path, DiskAccess::ReadWrite).unwrap();
    for access in [DiskAccess::ReadWrite, DiskAccess::ReadOnly] {
        let error = refusal(open(&world, &path, access));
        assert!(matches!(error, DiskOpenError::Locked { .. }), "{error}");
    }
    open(&world, &path, DiskAccess::Inspect).unwrap();
    drop(writer);
    let readers = [(); 2].map(|()| open_again(&world, &path, DiskAccess::ReadOnly));
    assert!(matches!(
        refusal(open(&world, &path, DiskAccess::ReadWrite)),
        DiskOpenError::Locked { .. }
    ));
    drop(readers);
    open_again(&world, &path, DiskAccess::ReadWrite);
}

#[test]
fn others_read_an_image_while_it_is_not_written() {
    let world = RealWorld::new().unwrap();
    let directory = tempfile::tempdir().unwrap();
    for access in [DiskAccess::ReadFirst, DiskAccess::ReadWrite] {
        let path = new_image(&directory);
        let disk = open_again(&world, &path, access);
        once_free(&world, || disk.begin_writing());
        let refused = refusal(open(&world, &path, DiskAccess::ReadOnly));
        assert!(matches!(refused, DiskOpenError::Locked { .. }), "{refused}");
        disk.end_writing();
        let reader = open_again(&world, &path, DiskAccess::ReadOnly);
        assert!(disk.begin_writing().is_err(), "{access:?}");
        drop(reader);
        once_free(&world, || disk.begin_writing());
    }
}

#[test]
fn what_is_no_disk_is_refused_by_name() {
    let directory = tempfile::tempdir().unwrap();
    let world = RealWorld::new().unwrap();
    let empty = directory.path().join("empty");
    File::create(&empty).unwrap();
    let message = |path: &Path| refusal(open(&world, path, DiskAccess::ReadWrite)).to_string();
    assert!(message(&empty).ends_with("empty is empty: make a volume on it first"));
    assert!(
        message(directory.path()).contains("is a directory: give an image file or a block device")
    );
    assert!(message(Path::new("/dev/null")).contains("is a character device"));
    assert!(message(&directory.path().join("none")).contains("No such file"));
}

#[test]
fn a_mounted_device_is_refused() {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    let sources = mounts.lines().filter_map(|line| line.split(" - ").nth(1)?.split(' ').nth(1));
    let Some(device) = sources.map(Path::new).find(|path| path.is_absolute() && path.exists())
    else {
        println!("nothing to test with: no mounted block device");
        return;
    };
    let world = RealWorld::new().unwrap();
    let error = refusal(open(&world, device, DiskAccess::ReadOnly));
    assert!(matches!(error, DiskOpenError::Mounted { .. }), "{error}");
}

/// A loop device over an image, detached when dropped.
struct LoopDevice(PathBuf);

impl LoopDevice {
    fn attach(image: &Path, sector: u32) -> Option<LoopDevice> {
        let sector = sector.to_string();
        let arguments = ["--find", "--show", "--sector-size", &sector];
        let output = Command::new("losetup").args(arguments).arg(image).output().ok()?;
        if !output.status.success() {
            println!("nothing to test with: losetup: {}", String::from_utf8_lossy(&output.stderr));
            return None;
        }
        Some(LoopDevice(String::from_utf8(output.stdout).unwrap().trim().into()))
    }
}
impl Drop for LoopDevice {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("--detach").arg(&self.0).status();
    }
}

#[test]
fn a_block_device_is_a_disk() {
    for sector in [512, 4096] {
        let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let Some(device) = LoopDevice::attach(&new_image(&directory), sector) else { return };
        let world = RealWorld::new().unwrap();
        let disk = open_again(&world, &device.0, DiskAccess::ReadWrite);
        assert!(disk.is_block_device() && disk.is_direct() && disk.geometry().discard);
        assert_eq!(disk.geometry().logical_sector, sector);
        check_disk(&world, disk);
    }
}

fn released(world: &RealWorld, disk: &FileDisk) -> Handover {
    let (within, disk) = (world.clone(), disk.clone());
    world.run(async move { disk.release_claim(&within).await.unwrap() })
}

async fn reclaimed(world: RealWorld, disk: FileDisk) {
    disk.reclaim(&world).await.unwrap();
}

/// Each request holds the open file that it began with, and the claim is that file's.
#[test]
fn a_released_claim_is_held_by_no_request_in_flight() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let image = new_image(&directory);
    let Some(device) = LoopDevice::attach(&image, 512) else { return };
    let world = RealWorld::new().unwrap();
    let disk = open_again(&world, &device.0, DiskAccess::ReadWrite);
    let (within, path) = (world.clone(), device.0.clone());
    world.run(async move {
        let written = disk.write(0, vec![Rc::new(Buffer::zeroed(65536))], Durability::Durable);
        within.spawn(Box::pin(async move { written.await.unwrap() }));
        runtime::yield_now().await;
        let handover = disk.release_claim(&within).await.unwrap();
        let claim = |path| File::options().read(true).custom_flags(libc::O_EXCL).open(path);
        drop(claim(&path).expect("free for the kernel"));
        drop(handover);
        disk.reclaim(&within).await.unwrap();
        assert!(claim(&path).is_err(), "claimed again");
    });
}

#[test]
fn a_block_device_is_not_opened_twice_until_the_claim_is_released() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let image = new_image(&directory);
    let Some(device) = LoopDevice::attach(&image, 512) else { return };
    let world = RealWorld::new().unwrap();
    let disk = open_again(&world, &device.0, DiskAccess::ReadWrite);
    for access in [DiskAccess::ReadWrite, DiskAccess::ReadOnly] {
        let error = refusal(open(&world, &device.0, access));
        assert!(matches!(error, DiskOpenError::Busy { .. }), "{error}");
    }
    open(&world, &device.0, DiskAccess::Inspect).unwrap();
    let error = refusal(open(&world, &image, DiskAccess::ReadWrite));
    assert!(matches!(error, DiskOpenError::Attached { .. }), "{error}");
    let handover = released(&world, &disk);
    File::options()
        .read(true)
        .custom_flags(libc::O_EXCL)
        .open(&device.0)
        .expect("free for the kernel");
    let error = refusal(open(&world, &device.0, DiskAccess::ReadWrite));
    assert!(matches!(error, DiskOpenError::Locked { .. }), "{error}");
    assert!(matches!(Claim::take(&device.0), Err(DiskOpenError::Locked { .. })));
    world.run(reclaimed(world.clone(), disk.clone()));
    drop(handover);
    // Another test's program may have a copy of the guard until its exec.
    once_free(&world, || match open(&world, &device.0, DiskAccess::ReadWrite) {
        Err(DiskOpenError::Busy { .. }) => Ok(()),
        other => Err(refusal(other)),
    });
    drop(released(&world, &disk));
    // Released: no task waits for the lock of a dropped disk.
    drop(disk);
    check_disk(&world, open_again(&world, &device.0, DiskAccess::ReadWrite));
}

/// The kernel's claim ends with an unmount by force, while the daemon may go on writing.
#[test]
fn a_device_is_locked_after_the_kernels_claim_has_ended() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let image = new_image(&directory);
    let Some(device) = LoopDevice::attach(&image, 512) else { return };
    // A device without a file that could be locked in its place.
    std::fs::remove_file(&image).unwrap();
    let world = RealWorld::new().unwrap();
    let disk = open_again(&world, &device.0, DiskAccess::ReadWrite);
    drop(released(&world, &disk));
    for access in [DiskAccess::ReadWrite, DiskAccess::ReadOnly] {
        let error = refusal(open(&world, &device.0, access));
        let ours = format!("({})", std::process::id());
        assert!(matches!(error, DiskOpenError::Locked { .. }), "{error}");
        assert!(error.to_string().contains(&ours), "{error}");
    }
    assert!(matches!(Claim::take(&device.0), Err(DiskOpenError::Locked { .. })));
    drop(disk);
    drop(once_free(&world, || Claim::take(&device.0)));
    drop(open_again(&world, &device.0, DiskAccess::ReadWrite));
}

/// A killed daemon's request may end after the daemon, and holds its open file until then.
#[test]
fn a_device_is_locked_until_the_last_request_of_its_daemon_has_ended() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let image = new_image(&directory);
    let Some(device) = LoopDevice::attach(&image, 512) else { return };
    std::fs::remove_file(&image).unwrap();
    let world = RealWorld::new().unwrap();
    let disk = open_again(&world, &device.0, DiskAccess::ReadWrite);
    drop(released(&world, &disk));
    let in_flight: Vec<_> = open_files(&device.0)
        .filter(|file| file_flags(file) & libc::O_DIRECT != 0)
        .map(|file| file.try_clone_to_owned().unwrap())
        .collect();
    assert_eq!(in_flight.len(), 1);
    drop(disk);
    let error = refusal(open(&world, &device.0, DiskAccess::ReadWrite));
    assert!(matches!(error, DiskOpenError::Locked { .. }), "{error}");
    drop(in_flight);
    drop(open_again(&world, &device.0, DiskAccess::ReadWrite));
}

/// The descriptors of this process for a file.
fn open_files(path: &Path) -> impl Iterator<Item = BorrowedFd<'static>> {
    let is_it = move |number: &RawFd| {
        std::fs::read_link(format!("/proc/self/fd/{number}")).is_ok_and(|named| named == path)
    };
    let numbers = std::fs::read_dir("/proc/self/fd").unwrap();
    let numbers = numbers.map(|entry| entry.unwrap().file_name().to_str().unwrap().parse());
    let found: Vec<RawFd> = numbers.map(Result::unwrap).filter(is_it).collect();
    // SAFETY: the caller's disk keeps them open while they are copied.
    found.into_iter().map(|number| unsafe { BorrowedFd::borrow_raw(number) })
}

fn file_flags(file: &impl AsRawFd) -> i32 {
    // SAFETY: fcntl takes integers.
    unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETFL) }
}

/// Each error of a flush is reported once, so that another flush of the same bytes may succeed.
#[test]
fn no_flush_succeeds_after_a_durable_write_that_failed() {
    // SAFETY: the name ends with a zero byte, and the descriptor is new.
    let memory = unsafe {
        let number = libc::memfd_create(c"image".as_ptr(), libc::MFD_ALLOW_SEALING);
        std::fs::File::from_raw_fd(number)
    };
    memory.set_len(SIZE).unwrap();
    let world = RealWorld::new().unwrap();
    let path = PathBuf::from(format!("/proc/self/fd/{}", memory.as_raw_fd()));
    let disk = open(&world, &path, DiskAccess::ReadWrite).unwrap();
    // SAFETY: fcntl takes integers.
    let sealed = unsafe { libc::fcntl(memory.as_raw_fd(), libc::F_ADD_SEALS, libc::F_SEAL_WRITE) };
    assert_eq!(sealed, 0);
    world.run(async move {
        let write = |durability| disk.write(0, vec![filled(4096, 1)], durability);
        assert!(write(Durability::Cached).await.is_err());
        disk.flush().await.unwrap();
        let failed = write(Durability::Durable).await.unwrap_err();
        assert_eq!(disk.flush().await.unwrap_err().to_string(), failed.to_string());
    });
}

#[test]
fn two_loop_devices_over_one_file_are_one_disk() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let image = new_image(&directory);
    let world = RealWorld::new().unwrap();
    let Some(first) = LoopDevice::attach(&image, 512) else { return };
    let disk = open_again(&world, &first.0, DiskAccess::ReadWrite);
    let second = LoopDevice::attach(&image, 512).unwrap();
    for device in [&first, &second] {
        let refused = Claim::take(&device.0).map(|_| ()).unwrap_err();
        let in_use =
            matches!(refused, DiskOpenError::Busy { .. } | DiskOpenError::AttachedTwice { .. });
        assert!(in_use, "{refused}");
    }
    let error = refusal(open(&world, &second.0, DiskAccess::ReadWrite));
    assert!(matches!(error, DiskOpenError::AttachedTwice { .. }), "{error}");
    // The backing file is locked, too, against processes that do not see the other device.
    drop(disk);
    drop(first);
    let held = once_free(&world, || Claim::take(&second.0));
    let error = Claim::take(&image).map(|_| ()).unwrap_err();
    assert!(matches!(error, DiskOpenError::Attached { .. }), "{error}");
    drop(held);
}

#[test]
fn loop_devices_over_other_parts_of_a_file_are_other_disks() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let image = new_image(&directory);
    let half = SIZE / 2;
    let attach = |offset: u64| {
        let arguments =
            ["--find", "--show", "--offset", &offset.to_string(), "--sizelimit", &half.to_string()];
        let output = Command::new("losetup").args(arguments).arg(&image).output().unwrap();
        assert!(output.status.success());
        LoopDevice(String::from_utf8(output.stdout).unwrap().trim().into())
    };
    let world = RealWorld::new().unwrap();
    let Some(probe) = LoopDevice::attach(&image, 512) else { return };
    drop(probe);
    let (first, second) = (attach(0), attach(half));
    let _first = open_again(&world, &first.0, DiskAccess::ReadWrite);
    let _second = open_again(&world, &second.0, DiskAccess::ReadWrite);
}

#[test]
fn a_claim_keeps_others_off_an_image() {
    let directory = tempfile::tempdir().unwrap();
    let path = new_image(&directory);
    let world = RealWorld::new().unwrap();
    let claim = Claim::take(&path).unwrap();
    assert!(matches!(
        refusal(open(&world, &path, DiskAccess::ReadOnly)),
        DiskOpenError::Locked { .. }
    ));
    assert!(matches!(Claim::take(&path), Err(DiskOpenError::Locked { .. })));
    drop(claim);
    let _disk = open(&world, &path, DiskAccess::ReadWrite).unwrap();
    assert!(matches!(Claim::take(&path), Err(DiskOpenError::Locked { .. })));
}

/// A container has nodes of its own for devices.
#[test]
fn a_device_behind_another_needs_no_name() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let Some(below) = LoopDevice::attach(&new_image(&directory), 512) else { return };
    let node = directory.path().join("node");
    let minor = below.0.to_str().unwrap().trim_start_matches("/dev/loop");
    let made = Command::new("mknod").arg(&node).args(["b", "7", minor]).status().unwrap();
    assert!(made.success());
    let above = LoopDevice::attach(&node, 512).unwrap();
    std::fs::remove_file(&node).unwrap();
    let world = RealWorld::new().unwrap();
    let disk = open_again(&world, &above.0, DiskAccess::ReadWrite);
    let error = refusal(open(&world, &below.0, DiskAccess::ReadWrite));
    assert!(matches!(error, DiskOpenError::Attached { .. }), "{error}");
    let claim = File::options().read(true).custom_flags(libc::O_EXCL).open(&below.0);
    assert_eq!(claim.unwrap_err().raw_os_error(), Some(libc::EBUSY));
    drop(disk);
}

/// The kernel's claim alone is seen through every node, and it ends with the mount.
#[test]
fn a_device_that_another_process_writes_to_is_refused() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let Some(device) = LoopDevice::attach(&new_image(&directory), 512) else { return };
    let world = RealWorld::new().unwrap();
    // By a node of its own, as a container has one: the lock binds that alone.
    let node = directory.path().join("node");
    let number = std::fs::metadata(&device.0).unwrap().rdev();
    let numbers = [libc::major(number), libc::minor(number)].map(|number| number.to_string());
    let made = Command::new("mknod").arg(&node).arg("b").args(numbers).status().unwrap();
    assert!(made.success());
    for (script, writes) in [
        ("exec 3<\"$0\"; flock 3; echo; exec cat", false),
        ("exec 3<>\"$0\"; echo; exec cat", false),
        ("exec 3<>\"$0\"; flock 3; echo; exec cat", true),
    ] {
        let mut other = Command::new("bash")
            .args(["-c", script])
            .arg(&node)
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = [0];
        std::io::Read::read_exact(other.stdout.as_mut().unwrap(), &mut line).unwrap();
        if writes {
            let by = format!("({})", other.id());
            let error = refusal(open(&world, &device.0, DiskAccess::ReadWrite));
            assert!(matches!(error, DiskOpenError::Busy { .. }), "{error}");
            assert!(error.to_string().contains(&by), "{error}");
            assert!(matches!(Claim::take(&device.0), Err(DiskOpenError::Busy { .. })));
            open(&world, &device.0, DiskAccess::Inspect).unwrap();
        } else {
            drop(open_again(&world, &device.0, DiskAccess::ReadWrite));
        }
        other.kill().unwrap();
        other.wait().unwrap();
    }
    drop(open_again(&world, &device.0, DiskAccess::ReadWrite));
}
