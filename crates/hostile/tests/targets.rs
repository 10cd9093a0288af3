//! Every target survives its corpus and a fixed number of seeded mutations, in bounded memory and
//! time.
//!
//! `OKEANOS_HOSTILE_SEED` and `OKEANOS_HOSTILE_ROUNDS` (a factor) choose another or a longer run.

use hostile::{TARGETS, Target, mutate, random_input};
use runtime::SplitMix;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Limit in bytes on what a reader may allocate at one time; the images themselves are 16 MiB.
const MEMORY_MAX: usize = 300 << 20;
/// Time limit of one input, on a busy machine, too.
const PATIENCE: Duration = Duration::from_secs(120);

struct Counting;
thread_local! {
    static USED: Cell<usize> = const { Cell::new(0) };
    static MOST: Cell<usize> = const { Cell::new(0) };
}
// SAFETY: every call goes to the system's allocator unchanged; only numbers are kept, in cells that
// need no destructor.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        USED.with(|used| {
            used.set(used.get().wrapping_add(layout.size()));
            MOST.with(|most| most.set(most.get().max(used.get())));
        });
        // SAFETY: as the caller promised.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        USED.with(|used| used.set(used.get().wrapping_sub(layout.size())));
        // SAFETY: as the caller promised.
        unsafe { System.dealloc(pointer, layout) }
    }
}
#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn corpus(target: &Target) -> Vec<(PathBuf, Vec<u8>)> {
    let directory =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target.name);
    let entries =
        std::fs::read_dir(&directory).unwrap_or_else(|error| panic!("{directory:?}: {error}"));
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.into_iter().map(|path| (path.clone(), std::fs::read(path).unwrap())).collect()
}

/// Runs one input; on failure prints it, and how to reproduce it.
fn survives(target: &Target, bytes: &[u8], what: &str) {
    MOST.set(USED.get());
    let before = USED.get();
    let outcome = catch_unwind(AssertUnwindSafe(|| (target.run)(bytes)));
    let most = MOST.get().saturating_sub(before);
    if outcome.is_err() || most > MEMORY_MAX {
        let saved = std::env::temp_dir().join(format!("okeanos-hostile-{}", target.name));
        std::fs::write(&saved, bytes).unwrap();
        let saved = saved.display();
        panic!(
            "target {} fails on {what}, now in {saved}; it took {most} bytes of memory",
            target.name
        );
    }
}

/// Aborts when one input takes too long; `progress` counts inputs.
fn watch(name: &'static str, progress: &'static AtomicU64) {
    std::thread::spawn(move || {
        let mut seen = 0;
        loop {
            std::thread::sleep(PATIENCE);
            let now = progress.load(Ordering::Relaxed);
            if now == u64::MAX {
                return;
            }
            if now == seen {
                eprintln!("target {name}: input {now} does not end");
                std::process::abort();
            }
            seen = now;
        }
    });
}

fn number(variable: &str, otherwise: u64) -> u64 {
    std::env::var(variable).map_or(otherwise, |text| text.parse().expect(variable))
}

fn run(name: &'static str) {
    static PROGRESS: [AtomicU64; TARGETS.len()] = [const { AtomicU64::new(0) }; TARGETS.len()];
    let index = TARGETS.iter().position(|target| target.name == name).unwrap();
    let (target, progress) = (&TARGETS[index], &PROGRESS[index]);
    watch(name, progress);
    let corpus = corpus(target);
    assert!(!corpus.is_empty(), "no corpus for {name}");
    for (path, bytes) in &corpus {
        survives(target, bytes, &path.display().to_string());
        progress.fetch_add(1, Ordering::Relaxed);
    }
    let seed = number("OKEANOS_HOSTILE_SEED", 1);
    for round in 0..target.rounds * number("OKEANOS_HOSTILE_ROUNDS", 1) {
        let random = SplitMix::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(round));
        let mut bytes = if target.takes_patches && round % 4 != 0 {
            random_input(&random)
        } else {
            corpus[(random.next() % corpus.len() as u64) as usize].1.clone()
        };
        if !target.takes_patches || round % 4 == 0 {
            mutate(&mut bytes, &random);
        }
        survives(target, &bytes, &format!("seed {seed}, round {round}"));
        progress.fetch_add(1, Ordering::Relaxed);
    }
    progress.store(u64::MAX, Ordering::Relaxed);
}

macro_rules! targets {
    ($($test:ident $name:literal;)*) => {
        $(#[test] fn $test() { run($name); })*
        #[test]
        fn every_target_is_run() {
            assert_eq!(TARGETS.iter().map(|target| target.name).collect::<Vec<_>>(), [$($name),*]);
        }
    };
}
targets! {
    any_superblock_is_read_or_refused "superblock";
    any_group_descriptors_are_read_or_refused "group_descriptors";
    any_inode_is_read_or_refused "inode";
    any_extent_or_pointer_block_is_read_or_refused "extents";
    any_directory_block_is_read_or_refused "directory";
    any_attributes_and_access_lists_are_read_or_refused "xattrs";
    any_log_block_is_read_or_refused "log_blocks";
    any_request_of_the_kernel_is_understood_or_malformed "fuse";
    any_packed_log_is_replayed_within_bounds_or_refused "packed";
    any_scattered_logs_are_searched_within_bounds_or_refused "scattered";
    any_superblock_of_a_block_volume_is_read_or_refused "block_volume";
    any_bytes_of_an_nbd_client_are_answered_or_end_it "nbd";
    any_damaged_log_is_replayed_within_bounds_or_refused "log";
    any_damaged_volume_is_served_or_refused_and_closed "volume";
}
