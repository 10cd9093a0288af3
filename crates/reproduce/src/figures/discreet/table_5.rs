//! Table V: the build of OpenSSH.

use super::variants::{RIG, Variant, all, bars, costs};
use crate::figures::common::NO_KERNEL;
use crate::{Context, Figure, FigureError, Results};
use disks::HostScheduler;
use eviction::CoercionStatistics;
use testbeds::{FileReplayReport, PhaseLength, replay_files};
use workloads::FileTrace;

pub const TABLE_5: Figure = Figure {
    name: "discreet-table-5",
    title: "The build of OpenSSH on a drive that is not trusted",
    source: "Discreet (DSN 2011), Table V",
    about: "Copy, unpack, configure and make OpenSSH, from a recorded build, one call after another with the build's own \
            computing between them; ordered and data journaling on an emulated Hitachi with its cache off, discreet with \
            either eviction, and unsafe.",
    minutes: 1,
    by_chance: true,
    real_time: false,
    run,
};

/// Lengths of the build's phases without strace (docs/TRACES.md).
const LENGTHS: [PhaseLength; 4] = [
    PhaseLength { name: "copy", seconds: 0.0 },
    PhaseLength { name: "unpack", seconds: 1.8 },
    PhaseLength { name: "configure", seconds: 108.7 },
    PhaseLength { name: "make", seconds: 150.3 },
];
/// Paper's seconds: it has no run with the efficient eviction.
const PAPER: [[f64; 4]; 2] = [[41.97, 42.07, f64::NAN, 41.47], [42.02, 41.64, f64::NAN, 41.60]];

fn run(context: &Context) -> Result<Results, FigureError> {
    let variants = all();
    let played = context.play(&variants, |variant| play(context, variant))?;
    let seconds: Vec<f64> = played.iter().map(|(report, _)| report.seconds).collect();
    let waited: Vec<f64> = played.iter().map(|(report, _)| report.waited).collect();
    let evictions =
        variants.iter().zip(&played).map(|(variant, (_, coercion))| (variant, *coercion));
    let notes = vec![
        "The paper's finding, that every variant takes as long, is no statement here: nothing in this build waits for the drive \
         long enough to make it fail."
            .into(),
        "Between the calls the build computes for 261 s here, OpenSSH 9.2p1 on the machine that recorded it, and did so for \
         some 41 s in the paper, OpenSSH 4.51. Neither ever syncs, so nothing but reads and a log without room waits for the \
         drive: the second picture shows how long."
            .into(),
        costs(evictions),
        RIG.into(),
        NO_KERNEL.into(),
    ];
    let pictures = vec![
        bars("The whole build", "seconds", &seconds, Some(PAPER)),
        bars("Of that, waiting for the file system", "seconds", &waited, None),
    ];
    Ok(Results { pictures, claims: Vec::new(), notes })
}

fn play(
    context: &Context,
    variant: &Variant,
) -> Result<(FileReplayReport, CoercionStatistics), FigureError> {
    // Linux 2.6.13.
    let stage = variant
        .stage(context, |options| options.home.elevator = Some(HostScheduler::ANTICIPATORY))?;
    let trace =
        FileTrace::open("openssh-build").map_err(|error| FigureError::Other(error.to_string()))?;
    let phases = if context.quick { &LENGTHS[..2] } else { &LENGTHS[..] };
    let report =
        stage.run(move |files| async move { replay_files(&files, &trace, phases).await })?;
    Ok((report, stage.coercion()))
}
