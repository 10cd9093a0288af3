//! Cost of a workload of the paper's kind on an emulated drive that ignores flushes, and the share
//! of its evictions. The flush zone lies on the outermost twentieth of the disk, or anywhere.
//!
//! `cargo run --release -p eviction --example eviction_time MODEL.toml random|sequential
//! WRITES MB TRIALS`

use device::{Disk, World};
use emulated::{DriveOptions, EmulatedDisk, Lies, Model};
use eviction::Pattern;
use eviction::fingerprint::{self, Fingerprint, Grid, fingerprint};
use runtime::VirtualWorld;
use std::ops::{ControlFlow, Range};
use std::rc::Rc;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [file, pattern, writes, megabytes, trials] = &arguments[..] else {
        panic!("MODEL.toml random|sequential WRITES MB TRIALS")
    };
    let model = Model::parse(&std::fs::read_to_string(file).expect("a file")).expect("a model");
    let megabytes: f64 = megabytes.parse().expect("a number");
    let grid = Grid {
        patterns: vec![if pattern == "random" { Pattern::Random } else { Pattern::Sequential }],
        writes: vec![writes.parse().expect("a number")],
        bytes: vec![(megabytes * 1e6) as u64],
    };
    let trials = trials.parse().expect("a number");
    let size = model.size.get();
    for (place, range) in [("outermost", 0..size / 20), ("anywhere", 0..size)] {
        let state = take(model.clone(), grid.clone(), range, trials);
        let (cell, threshold) = (&state.cells[0], state.threshold().expect("the choice needed it"));
        println!(
            "{place}: {:.0} ms, evicted {:.2}",
            cell.mean_milliseconds(),
            cell.probability(threshold)
        );
    }
}

/// The fingerprint of a single cell.
fn take(model: Model, grid: Grid, range: Range<u64>, trials: u32) -> Fingerprint {
    let options = fingerprint::FingerprintOptions {
        trials,
        trials_min: trials,
        at_once: false,
        ..fingerprint::FingerprintOptions::adaptive(grid, range)
    };
    let world = VirtualWorld::new(1);
    let lies = Lies { ignores_flush: true, ..Lies::default() };
    let disk = EmulatedDisk::new(
        Rc::new(world.clone()),
        model,
        DriveOptions { lies, ..DriveOptions::default() },
    );
    let of_run = world.clone();
    let state = world.run(async move {
        let (world, disk) = (Rc::new(of_run) as Rc<dyn World>, Rc::new(disk) as Rc<dyn Disk>);
        let mut state = Fingerprint::default();
        let mut watch = |_: &Fingerprint, _: fingerprint::ProbeProgress| ControlFlow::Continue(());
        fingerprint(&world, &disk, &options, &mut state, &mut watch)
            .await
            .expect("a drive of two kinds of reads");
        state
    });
    world.end();
    state
}
