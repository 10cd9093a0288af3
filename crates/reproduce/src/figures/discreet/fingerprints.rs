//! The paper's nine drives, and their fingerprints, which three tables show.

use crate::Context;
use crate::error::FigureError;
use crate::overrides::Overrides;
use device::{Disk, World};
use emulated::{DriveOptions, EmulatedDisk, Lies, SegmentReplacement};
use eviction::fingerprint::{self, Cell, Fingerprint, FingerprintError, Grid, Threshold};
use eviction::{EvictionWorkload, Pattern};
use runtime::VirtualWorld;
use std::ops::ControlFlow;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

/// A row of Tables I and IV.
#[derive(Clone, Copy)]
pub struct Drive {
    /// Name of the emulated drive.
    pub model: &'static str,
    pub maker: &'static str,
    /// Units of 1,000,000,000 bytes.
    pub capacity_gb: f64,
    pub cache_mb: f64,
    pub writes: u32,
    pub megabytes: f64,
    pub milliseconds: f64,
}

impl Drive {
    fn replaces_at_random(&self, context: &Context) -> bool {
        super::model(context, self.model)
            .cache
            .is_some_and(|cache| cache.replacement == SegmentReplacement::Random)
    }
}

const fn drive(
    (model, maker): (&'static str, &'static str),
    (capacity_gb, cache_mb): (f64, f64),
    (writes, megabytes, milliseconds): (u32, f64, f64),
) -> Drive {
    Drive { model, maker, capacity_gb, cache_mb, writes, megabytes, milliseconds }
}

pub const DRIVES: [Drive; 9] = [
    drive(("hitachi-7k80", HITACHI), (80.0, 8.0), (1, 2.38, 50.0)),
    drive(("hitachi-32", HITACHI), (1024.0, 32.0), (1, 11.0, 87.0)),
    drive(("samsung-8", SAMSUNG), (250.0, 8.0), (128, 49.0, 1328.0)),
    drive(("samsung-16", SAMSUNG), (250.0, 16.0), (512, 128.0, 2872.0)),
    drive(("western-digital-16", WESTERN_DIGITAL), (320.0, 16.0), (1792, 19.0, 5107.0)),
    drive(("western-digital-64", WESTERN_DIGITAL), (800.0, 64.0), (256, 1.0, 7705.0)),
    drive(("seagate-8", SEAGATE), (250.0, 8.0), (256, 31.0, 870.0)),
    drive(("barracuda-7200.11", SEAGATE), (320.0, 16.0), (128, 17.0, 342.0)),
    drive(("seagate-32", SEAGATE), (750.0, 32.0), (128, 37.0, 396.0)),
];

pub const HITACHI: &str = "Hitachi";
pub const SAMSUNG: &str = "Samsung";
pub const WESTERN_DIGITAL: &str = "Western Digital";
pub const SEAGATE: &str = "Seagate";

/// A drive's fingerprint.
#[derive(Clone)]
pub struct Taken {
    pub drive: Drive,
    pub grid: Grid,
    pub fingerprint: Fingerprint,
    pub threshold: Threshold,
}

impl Taken {
    /// Returns the tried cells of a pattern, and how often they evicted.
    pub fn cells(&self, pattern: Pattern) -> impl Iterator<Item = (&Cell, f64)> {
        let cells =
            self.fingerprint.cells.iter().filter(move |cell| cell.workload.pattern == pattern);
        cells.map(|cell| (cell, cell.probability(self.threshold)))
    }
    pub fn chosen(&self) -> Option<(EvictionWorkload, f64)> {
        let cell = self.fingerprint.cell(&self.fingerprint.chosen?)?;
        Some((cell.workload, cell.mean_milliseconds()))
    }
}

/// Takes fingerprints as `okeanos-lab fingerprint --model NAME --ignore-flush --as-paper` does.
/// Three tables show the same ones: a command that plays several waits for them once.
pub fn take_all(context: &Context) -> Result<Vec<Taken>, FigureError> {
    struct KeptDrives {
        seed: u64,
        quick: bool,
        overrides: Arc<Overrides>,
        taken: Vec<Taken>,
    }
    static KEPT: Mutex<Option<KeptDrives>> = Mutex::new(None);
    let mut kept = KEPT.lock().expect("no figure panics while it plays");
    let is_it = |it: &&KeptDrives| {
        (it.seed, it.quick) == (context.seed, context.quick) && it.overrides == context.overrides
    };
    if let Some(found) = kept.as_ref().filter(is_it) {
        // The changes of the drives reach this figure, too.
        DRIVES.iter().for_each(|drive| drop(context.overrides.drive(drive.model)));
        return Ok(found.taken.clone());
    }
    let taken = context.play(&DRIVES, |drive| take(*drive, context.seed, context))?;
    let Context { seed, quick, .. } = *context;
    let overrides = context.overrides.clone();
    *kept = Some(KeptDrives { seed, quick, overrides, taken: taken.clone() });
    Ok(taken)
}

/// Takes fingerprints with the next seeds, seed by seed, of the drives that replace at random:
/// there the choice depends on chance.
pub fn take_again(context: &Context) -> Result<Vec<Taken>, FigureError> {
    let more = if context.quick { 1 } else { 4 };
    let mut again = Vec::new();
    for seed in 1..=more {
        let random = DRIVES.iter().filter(|drive| drive.replaces_at_random(context));
        again.extend(random.map(|drive| (*drive, context.seed + seed)));
    }
    context.play(&again, |(drive, seed)| take(*drive, *seed, context))
}

fn take(drive: Drive, seed: u64, context: &Context) -> Result<Taken, FigureError> {
    let model = super::model(context, drive.model);
    let size = model.size.get();
    let mut options = fingerprint::FingerprintOptions::adaptive(Grid::of_paper(), 0..size);
    options.at_once = false;
    if context.quick {
        options.grid.writes = vec![1, 128];
        options.grid.bytes = vec![1_000_000, 11_000_000];
        options.trials = 4;
    }
    let world = VirtualWorld::new(seed);
    let lies = Lies { ignores_flush: true, ..Lies::default() };
    let disk = EmulatedDisk::new(
        Rc::new(world.clone()),
        model,
        DriveOptions { lies, ..DriveOptions::default() },
    );
    let (of_run, grid, interrupted) = (world.clone(), options.grid.clone(), context.interrupted);
    let result = world.run(async move {
        let (world, disk) = (Rc::new(of_run) as Rc<dyn World>, Rc::new(disk) as Rc<dyn Disk>);
        let mut state = Fingerprint::default();
        let mut watch = |_: &Fingerprint, _: fingerprint::ProbeProgress| match interrupted
            .load(Ordering::Relaxed)
        {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        };
        fingerprint::fingerprint(&world, &disk, &options, &mut state, &mut watch)
            .await
            .map(|()| state)
    });
    world.end();
    let fingerprint = result.map_err(|error| match error {
        FingerprintError::Stopped => FigureError::Interrupted,
        error => FigureError::Other(format!("{}: {error}", drive.model)),
    })?;
    let threshold = fingerprint.threshold().expect("the choice needed it");
    Ok(Taken { drive, grid, fingerprint, threshold })
}
