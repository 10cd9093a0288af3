//! Figure 1: what a crash of the client would lose.

use super::{PaperSetting, SECOND, SERVERS, rig};
use crate::figures::common::{axis, ours, picture};
use crate::{Claim, Context, FigureError, Results, Scale};
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;
use testbeds::SharedStage;
use workloads::{FilebenchOptions, Limit, Personality, filebench};

/// Duration of a loop. The paper states the files and the time; the rate is set so that Ceph's
/// client has about as much dirty data.
pub(super) const FILESERVER_LOOP: Duration = Duration::from_millis(150);
/// Samples per second.
const SAMPLES: usize = 4;
/// Seconds that are not shown: data left dirty by the preparation is at the servers after them.
const FIRST: u32 = 40;

pub(super) fn figure_1(context: &Context) -> Result<Results, FigureError> {
    let settings = [PaperSetting::Ceph, PaperSetting::Okeanos60];
    let seconds = if context.quick { 4 } else { 120 };
    let first = context.overrides.time("arion-1", "FIRST", FIRST * SECOND);
    let samples = context.play(&settings, |setting| {
        let stage = SharedStage::build(&rig(context, *setting, 1, Duration::ZERO))?;
        let own = FilebenchOptions::of(Personality::Fileserver);
        let workload = FilebenchOptions {
            files: if context.quick { 50 } else { 1000 },
            processor: FILESERVER_LOOP,
            limit: Limit::Time(seconds * SECOND + first),
            seed: context.seed,
            ..own
        };
        let samples: Rc<RefCell<Vec<f64>>> = Rc::default();
        let taken = samples.clone();
        stage.run(move |files| async move {
            let watched = files.clone();
            filebench(&files, &workload, move |_| {
                taken.borrow_mut().push(watched.volatile_bytes() as f64)
            })
            .await
        })?;
        let mut samples = samples.take();
        let kept = (seconds as usize * SAMPLES).min(samples.len());
        Ok(samples.split_off(samples.len() - kept))
    })?;
    let mib = |samples: &[f64]| -> Vec<(f64, f64)> {
        samples
            .iter()
            .enumerate()
            .map(|(at, bytes)| (at as f64 / SAMPLES as f64, bytes / 1e6))
            .collect()
    };
    let series =
        settings.iter().zip(&samples).map(|(setting, samples)| ours(setting.name(), mib(samples)));
    let mean = |samples: &[f64]| samples.iter().sum::<f64>() / samples.len().max(1) as f64 / 1e6;
    let (ceph, okeanos) = (mean(&samples[0]), mean(&samples[1]));
    let claims =
        vec![Claim::of("arion-1/ceph", ceph), Claim::of("arion-1/over-ceph", okeanos / ceph)];
    let (x, y) =
        (axis("time (s)", Scale::Linear), axis("dirty data in memory alone (MB)", Scale::Linear));
    let pictures = vec![picture("What a crash of the client would lose", x, y, series.collect())];
    let notes = vec![
        SERVERS.into(),
        "A tenth of the paper's 10,000 files, and each loop takes 150 ms of the one processor."
            .into(),
    ];
    Ok(Results { pictures, claims, notes })
}
