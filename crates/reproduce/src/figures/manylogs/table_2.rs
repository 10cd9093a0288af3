//! Table II: the gain from scattered logs, of all experiments together.

use super::block_traces::{given, note, tenants};
use super::scene::{ADAPTIVE, Bars, Line, MANYLOGS, ORDERED};
use super::{figure_2, figure_3, figure_4, figure_5, figure_6};
use crate::figures::common::{axis, of_paper, ours, picture};
use crate::{Claim, Context, Figure, FigureError, Results, Scale};
use testbeds::SequentialFile;

pub const TABLE_2: Figure = Figure {
    name: "manylogs-table-2",
    title: "What scattered logs gain, in all",
    source: "Manylogs (MSST 2016), Table II",
    about: "The ends of figures 2a, 2b, 3, 4 and 5 in the paper's modes, and figure 6: manylogs' bandwidth and latency over those of ordered and adaptive, MLB-256's \
            latency over that without logs and MLSMR's over SLSMR's: least, most and mean.",
    minutes: 10,
    by_chance: true,
    real_time: false,
    run,
};

/// Name in identifiers of statements, title, and the paper's least, most, and mean gain.
const ROWS: [(&str, &str, [f64; 3]); 6] = [
    ("ordered-bandwidth", "MLFS over ordered, bandwidth", [1.3, 15.0, 3.7]),
    ("ordered-latency", "MLFS over ordered, latency", [1.0, 22.0, 5.7]),
    ("adaptive-bandwidth", "MLFS over adaptive, bandwidth", [1.0, 16.0, 2.7]),
    ("adaptive-latency", "MLFS over adaptive, latency", [0.9, 7.6, 2.0]),
    ("mlb", "MLB over no logging, latency", [1.2, 2.8, 1.9]),
    ("mlsmr", "MLSMR over SLSMR, latency", [1.2, 1.3, 1.3]),
];

fn run(context: &Context) -> Result<Results, FigureError> {
    const ENDS: [u32; 2] = [40, 320];
    let figures = [
        figure_2::of_paper(context, SequentialFile::reader, &ENDS)?,
        figure_2::of_paper(context, SequentialFile::writer, &ENDS)?,
        figure_3::bars(context, &ENDS)?,
        figure_4::bars(context, &[2, 8])?,
        figure_5::bars(context, &[1, 4])?,
    ];
    let mixes = figure_6::play(context)?;
    let all = [
        gains(&figures, ORDERED, true),
        gains(&figures, ORDERED, false),
        gains(&figures, ADAPTIVE, true),
        gains(&figures, ADAPTIVE, false),
        mixes.iter().map(figure_6::Mixed::of_mlb).collect(),
        mixes.iter().map(figure_6::Mixed::of_mlsmr).collect(),
    ];
    let summary = all.map(|gains| {
        let least = gains.iter().copied().fold(f64::INFINITY, f64::min);
        let most = gains.iter().copied().fold(0.0, f64::max);
        [least, most, figure_6::mean(gains)]
    });
    let names = Scale::Names(ROWS.iter().map(|(_, name, _)| name.to_string()).collect());
    let mut series = Vec::new();
    for (at, which) in ["least", "most", "mean"].into_iter().enumerate() {
        let points = |values: &dyn Fn(usize) -> f64| {
            (0..ROWS.len()).map(|row| (row as f64, values(row))).collect()
        };
        series.push(ours(which, points(&|row| summary[row][at])));
        series.push(of_paper(which, points(&|row| ROWS[row].2[at])));
    }
    let claims = ROWS
        .iter()
        .zip(&summary)
        .map(|((id, ..), [least, most, mean])| {
            let traces = if ["mlb", "mlsmr"].contains(id) { given(context) } else { "" };
            Claim::of(&format!("manylogs-table-2/{traces}{id}"), *mean)
                .shown(format!("{mean:.2} ({least:.2} to {most:.2})"))
        })
        .collect();
    let pictures =
        vec![picture("Gains", axis("", names), axis("times as good", Scale::Linear), series)];
    let notes = vec![
        note(context, &tenants(context)?),
        "Each figure's lowest and highest number of updates, instances or databases; the paper has all of them. Which of its experiments give its means it does not say.".into(),
    ];
    Ok(Results { pictures, claims, notes })
}

/// Returns manylogs' gain over `base`, in each experiment.
fn gains(figures: &[Bars], base: Line, of_bandwidth: bool) -> Vec<f64> {
    let mut gains = Vec::new();
    for figure in figures {
        for part in 0..=figure.bars.iter().map(|bar| bar.part).max().unwrap_or(0) {
            for (mine, base) in figure.of(part, MANYLOGS).iter().zip(figure.of(part, base)) {
                gains.push(match of_bandwidth {
                    true => mine.kept / base.kept,
                    false => base.wait_ms / mine.wait_ms,
                });
            }
        }
    }
    gains
}
