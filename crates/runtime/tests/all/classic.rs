//! The world without a ring: when it is chosen, what its threads do and own, and how they end.

use crate::filter::{hold, refuse};
use device::{Buffer, Durability, World};
use runtime::{Either, File, IoChoice, NoRing, RealWorld, join_all, race};
use std::collections::BTreeMap;
use std::os::fd::{AsRawFd, OwnedFd};
use std::rc::Rc;
use std::sync::{PoisonError, mpsc};
use std::time::Duration;

/// Runs `test` in a thread of its own, whose filters end with it. One after the other: the threads
/// of worlds are counted.
fn alone<T: Send + 'static>(test: impl FnOnce() -> T + Send + 'static) -> T {
    let _alone = crate::WORLDS.write().unwrap_or_else(PoisonError::into_inner);
    std::thread::spawn(test).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

fn new_file() -> File {
    Rc::new(tempfile::tempfile().unwrap().into())
}
fn block(byte: u8) -> Rc<Buffer> {
    Rc::new(Buffer::copy_of(&[byte; 4096]))
}

/// Returns the errnos of a durable and of a cached write, zero on success.
fn write_twice(world: &RealWorld) -> [i32; 2] {
    let ring = world.ring().clone();
    world.run(async move {
        let (file, mut results) = (new_file(), [0; 2]);
        for (result, durability) in
            results.iter_mut().zip([Durability::Durable, Durability::Cached])
        {
            let written = ring.write(&file, 4096, &[block(7)], durability).await;
            match written {
                Ok(()) => assert_eq!(ring.read(&file, 4096, 4096).await.unwrap()[..], [7; 4096]),
                Err(error) => *result = error.raw_os_error().unwrap(),
            }
        }
        results
    })
}

/// Returns the threads that wait for disks, and how often each has slept.
fn disk_threads() -> BTreeMap<String, u64> {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let status = |task: std::fs::DirEntry| {
        let text = std::fs::read_to_string(task.path().join("status")).ok()?;
        let field = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name));
            line.map(|value| value.trim().to_owned())
        };
        (field("Name:")? == "disk").then_some(())?;
        Some((field("Pid:")?, field("voluntary_ctxt_switches:")?.parse().ok()?))
    };
    tasks.filter_map(|task| status(task.unwrap())).collect()
}

fn wait_until(mut condition: impl FnMut() -> bool) {
    for _ in 0..1000 {
        if condition() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("it did not come");
}

#[test]
fn a_refused_ring_is_replaced_and_named() {
    for (call, errno, named) in [
        (libc::SYS_io_uring_setup, libc::EPERM, "seccomp"),
        (libc::SYS_io_uring_setup, libc::ENOSYS, "CONFIG_IO_URING"),
        (libc::SYS_io_uring_setup, libc::EINVAL, "Linux 5.19"),
        (libc::SYS_io_uring_setup, libc::EACCES, "SELinux"),
        (libc::SYS_io_uring_enter, libc::EPERM, "seccomp"),
    ] {
        alone(move || {
            refuse(&[(call, errno)]).unwrap();
            let strict = RealWorld::over(IoChoice::Ring).err().unwrap();
            assert_eq!(strict.raw_os_error(), Some(errno));
            let world = RealWorld::over(IoChoice::Auto).unwrap();
            let Some(NoRing::Refused(refusal)) = world.ring().no_ring() else { panic!("a ring") };
            let sysctl = std::fs::read_to_string("/proc/sys/kernel/io_uring_disabled");
            let is_disabled = sysctl.is_ok_and(|value| value.trim() != "0");
            assert_eq!(refusal.code(), errno);
            assert!(is_disabled || refusal.to_string().contains(named), "{refusal}");
            assert_eq!(write_twice(&world), [0, 0]);
        });
    }
}

#[test]
fn what_no_kernel_refuses_rings_with_is_an_error() {
    alone(|| {
        refuse(&[(libc::SYS_io_uring_setup, libc::ENOMEM)]).unwrap();
        let error = RealWorld::over(IoChoice::Auto).err().unwrap();
        assert_eq!(error.raw_os_error(), Some(libc::ENOMEM));
    });
}

#[test]
fn durable_writes_are_synced_where_one_call_cannot_be_had() {
    for errno in [libc::ENOSYS, libc::EOPNOTSUPP, libc::EPERM] {
        alone(move || {
            refuse(&[(libc::SYS_pwritev2, errno)]).unwrap();
            let world = RealWorld::over(IoChoice::Classic).unwrap();
            assert_eq!(write_twice(&world), [0, 0]);
            // Threads have the filters of the one that makes them.
            refuse(&[(libc::SYS_fdatasync, libc::EIO)]).unwrap();
            world.ring().renew_threads();
            assert_eq!(write_twice(&world), [libc::EIO, 0], "written and not synced");
        });
    }
}

#[test]
fn a_durable_write_is_one_call_where_that_can_be_had() {
    alone(|| {
        refuse(&[(libc::SYS_fdatasync, libc::EIO), (libc::SYS_pwritev, libc::EIO)]).unwrap();
        let world = RealWorld::over(IoChoice::Classic).unwrap();
        assert_eq!(write_twice(&world), [0, libc::EIO]);
    });
}

#[test]
fn renewed_threads_have_lost_what_the_worlds_thread_gave_up() {
    alone(|| {
        let world = RealWorld::over(IoChoice::Classic).unwrap();
        assert_eq!(write_twice(&world), [0, 0]);
        refuse(&[(libc::SYS_pwritev, libc::EIO)]).unwrap();
        world.ring().renew_threads();
        wait_until(|| disk_threads().is_empty());
        assert_eq!(write_twice(&world), [0, libc::EIO]);
    });
}

#[test]
fn operations_in_flight_outlive_a_renewal() {
    alone(|| {
        let world = RealWorld::over(IoChoice::Classic).unwrap();
        let inner = world.clone();
        world.run(async move {
            let file = new_file();
            let write = |index: u64| -> device::LocalFuture<()> {
                let (ring, file) = (inner.ring().clone(), file.clone());
                Box::pin(async move {
                    let parts = [block(index as u8)];
                    ring.write(&file, index * 4096, &parts, Durability::Durable).await.unwrap();
                })
            };
            let mut writes = Box::pin(join_all((0..200).map(write).collect()));
            for _ in 0..3 {
                let soon = inner.sleep_until(inner.now().plus(Duration::from_micros(100)));
                if matches!(race(&mut writes, soon).await, Either::Left(_)) {
                    return;
                }
                inner.ring().renew_threads();
            }
            writes.await;
            let back = inner.ring().read(&file, 0, 200 * 4096).await.unwrap();
            assert!(back.chunks(4096).enumerate().all(|(at, bytes)| bytes == [at as u8; 4096]));
        });
    });
}

fn is_readable(file: &OwnedFd) -> bool {
    let mut polled = libc::pollfd { fd: file.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: the structure outlives the call, which does not wait.
    unsafe { libc::poll(&raw mut polled, 1, 0) > 0 }
}

#[test]
fn a_renewal_waits_for_no_disk() {
    const PATIENCE: Duration = Duration::from_secs(10);
    alone(|| {
        let held = hold(libc::SYS_pread64).unwrap();
        let world = RealWorld::over(IoChoice::Classic).unwrap();
        let (ring, inner) = (world.ring().clone(), world.clone());
        world.run(async move {
            let file = new_file();
            let mut read = Box::pin(ring.read(&file, 0, 4096));
            while !is_readable(&held) {
                let soon = inner.sleep_until(inner.now().plus(Duration::from_millis(1)));
                assert!(matches!(race(&mut read, soon).await, Either::Right(())));
            }
            let (renewed, is_renewed) = mpsc::channel();
            let disk = std::thread::spawn(move || {
                let was_first = is_renewed.recv_timeout(PATIENCE).is_ok();
                drop(held);
                was_first
            });
            ring.renew_threads();
            // By a thread that is not the one in the call.
            ring.write(&file, 0, &[block(1)], Durability::Durable).await.unwrap();
            // The other end is gone if it has waited for too long.
            let _ = renewed.send(());
            assert_eq!(read.await.unwrap_err().raw_os_error(), Some(libc::ENOSYS));
            assert!(disk.join().unwrap(), "the renewal waited for the disk");
        });
        drop(world);
        wait_until(|| disk_threads().is_empty());
    });
}

#[test]
fn a_world_that_gets_no_threads_does_the_work_itself() {
    alone(|| {
        refuse(&[(libc::SYS_clone, libc::EAGAIN), (libc::SYS_clone3, libc::EAGAIN)]).unwrap();
        let world = RealWorld::over(IoChoice::Classic).unwrap();
        assert_eq!(write_twice(&world), [0, 0]);
        assert!(disk_threads().is_empty());
    });
}

#[test]
fn idle_threads_sleep_and_end_with_their_world() {
    alone(|| {
        let world = RealWorld::over(IoChoice::Classic).unwrap();
        let inner = world.clone();
        world.run(async move {
            let file = new_file();
            let writes = (0..100u64).map(|index| -> device::LocalFuture<()> {
                let (ring, file) = (inner.ring().clone(), file.clone());
                Box::pin(async move {
                    let parts = [block(1)];
                    ring.write(&file, index * 4096, &parts, Durability::Durable).await.unwrap();
                })
            });
            join_all(writes.collect()).await;
        });
        let begun = disk_threads().len();
        assert!((2..=16).contains(&begun), "{begun} threads");
        let slept = || disk_threads().values().sum::<u64>();
        // Until the last of them has found nothing to do.
        let mut before = slept();
        wait_until(|| {
            std::thread::sleep(Duration::from_millis(50));
            let now = slept();
            std::mem::replace(&mut before, now) == now
        });
        let inner = world.clone();
        world.run(async move {
            inner.sleep_until(inner.now().plus(Duration::from_millis(300))).await;
        });
        assert_eq!(slept(), before, "woken for nothing");
        drop(world);
        wait_until(|| disk_threads().is_empty());
    });
}

#[test]
fn threads_take_no_signals() {
    alone(|| {
        let world = RealWorld::over(IoChoice::Classic).unwrap();
        write_twice(&world);
        for thread in disk_threads().keys() {
            let text = std::fs::read_to_string(format!("/proc/self/task/{thread}/status")).unwrap();
            let blocked = text.lines().find_map(|line| line.strip_prefix("SigBlk:")).unwrap();
            let blocked = u64::from_str_radix(blocked.trim(), 16).unwrap();
            for signal in [libc::SIGTERM, libc::SIGHUP, libc::SIGUSR1, libc::SIGALRM] {
                assert_ne!(blocked & 1 << (signal - 1), 0, "signal {signal}");
            }
        }
    });
}
