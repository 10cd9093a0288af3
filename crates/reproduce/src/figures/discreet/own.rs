//! Small synchronous writes on a drive that ignores flushes: the effect of group commit and
//! wasteless journaling on evictions.

use super::variants::{COSTLY, EFFICIENT, PLACE, PLANS, Variant, caching_name, costs};
use crate::figures::common::{axis, ours, picture};
use crate::{Claim, Context, Figure, FigureError, Results, Scale};
use engine::DataMode;
use eviction::CoercionStatistics;
use std::time::Duration;
use testbeds::Caching;
use workloads::{Limit, StreamOptions, SyncKind, streams};

pub const STREAMS: Figure = Figure {
    name: "discreet-streams",
    title: "Small synchronous writes on a drive that is not trusted",
    source: "ours",
    about: "1 to 1,024 threads append 125 B to a file each, O_SYNC, without a pause, for 20 s, on an emulated Hitachi with the \
            journal inside: discreet in ordered, journal and wasteless mode, and ordered and wasteless with the cache off.",
    minutes: 2,
    by_chance: true,
    real_time: false,
    run,
};

const SIZE: usize = 125;
const AT_ONCE: &str = "Both evictions are the paper's, and show what they cost. The paper's fingerprint waits a second before it looks; if \
the power fails as soon as the last write is answered, this drive may still hold older writes to other places: its arm stays with \
one large write, and 128 writes of 12 KiB are less than its cache takes. What okeanos fingerprint recommends loses nothing then, \
and takes longer.";

fn variants() -> Vec<Variant> {
    let discreet = |workload| {
        [DataMode::Ordered, DataMode::Journal, DataMode::Wasteless].map(|data| Variant {
            data,
            caching: Caching::Discreet(workload),
            paper_plan: false,
        })
    };
    let off = [DataMode::Ordered, DataMode::Wasteless].map(|data| Variant {
        data,
        caching: Caching::Off,
        paper_plan: false,
    });
    [discreet(EFFICIENT), discreet(COSTLY)].into_iter().flatten().chain(off).collect()
}

struct Cell {
    variant: Variant,
    writers: u32,
}

fn run(context: &Context) -> Result<Results, FigureError> {
    let counts: &[u32] = if context.quick { &[1, 16] } else { &[1, 16, 128, 1024] };
    let with_counts = |variant| counts.iter().map(move |&writers| Cell { variant, writers });
    let cells: Vec<Cell> = variants().into_iter().flat_map(with_counts).collect();
    let played = context.play(&cells, |cell| play(context, cell))?;
    let rate = |data: DataMode, caching: Caching, writers: u32| {
        let is_it = |cell: &Cell| {
            cell.variant == Variant { data, caching, paper_plan: false } && cell.writers == writers
        };
        let at = cells.iter().position(is_it).expect("it is played");
        played[at].0
    };
    let most = counts[counts.len() - 1];
    let wasteless = |caching| rate(DataMode::Wasteless, caching, most);
    let ordered = |caching| rate(DataMode::Ordered, caching, most);
    let mut claims = Vec::new();
    for (workload, name) in [(EFFICIENT, "efficient"), (COSTLY, "costly")] {
        let discreet = Caching::Discreet(workload);
        let mut claim = |id: &str, other: f64| {
            let id = format!("discreet-streams/{name}-{id}");
            claims.push(Claim::of(&id, wasteless(discreet) / other));
        };
        claim("over-ordered", ordered(discreet));
        claim("over-ordered-off", ordered(Caching::Off));
        claim("over-off", wasteless(Caching::Off));
    }
    let line = |variant: &Variant| {
        let points = counts
            .iter()
            .map(|&count| (f64::from(count), rate(variant.data, variant.caching, count)));
        ours(
            &format!("{}, {}", variant.data.name(), caching_name(variant.caching)),
            points.collect(),
        )
    };
    let evictions =
        cells.iter().zip(&played).map(|(cell, (_, coercion))| (&cell.variant, *coercion));
    let notes = vec![AT_ONCE.into(), costs(evictions), PLACE.into(), PLANS.into()];
    let of = |caching: Caching| {
        let lines =
            variants().into_iter().filter(|it| it.caching == Caching::Off || it.caching == caching);
        lines.map(|variant| line(&variant)).collect()
    };
    let panel = |title: &str, caching| {
        let x = axis("streams", Scale::Logarithmic);
        picture(title, x, axis("synchronous writes per second", Scale::Logarithmic), of(caching))
    };
    let pictures = vec![
        panel("Evictions by one write of 2.38 MB", Caching::Discreet(EFFICIENT)),
        panel("Evictions by 128 writes of 12 KiB", Caching::Discreet(COSTLY)),
    ];
    Ok(Results { pictures, claims, notes })
}

/// Returns the synchronous writes per second.
fn play(context: &Context, cell: &Cell) -> Result<(f64, CoercionStatistics), FigureError> {
    let seconds = if context.quick { 2 } else { 20 };
    let workload = StreamOptions {
        writers: cell.writers,
        size: SIZE,
        limit: Limit::Time(Duration::from_secs(seconds)),
        rate: None,
        sync: SyncKind::OSync,
        prefix: "stream-".into(),
    };
    let stage = cell.variant.stage(context, |_| ())?;
    let (report, _) =
        stage.run(move |files| async move { streams(&files, &workload, |_| ()).await })?;
    match report.failure {
        None => Ok((report.operations_per_second, stage.coercion())),
        Some(failure) => Err(FigureError::Other(failure)),
    }
}
