//! The memory disk follows `docs/CRASH_MODEL.md`: no less than promised survives a power cut, and
//! no more may be relied on.

use device::{Buffer, DeviceError, Disk, Durability, Operation, World};
use disks::{Atomicity, CrashPolicy, Effect, Fault, Image, LineReplacement, Lying, MemoryDisk};
use runtime::{Either, VirtualWorld, join_all, race};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::future::Future;
use std::rc::Rc;

const SIZE: u64 = 1 << 20;

fn new_disk(seed: u64) -> (VirtualWorld, MemoryDisk) {
    let world = VirtualWorld::new(seed);
    let disk = MemoryDisk::new(Rc::new(world.clone()), SIZE);
    (world, disk)
}
fn filled(length: usize, byte: u8) -> Vec<Rc<Buffer>> {
    vec![Rc::new(Buffer::copy_of(&vec![byte; length]))]
}
/// The byte that fills each sector of a range; panics if a sector is mixed.
fn sectors(image: &Image, at: u64, count: usize) -> Vec<u8> {
    let mut bytes = vec![0; count * 512];
    image.read(at, &mut bytes);
    for sector in bytes.chunks(512) {
        assert!(sector.iter().all(|byte| *byte == sector[0]), "a sector is torn");
    }
    bytes.chunks(512).map(|sector| sector[0]).collect()
}
/// Runs a script on a fresh disk and returns the disk as it is right after.
fn after<F: Future<Output = ()> + 'static>(
    seed: u64,
    script: impl FnOnce(MemoryDisk) -> F,
) -> MemoryDisk {
    let (world, disk) = new_disk(seed);
    world.run(script(disk.clone()));
    disk
}
/// Returns all images that some choices lead to.
fn all_images(disk: &MemoryDisk, atomicity: Atomicity) -> Vec<Image> {
    let mut images = Vec::new();
    let mut choices: Vec<(usize, usize)> = Vec::new();
    loop {
        let mut next = 0;
        images.push(disk.crash_by(atomicity, &mut |count| {
            if next == choices.len() {
                choices.push((0, count));
            }
            next += 1;
            choices[next - 1].0
        }));
        while choices.last().is_some_and(|(choice, count)| choice + 1 == *count) {
            choices.pop();
        }
        match choices.last_mut() {
            Some((choice, _)) => *choice += 1,
            None => return images,
        }
    }
}

#[test]
fn what_was_written_is_read_before_and_after_the_flush() {
    let disk = after(1, async |disk| {
        disk.write(4096, filled(8192, 7), Durability::Cached).await.unwrap();
        assert!(disk.read(4096, 8192).await.unwrap().iter().all(|byte| *byte == 7));
        disk.write(4608, filled(512, 9), Durability::Durable).await.unwrap();
        disk.write(5120, filled(512, 8), Durability::Cached).await.unwrap();
        disk.flush().await.unwrap();
        let back = disk.read(4096, 2048).await.unwrap();
        assert_eq!([back[0], back[512], back[1024], back[1536]], [7, 9, 8, 7]);
    });
    assert_eq!(sectors(&disk.crash(CrashPolicy::LoseAll), 3584, 5), [0, 7, 9, 8, 7]);
}

#[test]
fn flushed_and_durable_writes_survive_every_crash() {
    let disk = after(1, async |disk| {
        disk.write(0, filled(1024, 1), Durability::Cached).await.unwrap();
        disk.flush().await.unwrap();
        disk.write(1024, filled(1024, 2), Durability::Durable).await.unwrap();
        disk.write(4096, filled(1024, 3), Durability::Cached).await.unwrap();
    });
    let mut endings = BTreeSet::new();
    for image in all_images(&disk, Atomicity::Unit(512)) {
        assert_eq!(sectors(&image, 0, 4), [1, 1, 2, 2]);
        endings.insert(sectors(&image, 4096, 2));
    }
    let all = [[0, 0], [0, 3], [3, 0], [3, 3]].map(Vec::from);
    assert_eq!(endings, BTreeSet::from(all));
}

#[test]
fn overlapping_volatile_writes_survive_in_any_combination_of_sectors() {
    let disk = after(1, async |disk| {
        disk.write(0, filled(1024, 1), Durability::Cached).await.unwrap();
        disk.write(512, filled(1024, 2), Durability::Cached).await.unwrap();
    });
    let images = all_images(&disk, Atomicity::Unit(512));
    let endings: BTreeSet<Vec<u8>> = images.iter().map(|image| sectors(image, 0, 3)).collect();
    let mut expected = BTreeSet::new();
    for first in [0, 1] {
        for second in [0, 1, 2] {
            expected.extend([0, 2].map(|third| vec![first, second, third]));
        }
    }
    assert_eq!(endings, expected);
    let whole: BTreeSet<Vec<u8>> =
        all_images(&disk, Atomicity::Write).iter().map(|image| sectors(image, 0, 3)).collect();
    assert_eq!(whole, BTreeSet::from([[0, 0, 0], [1, 1, 0], [0, 2, 2], [1, 2, 2]].map(Vec::from)));
}

#[test]
fn a_durable_write_cannot_be_undone_by_an_older_volatile_one() {
    let disk = after(1, async |disk| {
        disk.write(0, filled(1024, 1), Durability::Cached).await.unwrap();
        disk.write(0, filled(512, 2), Durability::Durable).await.unwrap();
    });
    for image in all_images(&disk, Atomicity::Unit(512)) {
        assert_eq!(sectors(&image, 0, 1), [2]);
    }
}

#[test]
fn a_flush_covers_only_what_was_complete_when_it_began() {
    for seed in 0..50 {
        let (world, disk) = new_disk(seed);
        let shared = disk.clone();
        world.run(async move {
            shared.write(0, filled(512, 1), Durability::Cached).await.unwrap();
            join_all(vec![shared.flush(), shared.write(512, filled(512, 2), Durability::Cached)])
                .await;
        });
        assert_eq!(sectors(&disk.crash(CrashPolicy::LoseAll), 0, 2), [1, 0], "seed {seed}");
    }
}

#[test]
fn units_of_4096_bytes_are_not_torn() {
    let disk = after(1, async |disk| {
        disk.write(4096, filled(8192, 5), Durability::Cached).await.unwrap();
    });
    let images = all_images(&disk, Atomicity::Unit(4096));
    assert_eq!(images.len(), 4);
    for image in images {
        for unit in sectors(&image, 4096, 16).chunks(8) {
            assert!(unit.iter().all(|byte| *byte == unit[0]), "{unit:?}");
        }
    }
}

#[test]
fn writes_in_flight_may_survive_or_not() {
    let (world, disk) = new_disk(1);
    let (shared, images) = (disk.clone(), Rc::new(RefCell::new(Vec::new())));
    let kept = images.clone();
    disk.on_change(move |disk, number, _| {
        if number == 0 {
            *kept.borrow_mut() = all_images(disk, Atomicity::Unit(512));
        }
    });
    world.run(async move { shared.write(0, filled(1024, 1), Durability::Durable).await.unwrap() });
    let endings: BTreeSet<Vec<u8>> =
        images.borrow().iter().map(|image| sectors(image, 0, 2)).collect();
    assert_eq!(endings, BTreeSet::from([[0, 0], [0, 1], [1, 0], [1, 1]].map(Vec::from)));
}

#[test]
fn same_seed_gives_the_same_crash_image() {
    let disk = after(3, async |disk| {
        for index in 0..20 {
            disk.write(index * 3072, filled(4096, index as u8 + 1), Durability::Cached)
                .await
                .unwrap();
        }
    });
    let image = |seed| disk.crash(CrashPolicy::Random { seed, atomicity: Atomicity::Unit(512) });
    assert_eq!(image(1), image(1));
    assert!((0..8).any(|seed| image(seed) != image(seed + 1)));
    assert_eq!(disk.crash(CrashPolicy::KeepAll), disk.image());
    assert_eq!(disk.crash(CrashPolicy::LoseAll), Image::new(SIZE));
}

#[test]
fn a_script_can_be_cut_at_every_change() {
    let mut cuts = 0;
    for cut in 0.. {
        let (world, disk) = new_disk(5);
        disk.cut_at(cut);
        let script = disk.clone();
        let script = async move {
            for round in 1..=3 {
                script.write(0, filled(512, round), Durability::Cached).await.unwrap();
                script.flush().await.unwrap();
            }
        };
        let watched = disk.clone();
        if world.run(race(script, async move { watched.power_lost().await })) == Either::Left(()) {
            assert_eq!(disk.changes(), cut);
            break;
        }
        cuts += 1;
        let flushed = (cut / 2) as u8;
        assert_eq!(sectors(&disk.crash(CrashPolicy::LoseAll), 0, 1), [flushed], "cut {cut}");
        let written = (cut / 2 + 1) as u8;
        assert_eq!(sectors(&disk.crash(CrashPolicy::KeepAll), 0, 1), [written], "cut {cut}");
        // Nothing moves any more.
        let hanging = disk.clone();
        assert!(world.try_run(async move { hanging.read(0, 512).await.map(drop) }).is_err());
    }
    assert_eq!(cuts, 6);
}

#[test]
fn faults_strike_where_and_as_often_as_set() {
    let (world, disk) = new_disk(2);
    world.run(async move {
        disk.inject(Fault { range: 4096..8192, ..Fault::once(Operation::Read) });
        disk.inject(Fault { effect: Effect::Fail(libc::ENOSPC), ..Fault::once(Operation::Write) });
        disk.inject(Fault::forever(Operation::Flush));
        disk.read(0, 4096).await.unwrap();
        let error = disk.read(2048, 4096).await.unwrap_err();
        assert!(matches!(error, DeviceError::Failed { code: libc::EIO, at: 2048, .. }), "{error}");
        disk.read(2048, 4096).await.unwrap();
        let error = disk.write(0, filled(512, 1), Durability::Durable).await.unwrap_err();
        assert!(matches!(error, DeviceError::Failed { code: libc::ENOSPC, .. }), "{error}");
        disk.write(0, filled(64 * 512, 1), Durability::Cached).await.unwrap();
        disk.flush().await.unwrap_err();
        disk.flush().await.unwrap_err();
        assert_eq!(sectors(&disk.crash(CrashPolicy::LoseAll), 0, 64), [0; 64]);
        disk.heal();
        disk.flush().await.unwrap();
        // A later flush brings nothing back that a failed one lost.
        let kept = sectors(&disk.crash(CrashPolicy::LoseAll), 0, 64)
            .iter()
            .filter(|byte| **byte == 1)
            .count();
        assert!((1..64).contains(&kept), "{kept}");
    });
}

#[test]
fn a_hanging_operation_holds_up_no_other() {
    let (world, disk) = new_disk(2);
    disk.inject(Fault { effect: Effect::Hang, ..Fault::once(Operation::Write) });
    let shared = disk.clone();
    let inner = world.clone();
    let first = world.run(async move {
        let hanging = shared.write(0, filled(512, 1), Durability::Cached);
        let other = async {
            shared.read(0, 512).await.unwrap();
            inner.sleep_until(units::Instant(1_000_000_000)).await;
        };
        race(hanging, other).await
    });
    assert!(matches!(first, Either::Right(())));
}

#[test]
fn a_dropped_write_completes_all_the_same() {
    let (world, disk) = new_disk(2);
    let (shared, inner) = (disk.clone(), world.clone());
    world.run(async move {
        race(shared.write(0, filled(512, 1), Durability::Durable), runtime::yield_now()).await;
        inner.sleep_until(units::Instant(1_000_000)).await;
    });
    assert_eq!(sectors(&disk.crash(CrashPolicy::LoseAll), 0, 1), [1]);
}

#[test]
fn requests_beyond_the_end_or_between_sectors_are_refused() {
    let (world, disk) = new_disk(2);
    world.run(async move {
        let beyond = disk.read(SIZE - 512, 1024).await.unwrap_err();
        assert!(matches!(beyond, DeviceError::OutOfRange { size: SIZE, .. }), "{beyond}");
        let far = disk.read(u64::MAX - 511, 512).await.unwrap_err();
        assert!(matches!(far, DeviceError::OutOfRange { .. }), "{far}");
        let between = disk.write(100, filled(512, 1), Durability::Cached).await.unwrap_err();
        assert!(matches!(between, DeviceError::Unaligned { sector: 512, .. }), "{between}");
    });
}

#[test]
fn the_log_and_the_counts_show_every_request() {
    let run = |seed| {
        let disk = after(seed, async |disk| {
            disk.record();
            disk.write(0, filled(1024, 1), Durability::Durable).await.unwrap();
            disk.discard(4096, 4096).await.unwrap();
            disk.flush().await.unwrap();
            assert!(disk.read(4096, 512).await.unwrap().iter().all(|byte| *byte == 0xdd));
        });
        (disk.take_log(), disk.statistics(), disk.changes())
    };
    let (log, statistics, changes) = run(1);
    let operations: Vec<Operation> = log.iter().map(|logged| logged.operation).collect();
    assert_eq!(
        operations,
        [Operation::Write, Operation::Discard, Operation::Flush, Operation::Read]
    );
    assert_eq!((statistics.durable_writes, statistics.bytes_written, changes), (1, 1024, 3));
    assert_eq!(run(2).0, log);
}

#[test]
fn images_come_from_files_and_go_to_files() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("image");
    let mut bytes = vec![0; 3 * 4096 + 512];
    bytes[5000] = 1;
    bytes[3 * 4096 + 511] = 2;
    std::fs::write(&path, &bytes).unwrap();
    let world = VirtualWorld::new(1);
    let disk = MemoryDisk::read_image(Rc::new(world.clone()), &path).unwrap();
    assert_eq!(disk.image(), Image::of_bytes(&bytes));
    let shared = disk.clone();
    world.run(async move { shared.write(512, filled(512, 3), Durability::Cached).await.unwrap() });
    let fork = disk.fork(Rc::new(VirtualWorld::new(2)));
    assert_eq!(fork.image(), disk.image());
    assert_eq!(fork.crash(CrashPolicy::LoseAll), Image::of_bytes(&bytes));
    disk.write_image(&path).unwrap();
    bytes[512..1024].fill(3);
    assert!(std::fs::read(&path).unwrap() == bytes);
}

#[test]
fn a_large_sparse_disk_costs_what_was_written() {
    let world = VirtualWorld::new(1);
    let disk = MemoryDisk::new(Rc::new(world.clone()), 1 << 40);
    let shared = disk.clone();
    world.run(async move {
        shared.write((1 << 40) - 512, filled(512, 1), Durability::Durable).await.unwrap();
        shared.discard(0, 1 << 30).await.unwrap();
    });
    assert_eq!(sectors(&disk.image(), (1 << 40) - 1024, 2), [0, 1]);
}

#[test]
fn after_any_run_each_sector_holds_its_durable_content_or_a_later_one() {
    const SECTORS: u64 = 16;
    for seed in 0..200 {
        let (world, disk) = new_disk(seed);
        let inner = world.clone();
        world.run(async move {
            // Allowed content of each sector after a crash; the first is the durable content.
            let mut allowed = vec![vec![0u8]; SECTORS as usize];
            for step in 1..=60u8 {
                let at = inner.random() % SECTORS;
                let count = 1 + inner.random() % (SECTORS - at).min(5);
                let parts = filled(count as usize * 512, step);
                let touched = &mut allowed[at as usize..(at + count) as usize];
                match inner.random() % 8 {
                    0 => {
                        disk.flush().await.unwrap();
                        allowed.iter_mut().for_each(|contents| {
                            *contents = contents.split_off(contents.len() - 1)
                        });
                    }
                    1 => {
                        disk.write(at * 512, parts, Durability::Durable).await.unwrap();
                        touched.iter_mut().for_each(|contents| *contents = vec![step]);
                    }
                    _ => {
                        disk.write(at * 512, parts, Durability::Cached).await.unwrap();
                        touched.iter_mut().for_each(|contents| contents.push(step));
                    }
                }
                let newest: Vec<u8> =
                    allowed.iter().map(|contents| contents[contents.len() - 1]).collect();
                assert_eq!(
                    sectors(&disk.image(), 0, SECTORS as usize),
                    newest,
                    "seed {seed}, step {step}"
                );
                let oldest: Vec<u8> = allowed.iter().map(|contents| contents[0]).collect();
                let lost = disk.crash(CrashPolicy::LoseAll);
                assert_eq!(sectors(&lost, 0, SECTORS as usize), oldest, "seed {seed}, step {step}");
                let policy =
                    CrashPolicy::Random { seed: inner.random(), atomicity: Atomicity::Unit(512) };
                for (found, allowed) in
                    sectors(&disk.crash(policy), 0, SECTORS as usize).iter().zip(&allowed)
                {
                    assert!(
                        allowed.contains(found),
                        "seed {seed}, step {step}: {found} not of {allowed:?}"
                    );
                }
            }
        });
    }
}

#[test]
fn it_also_works_in_real_time() {
    let world = runtime::RealWorld::new().unwrap();
    let disk = MemoryDisk::new(Rc::new(world.clone()), SIZE);
    world.run(async move {
        disk.write(0, filled(512, 1), Durability::Cached).await.unwrap();
        disk.flush().await.unwrap();
        assert_eq!(sectors(&disk.crash(CrashPolicy::LoseAll), 0, 1), [1]);
    });
}

/// The first lines of 4096 bytes that are on the medium after `script` on a lying disk with a cache
/// of four.
fn on_medium<F: Future<Output = ()> + 'static>(
    replacement: LineReplacement,
    script: impl FnOnce(MemoryDisk) -> F,
) -> Vec<u64> {
    let disk = after(1, |disk| {
        disk.lie(Lying { lines: 4, replacement, seed: 1 });
        script(disk)
    });
    let image = disk.crash(CrashPolicy::LoseAll);
    (0..64).filter(|line| sectors(&image, line * 4096, 1) != [0]).collect()
}
async fn write_lines(disk: &MemoryDisk, lines: std::ops::Range<u64>) {
    for line in lines {
        disk.write(line * 4096, filled(512, 1), Durability::Durable).await.unwrap();
    }
}

#[test]
fn a_lying_disk_keeps_flushed_data_until_it_is_replaced() {
    for replacement in [LineReplacement::LeastRecentlyUsed, LineReplacement::Random] {
        let script = |disk: MemoryDisk| async move {
            write_lines(&disk, 0..4).await;
            disk.flush().await.unwrap();
        };
        assert_eq!(on_medium(replacement, script), []);
        let more = |disk: MemoryDisk| async move { write_lines(&disk, 0..40).await };
        assert_eq!(on_medium(replacement, more).len(), 36);
    }
}

#[test]
fn what_was_used_last_stays_in_a_lying_disk_longest() {
    let script = |disk: MemoryDisk| async move {
        write_lines(&disk, 0..4).await;
        disk.read(0, 512).await.unwrap();
        write_lines(&disk, 1..2).await;
        write_lines(&disk, 4..6).await;
    };
    assert_eq!(on_medium(LineReplacement::LeastRecentlyUsed, script), [2, 3]);
}
