//! Behaviour of a drive: times that agree with the measured ones, correct bytes, permitted losses
//! only.

use crate::common::{filled, honest, model, on_drive, timed};
use device::{Disk, Durability, World};
use disks::Image;
use emulated::replay::{self, Trace, TraceReport};
use emulated::{CacheMode, DriveOptions, EmulatedDisk, Lies, Model, SECTOR, shipped};
use runtime::{SplitMix, VirtualWorld};
use std::rc::Rc;
use std::time::Duration;

/// The 5,000 requests that CMU measured on a Seagate Cheetah 15K.5 (DiskSim 4).
const MEASURED: &str = include_str!("../../data/cheetah-15k5-requests.csv");

fn replay_measured(seed: u64) -> (Trace, Vec<u64>) {
    let world = VirtualWorld::new(seed);
    let model = model("cheetah-15k5");
    let trace = Rc::new(Trace::parse(MEASURED, model.size.get()).expect("a valid trace"));
    let disk: Rc<dyn Disk> =
        Rc::new(EmulatedDisk::new(Rc::new(world.clone()), model, honest(CacheMode::Off)));
    let times = replay::run(&world, &disk, trace.clone()).expect("no errors");
    world.end();
    (Rc::into_inner(trace).expect("the replay has ended"), times)
}

#[test]
fn measured_requests_of_the_cheetah_take_as_long_as_measured() {
    let (trace, times) = replay_measured(1);
    let comparison = TraceReport::new(&trace, &times).comparison.expect("measured times");
    assert!(comparison.mean_error_percent.abs() <= 3.0, "{comparison:?}");
    assert!(comparison.demerit_percent <= 6.0, "{comparison:?}");
}
#[test]
fn same_seed_same_times() {
    assert_eq!(replay_measured(3).1, replay_measured(3).1);
}

#[test]
fn a_drive_reports_the_atomic_write_of_its_medium() {
    for (name, expected) in [
        ("cheetah-15k5", 512),
        ("western-digital-64", 4096),
        ("nvme-ssd", 4096),
        ("cloud-volume", 4096),
    ] {
        let reported =
            on_drive(name, honest(CacheMode::Off), |_, disk| async move { disk.physical_sector() });
        assert_eq!(reported, expected, "{name}");
    }
}

#[test]
fn a_sequential_reader_gets_the_rate_of_the_medium() {
    let rate = on_drive("cheetah-15k5", honest(CacheMode::On), |world, disk| async move {
        const CHUNK: usize = 65536;
        const COUNT: u64 = 1000;
        let read = async {
            for number in 0..COUNT {
                disk.read(number * CHUNK as u64, CHUNK).await.expect("a read");
            }
        };
        (COUNT * CHUNK as u64) as f64 / timed(&world, read).await / 1e3
    });
    assert!((rate / 134.7 - 1.0).abs() < 0.02, "{rate} MB/s, 134.7 expected");
}

/// The second waits at the drive while the first passes under the head.
#[test]
fn a_reader_with_two_requests_gets_the_rate_of_the_medium() {
    for chunk in [65536, 128 << 10, 1 << 20] {
        let rate =
            on_drive("cheetah-15k5", honest(CacheMode::Off), move |world, disk| async move {
                let count = (64 << 20) / chunk;
                let read = async {
                    let begin = |number: usize| {
                        runtime::spawn_with_result(
                            &world,
                            disk.read((number * chunk) as u64, chunk),
                        )
                    };
                    let mut before = begin(0);
                    for number in 1..count {
                        let next = begin(number);
                        before.await.expect("it runs to its end").expect("a read");
                        before = next;
                    }
                    before.await.expect("it runs to its end").expect("a read");
                };
                (count * chunk) as f64 / timed(&world, read).await / 1e3
            });
        assert!(
            (rate / 134.7 - 1.0).abs() < 0.03,
            "{rate} MB/s in requests of {chunk}, 134.7 expected"
        );
    }
}

#[test]
fn every_turning_disk_reads_a_stream_as_fast_as_one_long_request() {
    const LENGTH: usize = 32 << 20;
    for (name, text) in shipped() {
        let model = Model::parse(text).expect("a valid model");
        if model.mechanics.is_none() {
            continue;
        }
        // A bus slower than the medium adds the time of a hit to each request, and the medium
        // waits for it.
        let most = if model.interface.bus_paces_reads { 1.06 } else { 1.03 };
        let time = |chunk: usize| {
            on_drive(name, honest(CacheMode::On), move |world, disk| async move {
                let read = async {
                    for at in (0..LENGTH as u64).step_by(chunk) {
                        disk.read(at, chunk).await.expect("a read");
                    }
                };
                timed(&world, read).await
            })
        };
        let whole = time(LENGTH);
        for chunk in [65536, 1 << 20, 4 << 20] {
            let stream = time(chunk);
            assert!(
                stream < most * whole,
                "{name}: {stream} ms in requests of {chunk}, {whole} ms in one"
            );
        }
    }
}

/// Rate in 1,000,000 bytes each second of writes one after another through the cache, the flush at
/// the end included.
fn written_mb_s(chunk: usize) -> f64 {
    on_drive("cheetah-15k5", honest(CacheMode::On), move |world, disk| async move {
        let count = 100_000_000 / chunk;
        let write = async {
            for number in 0..count {
                disk.write((number * chunk) as u64, filled(chunk, 1), Durability::Cached)
                    .await
                    .expect("a write");
            }
            disk.flush().await.expect("a flush");
        };
        (count * chunk) as f64 / timed(&world, write).await / 1e3
    })
}
#[test]
fn a_sequential_writer_gets_the_rate_of_the_medium_with_any_requests() {
    for chunk in [65536, 524288, 1 << 20, 8 << 20] {
        let rate = written_mb_s(chunk);
        assert!(
            (rate / 134.7 - 1.0).abs() < 0.03,
            "{rate} MB/s in requests of {chunk}, 134.7 expected"
        );
    }
}

#[test]
fn flushes_and_fua_writes_wait_for_the_mechanics_and_cached_writes_do_not() {
    on_drive("cheetah-15k5", honest(CacheMode::On), |world, disk| async move {
        let (mut cached, mut flush, mut durable) = (0.0, 0.0, 0.0);
        for number in 0..50u64 {
            let at = (number * 7_919_777 % 280_000_000) * SECTOR;
            cached +=
                timed(&world, disk.write(at, filled(4096, 1), Durability::Cached)).await / 50.0;
            flush += timed(&world, disk.flush()).await / 50.0;
            durable +=
                timed(&world, disk.write(at, filled(4096, 2), Durability::Durable)).await / 50.0;
        }
        assert!(cached < 0.2, "{cached} ms");
        assert!((4.0..9.0).contains(&flush), "a seek, half a revolution and more: {flush} ms");
        // The head is on the track already, but the sectors have just passed.
        assert!((3.0..5.0).contains(&durable), "about a revolution: {durable} ms");
    });
}
#[test]
fn a_drive_that_ignores_flush_answers_at_once_and_loses() {
    let options = DriveOptions {
        lies: Lies { ignores_flush: true, ..Lies::default() },
        ..DriveOptions::default()
    };
    on_drive("cheetah-15k5", options, |world, disk| async move {
        disk.write(0, filled(512, 1), Durability::Durable).await.expect("a write");
        disk.write(512, filled(512, 1), Durability::Cached).await.expect("a write");
        let time = timed(&world, disk.flush()).await;
        assert!(time < 0.2, "{time} ms");
        let mut left = [9; 1024];
        disk.crash().image.read(0, &mut left);
        assert_eq!(left, [0; 1024]);
    });
}
#[test]
fn a_drive_that_ignores_cache_off_goes_on_caching() {
    let time_of_write = |ignores_cache_off| {
        let options = DriveOptions {
            lies: Lies { ignores_cache_off, ..Lies::default() },
            ..DriveOptions::default()
        };
        on_drive("cheetah-15k5", options, |world, disk| async move {
            disk.set_cache(CacheMode::Off);
            timed(&world, disk.write(1 << 30, filled(4096, 1), Durability::Cached)).await
        })
    };
    assert!(time_of_write(true) < 0.2);
    assert!(time_of_write(false) > 1.0);
}
#[test]
fn a_drive_that_forgets_takes_the_same_time_and_keeps_nothing() {
    let played = |forgets| {
        on_drive("cheetah-15k5", honest(CacheMode::On), move |world, disk| async move {
            if forgets {
                disk.forget_content();
            }
            let mut times = Vec::new();
            for number in 0..50u64 {
                let at = (number * 7_919_777 % 280_000_000) * SECTOR;
                times
                    .push(timed(&world, disk.write(at, filled(4096, 1), Durability::Cached)).await);
                times.push(timed(&world, disk.read(at, 4096)).await);
            }
            times.push(timed(&world, disk.flush()).await);
            (times, disk.crash().image.pages().count())
        })
    };
    let ((kept_times, kept), (times, forgotten)) = (played(false), played(true));
    assert_eq!((kept_times, kept > 0, forgotten), (times, true, 0));
}
#[test]
fn an_idle_drive_destages_by_itself() {
    on_drive("cheetah-15k5", honest(CacheMode::On), |world, disk| async move {
        disk.write(0, filled(512, 1), Durability::Cached).await.expect("a write");
        world.sleep_until(world.now().plus(Duration::from_millis(100))).await;
        let mut left = [0; 512];
        disk.crash().image.read(0, &mut left);
        assert_eq!((left, disk.statistics().destages), ([1; 512], 1));
    });
}

#[test]
fn a_power_cut_keeps_what_passed_under_the_head_and_tears_one_sector() {
    const SECTORS: usize = 64;
    on_drive("cheetah-15k5", honest(CacheMode::Off), |world, disk| async move {
        let write = disk.write(0, filled(SECTORS * SECTOR as usize, 1), Durability::Cached);
        let world_of_write = world.clone();
        let mut write = runtime::spawn_with_result(&world_of_write, write);
        let mut torn = 0;
        for _ in 0..2500 {
            let left = disk.crash();
            let mut bytes = vec![0; SECTORS * SECTOR as usize];
            left.image.read(0, &mut bytes);
            let new = bytes.iter().take_while(|byte| **byte == 1).count();
            assert!(bytes[new..].iter().all(|byte| *byte == 0), "in the order of the sectors");
            match left.unreadable.len() {
                0 => assert!(new == 0 || new == bytes.len(), "{new}"),
                1 => {
                    torn += 1;
                    assert_eq!(new as u64, left.unreadable.first().expect("one") * SECTOR + 256);
                }
                count => panic!("{count} torn sectors"),
            }
            world.sleep_until(world.now().plus(Duration::from_micros(2))).await;
        }
        assert!(torn > 10, "{torn}");
        assert!(matches!(
            runtime::race(&mut write, async {}).await,
            runtime::Either::Left(Some(Ok(())))
        ));
    });
}
#[test]
fn a_torn_sector_is_unreadable_until_it_is_written() {
    let world = VirtualWorld::new(7);
    let rc: Rc<dyn World> = Rc::new(world.clone());
    let mut left =
        EmulatedDisk::new(rc.clone(), model("cheetah-15k5"), DriveOptions::default()).crash();
    left.unreadable.insert(8);
    let disk = EmulatedDisk::after_crash(rc, model("cheetah-15k5"), honest(CacheMode::On), left);
    world.run(async move {
        assert!(disk.read(4096 - 512, 1024).await.is_err());
        assert!(disk.read(4096 + 512, 512).await.is_ok());
        disk.write(4096, filled(512, 3), Durability::Cached).await.expect("a write");
        assert_eq!(disk.read(4096, 512).await.expect("it is readable").to_vec(), [3; 512]);
        disk.flush().await.expect("a flush");
        assert_eq!(disk.read(4096, 512).await.expect("it is readable").to_vec(), [3; 512]);
    });
}

/// Random writes, reads, flushes from several tasks, each on sectors of its own, against plain
/// memory.
async fn random_script(world: VirtualWorld, disk: EmulatedDisk, seed: u64) {
    const TASKS: u64 = 6;
    const AREA: u64 = 40;
    let tasks: Vec<_> = (0..TASKS)
        .map(|task| {
            let (world, disk) = (world.clone(), disk.clone());
            runtime::spawn_with_result(&world.clone(), async move {
                let random = SplitMix::new(seed * 100 + task);
                let mut newest = vec![0u8; (AREA * SECTOR) as usize];
                let base = task * AREA * SECTOR;
                for step in 0..60u8 {
                    let first = random.next() % AREA;
                    let count = 1 + random.next() % (AREA - first);
                    let bytes = (first * SECTOR) as usize..((first + count) * SECTOR) as usize;
                    match random.next() % 8 {
                        0..4 => {
                            let durable = random.next() % 4 == 0;
                            let durability =
                                if durable { Durability::Durable } else { Durability::Cached };
                            let parts = filled(bytes.len(), step + 1);
                            newest[bytes.clone()].fill(step + 1);
                            disk.write(base + first * SECTOR, parts, durability)
                                .await
                                .expect("a write");
                            if durable {
                                let mut left = vec![0; bytes.len()];
                                disk.crash().image.read(base + first * SECTOR, &mut left);
                                assert_eq!(
                                    left, newest[bytes],
                                    "durable after FUA: seed {seed} task {task} step {step}"
                                );
                            }
                        }
                        4..6 => {
                            let read = disk
                                .read(base + first * SECTOR, bytes.len())
                                .await
                                .expect("a read");
                            assert_eq!(
                                read.to_vec(),
                                newest[bytes],
                                "seed {seed} task {task} step {step}"
                            );
                        }
                        6 => {
                            disk.flush().await.expect("a flush");
                            let mut left = vec![0; newest.len()];
                            disk.crash().image.read(base, &mut left);
                            assert_eq!(
                                left, newest,
                                "durable after flush: seed {seed} task {task} step {step}"
                            );
                        }
                        _ => {
                            world
                                .sleep_until(
                                    world.now().plus(Duration::from_millis(random.next() % 40)),
                                )
                                .await
                        }
                    }
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("a task that ends");
    }
}
#[test]
fn bytes_are_right_and_flushed_ones_durable_on_every_kind_of_drive() {
    let turning = ["cheetah-15k5", "barracuda-7200.11", "samsung-8", "western-digital-64"];
    for name in turning.into_iter().chain(["sata-ssd", "sd-card", "cloud-volume"]) {
        for seed in 0..10 {
            for cache in [CacheMode::On, CacheMode::Off] {
                on_drive(name, honest(cache), |world, disk| random_script(world, disk, seed));
            }
        }
    }
}
#[test]
fn every_schedule_serves_all_and_shortest_positioning_is_the_fastest() {
    let time = |schedule: &str| {
        let (_, text) = shipped().next().expect("a model");
        let text = text.replace("shortest-positioning", schedule);
        let world = VirtualWorld::new(7);
        let model = Model::parse(&text).expect("a valid model");
        let disk = EmulatedDisk::new(Rc::new(world.clone()), model, honest(CacheMode::Off));
        let inner = world.clone();
        world.run(async move {
            let random = SplitMix::new(11);
            let reads = (0..200).map(|_| disk.read(random.next() % 280_000_000 * SECTOR, 4096));
            for read in runtime::join_all(reads.collect()).await {
                read.expect("a read");
            }
            inner.now().0 as f64 / 1e6
        })
    };
    let [fifo, elevator, shortest] =
        ["first-in-first-out", "elevator", "shortest-positioning"].map(time);
    assert!(shortest < elevator && elevator < fifo, "{shortest}, {elevator}, {fifo} ms");
    assert!(shortest < 0.7 * fifo, "{shortest}, {fifo} ms");
}
#[test]
fn the_nearest_request_is_one_that_can_still_be_reached() {
    // 100 writes on five tracks, as far from each other as an eighteenth of a revolution.
    let took = on_drive("cheetah-15k5", honest(CacheMode::Off), |world, disk| async move {
        let writes = (0..100).map(|number| {
            let (disk, at) = (disk.clone(), number * 64 * SECTOR);
            disk.write(at, filled(4096, 1), Durability::Cached)
        });
        let all = timed(&world, runtime::join_all(writes.collect())).await;
        all / 100.0
    });
    assert!(took < 1.5, "{took} ms each: a revolution of 4 ms is lost again and again");
}
/// Number of requests near the head that are served before one at the far end, if 16 of them always
/// wait.
fn served_before_the_far_one(oldest_every: &str) -> u64 {
    let (_, text) = shipped().next().expect("a model");
    let text = text.replace("[interface]", &format!("[interface]\noldest_every = {oldest_every}"));
    let world = VirtualWorld::new(7);
    let model = Model::parse(&text).expect("a valid model");
    let disk = EmulatedDisk::new(Rc::new(world.clone()), model, honest(CacheMode::Off));
    let inner = world.clone();
    let served = world.run(async move {
        for task in 0..16 {
            let disk = disk.clone();
            inner.spawn(Box::pin(async move {
                let random = SplitMix::new(task);
                while disk.statistics().reads < 5000 {
                    disk.read(random.next() % 1_000_000 * SECTOR, 512).await.expect("a read");
                }
            }));
        }
        inner.sleep_until(inner.now().plus(Duration::from_millis(100))).await;
        let before = disk.statistics().reads;
        disk.read(280_000_000 * SECTOR, 512).await.expect("a read");
        disk.statistics().reads - before
    });
    world.end();
    served
}
#[test]
fn nothing_starves_behind_requests_that_are_nearer() {
    let (served, without) =
        (served_before_the_far_one("32"), served_before_the_far_one("4294967295"));
    assert!(without > 4000, "the others never let it: {without}");
    assert!(served < 17 * 32, "of 17 that wait, it gets one choice in 32: {served}");
}

#[test]
fn a_drive_of_146_gb_holds_what_mke2fs_wrote_and_costs_no_more() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("volume");
    let model = model("cheetah-15k5");
    let file = std::fs::File::create(&path).expect("a file");
    file.set_len(model.size.get() / 4096 * 4096).expect("a hole");
    let mut mke2fs = std::process::Command::new("mke2fs");
    let result = mke2fs
        .args(["-q", "-F", "-t", "ext3", "-b", "4096", "-i", "4194304", "-J", "size=4"])
        .arg(&path)
        .status();
    assert!(result.expect("mke2fs runs").success());
    let image = Image::read_file(&path).expect("the file");
    let world = VirtualWorld::new(7);
    let disk = EmulatedDisk::with_image(
        Rc::new(world.clone()),
        model,
        DriveOptions::default(),
        image.clone(),
    );
    world.run(async move {
        let superblock = disk.read(0, 4096).await.expect("a read");
        assert_eq!(
            superblock[1024 + 56..1024 + 58],
            [0x53, 0xef],
            "the magic of ext2, ext3 and ext4"
        );
        disk.write(1 << 36, filled(4096, 1), Durability::Cached).await.expect("a write");
        disk.flush().await.expect("a flush");
        let mut expected = image;
        expected.write(1 << 36, &[1; 4096]);
        assert!(disk.crash().image == expected);
    });
}

#[test]
fn two_drives_in_raid_0_serve_random_reads_almost_twice_as_fast() {
    let time = |count: usize| {
        let world = VirtualWorld::new(7);
        let drive = |_| {
            let world: Rc<dyn World> = Rc::new(world.clone());
            Rc::new(EmulatedDisk::new(world, model("cheetah-15k5"), honest(CacheMode::Off)))
                as Rc<dyn Disk>
        };
        let disk = disks::Raid0::new((0..count).map(drive).collect(), 65536);
        let inner = world.clone();
        let time = world.run(async move {
            let random = SplitMix::new(3);
            let reads =
                (0..400).map(|_| disk.read(random.next() % 35_000_000 * 4096, 4096)).collect();
            timed(&inner, runtime::join_all(reads)).await
        });
        world.end();
        time
    };
    let (one, two) = (time(1), time(2));
    assert!(two < 0.6 * one, "{one} ms on one, {two} ms on two");
}
