//! Tables II and III: workloads that evict, and their cost, as pictures.

use super::fingerprints::{HITACHI, SAMSUNG, SEAGATE, Taken, take_all};
use crate::error::FigureError;
use crate::figure::{Figure, Results, Scale};
use crate::figures::common::{axis, of_paper, ours, picture};
use crate::{Claim, Context, Picture};
use eviction::Pattern;
use eviction::fingerprint::Cell;

const SECTOR: u32 = 512;

pub fn table_2() -> Figure {
    Figure {
        name: "discreet-table-2",
        title: "Eviction fingerprints of nine drives",
        source: "Discreet (DSN 2011), Table II",
        about: "On each emulated drive, which ignores flushes: how often sequential and random workloads of 1 to 2560 writes and 1 to \
                128 MB push a sector out of its cache, inferred from how long reading it takes (okeanos fingerprint).",
        minutes: 2,
        by_chance: false,
        real_time: false,
        run: run_2,
    }
}

pub fn table_3() -> Figure {
    Figure {
        name: "discreet-table-3",
        title: "Performance fingerprints of nine drives",
        source: "Discreet (DSN 2011), Table III",
        about: "What the workloads of Table II take: white up to 10 ms, black from 500 ms on, as in the paper.",
        minutes: 2,
        by_chance: false,
        real_time: false,
        run: run_3,
    }
}

fn run_2(context: &Context) -> Result<Results, FigureError> {
    let all = take_all(context)?;
    let evicted = |taken: &Taken, cell: &Cell| cell.probability(taken.threshold);
    let shades = Scale::Shades { white: 0.0, black: 1.0, logarithmic: false };
    let pictures = vec![fields(&all, "Evicted (black: in every trial)", shades, evicted)];
    let of =
        |model: &str| all.iter().find(|taken| taken.drive.model == model).expect("one of the nine");
    let (hitachi, larger) = (of("hitachi-7k80"), of("hitachi-32"));
    let above = |bound: f64| move |cell: &Cell| written(cell) / 1e6 > bound;
    let mut claims = vec![
        share("little-chance", hitachi, |cell| !above(2.3)(cell)),
        least_share("nearly-always", hitachi, above(2.3)),
        Claim::of("discreet-table-2/four-times", edge(larger) / edge(hitachi)),
    ];
    for seagate in all.iter().filter(|taken| taken.drive.maker == SEAGATE) {
        claims.push(share(&format!("ineffectual-{}", seagate.drive.model), seagate, |_| true));
    }
    claims.push(irregular(&all));
    Ok(Results { pictures, claims, notes: notes() })
}

fn run_3(context: &Context) -> Result<Results, FigureError> {
    let all = take_all(context)?;
    let shades = Scale::Shades { white: 10.0, black: 500.0, logarithmic: true };
    let cost = |_: &Taken, cell: &Cell| cell.mean_milliseconds();
    let pictures =
        vec![fields(&all, "Milliseconds of a workload (white: 10, black: 500)", shades, cost)];
    let ratios: Vec<f64> = all.iter().map(random_over_sequential).collect();
    let claims = vec![Claim::of_each("discreet-table-3/random-over-sequential", &ratios)];
    let mut notes = notes();
    notes.push(
        "What goes around the caches of the Samsungs, Seagates and Western Digitals passes a small buffer and so keeps the rate of the \
         medium."
            .to_string(),
    );
    Ok(Results { pictures, claims, notes })
}

/// Builds a field for each drive and pattern; the chosen workloads, ours and the paper's, are
/// marked among the random ones, or where ours is.
fn fields(
    all: &[Taken],
    title: &str,
    shades: Scale,
    value: impl Fn(&Taken, &Cell) -> f64,
) -> Picture {
    let mut series = Vec::new();
    for taken in all {
        for &pattern in &taken.grid.patterns {
            let field = format!("{}, {}", taken.drive.model, pattern.name());
            for &bytes in &taken.grid.bytes {
                let row = taken.cells(pattern).filter(|(cell, _)| cell.workload.bytes == bytes);
                let points =
                    row.map(|(cell, _)| (column(taken, cell.workload.writes), value(taken, cell)));
                series.push(ours(&format!("{field}: {}", bytes as f64 / 1e6), points.collect()));
            }
            let chosen = format!("{field}: chosen");
            if let Some((workload, _)) =
                taken.chosen().filter(|(workload, _)| workload.pattern == pattern)
            {
                let at = (column(taken, workload.writes), workload.bytes as f64 / 1e6);
                series.push(ours(&chosen, vec![at]));
            }
            // One write has no order; the paper calls the others random.
            if pattern == Pattern::Random || taken.drive.writes == 1 {
                let at = (column(taken, taken.drive.writes), taken.drive.megabytes);
                series.push(of_paper(&chosen, vec![at]));
            }
        }
    }
    let writes = all.first().map_or(&[][..], |taken| &taken.grid.writes);
    let x = axis("number of writes", Scale::Names(writes.iter().map(u32::to_string).collect()));
    picture(title, x, axis("upwards: MB in all", shades), series)
}

/// Returns the column; beyond the last if the grid does not have it: no point there is drawn.
fn column(taken: &Taken, writes: u32) -> f64 {
    taken.grid.writes.iter().position(|count| *count == writes).unwrap_or(taken.grid.writes.len())
        as f64
}

/// Returns the bytes in whole sectors: for many short writes more than was requested.
fn written(cell: &Cell) -> f64 {
    (cell.workload.write_size(SECTOR) * u64::from(cell.workload.writes)) as f64
}

/// Claims on the share of trials of sequential workloads that evict.
fn share(id: &str, taken: &Taken, of: impl Fn(&Cell) -> bool) -> Claim {
    let cells = taken.cells(Pattern::Sequential).filter(|(cell, _)| of(cell));
    let (trials, evicted) = cells.fold((0, 0.0), |(trials, evicted), (cell, share)| {
        (trials + cell.trials(), evicted + share * f64::from(cell.trials()))
    });
    Claim::of(&format!("discreet-table-2/{id}"), evicted / f64::from(trials.max(1)))
        .shown(format!("{evicted} of {trials}"))
}

/// Claims on the least share of trials in which such a sequential workload evicts.
fn least_share(id: &str, taken: &Taken, of: impl Fn(&Cell) -> bool) -> Claim {
    let cells = taken.cells(Pattern::Sequential).filter(|(cell, _)| of(cell));
    Claim::of(&format!("discreet-table-2/{id}"), cells.map(|(_, share)| share).fold(1.0, f64::min))
}

/// Returns the megabytes from which on a single write always evicts.
fn edge(taken: &Taken) -> f64 {
    let single = taken.cells(Pattern::Sequential).filter(|(cell, _)| cell.workload.writes == 1);
    let never = single.filter(|(_, share)| *share < 1.0).map(|(cell, _)| cell.workload.bytes).max();
    let next = taken.grid.bytes.iter().find(|bytes| never.is_none_or(|never| **bytes > never));
    next.map_or(f64::NAN, |bytes| *bytes as f64 / 1e6)
}

/// Claims on cells of mixed results: a band along a sharp edge, and many without one.
fn irregular(all: &[Taken]) -> Claim {
    let undecided = |maker: &str| {
        let cells = all
            .iter()
            .filter(|taken| taken.drive.maker == maker)
            .flat_map(|taken| taken.cells(Pattern::Random));
        let shares: Vec<f64> = cells.map(|(_, share)| share).collect();
        shares.iter().filter(|share| **share > 0.0 && **share < 1.0).count() as f64
            / shares.len() as f64
    };
    let (samsung, hitachi) = (undecided(SAMSUNG), undecided(HITACHI));
    let shown = format!("{:.0} % against {:.0} %", 100.0 * samsung, 100.0 * hitachi);
    Claim::of("discreet-table-2/irregular", samsung - 5.0 * hitachi).shown(shown)
}

fn random_over_sequential(taken: &Taken) -> f64 {
    let cost = |pattern: Pattern| {
        let cells = taken.cells(pattern).filter(|(cell, _)| cell.workload.writes >= 128);
        cells.map(|(cell, _)| cell.mean_milliseconds())
    };
    let mut ratios: Vec<f64> = cost(Pattern::Random)
        .zip(cost(Pattern::Sequential))
        .map(|(random, sequential)| random / sequential)
        .collect();
    ratios.sort_by(f64::total_cmp);
    ratios[ratios.len() / 2]
}

fn notes() -> Vec<String> {
    vec![
        "Trials are spent where they are most informative: 2 in every cell, 8 where cells differ from their neighbours, 50 in the cheapest that \
         always evicted. The paper made 50 in every cell."
            .to_string(),
        "The paper's grid is known by its ends and by the numbers of Table IV, all of which ours has.".to_string(),
    ]
}
