//! Content that a drive keeps of reads and writes, extent of its read-ahead, and cost of a read on
//! its bus.

use crate::common::{filled, timed};
use device::{Disk, Durability, World};
use emulated::{DriveOptions, EmulatedDisk, Model, SECTOR, shipped};
use runtime::VirtualWorld;
use std::future::Future;
use std::rc::Rc;
use std::time::Duration;

/// Bytes of the outermost tracks of the drive.
const TRACK: u64 = 1200 * SECTOR;

/// Runs a script on a Cheetah whose file has more lines in `[interface]` and `[cache]`.
fn on_cheetah<T: 'static, F: Future<Output = T> + 'static>(
    interface: &str,
    cache: &str,
    script: impl FnOnce(VirtualWorld, EmulatedDisk) -> F,
) -> T {
    let (_, text) = shipped().find(|(name, _)| *name == "cheetah-15k5").expect("it is shipped");
    let text = text.replace("[interface]", &format!("[interface]\n{interface}"));
    // Shorter than a segment, which keeps what lies before a read, too.
    let text = text.replace("read_ahead = 614_400", "read_ahead = 307_200");
    let text = text.replace("[cache]", &format!("[cache]\n{cache}"));
    let world = VirtualWorld::new(7);
    let model = Model::parse(&text).expect("a valid model");
    let disk = EmulatedDisk::new(Rc::new(world.clone()), model, DriveOptions::default());
    let value = world.run(script(world.clone(), disk));
    world.end();
    value
}

/// Reads 4 KiB at each of these bytes, long apart, after a write far away. Returns which reads the
/// cache answered.
fn hits(cache: &str, reads: &'static [u64]) -> Vec<bool> {
    on_cheetah("", cache, move |world, disk| async move {
        disk.write(TRACK * 1000, filled(4096, 1), Durability::Cached).await.expect("a write");
        let mut answered = Vec::new();
        for at in reads {
            world.sleep_until(world.now().plus(Duration::from_millis(100))).await;
            let before = disk.statistics().read_hits;
            disk.read(*at, 4096).await.expect("a read");
            answered.push(disk.statistics().read_hits > before);
        }
        answered
    })
}

const BASE: u64 = TRACK / 2;
const NEXT: u64 = BASE + 4096;

#[test]
fn what_the_host_has_read_stays_where_the_drive_keeps_reads() {
    let reads = &[BASE, NEXT, BASE, NEXT, NEXT + 4096];
    assert_eq!(hits("", reads), [false, true, true, true, true]);
    let forgets = hits("keeps_reads = false", reads);
    // Reading BASE again reads ahead again.
    assert_eq!(forgets, [false, true, false, true, true]);
    let skipped = &[BASE, NEXT + 8192, NEXT];
    assert_eq!(hits("keeps_reads = false", skipped), [false, true, false]);
}
#[test]
fn reading_ahead_may_wait_for_a_sequential_read() {
    let sequential = "read_ahead_after = \"sequential-read\"";
    assert_eq!(hits(sequential, &[BASE, NEXT, NEXT + 4096]), [false, false, true]);
    assert_eq!(hits(sequential, &[BASE, BASE, NEXT + 4096]), [false, true, false]);
}
#[test]
fn reading_ahead_may_end_with_the_track() {
    let reads = &[BASE, TRACK - 4096, TRACK];
    assert_eq!(hits("", reads), [false, true, true]);
    assert_eq!(hits("read_ahead_within_track = true", reads), [false, true, false]);
}
#[test]
fn a_stream_goes_on_beyond_the_track_and_reads_on_at_hits() {
    const STREAM: &str = "read_ahead_within_track = true";
    const FROM: u64 = TRACK - 8192;
    let reads = &[FROM, FROM + 4096, TRACK, TRACK + 4096];
    assert_eq!(hits(STREAM, reads), [false, true, false, true]);
    const READS_ON: &str = "read_ahead_within_track = true\nread_ahead_on_hits = true";
    assert_eq!(hits(READS_ON, reads), [false, true, true, true]);
    // No stream: nothing is read on.
    assert_eq!(hits(READS_ON, &[FROM, FROM + 4096, FROM, TRACK]), [false, true, true, true]);
    assert_eq!(hits(READS_ON, &[FROM - 4096, FROM + 4096, TRACK]), [false, true, false]);
}
#[test]
fn sectors_before_a_read_are_kept_on_its_track() {
    let before = "read_before = 200000";
    assert_eq!(hits("", &[BASE, BASE - 8192]), [false, false]);
    assert_eq!(hits(before, &[BASE, BASE - 8192]), [false, true]);
    assert_eq!(hits(before, &[BASE, BASE - 204_800]), [false, false], "too far");
    assert_eq!(hits(before, &[TRACK, TRACK - 8192]), [false, false], "another track");
}
#[test]
fn what_was_written_stays_where_the_drive_keeps_writes() {
    let answers = |cache: &'static str| {
        on_cheetah("", cache, |world, disk| async move {
            disk.write(0, filled(4096, 1), Durability::Cached).await.expect("a write");
            disk.flush().await.expect("a flush");
            world.sleep_until(world.now().plus(Duration::from_millis(100))).await;
            let bytes = disk.read(0, 4096).await.expect("a read");
            assert!(bytes.iter().all(|byte| *byte == 1), "{cache}");
            disk.statistics().read_hits == 1
        })
    };
    assert!(answers(""));
    assert!(!answers("keeps_writes = false"));
}

/// The greatest and least numbers that a file may have.
#[test]
fn no_number_of_a_file_makes_a_drive_panic_or_hang() {
    const INTERFACE: &str = "bus_paces_reads = true\noverheads.read_without_seek_ms = 1e9\n\
                             overheads.delay_by_chance = { share = 1, ms = 1e9 }";
    for before in ["0", "1", "511", "4294967295"] {
        for rest in [
            "keeps_reads = false\nread_ahead_on_hits = true",
            "keeps_writes = false\nread_ahead_within_track = true\nread_ahead_on_hits = true",
            "read_ahead_after = \"sequential-read\"\nread_ahead_on_hits = true",
        ] {
            let cache = format!("read_before = {before}\n{rest}");
            on_cheetah(INTERFACE, &cache, |world, disk| async move {
                let size = disk.geometry().size;
                for at in [0, 512, 1024, size - 1024, size - 512, 512, TRACK - 512, TRACK] {
                    disk.read(at, 512).await.expect("a read");
                    disk.write(at, filled(512, 1), Durability::Cached).await.expect("a write");
                    disk.read(at, 512).await.expect("a read");
                    world.sleep_until(world.now().plus(Duration::from_millis(at % 7 * 10))).await;
                }
                disk.flush().await.expect("a flush");
            });
        }
    }
}
#[test]
fn a_read_from_the_medium_takes_the_bus_where_it_paces_reads() {
    let read_ms = |interface: &'static str| {
        on_cheetah(interface, "", |world, disk| async move {
            timed(&world, disk.read(BASE, 51_200)).await
        })
    };
    // The file's bus moves 400 MB/s, three times the medium's rate: only the last sector is late.
    let (free, paced) = (read_ms(""), read_ms("bus_paces_reads = true"));
    assert!((0.001..0.002).contains(&(paced - free)), "{paced} ms, {free} without the bus");
}
#[test]
fn a_read_after_a_write_and_one_without_a_seek_cost_their_own_times() {
    let read_ms = |line: &'static str| {
        let interface = format!("overheads.{line}");
        on_cheetah(&interface, "", |world, disk| async move {
            // The platter is where it was: 100 revolutions, and what the drive costs beyond them.
            timed(&world, disk.read(BASE, 4096)).await
        })
    };
    let usual = read_ms("read_hit_ms = 9");
    // The first request counts as one after a write, and the arm stands at cylinder 0.
    for line in ["read_after_write_ms = 0.19", "read_without_seek_ms = 0.01"] {
        let own = read_ms(line);
        let revolution = 60_000.0 / 15_020.0;
        let later = own - usual;
        assert!(later.abs() < 1e-6 || (later - revolution).abs() < 1e-6, "{line}: {later} ms");
    }
    assert!(read_ms("read_without_seek_ms = 4") > usual + 3.9);
    assert!(read_ms("read_after_write_ms = 4.18") > usual + 3.9);
}
#[test]
fn cached_requests_cost_their_own_times() {
    const TIMES: &str = "overheads.read_hit_ms = 1\noverheads.write_hit_ms = 2\n\
                         overheads.write_hit_after_read_ms = 3\noverheads.appended_write_ms = 4\n\
                         overheads.distant_write_ms = 5\noverheads.read_hit_after_write_ms = 6";
    let times = on_cheetah(TIMES, "", |world, disk| async move {
        let write = |at: u64| disk.write(at, filled(4096, 1), Durability::Cached);
        let pause = || world.sleep_until(world.now().plus(Duration::from_millis(100)));
        let mut times = Vec::new();
        disk.read(BASE, 4096).await.expect("a read");
        pause().await;
        times.push(timed(&world, disk.read(NEXT, 4096)).await);
        for at in [BASE, NEXT, BASE, TRACK * 50_000] {
            pause().await;
            times.push(timed(&world, write(at)).await);
        }
        pause().await;
        times.push(timed(&world, disk.read(BASE, 4096)).await);
        times
    });
    let whole: Vec<u64> = times.iter().map(|ms| *ms as u64).collect();
    assert_eq!(whole, [1, 3, 4, 2, 5, 6], "{times:?}");
}
