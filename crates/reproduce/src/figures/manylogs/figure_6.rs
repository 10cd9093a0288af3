//! Figure 6: scattered logs below file systems, and in shingled drives, on mixes of block traces.

use super::block_traces::{MIXES, given, mix, note, tenants, titled};
use crate::figures::common::result_cache::ResultCache;
use crate::figures::common::{axis, least, ours, picture};
use crate::{Claim, Context, Figure, FigureError, Results, Scale};
use emulated::replay::Recorded;
use emulated::{LogChoice, Shingles};
use std::sync::Arc;
use testbeds::{BlockLayer, BlockRun, BlocksServed};

pub const FIGURE_6: Figure = Figure {
    name: "manylogs-6",
    title: "Block traces side by side, with and without scattered logs",
    source: "Manylogs (MSST 2016), Figure 6",
    about: "Five mixes of five block traces (--block-traces DIR; made ones otherwise), five minutes each, on a Constellation ES.3 of 1 TB without \
            write cache: how long requests take without logs, with scattered logs for writes of up to 32 and 256 KiB (MLB), and on shingled drives with \
            one log (SLSMR) and scattered ones (MLSMR): that which is soonest under the head, and that nearest by cylinder.",
    minutes: 1,
    by_chance: true,
    real_time: false,
    run,
};

pub const MODEL: &str = "constellation-es3";
const SIZE: u64 = 1_000_000_000_000;
/// Bytes of which a tenant's fifth is taken: available under every layer.
const USED: u64 = SIZE / 10 * 6;

pub fn layers() -> [(&'static str, BlockLayer); 7] {
    let of_paper = |shingles| {
        BlockLayer::Shingled(Shingles { choice: LogChoice::NearestCylinder, ..shingles })
    };
    [
        ("no logging", BlockLayer::Nothing),
        ("MLB-32", BlockLayer::Scattered { logged: 32 << 10 }),
        ("MLB-256", BlockLayer::Scattered { logged: 256 << 10 }),
        ("MLSMR", BlockLayer::Shingled(Shingles::scattered_logs())),
        ("SLSMR", BlockLayer::Shingled(Shingles::single_log())),
        ("MLSMR, nearest cylinder", of_paper(Shingles::scattered_logs())),
        ("SLSMR, one place", of_paper(Shingles::single_log())),
    ]
}
const NONE: usize = 0;
const MLB_256: usize = 2;
const MLSMR: usize = 3;
const SLSMR: usize = 4;
const MLSMR_OF_PAPER: usize = 5;
const SLSMR_OF_PAPER: usize = 6;

/// Latencies of one mix in each layer.
pub struct Mixed {
    pub name: &'static str,
    requests: usize,
    slower: f64,
    /// Sorted latencies, by layer.
    latencies: Vec<Vec<f64>>,
    swaps: Vec<u64>,
}

pub fn play(context: &Context) -> Result<Vec<Mixed>, FigureError> {
    let tenants = tenants(context)?;
    let seconds = if context.quick { 20 } else { 300 };
    let mixes: Vec<(Arc<[Recorded]>, f64)> = (0..MIXES.len())
        .map(|number| mix(number, &tenants, context, USED, seconds))
        .map(|(requests, slower)| (requests.into(), slower))
        .collect();
    if mixes.iter().any(|(requests, _)| requests.is_empty()) {
        return Err(FigureError::Other(
            "a mix has no requests: the traces are too short or too sparse".into(),
        ));
    }
    let cells: Vec<(usize, BlockLayer)> =
        (0..MIXES.len()).flat_map(|number| layers().map(|(_, layer)| (number, layer))).collect();
    // Table II has them, too.
    static ALL: ResultCache<(usize, BlockLayer), BlocksServed> = ResultCache::new();
    let served = context.play(&cells, |cell| {
        let (number, layer) = *cell;
        let requests = mixes[number].0.clone();
        let changes = context.overrides.drive(MODEL);
        let run = BlockRun { model: MODEL, changes, layer, requests, checkpoint: false };
        let play = || run.play(context.seed).map_err(|error| FigureError::Other(error.to_string()));
        ALL.once(context, cell, play)
    })?;
    let of_mix = |(number, served): (usize, &[BlocksServed])| {
        let sorted = |served: &BlocksServed| {
            let mut latencies = served.latency_ms.clone();
            latencies.sort_by(f64::total_cmp);
            latencies
        };
        Mixed {
            name: MIXES[number].0,
            requests: mixes[number].0.len(),
            slower: mixes[number].1,
            latencies: served.iter().map(sorted).collect(),
            swaps: served.iter().map(|served| served.swaps).collect(),
        }
    };
    Ok(served.chunks(layers().len()).enumerate().map(of_mix).collect())
}

impl Mixed {
    fn percentile(&self, layer: usize, percent: usize) -> f64 {
        let latencies = &self.latencies[layer];
        latencies[(latencies.len() - 1) * percent / 100]
    }
    /// Returns, at each percentile, the latency of `base` over that of `layer`.
    fn speed_ups(&self, layer: usize, base: usize) -> Vec<(f64, f64)> {
        let at = |percent: usize| {
            (percent as f64, self.percentile(base, percent) / self.percentile(layer, percent))
        };
        (1..100).map(at).collect()
    }
    /// Returns the paper's mean: that of all percentiles.
    fn mean_speed_up(&self, layer: usize, base: usize) -> f64 {
        let all = self.speed_ups(layer, base);
        all.iter().map(|(_, ratio)| ratio).sum::<f64>() / all.len() as f64
    }
    pub fn of_mlb(&self) -> f64 {
        self.mean_speed_up(MLB_256, NONE)
    }
    pub fn of_mlsmr(&self) -> f64 {
        self.mean_speed_up(MLSMR, SLSMR)
    }
    /// Compares both by the paper's rule.
    fn of_mlsmr_by_cylinder(&self) -> f64 {
        self.mean_speed_up(MLSMR_OF_PAPER, SLSMR_OF_PAPER)
    }
}

pub fn mean(values: impl IntoIterator<Item = f64>) -> f64 {
    let values: Vec<f64> = values.into_iter().collect();
    values.iter().sum::<f64>() / values.len() as f64
}

fn run(context: &Context) -> Result<Results, FigureError> {
    let mixes = play(context)?;
    let curve = |layer: usize| {
        let of = |percent: usize| (mixes[0].percentile(layer, percent), percent as f64);
        ours(layers()[layer].0, (1..100).map(of).collect())
    };
    let speed_ups = |layer: usize, base: usize| {
        let series = mixes.iter().map(|mix| ours(mix.name, mix.speed_ups(layer, base))).collect();
        let title = format!("{} over {}", layers()[layer].0, layers()[base].0);
        picture(
            &titled(context, &title),
            axis("percentile", Scale::Linear),
            axis("times as fast", Scale::Linear),
            series,
        )
    };
    let pictures = vec![
        picture(
            &titled(context, "W1: requests that took so long or less"),
            axis("ms", Scale::Logarithmic),
            axis("%", Scale::Linear),
            (0..layers().len()).map(curve).collect(),
        ),
        speed_ups(MLB_256, NONE),
        speed_ups(MLSMR, SLSMR),
        speed_ups(MLSMR_OF_PAPER, SLSMR_OF_PAPER),
    ];
    let notes = vec![
        note(context, &tenants(context)?),
        "In place of Table Ib's traces each mix takes five of those there are, round and round, with its kinds of windows: the five minutes with the most writes, \
         the most reads, or by chance. Each tenant has its own fifth of the first 600 GB. A mix that brings more than 40 requests a second on average is slowed \
         down as a whole until it does not (40 was chosen before the first run; the paper re-rated its own and does not say how far). Windows of one trace in one mix do not overlap where another is left."
            .into(),
        mixes
            .iter()
            .map(|mix| {
                let Mixed { name, requests, slower, swaps, .. } = mix;
                format!(
                    "{name}: {requests} requests, slowed down {slower:.1} times, {} swaps of logs in MLB-256 and {} in MLSMR.",
                    swaps[MLB_256], swaps[MLSMR]
                )
            })
            .collect::<Vec<_>>()
            .join(" ")
            + " The paper's swaps: 17, 16, 0, 4, 6 and 64, 24, 3, 10, 12.",
        "MLB is a block volume with data=selective, threshold= and log=scattered, in which each write is durable when it is acknowledged. Where the logs' transactions lie stands in memory that survives \
         power loss, as the paper's mapping table. Its cache of 256 MiB answers reads of what was just written, of 1 request in 80 of made traces. The drive chooses among 32 requests."
            .into(),
        "What a shingled drive's log is, and which one a write goes to, was chosen after runs that failed. With logs of 8 tracks MLSMR was 1.13 times as fast as SLSMR. A log in each \
         cylinder (the paper: the drive manages them, and writes go to the track that the head is aligned at) gave 1.14. A trace of the drive then said that of 6.6 ms of a logged write \
         4.8 were rotation. So a write now gets its place when its turn comes, in the log that is soonest under the head by seek, settling and rotation. SLSMR's cache does the same \
         among its segments of 32 MiB. In both, waiting writes to one log follow one another without losing a revolution. A write by the paper's rule goes to the log of the arm's cylinder, \
         and with SLSMR behind the last one."
            .into(),
        "A log of MLSMR is swapped where those of 100 neighbouring cylinders are filled above 80 %, with one read and one write. That was chosen after runs of a recorded hour that failed: \
         each full track moved to the other end of the disk, piece by piece. With the log soonest under the head made traces swap nothing in either way."
            .into(),
        "A drive of 3 surfaces that gives one to logs loses a third of its room, and the paper's 8 to 12 surfaces lose an eighth or less. So requests of MLSMR lie farther apart than those of \
         SLSMR here, and its reads seek 0.3 to 1.4 ms longer."
            .into(),
    ];
    Ok(Results { pictures, claims: claims(given(context), &mixes), notes })
}

type SpeedUp = fn(&Mixed) -> f64;

/// Two layers compared, by the name in identifiers of statements.
const COMPARED: [(&str, SpeedUp); 3] =
    [("mlb", Mixed::of_mlb), ("soonest", Mixed::of_mlsmr), ("mlsmr", Mixed::of_mlsmr_by_cylinder)];

/// Returns the rows; `traces` begins their names.
fn claims(traces: &str, mixes: &[Mixed]) -> Vec<Claim> {
    let mut claims = Vec::new();
    for (name, speed_up) in COMPARED {
        let mut claim = |row: &str, value: f64| {
            claims.push(Claim::of(&format!("manylogs-6/{traces}{name}-{row}"), value));
        };
        for mix in mixes {
            claim(&mix.name.to_lowercase(), speed_up(mix));
        }
        claim("mean", mean(mixes.iter().map(speed_up)));
        if name != "mlsmr" {
            claim("least", least(mixes.iter().map(speed_up)));
        }
    }
    claims
}
