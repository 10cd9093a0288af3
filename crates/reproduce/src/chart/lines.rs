//! Series as lines with markers.

use super::style::{Slots, marker};
use super::{Plot, whisker};
use crate::figure::{Picture, Series};

/// Number of points above which markers would hide the line.
const MARKERS_MAX: usize = 40;

/// Distance, in the picture's units, below which points of two series are drawn on each other.
const NEAR: f64 = 2.5;

/// Draws our series first, so that the paper's hollow markers stay visible on them.
pub(super) fn draw(picture: &Picture, plot: &Plot, slots: &Slots) -> String {
    let mut text = String::new();
    for of_paper in [false, true] {
        for series in picture.series.iter().filter(|series| series.of_paper == of_paper) {
            let above = on_top_of(series, picture, plot).len();
            text += &line(&place(series, plot), slots.get(&series.name), of_paper, above);
            if series.points.len() <= MARKERS_MAX {
                let points = series.points.iter().zip(&series.spread);
                text.extend(
                    points.map(|(point, spread)| whisker(plot, Some(spread), plot.x(point.0))),
                );
            }
        }
    }
    text
}

/// Returns the series that are drawn later, and on most points of this one.
pub(super) fn on_top_of<'a>(series: &Series, picture: &'a Picture, plot: &Plot) -> Vec<&'a Series> {
    let placed = place(series, plot);
    let later = picture.series.iter().skip_while(|other| !std::ptr::eq(*other, series)).skip(1);
    later
        .filter(|other| other.of_paper == series.of_paper && covers(&place(other, plot), &placed))
        .collect()
}

fn place(series: &Series, plot: &Plot) -> Vec<(f64, f64)> {
    let shown = series.points.iter().copied().filter(|point| plot.can_show(*point));
    shown.map(|(x, y)| (plot.x(x), plot.y(y))).collect()
}

/// Whether most points of the lower line lie under one of the upper line.
fn covers(above: &[(f64, f64)], below: &[(f64, f64)]) -> bool {
    let is_near =
        |a: &(f64, f64), b: &(f64, f64)| (a.0 - b.0).abs() < NEAR && (a.1 - b.1).abs() < NEAR;
    let covered =
        below.iter().filter(|point| above.iter().any(|other| is_near(other, point))).count();
    below.len() <= MARKERS_MAX && covered * 2 > below.len()
}

/// Draws a line. A line that lies under others is wider, so that its colour shows on both sides.
fn line(points: &[(f64, f64)], slot: usize, of_paper: bool, above: usize) -> String {
    let path: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1} {y:.1}")).collect();
    let many = points.len() > MARKERS_MAX;
    let (thick, dash) = stroke(of_paper, many);
    let thick = thick + 3.2 * above as f64;
    let mut text = String::new();
    if points.len() > 1 {
        let path = path.join("L");
        text += &format!(
            "<path class=\"ch-s{slot}\" fill=\"none\" stroke-width=\"{thick:.1}\" stroke-linejoin=\"round\"{dash} d=\"M{path}\"/>\n"
        );
    }
    if !many {
        text.extend(points.iter().map(|(x, y)| marker(slot, *x, *y, of_paper)));
    }
    text + "\n"
}

/// Draws a line for the legend.
pub(super) fn sample(slot: usize, x: f64, y: f64, of_paper: bool) -> String {
    let (thick, dash) = stroke(of_paper, false);
    format!(
        "<path class=\"ch-s{slot}\" fill=\"none\" stroke-width=\"{thick}\"{dash} d=\"M{x:.1} {y:.1}h26\"/>{}",
        marker(slot, x + 13.0, y, of_paper)
    )
}

fn stroke(of_paper: bool, many: bool) -> (f64, &'static str) {
    match (of_paper, many) {
        (true, _) => (1.6, " stroke-dasharray=\"5 4\""),
        (false, true) => (1.4, ""),
        (false, false) => (2.2, ""),
    }
}
