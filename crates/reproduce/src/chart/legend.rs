//! Content and position of the legend.

use super::style::Slots;
use super::text::{escaped, width, wrapped};
use super::{Form, Plot, TEXT_SIZE, bars, lines};
use crate::figure::{Picture, Scale, Series};

const LINE: f64 = 22.0;
/// Width of the sample of a line or bar, with the gap before its name.
pub(super) const SAMPLE: f64 = 34.0;

/// Draws the series from top to bottom as they end at the right, so that the eye finds its line.
/// Returns the height with the legend, too.
pub(super) fn draw(picture: &Picture, plot: &Plot, slots: &Slots) -> (String, f64) {
    let mut entries: Vec<_> = picture.series.iter().collect();
    if !matches!(picture.x.scale, Scale::Names(_)) {
        let last = |series: &Series| series.points.last().map_or(f64::MIN, |point| point.1);
        entries.sort_by(|a, b| a.of_paper.cmp(&b.of_paper).then(last(b).total_cmp(&last(a))));
    }
    let entries: Vec<_> =
        entries.into_iter().map(|series| (series, under(series, picture, plot))).collect();
    let lines: usize = entries.iter().map(|(_, under)| 1 + under.len()).sum();
    let (left, top, line) = match plot.form {
        Form::Screen => {
            (plot.right + 20.0, plot.top, (plot.bottom - plot.top) / lines.max(1) as f64)
        }
        Form::Phone => (plot.form.edge(), plot.end, LINE),
    };
    let line = LINE.min(line);
    let mut text = String::new();
    let mut number = 0;
    for (series, under) in entries {
        let slot = slots.get(&series.name);
        let (x, y) = (left, top + 10.0 + line * number as f64);
        number += 1 + under.len();
        text += &match picture.x.scale {
            Scale::Names(_) => bars::sample(slot, x, y, series.of_paper),
            _ => lines::sample(slot, x, y, series.of_paper),
        };
        let name = escaped(&name_of(series));
        let (x, y) = (x + SAMPLE, y + 4.5);
        text += &format!("<text class=\"ch-ink\" x=\"{x:.1}\" y=\"{y:.1}\">{name}</text>\n");
        for (below, words) in under.iter().enumerate() {
            let (y, words) = (y + line * (below + 1) as f64, escaped(words));
            text += &format!("<text class=\"ch-faint\" x=\"{x:.1}\" y=\"{y:.1}\">{words}</text>\n");
        }
    }
    let end = match plot.form {
        Form::Screen => plot.end,
        Form::Phone => top + line * number as f64 + 10.0,
    };
    (text, end)
}

/// Returns the legend's text for a line that lies under others, wrapped to the legend's width.
fn under(series: &Series, picture: &Picture, plot: &Plot) -> Vec<String> {
    if matches!(picture.x.scale, Scale::Names(_)) {
        return Vec::new();
    }
    let above: Vec<String> = lines::on_top_of(series, picture, plot)
        .into_iter()
        .map(|other| other.name.clone())
        .collect();
    match above[..] {
        [] => Vec::new(),
        _ => wrapped(&format!("under {}", above.join(", ")), room(picture, plot.form), TEXT_SIZE),
    }
}

/// Returns the maximum width of names in the legend.
pub(super) fn room(picture: &Picture, form: Form) -> f64 {
    const LEAST: f64 = 110.0;
    if form == Form::Phone {
        return form.width() - 2.0 * form.edge() - SAMPLE;
    }
    picture.series.iter().map(|series| width(&name_of(series), TEXT_SIZE)).fold(LEAST, f64::max)
}

fn name_of(series: &Series) -> String {
    if series.of_paper { format!("{}, paper", series.name) } else { series.name.clone() }
}
