//! Fingerprints of emulated drives.

use device::{Disk, LocalFuture, Operation, World};
use disks::{Watch, Watched};
use emulated::{DriveOptions, EmulatedDisk, Lies, Model};
use eviction::fingerprint::{self, Cell, Fingerprint, FingerprintError, Grid, fingerprint};
use eviction::{EvictionWorkload, Pattern, Profile};
use runtime::VirtualWorld;
use std::ops::{ControlFlow, Range};
use std::rc::Rc;

/// A small grid, and the range that it may write.
fn options(size: u64) -> fingerprint::FingerprintOptions {
    let patterns = vec![Pattern::Sequential, Pattern::Random];
    let grid = Grid { patterns, writes: vec![1, 64], bytes: vec![500_000, 24_000_000] };
    fingerprint::FingerprintOptions {
        trials: 12,
        trials_min: 2,
        trials_at_borders: 4,
        ..fingerprint::FingerprintOptions::adaptive(grid, 0..size)
    }
}

fn model(name: &str) -> Model {
    let (_, text) =
        emulated::shipped().find(|(shipped, _)| *shipped == name).expect("it is shipped");
    Model::parse(text).unwrap()
}

/// Continues from `state` until the end or for a number of trials.
fn take(
    name: &str,
    state: Fingerprint,
    trials: u64,
) -> (Fingerprint, Result<(), FingerprintError>) {
    let options = options(model(name).size.get());
    take_with(name, &options, state, trials)
}

fn take_with(
    name: &str,
    options: &fingerprint::FingerprintOptions,
    state: Fingerprint,
    trials: u64,
) -> (Fingerprint, Result<(), FingerprintError>) {
    let world = VirtualWorld::new(state.cells.iter().map(|cell| u64::from(cell.trials())).sum());
    let model = model(name);
    let options = options.clone();
    let lies = Lies { ignores_flush: true, ..Lies::default() };
    let drive = EmulatedDisk::new(
        Rc::new(world.clone()),
        model,
        DriveOptions { lies, ..DriveOptions::default() },
    );
    let of_run = world.clone();
    let mut state = state;
    let result = world.run(async move {
        let (world, disk) = (Rc::new(of_run) as Rc<dyn World>, Rc::new(drive) as Rc<dyn Disk>);
        let mut left = trials;
        let mut watch = |_: &Fingerprint, _: fingerprint::ProbeProgress| {
            left = left.saturating_sub(1);
            if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        let result = fingerprint(&world, &disk, &options, &mut state, &mut watch).await;
        (state, result)
    });
    world.end();
    result
}

#[test]
fn enough_writes_evict_and_few_do_not() {
    let (state, result) = take("hitachi-7k80", Fingerprint::default(), u64::MAX);
    result.unwrap();
    let threshold = state.threshold().unwrap();
    let much = state.cells.iter().find(|cell| {
        (cell.workload.pattern, cell.workload.writes, cell.workload.bytes)
            == (Pattern::Random, 64, 24_000_000)
    });
    assert_eq!(much.unwrap().probability(threshold), 1.0);
    let little =
        state.cells.iter().find(|cell| (cell.workload.writes, cell.workload.bytes) == (1, 500_000));
    assert_eq!(little.unwrap().probability(threshold), 0.0);
    let profile = state.profile_of(&state.of_paper.unwrap(), "hitachi-7k80", 1).unwrap();
    assert_eq!(profile.trials, 12);
    assert!(profile.milliseconds > 1.0, "{profile:?}");
}

#[test]
fn a_run_that_was_stopped_goes_on() {
    let (half, result) = take("hitachi-7k80", Fingerprint::default(), 60);
    assert!(matches!(result, Err(FingerprintError::Stopped)));
    assert_eq!(half.cached_us.len() + half.uncached_us.len(), 50);
    let (whole, result) = take("hitachi-7k80", half.clone(), u64::MAX);
    result.unwrap();
    assert_eq!(whole.cells[0].read_us[..2], half.cells[0].read_us[..2]);
    assert!(whole.of_paper.is_some());
    // Once more, stopped during the trials at once.
    let at_once = |state: &Fingerprint| state.cells.iter().map(Cell::trials_at_once).sum::<u32>();
    let trials: u32 = whole.cells.iter().map(|cell| cell.trials() + cell.trials_at_once()).sum();
    let (late, result) = take("hitachi-7k80", half.clone(), (trials - at_once(&whole)).into());
    assert!(matches!(result, Err(FingerprintError::Stopped)));
    assert!(at_once(&late) > 0 && at_once(&late) < at_once(&whole), "{late:?}");
    let (end, result) = take("hitachi-7k80", late.clone(), u64::MAX);
    result.unwrap();
    for (end, late) in end.cells.iter().zip(&late.cells) {
        assert!(end.at_once_us.starts_with(&late.at_once_us));
    }
    // Another grid is another measurement.
    let mut other = half;
    other.cells.pop();
    assert!(matches!(take("hitachi-7k80", other, u64::MAX).1, Err(FingerprintError::OtherGrid)));
}

/// A disk that fails on writes outside this range.
struct Fence(Range<u64>);

impl Watch for Fence {
    fn watch<T: 'static>(
        &self,
        operation: Operation,
        place: Range<u64>,
        request: LocalFuture<T>,
    ) -> LocalFuture<T> {
        assert!(operation != Operation::Discard, "no caller requests a discard");
        let is_within = self.0.start <= place.start && place.end <= self.0.end;
        assert!(operation != Operation::Write || is_within, "bytes {place:?}");
        request
    }
}

/// Uses a range that begins and ends within a block.
#[test]
fn only_the_range_is_written() {
    let world = VirtualWorld::new(1);
    let range = (1 << 30) + 512..(1 << 30) + 512 + (400 << 20);
    let drive =
        EmulatedDisk::new(Rc::new(world.clone()), model("hitachi-7k80"), DriveOptions::default());
    let of_run = world.clone();
    world.run(async move {
        let world = Rc::new(of_run) as Rc<dyn World>;
        let disk =
            Rc::new(Watched { disk: Rc::new(drive), watch: Fence(range.clone()) }) as Rc<dyn Disk>;
        let options = fingerprint::FingerprintOptions { range: range.clone(), ..options(0) };
        let mut watch = |_: &Fingerprint, _: fingerprint::ProbeProgress| ControlFlow::Continue(());
        fingerprint(&world, &disk, &options, &mut Fingerprint::default(), &mut watch)
            .await
            .unwrap();
        eviction::flush_test(&world, &disk, range, &mut |_| ()).await.unwrap();
    });
    world.end();
}

#[test]
fn a_disk_without_a_visible_cache_is_an_error() {
    let (_, result) = take("cloud-volume", Fingerprint::default(), u64::MAX);
    assert!(matches!(result, Err(FingerprintError::NoDifference { .. })), "{result:?}");
}

/// Runs on the part of the grid around it, to take only seconds. The paper's single write (Table
/// IV) is found as well, and is not recommended: at once it does not evict.
#[test]
fn the_shipped_profile_of_the_hitachi_is_found_again() {
    let (name, shipped) = Profile::shipped().find(|(name, _)| *name == "hitachi-7k80").unwrap();
    let EvictionWorkload { writes, bytes, .. } = shipped.workload;
    let of_paper = EvictionWorkload { pattern: Pattern::Sequential, writes: 1, bytes: 2_380_000 };
    let bytes_around = vec![of_paper.bytes * 9 / 10, of_paper.bytes, bytes, bytes * 5 / 4];
    let grid = Grid { writes: vec![1, writes], bytes: bytes_around, ..Grid::of_paper() };
    let size = model(name).size.get();
    let options = fingerprint::FingerprintOptions::adaptive(grid, 0..size);
    let (state, result) = take_with(name, &options, Fingerprint::default(), u64::MAX);
    result.unwrap();
    assert_eq!(state.of_paper, Some(of_paper));
    let (cell, threshold) = (state.cell(&of_paper).unwrap(), state.threshold().unwrap());
    assert!(cell.trials() == 50 && cell.evicted(threshold) == 50);
    assert!(cell.evicted_at_once(threshold) < cell.trials_at_once());
    let found = state.profile(name, size).unwrap();
    assert_eq!(
        (found.workload, found.trials, found.size),
        (shipped.workload, shipped.trials, shipped.size)
    );
    assert!((found.milliseconds / shipped.milliseconds - 1.0).abs() < 0.2, "{found:?}");
}
