//! A picture as SVG: ours and the paper's points together, 900 by 560, readable on light and on dark pages.
//!
//! Ours is filled and drawn through; the paper's is hollow and dashed. The legend stands beside the plot, never on it.
//!
//! Why no library: plotters lays its legend over the plot, and writes a colour into each element. A picture for light and dark
//! pages needs classes. Lines that lie under others, and what the legend says of them, would be ours to draw anyway.

mod axis;
mod bars;
mod lines;
mod shades;
mod style;
mod text;

use crate::figure::{Picture, Scale};
use axis::Ruler;
use style::Slots;
use text::width;

pub(crate) use text::escaped;

const WIDTH: f64 = 900.0;
const HEIGHT: f64 = 560.0;
const EDGE: f64 = 24.0;
const TITLE_SIZE: f64 = 18.0;
const TEXT_SIZE: f64 = 13.0;
const LEGEND_LINE: f64 = 22.0;
const LEGEND_SAMPLE: f64 = 34.0;

/// Where the points go, in the picture's coordinates.
struct Plot {
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
    x: Ruler,
    y: Ruler,
}

impl Plot {
    fn x(&self, value: f64) -> f64 {
        self.left + self.x.place(value) * (self.right - self.left)
    }
    fn y(&self, value: f64) -> f64 {
        self.bottom - self.y.place(value) * (self.bottom - self.top)
    }
    fn can_show(&self, (x, y): (f64, f64)) -> bool {
        self.x.can_show(x) && self.y.can_show(y)
    }
}

pub(crate) fn svg(picture: &Picture) -> String {
    if let Some(fields) = shades::svg(picture) {
        return fields;
    }
    let slots = Slots::of(&picture.series);
    let plot = plan(picture);
    let points = match picture.x.scale {
        Scale::Names(_) => bars::draw(picture, &plot, &slots),
        _ => lines::draw(picture, &plot, &slots),
    };
    let title = escaped(&picture.title);
    let rules = style::rules();
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" \
         font-family=\"system-ui, 'DejaVu Sans', sans-serif\" font-size=\"{TEXT_SIZE}\">\n\
         <title>{title}</title>\n<style>{rules}</style>\n\
         <rect class=\"ch-paper\" width=\"{WIDTH}\" height=\"{HEIGHT}\"/>\n\
         {head}{frame}{points}{legend}</svg>\n",
        head = head(picture),
        frame = frame(picture, &plot),
        legend = legend(picture, &plot, &slots),
    )
}

fn plan(picture: &Picture) -> Plot {
    let all = || picture.series.iter().flat_map(|series| &series.points);
    let x = Ruler::across(&picture.x, &all().map(|point| point.0).collect::<Vec<_>>());
    let y = Ruler::upright(&picture.y, &all().map(|point| point.1).collect::<Vec<_>>());
    let y_labels = y.ticks.iter().map(|(_, label)| width(label, TEXT_SIZE)).fold(0.0, f64::max);
    let left = EDGE + y_labels + 8.0;
    let right = WIDTH - EDGE - legend_room(picture) - LEGEND_SAMPLE - 24.0;
    let lines = match &picture.x.scale {
        Scale::Names(names) => {
            let room = (right - left) / names.len().max(1) as f64 - 6.0;
            names.iter().map(|name| text::wrapped(name, room, TEXT_SIZE).len()).max().unwrap_or(1)
        }
        _ => 1,
    };
    Plot { left, right, top: 76.0, bottom: HEIGHT - 58.0 - 16.0 * (lines as f64 - 1.0), x, y }
}

/// Where a mean lies with 90 %: an upright stroke, if it is long enough to be seen.
fn whisker(plot: &Plot, spread: Option<&(f64, f64)>, x: f64) -> String {
    const SEEN: f64 = 3.0;
    let Some(&(low, high)) = spread else { return String::new() };
    // A logarithmic axis has no place for what is not above zero.
    let ends = [low, high].map(|end| if plot.y.can_show(end) { plot.y(end) } else { plot.bottom });
    if (ends[0] - ends[1]).abs() < SEEN {
        return String::new();
    }
    let (from, to) = (ends[0].clamp(plot.top, plot.bottom), ends[1].clamp(plot.top, plot.bottom));
    format!(
        "<path class=\"ch-whisker\" d=\"M{x:.1} {from:.1}V{to:.1}M{:.1} {from:.1}h8M{:.1} {to:.1}h8\"/>\n",
        x - 4.0,
        x - 4.0
    )
}

/// The title, and what y is.
fn head(picture: &Picture) -> String {
    let room = WIDTH - 2.0 * EDGE;
    let size = TITLE_SIZE.min(TITLE_SIZE * room / width(&picture.title, TITLE_SIZE));
    format!(
        "<text class=\"ch-ink\" x=\"{EDGE}\" y=\"32\" font-size=\"{size:.1}\" font-weight=\"600\">{}</text>\n\
         <text class=\"ch-faint\" x=\"{EDGE}\" y=\"58\">{}</text>\n",
        escaped(&picture.title),
        escaped(&picture.y.label)
    )
}

/// Axes, grid, and the labels of the ticks, as many as have room.
fn frame(picture: &Picture, plot: &Plot) -> String {
    let Plot { left, right, top, bottom, .. } = *plot;
    let mut text = String::new();
    for (value, label) in &plot.y.ticks {
        let y = plot.y(*value);
        text += &format!(
            "<path class=\"ch-grid\" d=\"M{left:.1} {y:.1}H{right:.1}\"/>\
             <text class=\"ch-faint\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{label}</text>\n",
            left - 8.0,
            y + 4.5
        );
    }
    let of_names = matches!(picture.x.scale, Scale::Names(_));
    let room = (right - left) / plot.x.ticks.len().max(1) as f64 - 6.0;
    let mut free = f64::MIN;
    for (value, label) in &plot.x.ticks {
        let x = plot.x(*value);
        let lines = if of_names { text::wrapped(label, room, TEXT_SIZE) } else { vec![label.clone()] };
        let half = lines.iter().map(|line| width(line, TEXT_SIZE)).fold(0.0, f64::max) / 2.0;
        if !of_names {
            text += &format!("<path class=\"ch-axis\" d=\"M{x:.1} {bottom:.1}v5\"/>");
        }
        if x - half < free {
            continue;
        }
        free = x + half + 6.0;
        for (number, line) in lines.iter().enumerate() {
            let y = bottom + 20.0 + 16.0 * number as f64;
            let line = escaped(line);
            text += &format!(
                "<text class=\"ch-faint\" x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"middle\">{line}</text>\n"
            );
        }
    }
    text += &format!(
        "<path class=\"ch-axis\" fill=\"none\" d=\"M{left:.1} {top:.1}V{bottom:.1}H{right:.1}\"/>\n"
    );
    let middle = (left + right) / 2.0;
    let label = escaped(&picture.x.label);
    let y = HEIGHT - 16.0;
    text + &format!(
        "<text class=\"ch-faint\" x=\"{middle:.1}\" y=\"{y}\" text-anchor=\"middle\">{label}</text>\n"
    )
}

/// The series from top to bottom as they end at the right, so that the eye finds its line.
fn legend(picture: &Picture, plot: &Plot, slots: &Slots) -> String {
    let mut entries: Vec<_> = picture.series.iter().collect();
    if !matches!(picture.x.scale, Scale::Names(_)) {
        let last = |series: &crate::Series| series.points.last().map_or(f64::MIN, |point| point.1);
        entries.sort_by(|a, b| a.of_paper.cmp(&b.of_paper).then(last(b).total_cmp(&last(a))));
    }
    let entries: Vec<_> = entries.into_iter().map(|series| (series, under(series, picture, plot))).collect();
    let lines: usize = entries.iter().map(|(_, under)| 1 + under.len()).sum();
    let line = LEGEND_LINE.min((plot.bottom - plot.top) / lines.max(1) as f64);
    let mut text = String::new();
    let mut number = 0;
    for (series, under) in entries {
        let slot = slots.get(&series.name);
        let (x, y) = (plot.right + 20.0, plot.top + 10.0 + line * number as f64);
        number += 1 + under.len();
        text += &match picture.x.scale {
            Scale::Names(_) => bars::sample(slot, x, y, series.of_paper),
            _ => lines::sample(slot, x, y, series.of_paper),
        };
        let name = escaped(&legend_name(series));
        let (x, y) = (x + LEGEND_SAMPLE, y + 4.5);
        text += &format!("<text class=\"ch-ink\" x=\"{x:.1}\" y=\"{y:.1}\">{name}</text>\n");
        for (below, words) in under.iter().enumerate() {
            let (y, words) = (y + line * (below + 1) as f64, escaped(words));
            text += &format!("<text class=\"ch-faint\" x=\"{x:.1}\" y=\"{y:.1}\">{words}</text>\n");
        }
    }
    text
}

/// What the legend says of a line that lies under others, in lines of the legend's width.
fn under(series: &crate::Series, picture: &Picture, plot: &Plot) -> Vec<String> {
    if matches!(picture.x.scale, Scale::Names(_)) {
        return Vec::new();
    }
    let above: Vec<String> =
        lines::on_top_of(series, picture, plot).into_iter().map(|other| other.name.clone()).collect();
    match above[..] {
        [] => Vec::new(),
        _ => text::wrapped(&format!("under {}", above.join(", ")), legend_room(picture), TEXT_SIZE),
    }
}

/// How wide names in the legend may be.
fn legend_room(picture: &Picture) -> f64 {
    const LEAST: f64 = 110.0;
    picture.series.iter().map(|series| width(&legend_name(series), TEXT_SIZE)).fold(LEAST, f64::max)
}

fn legend_name(series: &crate::Series) -> String {
    if series.of_paper { format!("{}, paper", series.name) } else { series.name.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::made_up;

    /// All values of an attribute, of the elements that contain `with`.
    fn values(svg: &str, with: &str, attribute: &str) -> Vec<f64> {
        let elements = svg.split('<').filter(|element| element.contains(with));
        let after = |element: &'_ str| {
            let (_, rest) = element.split_once(&format!(" {attribute}=\""))?;
            rest.split_once('"')?.0.parse().ok()
        };
        elements.filter_map(after).collect()
    }

    #[test]
    fn points_lie_in_the_plot_and_the_legend_beside_it() {
        let picture = &made_up::results().pictures[0];
        let plot = plan(picture);
        let points = svg(picture).split("</svg>").next().unwrap().to_string();
        let (x, y) = (values(&points, "circle", "cx"), values(&points, "circle", "cy"));
        // Three points of ours, one of the paper's, and a sample of each in the legend.
        assert_eq!((x.len(), y.len()), (6, 6));
        let (in_plot, beside): (Vec<f64>, Vec<f64>) = x.iter().partition(|x| **x <= plot.right);
        assert_eq!((in_plot.len(), beside.len()), (4, 2));
        assert!(in_plot.iter().all(|x| *x > plot.left));
        assert!(y.iter().all(|y| (plot.top..=plot.bottom).contains(y)));
    }

    #[test]
    fn bars_are_as_high_as_their_values_say() {
        let drawn = svg(&made_up::results().pictures[1]);
        let heights = values(&drawn, "rect class=\"ch-f", "height");
        // 1 and 4 of wasteless, 0.5 and 0.9 of ordered, and the samples of the legend.
        let ratio = |at: usize| (heights[at] / heights[0] * 100.0).round() / 100.0;
        assert_eq!((ratio(1), ratio(2), ratio(3)), (4.0, 0.5, 0.9));
        assert!(drawn.contains(">512 B<") && drawn.contains(">0.9<"));
    }

    #[test]
    fn the_papers_points_are_hollow_and_named() {
        let drawn = svg(&made_up::results().pictures[0]);
        assert!(drawn.contains(">wasteless, paper<") && drawn.contains("class=\"ch-s0 ch-paper\""));
    }

    #[test]
    fn the_legend_says_which_line_lies_under_which() {
        let mut picture = made_up::results().pictures[0].clone();
        let first = picture.series.iter().find(|series| !series.of_paper).unwrap().clone();
        assert!(!svg(&picture).contains(">under"));
        picture.series.push(crate::Series { name: "selective".into(), ..first.clone() });
        let drawn = svg(&picture);
        assert_eq!(drawn.matches(">under selective<").count(), 1);
        assert!(drawn.find(&format!(">{}<", first.name)) < drawn.find(">under selective<"));
    }

    #[test]
    fn a_picture_without_points_is_still_drawn() {
        let mut picture = made_up::results().pictures[0].clone();
        picture.series.iter_mut().for_each(|series| series.points.clear());
        picture.y.scale = Scale::Logarithmic;
        let drawn = svg(&picture);
        assert!(drawn.contains("</svg>") && !drawn.contains("NaN") && !drawn.contains("inf"));
    }
}
