//! Tests that `cache=` bounds the daemon's memory, within the constant that the manual states.

use crate::common::Volume;
use crate::common::mapping::Map;
use crate::rig::Rig;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

const MEBIBYTE: usize = 1 << 20;
const CACHE: usize = 96 * MEBIBYTE;
const FILE: usize = 2 * CACHE;
/// Bytes on top of `cache=`, as in `okeanos mount --help`: the program and its data,
const PROGRAM: usize = 32 * MEBIBYTE;
/// and large requests at the front end.
const FRONT_END: usize = 64 * MEBIBYTE;
/// Bytes that the heap loses between short buffers, for parts of blocks in flight to the log.
const PARTS: usize = 8 * MEBIBYTE;
const PATIENCE: Duration = Duration::from_secs(20);

/// Returns a figure of the process, in bytes.
fn status_of(process: i32, name: &str) -> usize {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    line.trim_start_matches(':').trim().trim_end_matches("kB").trim().parse::<usize>().unwrap()
        * 1024
}

/// Bounds the daemon's memory. `on_top`: bytes that `work` may take beside the cache.
fn with_bounded_memory(mode: &str, on_top: usize, work: impl Fn(&Volume)) {
    // Large transactions: the log must not be their bound.
    let volume = Volume::with_size(&["-t", "ext4", "-J", "size=300"], 1 << 30);
    volume.mount(&format!("cache={CACHE},data={mode}"));
    let daemon = volume.daemon();
    work(&volume);
    let peak = status_of(daemon, "VmHWM");
    let cache = volume.statistics()["engine"]["cache"].clone();
    assert!(peak <= CACHE + on_top, "{mode}: {} MiB at most, {cache}", peak >> 20);
    assert!(cache["bytes"].as_u64() <= cache["limit_bytes"].as_u64(), "{mode}: {cache}");
    let (begun, left) = (Instant::now(), || status_of(daemon, "VmRSS"));
    while left() > CACHE + PROGRAM && begun.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(100));
    }
    println!("{mode}: {} MiB at most, {} MiB left", peak >> 20, left() >> 20);
    assert!(left() <= CACHE + PROGRAM, "{mode}: {} MiB left", left() >> 20);
    volume.umount_and_check();
}

fn overwrites(volume: &Volume) {
    for round in 1..=2u8 {
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .open(volume.at("file"))
            .unwrap();
        let content = vec![round; MEBIBYTE];
        for at in (0..FILE).step_by(MEBIBYTE) {
            file.write_all_at(&content, at as u64).unwrap();
        }
        file.sync_all().unwrap();
    }
}

fn mapped_writes(volume: &Volume) {
    let file =
        OpenOptions::new().read(true).write(true).create_new(true).open(volume.at("file")).unwrap();
    file.set_len(FILE as u64).unwrap();
    let mut mapping = Map::new(&file, FILE).unwrap();
    for round in 1..=2 {
        mapping.bytes().fill(round);
        mapping.sync().unwrap();
    }
}

fn written_and_removed(volume: &Volume) {
    let content = vec![7; 4 * MEBIBYTE];
    for round in 0..40 {
        let path = volume.at(&format!("file{}", round % 3));
        fs::write(&path, &content).unwrap();
        File::open(&path).unwrap().sync_all().unwrap();
        fs::remove_file(&path).unwrap();
    }
}

/// Writes parts of blocks, which are copied for the log. Clean blocks take the rest.
fn halves_of_blocks(volume: &Volume) {
    let path = volume.at("read");
    fs::write(&path, vec![5; CACHE]).unwrap();
    File::open(&path).unwrap().sync_all().unwrap();
    let file = File::create(volume.at("file")).unwrap();
    for at in (0..2 * CACHE).step_by(4096) {
        file.write_all_at(&[7; 2000], at as u64).unwrap();
    }
    file.sync_all().unwrap();
}

#[test]
fn parts_of_blocks_in_flight_stay_within_the_bound() {
    for mode in ["wasteless", "selective"] {
        with_bounded_memory(mode, PROGRAM + PARTS, halves_of_blocks);
    }
}

#[test]
fn overwriting_a_file_of_twice_the_cache_stays_within_the_bound() {
    for mode in ["ordered", "writeback", "journal", "wasteless"] {
        with_bounded_memory(mode, PROGRAM + FRONT_END, overwrites);
    }
}

#[test]
fn mapped_writes_of_twice_the_cache_stay_within_the_bound() {
    for mode in ["ordered", "writeback"] {
        with_bounded_memory(mode, PROGRAM + FRONT_END, mapped_writes);
    }
}

#[test]
fn files_written_and_removed_again_and_again_stay_within_the_bound() {
    for mode in ["ordered", "writeback", "wasteless"] {
        with_bounded_memory(mode, PROGRAM + FRONT_END, written_and_removed);
    }
}

/// Bounds a host by what its page says: dirty data three times (its own, in the store's buffers,
/// and in flight to the journal), the program, and large requests at the front end.
#[test]
fn a_host_with_eight_writers_stays_within_its_bound() {
    let dirty = 64 * MEBIBYTE;
    let bound = 3 * (dirty + dirty / 4) + PROGRAM + FRONT_END;
    let rig = Rig::new();
    let printed = rig.run(&format!(
        r#"mkdir store; mount -t tmpfs -o size=1G none store; truncate -s 1G journal
           $O host mount -o dirty={dirty} --store dir:$PWD/store --journal $PWD/journal $M
           DAEMON=$($O stats --json $M | sed -n 's/.*"process": \([0-9]*\).*/\1/p')
           for i in $(seq 8); do
               dd if=/dev/zero of=$M/file$i bs=1M count=80 conv=fsync status=none & WRITERS[i]=$!
           done
           for writer in "${{WRITERS[@]}}"; do wait $writer; done
           sed -n 's/^VmHWM:[^0-9]*\([0-9]*\).*/\1/p' /proc/$DAEMON/status; $O umount $M
           [ $(stat -c %s store/file* | sort -u) = 83886080 ]; umount store"#
    ));
    let peak = printed.trim().parse::<usize>().unwrap() * 1024;
    println!("{} MiB at most, bound {} MiB", peak >> 20, bound >> 20);
    assert!(peak <= bound, "{} MiB at most", peak >> 20);
}
