//! Tests of what Linux does differently from release to release: what its page cache fetches and
//! shows, and which syncs it passes on. `make test-kernels` runs them on older kernels, too.

use crate::coherence::{open, word_at};
use crate::common::mapping::Map;
use crate::common::{Volume, gone, said, signal};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const PAGE: usize = 4096;

/// Returns how many READs the kernel has made.
fn reads(volume: &Volume) -> u64 {
    volume.statistics()["front_end"]["by_operation"]["read"].as_u64().unwrap_or(0)
}

#[test]
fn a_byte_written_leaves_the_rest_of_its_file_cached() {
    const BYTES: usize = 8 << 20;
    let volume = Volume::mounted(&["-t", "ext4"], "");
    let mut wanted: Vec<u8> = (0..BYTES).map(|at| (at / 1000) as u8).collect();
    std::fs::write(volume.at("file"), &wanted).unwrap();
    volume.umount();
    volume.mount("");
    let file = open(&volume, "file", 0);
    let content = || std::fs::read(volume.at("file")).unwrap();
    assert!(content() == wanted);
    // Requests of a MiB, on every kernel.
    assert_eq!(reads(&volume), (BYTES >> 20) as u64, "a first reader");
    // Locked in memory, so that nobody but the kernel's FUSE drops a page.
    let map = Map::new(&file, BYTES).unwrap();
    map.lock();
    let fetched = reads(&volume);
    for number in 0..3 {
        let at = number * 1_000_000 + 7;
        wanted[at] ^= 0xff;
        file.write_all_at(&wanted[at..=at], at as u64).unwrap();
        assert!(content() == wanted, "after write {number}");
        assert_eq!(reads(&volume), fetched, "after write {number}");
    }
    drop((map, file));
    let at = 5 * PAGE;
    wanted[at] ^= 0xff;
    // The kernel empties the cache when it is opened; a write behind that drops a page.
    let file = open(&volume, "file", libc::O_DSYNC);
    content();
    let fetched = reads(&volume);
    file.write_all_at(&wanted[at..=at], at as u64).unwrap();
    assert!(content() == wanted, "after a direct write");
    // Of other kernels the readers go past the cache, too, while it is open.
    if fuse::drops_written_pages() {
        assert_eq!(reads(&volume), fetched + 1, "behind a direct write");
    }
    drop(file);
    assert!(content() == wanted);
    volume.umount_and_check();
}

/// A page of memory at an address that O_DIRECT takes.
#[repr(align(4096))]
struct Page([u8; PAGE]);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum First {
    Readers,
    Writer,
}

/// The kernel for which a volume is mounted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kernel {
    This,
    Older,
}

/// Mounts as an older kernel, by number, needs it: this one may drop pages that others keep.
fn mount_for_older_kernels(volume: &Volume, options: &str) {
    let named = |personality: libc::c_ulong| {
        // SAFETY: personality takes an integer, and concerns this thread and what it starts.
        assert_ne!(unsafe { libc::personality(personality) }, -1);
    };
    named(libc::UNAME26 as libc::c_ulong);
    volume.mount(options);
    named(0);
}

/// Runs a writer with a descriptor of `flags` beside readers through the page cache, of each kind.
/// Whatever a reader sees must not be older than the last write that had returned before.
fn read_beside_a_writer(kernel: Kernel, flags: i32, first: First) {
    const PAGES: usize = 4;
    const ROUNDS: u64 = 150;
    let volume = Volume::new(&["-t", "ext4"]);
    match kernel {
        Kernel::This => volume.mount("data=wasteless"),
        Kernel::Older => mount_for_older_kernels(&volume, "data=wasteless"),
    }
    std::fs::write(volume.at("file"), vec![0; PAGES * PAGE]).unwrap();
    let open_writer = || open(&volume, "file", flags);
    let early = (first == First::Writer).then(open_writer);
    let kept = open(&volume, "file", 0);
    let map = Map::new(&kept, PAGES * PAGE);
    // Before Linux 6.6 nobody maps what is written past the cache, rather than see old pages.
    let is_refused = map.as_ref().is_err_and(|error| error.raw_os_error() == Some(libc::ENODEV));
    assert!(map.is_ok() || is_refused && first == First::Writer, "{map:?}", map = map.err());
    let writer = early.unwrap_or_else(open_writer);
    let written: Vec<AtomicU64> = (0..PAGES).map(|_| AtomicU64::new(0)).collect();
    let done = AtomicBool::new(false);
    let stale = Mutex::new(None);
    let read_on = |kind: &str, read: &dyn Fn(usize) -> u64| {
        while !done.load(Ordering::SeqCst) {
            for (page, last) in written.iter().enumerate() {
                let returned = last.load(Ordering::SeqCst);
                let seen = read(page);
                if seen < returned {
                    *stale.lock().unwrap() = Some(format!("{kind} saw {seen} after {returned}"));
                    done.store(true, Ordering::SeqCst);
                }
            }
        }
    };
    let read_on = &read_on;
    std::thread::scope(|scope| {
        scope.spawn(|| read_on("a kept descriptor", &|page| word_at(&kept, page * PAGE)));
        let open_anew = || File::open(volume.at("file")).unwrap();
        scope.spawn(move || read_on("a new one", &|page| word_at(&open_anew(), page * PAGE)));
        // A mapping of what goes past the cache may show an older page (docs/POSIX.md).
        let is_kept = (kernel, first) != (Kernel::Older, First::Writer);
        if let Some(map) = map.as_ref().ok().filter(|_| is_kept) {
            let word = |page: usize| map.word(page * PAGE).load(Ordering::SeqCst);
            scope.spawn(move || read_on("a mapping", &word));
        }
        let mut page = Box::new(Page([0; PAGE]));
        for value in 1..=ROUNDS {
            for (number, written) in written.iter().enumerate() {
                if done.load(Ordering::SeqCst) {
                    return;
                }
                page.0[..8].copy_from_slice(&value.to_le_bytes());
                writer.write_all_at(&page.0, (number * PAGE) as u64).unwrap();
                written.store(value, Ordering::SeqCst);
            }
        }
        done.store(true, Ordering::SeqCst);
    });
    assert_eq!(stale.into_inner().unwrap(), None, "{flags:o}, {first:?} first");
    drop((map, writer, kept));
    // Pages that were left behind would be shown now.
    let file = open(&volume, "file", 0);
    (0..PAGES).for_each(|page| assert_eq!(word_at(&file, page * PAGE), ROUNDS, "page {page}"));
    drop(file);
    volume.umount_and_check();
}

#[test]
fn readers_see_what_a_synchronous_write_changed() {
    for first in [First::Readers, First::Writer] {
        read_beside_a_writer(Kernel::This, libc::O_DSYNC, first);
        read_beside_a_writer(Kernel::Older, libc::O_SYNC, first);
    }
}

#[test]
fn readers_see_what_a_direct_write_changed() {
    for first in [First::Readers, First::Writer] {
        read_beside_a_writer(Kernel::This, libc::O_DIRECT, first);
        read_beside_a_writer(Kernel::Older, libc::O_DIRECT | libc::O_DSYNC, first);
    }
}

#[test]
fn sync_waits_or_the_mount_says_that_it_does_not() {
    let volume = Volume::new(&["-t", "ext4"]);
    let printed = said(&volume.try_mount("commit=60"));
    std::fs::write(volume.at("synced"), "itself").unwrap();
    File::open(volume.at("synced")).unwrap().sync_all().unwrap();
    std::fs::write(volume.at("file"), "by sync(2)").unwrap();
    // SAFETY: sync takes no arguments.
    unsafe { libc::sync() };
    let daemon = volume.daemon();
    signal(daemon, libc::SIGKILL);
    gone(daemon);
    volume.umount();
    volume.mount("");
    assert_eq!(std::fs::read(volume.at("synced")).unwrap(), b"itself");
    match std::fs::read(volume.at("file")) {
        Ok(content) if content == b"by sync(2)" => {}
        _ => assert!(printed.contains("6.18"), "sync(2) returned early: {printed}"),
    }
    volume.umount_and_check();
}
