//! Series as lines with markers.

use super::Plot;
use super::style::{Slots, marker};
use crate::figure::{Picture, Series};

/// Above this many points, markers would hide the line.
const MARKERS_MAX: usize = 40;

/// Ours first, so that the paper's hollow markers stay visible on them.
pub(super) fn draw(picture: &Picture, plot: &Plot, slots: &Slots) -> String {
    let mut text = String::new();
    for of_paper in [false, true] {
        for series in picture.series.iter().filter(|series| series.of_paper == of_paper) {
            text += &line(series, plot, slots.get(&series.name));
        }
    }
    text
}

fn line(series: &Series, plot: &Plot, slot: usize) -> String {
    let shown = series.points.iter().copied().filter(|point| plot.can_show(*point));
    let points: Vec<(f64, f64)> = shown.map(|(x, y)| (plot.x(x), plot.y(y))).collect();
    let path: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1} {y:.1}")).collect();
    let many = points.len() > MARKERS_MAX;
    let (thick, dash) = stroke(series.of_paper, many);
    let mut text = String::new();
    if points.len() > 1 {
        let path = path.join("L");
        text += &format!(
            "<path class=\"ch-s{slot}\" fill=\"none\" stroke-width=\"{thick}\" stroke-linejoin=\"round\"{dash} d=\"M{path}\"/>\n"
        );
    }
    if !many {
        text.extend(points.iter().map(|(x, y)| marker(slot, *x, *y, series.of_paper)));
    }
    text + "\n"
}

/// How the line looks in the legend.
pub(super) fn sample(slot: usize, x: f64, y: f64, of_paper: bool) -> String {
    let (thick, dash) = stroke(of_paper, false);
    format!(
        "<path class=\"ch-s{slot}\" fill=\"none\" stroke-width=\"{thick}\"{dash} d=\"M{x:.1} {y:.1}h26\"/>{}",
        marker(slot, x + 13.0, y, of_paper)
    )
}

fn stroke(of_paper: bool, many: bool) -> (&'static str, &'static str) {
    match (of_paper, many) {
        (true, _) => ("1.6", " stroke-dasharray=\"5 4\""),
        (false, true) => ("1.4", ""),
        (false, false) => ("2.2", ""),
    }
}
