//! A picture as SVG: ours and the paper's points together, readable on light and on dark pages.
//!
//! Ours is filled and drawn through; the paper's is hollow and dashed. The legend stands beside the
//! plot or, on a phone, below it; never on it.
//!
//! Why no library: plotters lays its legend over the plot, and writes a colour into each element. A
//! picture for light and dark pages needs classes. Lines that lie under others, and what the legend
//! says of them, would be ours to draw anyway.

mod axis;
mod bars;
mod legend;
mod lines;
mod shades;
mod style;
mod text;

use crate::figure::{Picture, Scale};
use axis::Ruler;
use style::Slots;
use text::width;

pub(crate) use text::escaped;

const TITLE_SIZE: f64 = 18.0;
const TITLE_LINE: f64 = 24.0;
const TEXT_SIZE: f64 = 13.0;
/// Height below the plot: the labels of the ticks, the first line of them, and the name of x.
const FOOT: f64 = 58.0;
const FOOT_LINE: f64 = 16.0;

/// Medium of a picture.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// The legend stands beside the plot.
    Screen,
    /// The legend stands below the plot.
    Phone,
}

impl Form {
    fn width(self) -> f64 {
        if self == Form::Screen { 900.0 } else { 400.0 }
    }
    /// Returns the margin at the sides.
    fn edge(self) -> f64 {
        if self == Form::Screen { 24.0 } else { 10.0 }
    }
    fn plot_height(self) -> f64 {
        if self == Form::Screen { 426.0 } else { 280.0 }
    }
    fn title_lines(self, title: &str) -> Vec<String> {
        text::wrapped(title, self.width() - 2.0 * self.edge(), TITLE_SIZE)
    }
}

/// Area of the points, in the picture's coordinates.
struct Plot {
    form: Form,
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
    /// Bottom of the labels of the ticks and of x.
    end: f64,
    names: NameRows,
    x: Ruler,
    y: Ruler,
}

/// Rows of names below the plot; names alternate between as many rows as keep each clear of its
/// neighbours.
struct NameRows {
    rows: usize,
    /// Maximum number of lines of each row.
    lines: usize,
    /// Width available for a name.
    room: f64,
}

impl NameRows {
    const MOST: usize = 3;

    fn of(names: &[String], room: f64) -> NameRows {
        let widest = |name: &String| {
            let lines = text::wrapped(name, room, TEXT_SIZE);
            lines.iter().map(|line| width(line, TEXT_SIZE)).fold(0.0, f64::max)
        };
        let wide = names.iter().map(widest).fold(0.0, f64::max);
        let rows =
            (1..NameRows::MOST).find(|rows| wide <= room * *rows as f64).unwrap_or(NameRows::MOST);
        let room = room * rows as f64;
        let lines =
            names.iter().map(|name| text::wrapped(name, room, TEXT_SIZE).len()).max().unwrap_or(1);
        NameRows { rows, lines, room }
    }
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

pub(crate) fn svg(picture: &Picture, form: Form) -> String {
    shades::svg(picture, form).unwrap_or_else(|| drawn(picture, form, None).0)
}

/// Draws pictures of lines or bars in one file, one below the other.
pub fn sheet(pictures: &[Picture], form: Form) -> String {
    let (mut parts, mut height) = (String::new(), 0.0);
    for picture in pictures {
        let (part, high) = drawn(picture, form, Some(height));
        (parts, height) = (parts + &part, height + high);
    }
    let width = form.width();
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height:.0}\">\n{parts}</svg>\n"
    )
}

/// Draws a picture of lines or bars, and returns its height. In a file with others it begins at
/// `top`.
fn drawn(picture: &Picture, form: Form, top: Option<f64>) -> (String, f64) {
    let slots = Slots::of(&picture.series);
    let plot = plan(picture, form);
    let points = match picture.x.scale {
        Scale::Names(_) => bars::draw(picture, &plot, &slots),
        _ => lines::draw(picture, &plot, &slots),
    };
    let (legend, height) = legend::draw(picture, &plot, &slots);
    let (width, title, rules) = (form.width(), escaped(&picture.title), style::rules());
    let height = height.round();
    // A picture that is the whole file leaves its size to the page.
    let place = top.map(|top| format!(" y=\"{top}\" width=\"{width}\" height=\"{height}\""));
    let place = place.unwrap_or_default();
    let text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\"{place} viewBox=\"0 0 {width} {height}\" role=\"img\" \
         font-family=\"system-ui, 'DejaVu Sans', sans-serif\" font-size=\"{TEXT_SIZE}\">\n\
         <title>{title}</title>\n<style>{rules}</style>\n\
         <rect class=\"ch-paper\" width=\"{width}\" height=\"{height}\"/>\n\
         {head}{frame}{points}{legend}</svg>\n",
        head = head(picture, &plot),
        frame = frame(picture, &plot),
    );
    (text, height)
}

fn plan(picture: &Picture, form: Form) -> Plot {
    let all = || picture.series.iter().flat_map(|series| &series.points);
    let x = Ruler::across(&picture.x, &all().map(|point| point.0).collect::<Vec<_>>());
    let y = Ruler::upright(&picture.y, &all().map(|point| point.1).collect::<Vec<_>>());
    let y_labels = y.ticks.iter().map(|(_, label)| width(label, TEXT_SIZE)).fold(0.0, f64::max);
    let left = form.edge() + y_labels + 8.0;
    let right = match form {
        Form::Screen => {
            form.width() - form.edge() - legend::room(picture, form) - legend::SAMPLE - 24.0
        }
        Form::Phone => form.width() - form.edge(),
    };
    let (names, room) = match &picture.x.scale {
        Scale::Names(names) => (&names[..], (right - left) / names.len().max(1) as f64 - 6.0),
        _ => (&[][..], 0.0),
    };
    let names = NameRows::of(names, room);
    let below = FOOT_LINE * ((names.rows * names.lines) as f64 - 1.0);
    let top = 52.0 + TITLE_LINE * form.title_lines(&picture.title).len() as f64;
    let bottom = top + form.plot_height() - if form == Form::Screen { below } else { 0.0 };
    let end = bottom + FOOT + below;
    Plot { form, left, right, top, bottom, end, names, x, y }
}

/// Draws the 90 % confidence interval of a mean: an upright stroke, if it is long enough to be
/// seen.
fn whisker(plot: &Plot, spread: Option<&(f64, f64)>, x: f64) -> String {
    const SEEN: f64 = 3.0;
    let Some(&(low, high)) = spread else { return String::new() };
    // A logarithmic axis cannot show values that are not above zero.
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

/// Draws the title, and the name of y.
fn head(picture: &Picture, plot: &Plot) -> String {
    let edge = plot.form.edge();
    let mut text = String::new();
    for (number, line) in plot.form.title_lines(&picture.title).iter().enumerate() {
        let (y, line) = (32.0 + TITLE_LINE * number as f64, escaped(line));
        text += &format!(
            "<text class=\"ch-ink\" x=\"{edge}\" y=\"{y}\" font-size=\"{TITLE_SIZE}\" font-weight=\"600\">{line}</text>\n"
        );
    }
    let (y, label) = (plot.top - 18.0, escaped(&picture.y.label));
    text + &format!("<text class=\"ch-faint\" x=\"{edge}\" y=\"{y}\">{label}</text>\n")
}

/// Draws axes, grid, and the labels of the ticks, as many as fit.
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
    let NameRows { rows, lines: lines_each, room } = plot.names;
    let mut free = [f64::MIN; NameRows::MOST];
    for (number, (value, label)) in plot.x.ticks.iter().enumerate() {
        let (x, row) = (plot.x(*value), number % rows);
        let lines =
            if of_names { text::wrapped(label, room, TEXT_SIZE) } else { vec![label.clone()] };
        let half = lines.iter().map(|line| width(line, TEXT_SIZE)).fold(0.0, f64::max) / 2.0;
        if !of_names {
            text += &format!("<path class=\"ch-axis\" d=\"M{x:.1} {bottom:.1}v5\"/>");
        }
        if x - half < free[row] {
            continue;
        }
        free[row] = x + half + 6.0;
        for (line_number, line) in lines.iter().enumerate() {
            let y = bottom + 20.0 + FOOT_LINE * (row * lines_each + line_number) as f64;
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
    let y = plot.end - 16.0;
    text + &format!(
        "<text class=\"ch-faint\" x=\"{middle:.1}\" y=\"{y:.1}\" text-anchor=\"middle\">{label}</text>\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_figure;

    /// Returns all values of an attribute, of the elements that contain `with`.
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
        let picture = &test_figure::results().pictures[0];
        let plot = plan(picture, Form::Screen);
        let points = svg(picture, Form::Screen).split("</svg>").next().unwrap().to_string();
        let (x, y) = (values(&points, "circle", "cx"), values(&points, "circle", "cy"));
        // Three points of ours, one of the paper's, and a sample of each in the legend.
        assert_eq!((x.len(), y.len()), (6, 6));
        let (in_plot, beside): (Vec<f64>, Vec<f64>) = x.iter().partition(|x| **x <= plot.right);
        assert_eq!((in_plot.len(), beside.len()), (4, 2));
        assert!(in_plot.iter().all(|x| *x > plot.left));
        assert!(y.iter().all(|y| (plot.top..=plot.bottom).contains(y)));
    }

    #[test]
    fn on_a_phone_the_legend_stands_below_and_nothing_beyond_the_edge() {
        for picture in &test_figure::results().pictures {
            let (plot, drawn) = (plan(picture, Form::Phone), svg(picture, Form::Phone));
            let height =
                drawn.split_once("viewBox=\"0 0 400 ").unwrap().1.split_once('"').unwrap().0;
            let height: f64 = height.parse().unwrap();
            let name = &picture.series[0].name;
            let element =
                drawn.split('<').find(|element| element.ends_with(&format!(">{name}"))).unwrap();
            let [x, y] =
                ["x", "y"].map(|attribute| values(&format!("<{element}"), "text", attribute)[0]);
            assert!(
                x < plot.left + legend::SAMPLE && y > plot.end && y < height,
                "{x} {y} {height}"
            );
            let all = values(&drawn, "text", "x").into_iter().chain(values(&drawn, "circle", "cx"));
            assert!(all.into_iter().all(|x| (0.0..=400.0).contains(&x)));
        }
    }

    #[test]
    fn every_name_below_the_plot_is_drawn_where_there_is_little_room() {
        let mut picture = test_figure::results().pictures[1].clone();
        let names = ["ordered", "writeback", "journal", "wasteless", "selective", "adaptive"];
        picture.x.scale = Scale::Names(names.map(String::from).into());
        for form in [Form::Screen, Form::Phone] {
            let drawn = svg(&picture, form);
            let missing: Vec<_> = names
                .iter()
                .filter(|name| !drawn.contains(&format!("\"middle\">{name}<")))
                .collect();
            assert!(missing.is_empty(), "{form:?}: {missing:?}");
        }
    }

    #[test]
    fn a_long_title_is_broken_and_stays_as_large() {
        let mut picture = test_figure::results().pictures[0].clone();
        picture.title = "writers wait for blocks under commit, as in ext3 ".repeat(3);
        for form in [Form::Screen, Form::Phone] {
            let lines = form.title_lines(&picture.title).len();
            assert_eq!(svg(&picture, form).matches("font-size=\"18\"").count(), lines, "{form:?}");
            assert!(plan(&picture, form).top > 52.0 + TITLE_LINE * (lines - 1) as f64 && lines > 1);
        }
    }

    #[test]
    fn bars_are_as_high_as_their_values_say() {
        let drawn = svg(&test_figure::results().pictures[1], Form::Screen);
        let heights = values(&drawn, "rect class=\"ch-f", "height");
        // 1 and 4 of wasteless, 0.5 and 0.9 of ordered, and the samples of the legend.
        let ratio = |at: usize| (heights[at] / heights[0] * 100.0).round() / 100.0;
        assert_eq!((ratio(1), ratio(2), ratio(3)), (4.0, 0.5, 0.9));
        assert!(drawn.contains(">512 B<") && drawn.contains(">0.9<"));
    }

    #[test]
    fn the_papers_points_are_hollow_and_named() {
        let drawn = svg(&test_figure::results().pictures[0], Form::Screen);
        assert!(drawn.contains(">wasteless, paper<") && drawn.contains("class=\"ch-s0 ch-paper\""));
    }

    #[test]
    fn the_legend_says_which_line_lies_under_which() {
        let mut picture = test_figure::results().pictures[0].clone();
        let first = picture.series.iter().find(|series| !series.of_paper).unwrap().clone();
        assert!(!svg(&picture, Form::Screen).contains(">under"));
        picture.series.push(crate::Series { name: "selective".into(), ..first.clone() });
        let drawn = svg(&picture, Form::Screen);
        assert_eq!(drawn.matches(">under selective<").count(), 1);
        assert!(drawn.find(&format!(">{}<", first.name)) < drawn.find(">under selective<"));
    }

    #[test]
    fn pictures_of_a_sheet_stand_one_below_the_other() {
        let pictures = &test_figure::results().pictures;
        let drawn = sheet(pictures, Form::Phone);
        let of_parts =
            |attribute| values(&drawn, "svg xmlns=\"http://www.w3.org/2000/svg\" y=", attribute);
        let (tops, heights) = (of_parts("y"), of_parts("height"));
        let ends: Vec<f64> = tops.iter().zip(&heights).map(|(top, height)| top + height).collect();
        assert_eq!(tops[0], 0.0);
        assert!(
            tops.len() == pictures.len() && tops[1..] == ends[..ends.len() - 1],
            "{tops:?} {ends:?}"
        );
        assert!(drawn.contains(&format!("viewBox=\"0 0 400 {}\"", ends.last().unwrap())));
    }

    #[test]
    fn a_picture_without_points_is_still_drawn() {
        let mut picture = test_figure::results().pictures[0].clone();
        picture.series.iter_mut().for_each(|series| series.points.clear());
        picture.y.scale = Scale::Logarithmic;
        let drawn = svg(&picture, Form::Screen);
        assert!(drawn.contains("</svg>") && !drawn.contains("NaN") && !drawn.contains("inf"));
    }
}
