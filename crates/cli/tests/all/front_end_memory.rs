//! Tests of the bound on the daemon's memory for requests in flight, however many come at once.

use crate::common::ring::Ring;
use crate::common::{Volume, okeanos_within, said};
use std::ffi::OsStr;
use std::fs::{self, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};

const MEBIBYTE: usize = 1 << 20;
const WRITERS: usize = 600;
const WRITES_EACH: usize = 2;
/// Maximum: `cache=16M`, and 64 MiB of requests at the front end, 32 for the program.
const WHOLE_MAX: usize = (16 + 64 + 32) * MEBIBYTE;
/// Maximum over the ring, where another 128 MiB may be in flight.
const WHOLE_MAX_RING: usize = WHOLE_MAX + 128 * MEBIBYTE;
/// Address space: more than a daemon takes, and less than the ring's buffers.
const ADDRESS_SPACE: u64 = 100 << 20;

/// Returns the peak memory of a process, in bytes.
fn peak_of(process: i32) -> usize {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches("kB").trim().parse::<usize>().unwrap() * 1024
}

/// Writes the same mebibyte from many threads: they wait for one another, so that all are in
/// flight.
fn many_writers(volume: &Volume) {
    let path = volume.at("file");
    fs::write(&path, vec![0; MEBIBYTE]).unwrap();
    let content = vec![7; MEBIBYTE];
    std::thread::scope(|scope| {
        for _ in 0..WRITERS {
            let (path, content) = (&path, &content);
            scope.spawn(move || {
                let file =
                    OpenOptions::new().write(true).custom_flags(libc::O_DIRECT).open(path).unwrap();
                for _ in 0..WRITES_EACH {
                    file.write_all_at(content, 0).unwrap();
                }
            });
        }
    });
    assert_eq!(fs::read(&path).unwrap(), content);
}

/// Reads, past the page cache, a file that the daemon's cache does not hold.
fn many_readers(volume: &Volume) {
    let path = volume.at("large");
    fs::write(&path, vec![9; 40 * MEBIBYTE]).unwrap();
    std::thread::scope(|scope| {
        for reader in 0..WRITERS / 2 {
            let file =
                OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(&path).unwrap();
            scope.spawn(move || {
                let mut content = vec![0; MEBIBYTE];
                file.read_exact_at(&mut content, (reader % 40 * MEBIBYTE) as u64).unwrap();
                assert!(content.iter().all(|byte| *byte == 9));
            });
        }
    });
}

fn memory_stays_bounded(transport: &str, whole_max: usize) {
    let volume = Volume::with_size(&["-t", "ext4"], 256 << 20);
    volume.mount(&format!("transport={transport},cache=16M,data=ordered"));
    many_writers(&volume);
    let daemon = volume.daemon();
    let peak = peak_of(daemon);
    println!("{transport}: at most {} MiB in memory", peak >> 20);
    assert!(peak < whole_max, "{transport}: {} MiB after writing", peak >> 20);
    many_readers(&volume);
    let peak = peak_of(daemon);
    println!("{transport}: at most {} MiB in memory", peak >> 20);
    assert!(peak < whole_max, "{transport}: {} MiB after reading", peak >> 20);
    volume.umount_and_check();
}

#[test]
fn large_requests_hold_bounded_memory_over_the_classic_channel() {
    memory_stays_bounded("classic", WHOLE_MAX);
}

#[test]
fn large_requests_hold_bounded_memory_over_the_ring() {
    let Some(_allowed) = Ring::allowed() else { return };
    memory_stays_bounded("uring", WHOLE_MAX_RING);
}

#[test]
fn without_memory_for_the_ring_its_mount_is_refused() {
    let Some(_allowed) = Ring::allowed() else { return };
    let volume = Volume::new(&["-t", "ext4"]);
    let mount = |transport: &str| {
        let options = format!("transport={transport}");
        let (image, root) = (volume.image(), volume.root());
        let words: [&OsStr; 5] = [
            "mount".as_ref(),
            "-o".as_ref(),
            options.as_ref(),
            image.as_os_str(),
            root.as_os_str(),
        ];
        okeanos_within(ADDRESS_SPACE, &words)
    };
    let refused = mount("uring");
    assert!(
        !refused.status.success() && said(&refused).contains("no memory"),
        "{}",
        said(&refused)
    );
    let mounted = mount("auto");
    assert!(mounted.status.success(), "{}", said(&mounted));
    assert_eq!(volume.statistics()["transport"], "classic");
    fs::write(volume.at("file"), "content").unwrap();
    volume.umount_and_check();
}
