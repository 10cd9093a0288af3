//! Statements of the paper's text on the logs: swaps, the mapping table, and the checkpoint of a
//! shingled drive, each by the paper's own rule for the log of a write.

use super::block_traces::{MIXES, busiest_hour, given, mix, note, tenants, titled};
use crate::figures::common::{axis, most, of_paper, ours, picture};
use crate::{Claim, Context, Figure, FigureError, Results, Scale, Series};
use emulated::replay::Recorded;
use emulated::{LogChoice, Shingles};
use std::sync::Arc;
use testbeds::{BlockLayer, BlockRun, BlocksServed};

pub const FIGURE: Figure = Figure {
    name: "manylogs-logs",
    title: "Swaps of logs, and the mapping table",
    source: "Manylogs (MSST 2016), sections V-B, V-C and VI",
    about: "The mixes of manylogs-6 and the hours of manylogs-7 (--block-traces DIR; made ones otherwise) with scattered logs for writes of up to 256 KiB \
            (MLB-256), and on a shingled drive with a log in each cylinder, of which a write goes to the nearest (MLSMR): how often logs are swapped, \
            how large the mapping table becomes, and how long a checkpoint takes.",
    minutes: 9,
    by_chance: true,
    real_time: false,
    run,
};

const MODEL: &str = "constellation-es3";
/// Bytes of which a tenant's fifth is taken, as in manylogs-6.
const USED: u64 = 600_000_000_000;
/// The paper's swaps of each mix, in MLB-256 and in MLSMR.
const PAPER: [[u32; 5]; 2] = [[17, 16, 0, 4, 6], [64, 24, 3, 10, 12]];
const NAMES: [&str; 2] = ["MLB-256", "MLSMR"];

fn layers() -> [BlockLayer; 2] {
    let shingles = Shingles { choice: LogChoice::NearestCylinder, ..Shingles::scattered_logs() };
    [BlockLayer::Scattered { logged: 256 << 10 }, BlockLayer::Shingled(shingles)]
}

struct Cell {
    layer: BlockLayer,
    requests: Arc<[Recorded]>,
    checkpoint: bool,
}

/// Returns what the two layers served, of the mixes and of the hours.
fn play(context: &Context) -> Result<[Vec<BlocksServed>; 4], FigureError> {
    let tenants = tenants(context)?;
    let seconds = if context.quick { 20 } else { 300 };
    let mixed = |number| mix(number, &tenants, context, USED, seconds).0.into();
    let mixes: Vec<Arc<[Recorded]>> = (0..MIXES.len()).map(mixed).collect();
    let hours: Vec<Arc<[Recorded]>> =
        tenants.iter().map(|tenant| busiest_hour(tenant).into()).collect();
    let mut cells = Vec::new();
    for (all, checkpoint) in [(&mixes, false), (&hours, true)] {
        for layer in layers() {
            let cell =
                |requests: &Arc<[Recorded]>| Cell { layer, requests: requests.clone(), checkpoint };
            cells.extend(all.iter().map(cell));
        }
    }
    let mut served = context
        .play(&cells, |cell| {
            let Cell { layer, checkpoint, .. } = *cell;
            let (changes, requests) = (context.overrides.drive(MODEL), cell.requests.clone());
            let run = BlockRun { model: MODEL, changes, layer, requests, checkpoint };
            run.play(context.seed).map_err(|error| FigureError::Other(error.to_string()))
        })?
        .into_iter();
    let mut take = |count| served.by_ref().take(count).collect();
    Ok([mixes.len(), mixes.len(), hours.len(), hours.len()].map(&mut take))
}

fn bars(name: &str, served: &[BlocksServed], value: fn(&BlocksServed) -> f64) -> Series {
    let points = served.iter().enumerate().map(|(at, served)| (at as f64, value(served)));
    ours(name, points.collect())
}

fn table_mb(served: &BlocksServed) -> f64 {
    served.table_bytes as f64 / 1e6
}
fn checkpoint_seconds(served: &BlocksServed) -> f64 {
    served.checkpoint.unwrap_or_default().took.as_secs_f64()
}

fn run(context: &Context) -> Result<Results, FigureError> {
    let [mixes_of_mlb, mixes_of_mlsmr, hours_of_mlb, hours_of_mlsmr] = play(context)?;
    let swaps = |served: &[BlocksServed]| served.iter().map(|it| it.swaps as f64).sum::<f64>();
    let (of_mlb, of_mlsmr) = (swaps(&mixes_of_mlb), swaps(&mixes_of_mlsmr));
    let tables = |served: &[BlocksServed]| served.iter().map(table_mb).collect::<Vec<_>>();
    let pairs = hours_of_mlsmr.iter().zip(&hours_of_mlb);
    let over =
        pairs.map(|(shingled, plain)| checkpoint_seconds(shingled) / checkpoint_seconds(plain));
    let id = |row: &str| format!("manylogs-logs/{}{row}", given(context));
    let claims = vec![
        Claim::of(&id("mlb-swaps"), of_mlb),
        Claim::of(&id("mlsmr-swaps"), of_mlsmr),
        Claim::of(&id("swaps-over"), of_mlsmr / of_mlb),
        Claim::of_each(&id("table"), &tables(&hours_of_mlb)),
        Claim::of(
            &id("table-of-mlsmr"),
            most(tables(&hours_of_mlsmr)) / most(tables(&hours_of_mlb)),
        ),
        Claim::of(&id("checkpoint"), most(over)),
    ];
    let tenants = tenants(context)?;
    let of_mixes = Scale::Names(MIXES.map(|(name, ..)| name.to_string()).into());
    let of_traces = Scale::Names(tenants.iter().map(|tenant| tenant.name.clone()).collect());
    let mut swapped: Vec<Series> = NAMES
        .iter()
        .zip([&mixes_of_mlb, &mixes_of_mlsmr])
        .map(|(name, served)| bars(name, served, |served| served.swaps as f64))
        .collect();
    swapped.extend(NAMES.iter().zip(PAPER).map(|(name, counts)| {
        let points = counts.iter().enumerate().map(|(at, count)| (at as f64, f64::from(*count)));
        of_paper(name, points.collect())
    }));
    let by_trace = |title: &str, label: &str, value: fn(&BlocksServed) -> f64| {
        let series = NAMES.iter().zip([&hours_of_mlb, &hours_of_mlsmr]);
        let series = series.map(|(name, served)| bars(name, served, value)).collect();
        let title = titled(context, title);
        picture(&title, axis("trace", of_traces.clone()), axis(label, Scale::Linear), series)
    };
    let pictures = vec![
        picture(
            &titled(context, "Swaps"),
            axis("mix", of_mixes),
            axis("swaps of logs", Scale::Linear),
            swapped,
        ),
        by_trace("Mapping table", "MB", table_mb),
        by_trace("Checkpoint", "s", checkpoint_seconds),
    ];
    let notes = vec![
        note(context, &tenants),
        "When logs are swapped, and with what gap records follow one another in them, was chosen on the hour of a recorded trace \
         (docs/notes/figures.md); rows of given traces are judged on other hours only."
            .into(),
        "The table has 16 bytes for each block that is logged and not home, on a shingled drive for each range.".into(),
    ];
    Ok(Results { pictures, claims, notes })
}
