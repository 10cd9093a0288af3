//! Figures 7a to 7c: write traffic of streams at the two devices.

use super::streams::{Cell, FAST, Played, Runs, SLOW, play};
use crate::error::FigureError;
use crate::figure::{Figure, Picture, Results, Scale, Series};
use crate::figures::common::{FIVE_MODES, axis, most as most_of, of_paper, ours, picture};
use crate::number::short;
use crate::{Claim, Context};
use engine::DataMode;
use testbeds::VolumeLayout;

pub fn figure_7a() -> Figure {
    Figure {
        name: "7a",
        title: "Journal traffic of 1 Kbps streams",
        source: "Okeanos (TOS 2013), Figure 7a",
        about: "100 to 6,000 threads append 125 B once a second to a file each, O_SYNC, for 5 minutes of virtual time on two \
                Cheetahs. Wasteless and data journaling also on today's ext4 layout. 7a, 7c and 8a share these runs.",
        minutes: 16,
        by_chance: true,
        real_time: false,
        run: run_7a,
    }
}

pub fn figure_7b() -> Figure {
    Figure {
        name: "7b",
        title: "Journal traffic of 1 Mbps streams",
        source: "Okeanos (TOS 2013), Figure 7b",
        about: "1 to 100 threads append 125,000 B once a second to a file each, O_SYNC, for a minute of virtual time on two \
                Cheetahs. 7b and 8b share these runs.",
        minutes: 1,
        by_chance: true,
        real_time: false,
        run: run_7b,
    }
}

pub fn figure_7c() -> Figure {
    Figure {
        name: "7c",
        title: "Home traffic of 1 Kbps streams",
        source: "Okeanos (TOS 2013), Figure 7c",
        about: "The runs of 7a: what is written to the drive of the file system.",
        minutes: 16,
        by_chance: true,
        real_time: false,
        run: run_7c,
    }
}

/// Returns the numbers of streams of 1 Kbps, and the seconds they run.
pub(super) fn slow_counts(context: &Context) -> (&'static [u32], u64) {
    match (context.quick, context.varied) {
        (true, _) => (&[20, 60], 3),
        (false, Some(_)) => (&[2000], 60),
        (false, None) => (&[100, 500, 1000, 2000, 4000, 6000], 300),
    }
}

pub(super) fn slow_streams(context: &Context) -> Result<Runs, FigureError> {
    let (counts, seconds) = slow_counts(context);
    let of = |data, layout| {
        counts.iter().map(move |&count| Cell { layout, ..Cell::new(data, count, SLOW, seconds) })
    };
    let mut cells: Vec<Cell> =
        FIVE_MODES.iter().flat_map(|&data| of(data, VolumeLayout::Ext3Paper)).collect();
    for data in
        [DataMode::Journal, DataMode::Wasteless].into_iter().filter(|_| context.varied.is_none())
    {
        cells.extend(of(data, VolumeLayout::Ext4));
    }
    // The longest run first, so that none is left over when all others are done.
    cells.sort_by_key(|cell| std::cmp::Reverse(cell.streams));
    play(context, cells).map(sorted)
}

/// Returns the numbers of streams of 1 Mbps, and the seconds they run.
pub(super) fn fast_counts(context: &Context) -> (&'static [u32], u64) {
    match (context.quick, context.varied) {
        (true, _) => (&[1, 4], 3),
        (false, Some(_)) => (&[100], 30),
        (false, None) => (&[1, 5, 10, 25, 50, 100], 60),
    }
}

pub(super) fn fast_streams(context: &Context) -> Result<Runs, FigureError> {
    let (counts, seconds) = fast_counts(context);
    let of = |&data| counts.iter().map(move |&count| Cell::new(data, count, FAST, seconds));
    let mut cells: Vec<Cell> = FIVE_MODES.iter().flat_map(of).collect();
    cells.extend(of(&DataMode::Selective).map(|cell| Cell { per_block: true, ..cell }));
    cells.sort_by_key(|cell| std::cmp::Reverse(cell.streams));
    play(context, cells).map(sorted)
}

fn sorted(mut runs: Runs) -> Runs {
    runs.0.sort_by_key(|played| played.cell.streams);
    runs
}

/// Returns a line on the paper's layout.
pub(super) fn paper_line(
    runs: &Runs,
    data: DataMode,
    value: fn(&Played) -> f64,
) -> Vec<(f64, f64)> {
    let wanted = |cell: &Cell| {
        cell.data == data && cell.layout == VolumeLayout::Ext3Paper && !cell.per_block
    };
    runs.points(wanted, |played| f64::from(played.cell.streams), value)
}

pub(super) fn last(runs: &Runs, data: DataMode, value: fn(&Played) -> f64) -> f64 {
    paper_line(runs, data, value).last().expect("every mode is played").1
}

/// Returns the line of selective with a threshold for each block, if it was played.
pub(super) fn per_block_line(runs: &Runs, value: fn(&Played) -> f64) -> Option<Series> {
    let points = runs.points(|cell| cell.per_block, |played| f64::from(played.cell.streams), value);
    (!points.is_empty()).then(|| ours("selective, each block judged", points))
}

/// Describes that line's value at the most streams, for notes.
pub(super) fn per_block_note(runs: &Runs, what: &str, value: fn(&Played) -> f64) -> String {
    let line = per_block_line(runs, value);
    let at_most =
        line.and_then(|line| line.points.last().copied()).map_or(f64::NAN, |point| point.1);
    format!(
        "Section 3.1 judges the write threshold for what changes of each block, so that the ends of a long request are logged; \
         ours judges the request (threshold_per=request, docs/modes/selective.md). Both are drawn. At the most streams {what} of \
         selective is {} with the request judged, {} with each block, and {} in ordered.",
        short(last(runs, DataMode::Selective, value)),
        short(at_most),
        short(last(runs, DataMode::Ordered, value)),
    )
}

/// Returns a line for each mode, and the ones on today's layout.
fn lines(runs: &Runs, value: fn(&Played) -> f64) -> Vec<Series> {
    let mut series: Vec<Series> =
        FIVE_MODES.iter().map(|&data| ours(data.name(), paper_line(runs, data, value))).collect();
    for data in [DataMode::Journal, DataMode::Wasteless] {
        let wanted = |cell: &Cell| cell.data == data && cell.layout == VolumeLayout::Ext4;
        let points = runs.points(wanted, |played| f64::from(played.cell.streams), value);
        if !points.is_empty() {
            series.push(ours(&format!("{}, ext4 layout", data.name()), points));
        }
    }
    series.extend(per_block_line(runs, value));
    series
}

fn by_streams(title: &str, label: &str, scale: Scale, series: Vec<Series>) -> Picture {
    picture(title, axis("streams", Scale::Logarithmic), axis(label, scale), series)
}

fn run_7a(context: &Context) -> Result<Results, FigureError> {
    let runs = slow_streams(context)?;
    let rate = Played::journal_rate;
    let most = f64::from(runs.most(DataMode::Journal).cell.streams);
    let mut series = lines(&runs, rate);
    for (data, mib) in
        [(DataMode::Journal, 27.0), (DataMode::Wasteless, 4.2), (DataMode::Selective, 2.9)]
    {
        series.push(of_paper(data.name(), vec![(most, mib)]));
    }
    let of = |data| last(&runs, data, rate);
    let (journal, wasteless) = (of(DataMode::Journal), of(DataMode::Wasteless));
    let (selective, ordered) = (of(DataMode::Selective), of(DataMode::Ordered));
    let claims = vec![
        Claim::of("7a/data-over-wasteless", journal / wasteless),
        Claim::of("7a/data-over-others", journal / most_of([wasteless, selective, ordered])),
        Claim::of("7a/selective-over-wasteless", selective / wasteless),
        Claim::of("7a/ordered-over-selective", ordered / selective),
    ];
    let notes = vec![
        "The paper's text names no number of streams but \"several thousand\": its points stand at our largest number.".into(),
        "Threads are in step, as in figure 1.".into(),
        "Every request is below the write threshold, so selective logs all that wasteless logs, and their lines lie one on \
         the other; the paper has selective lower and gives no reason."
            .into(),
    ];
    let picture =
        by_streams("Journal device, 1 Kbps", "journal traffic (MiB/s)", Scale::Logarithmic, series);
    Ok(Results { pictures: vec![picture], claims, notes })
}

fn run_7b(context: &Context) -> Result<Results, FigureError> {
    let runs = fast_streams(context)?;
    let of = |data| last(&runs, data, Played::journal_rate);
    let (journal, wasteless) = (of(DataMode::Journal), of(DataMode::Wasteless));
    let (selective, ordered) = (of(DataMode::Selective), of(DataMode::Ordered));
    let claims = vec![
        Claim::of("7b/wasteless-over-data", wasteless / journal),
        Claim::of("7b/wasteless-over-selective", wasteless / selective),
        Claim::of("7b/wasteless-over-ordered", wasteless / ordered),
        Claim::of("7b/selective-not-below-ordered", selective / ordered),
    ];
    let series = lines(&runs, Played::journal_rate);
    let picture =
        by_streams("Journal device, 1 Mbps", "journal traffic (MiB/s)", Scale::Logarithmic, series);
    let notes = vec![
        per_block_note(&runs, "the journal traffic (MiB/s)", Played::journal_rate),
        "A minute instead of five: the journal of 128 MiB is filled many times over in it, and what is written stays in \
         memory here."
            .into(),
    ];
    Ok(Results { pictures: vec![picture], claims, notes })
}

fn run_7c(context: &Context) -> Result<Results, FigureError> {
    let runs = slow_streams(context)?;
    let of = |data| last(&runs, data, Played::home_rate);
    let others = [DataMode::Wasteless, DataMode::Selective, DataMode::Journal];
    let over = |other: f64| of(DataMode::Ordered) / other;
    let mut claims: Vec<Claim> = others
        .iter()
        .map(|&data| Claim::of(&format!("7c/ordered-over-{}", data.name()), over(of(data))))
        .collect();
    claims.push(Claim::of("7c/atc-several-factors", over(most_of(others.map(of)))));
    let series = lines(&runs, Played::home_rate);
    let picture = by_streams(
        "File-system device, 1 Kbps",
        "home traffic (MiB/s)",
        Scale::Logarithmic,
        series,
    );
    Ok(Results { pictures: vec![picture], claims, notes: Vec::new() })
}
