//! Recovery of a client that crashed, after several works.

use super::figure_1::FILESERVER_LOOP;
use super::{PaperSetting, SECOND, SERVERS, rig};
use crate::figures::common::{axis, ours, picture};
use crate::{Claim, Context, FigureError, Results, Scale};
use std::time::Duration;
use testbeds::SharedStage;
use workloads::{FilebenchOptions, Limit, Personality, filebench};

/// Times of the crash, in seconds from the work's beginning. The preparation makes a tenth of the
/// paper's files before.
const CRASHES: [u32; 3] = [30, 60, 120];
/// Interval of loops, where the work has its own pace: a thousandth of what varmail can do, for a
/// client that does little.
const IDLE_LOOP: Duration = Duration::from_secs(1);

struct Work {
    name: &'static str,
    personality: Personality,
    files: u64,
    /// Processor time of a loop.
    pace: Duration,
}

fn works() -> [Work; 4] {
    let work = |name, personality, files, pace| Work { name, personality, files, pace };
    [
        work("varmail, a loop a second", Personality::Varmail, 100, IDLE_LOOP),
        work("fileserver", Personality::Fileserver, 1000, FILESERVER_LOOP),
        work("createfiles", Personality::Createfiles, 5000, Duration::ZERO),
        work("varmail", Personality::Varmail, 5000, Duration::ZERO),
    ]
}

struct Recovered {
    milliseconds: f64,
    files: usize,
}

/// Returns `None` if the work had ended before the crash.
fn recovered(
    context: &Context,
    (work, seconds): &(Work, u32),
) -> Result<Option<Recovered>, FigureError> {
    let stage = SharedStage::build(&rig(context, PaperSetting::Okeanos60, 1, Duration::ZERO))?;
    let (files, seconds) = if context.quick { (50, 2) } else { (work.files, *seconds) };
    let pace = match work.pace {
        IDLE_LOOP => context.overrides.time("arion-recovery", "IDLE_LOOP", IDLE_LOOP),
        pace => pace,
    };
    let workload = FilebenchOptions {
        files,
        processor: pace,
        limit: Limit::Time(2 * seconds * SECOND),
        seed: context.seed,
        ..FilebenchOptions::of(work.personality)
    };
    let crashed = stage.crash_after(seconds * SECOND, move |files| async move {
        let _ = filebench(&files, &workload, |_| {}).await;
    })?;
    Ok(crashed.map(|(time, report)| Recovered {
        milliseconds: time.as_secs_f64() * 1e3,
        files: report.files.len(),
    }))
}

pub(super) fn recovery(context: &Context) -> Result<Results, FigureError> {
    let cells: Vec<_> =
        works().into_iter().flat_map(|work| CRASHES.map(|at| (Work { ..work }, at))).collect();
    let all = context.play(&cells, |cell| recovered(context, cell))?;
    let (mut series, mut notes) = (Vec::new(), vec![SERVERS.to_owned()]);
    for (cells, all) in cells.chunks(CRASHES.len()).zip(all.chunks(CRASHES.len())) {
        let played = cells.iter().zip(all).filter_map(|((_, at), one)| Some((at, one.as_ref()?)));
        let points = played.clone().map(|(at, one)| (f64::from(*at), one.milliseconds));
        series.push(ours(cells[0].0.name, points.collect()));
        let files: Vec<String> = played.map(|(_, one)| one.files.to_string()).collect();
        notes.push(format!("{}: {} files in the journal.", cells[0].0.name, files.join(", ")));
    }
    let times = || all.iter().flatten().map(|one| one.milliseconds);
    let (shortest, longest) = (times().fold(f64::INFINITY, f64::min), times().fold(0.0, f64::max));
    let claims = vec![
        Claim::of("arion-recovery/shortest", shortest),
        Claim::of("arion-recovery/longest", longest),
    ];
    notes.push(
        "The paper says of the load only that the time depends on it. From the first look at the journal until it is empty; \
         the client's own start is no part of it."
            .into(),
    );
    let pictures = vec![picture(
        "How long a recovery takes",
        axis("crash after (s)", Scale::Linear),
        axis("time (ms)", Scale::Logarithmic),
        series,
    )];
    Ok(Results { pictures, claims, notes })
}
