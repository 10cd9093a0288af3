//! Series as bars beside each other, for axes of names.

use super::style::Slots;
use super::text::width;
use super::{Plot, whisker};
use crate::figure::{Picture, Series};
use crate::number::short;

/// Fraction of a name's width that its bars take together.
const FILLED: f64 = 0.8;
const BAR_MAX: f64 = 64.0;
const LABEL_SIZE: f64 = 10.5;

/// Draws bars in the order of the series, each with its number above it if it fits.
pub(super) fn draw(picture: &Picture, plot: &Plot, slots: &Slots) -> String {
    let count = picture.series.len().max(1) as f64;
    let room = (plot.right - plot.left) / plot.x.ticks.len().max(1) as f64;
    let thick = (room * FILLED / count).min(BAR_MAX);
    let ground = plot.bottom - plot.y.ground() * (plot.bottom - plot.top);
    let mut text = String::new();
    for (number, series) in picture.series.iter().enumerate() {
        let slot = slots.get(&series.name);
        for (at, &(x, value)) in series.points.iter().enumerate() {
            if !plot.can_show((x, value)) {
                continue;
            }
            let left = plot.x(x.round()) + (number as f64 - count / 2.0) * thick;
            let end = plot.y(value);
            text += &bar(slot, series, left + 1.0, thick - 2.0, ground, end);
            text += &whisker(plot, series.spread.get(at), left + thick / 2.0);
            text += &label(&short(value), left + thick / 2.0, end.min(ground), thick);
        }
        text += "\n";
    }
    text
}

fn bar(slot: usize, series: &Series, left: f64, thick: f64, ground: f64, end: f64) -> String {
    let look = look(slot, series.of_paper);
    let (top, height) = (end.min(ground), (ground - end).abs());
    format!(
        "<rect {look} x=\"{left:.1}\" y=\"{top:.1}\" width=\"{thick:.1}\" height=\"{height:.1}\"/>"
    )
}

/// Draws a number: flat above a bar that is wide enough, upright above a narrower one, none above a
/// hair.
fn label(value: &str, middle: f64, top: f64, thick: f64) -> String {
    if width(value, LABEL_SIZE) <= thick + 4.0 {
        let y = top - 5.0;
        format!(
            "<text class=\"ch-faint\" font-size=\"{LABEL_SIZE}\" text-anchor=\"middle\" x=\"{middle:.1}\" y=\"{y:.1}\">{value}</text>"
        )
    } else if thick >= LABEL_SIZE {
        let (x, y) = (middle + 4.0, top - 5.0);
        format!(
            "<text class=\"ch-faint\" font-size=\"{LABEL_SIZE}\" transform=\"translate({x:.1} {y:.1}) rotate(-90)\">{value}</text>"
        )
    } else {
        String::new()
    }
}

/// Draws a bar for the legend.
pub(super) fn sample(slot: usize, x: f64, y: f64, of_paper: bool) -> String {
    let (look, top) = (look(slot, of_paper), y - 7.0);
    format!("<rect {look} x=\"{:.1}\" y=\"{top:.1}\" width=\"16\" height=\"14\"/>", x + 6.0)
}

fn look(slot: usize, of_paper: bool) -> String {
    match of_paper {
        true => {
            format!("class=\"ch-s{slot} ch-paper\" stroke-width=\"1.6\" stroke-dasharray=\"4 3\"")
        }
        false => format!("class=\"ch-f{slot}\""),
    }
}
