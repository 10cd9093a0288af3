//! Fields of squares between white and black, side by side: small multiples of a value over two
//! numbers.

use super::text::{escaped, wrapped};
use super::{Form, style};
use crate::figure::{Picture, Scale};
use std::collections::BTreeMap;
use std::fmt::Write;

const SIDE: f64 = 40.0;
/// Width of one field, with its labels.
const WIDE: f64 = 143.0;
const LABEL_SIZE: f64 = 13.0;
const SQUARE: f64 = 7.5;
const TEXT_SIZE: f64 = 10.0;
/// Height above a field, for its name, and below it, for the columns' names.
const HEAD: f64 = 30.0;
const FOOT: f64 = 52.0;

/// Rows from the lowest on: name, and (column, value).
type Rows<'a> = Vec<(&'a str, &'a [(f64, f64)])>;

#[derive(Default)]
struct Field<'a> {
    name: &'a str,
    rows: Rows<'a>,
    /// Column, row number, and whether it is the paper's.
    chosen: Vec<(f64, f64, bool)>,
}

/// Draws the picture. `None` if it is none of shades.
pub(super) fn svg(picture: &Picture, form: Form) -> Option<String> {
    let (Scale::Names(columns), Scale::Shades { white, black, logarithmic }) =
        (&picture.x.scale, &picture.y.scale)
    else {
        return None;
    };
    let darkness = |value: f64| {
        let measure = |value: f64| if *logarithmic { value.max(1e-9).ln() } else { value };
        ((measure(value) - measure(*white)) / (measure(*black) - measure(*white))).clamp(0.0, 1.0)
    };
    let fields = fields(picture);
    let rows = fields.iter().map(|field| field.rows.len()).max().unwrap_or_default();
    let high = HEAD + rows as f64 * SQUARE + FOOT;
    let across = ((form.width() - SIDE) / WIDE).floor().max(1.0) as usize;
    let (head, top) = head(picture, form);
    let height = top + fields.len().div_ceil(across) as f64 * high + 16.0;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height:.0}\" role=\"img\" \
         font-family=\"system-ui, 'DejaVu Sans', sans-serif\" font-size=\"{TEXT_SIZE}\">\n<title>{title}</title>\n\
         <style>{rules}.ch-all{{fill:none;stroke:#888;stroke-width:.6}}.ch-ours{{fill:none;stroke:#d4380d;stroke-width:2}}\
         .ch-theirs{{fill:none;stroke:#0067b0;stroke-width:1.6}}</style>\n\
         <rect class=\"ch-paper\" width=\"{width}\" height=\"{height:.0}\"/>\n{head}",
        width = form.width(),
        title = escaped(&picture.title),
        rules = style::rules(),
    );
    for (number, field) in fields.iter().enumerate() {
        let left = SIDE + (number % across) as f64 * WIDE;
        let top = top + HEAD + (number / across) as f64 * high;
        svg += &draw(field, columns, left, top, &darkness);
    }
    Some(svg + "</svg>\n")
}

/// Draws the title, and the meaning of the shades; returns the lower end.
fn head(picture: &Picture, form: Form) -> (String, f64) {
    let (edge, mut y) = (form.edge(), 6.0);
    let mut text = String::new();
    for line in form.title_lines(&picture.title) {
        y += super::TITLE_LINE;
        let line = escaped(&line);
        let _ = writeln!(
            text,
            "<text class=\"ch-ink\" x=\"{edge}\" y=\"{y}\" font-size=\"18\" font-weight=\"600\">{line}</text>"
        );
    }
    let label = format!(
        "{}; to the right {}; square: chosen, ours; circle: chosen, paper",
        picture.y.label, picture.x.label
    );
    for line in wrapped(&label, form.width() - 2.0 * edge, LABEL_SIZE) {
        y += 20.0;
        let line = escaped(&line);
        let _ = writeln!(
            text,
            "<text class=\"ch-faint\" x=\"{edge}\" y=\"{y}\" font-size=\"{LABEL_SIZE}\">{line}</text>"
        );
    }
    (text, y + 14.0)
}

fn fields(picture: &Picture) -> Vec<Field<'_>> {
    let mut places = BTreeMap::new();
    let mut fields: Vec<Field> = Vec::new();
    for series in &picture.series {
        let Some((name, row)) = series.name.rsplit_once(": ") else { continue };
        let place = *places.entry(name).or_insert(fields.len());
        if place == fields.len() {
            fields.push(Field { name, ..Field::default() });
        }
        match row {
            "chosen" => fields[place]
                .chosen
                .extend(series.points.iter().map(|&(x, y)| (x, y, series.of_paper))),
            row => fields[place].rows.push((row, &series.points)),
        }
    }
    fields
}

fn draw(
    field: &Field,
    columns: &[String],
    left: f64,
    top: f64,
    darkness: &impl Fn(f64) -> f64,
) -> String {
    let (right, bottom) =
        (left + columns.len() as f64 * SQUARE, top + field.rows.len() as f64 * SQUARE);
    let x = |column: f64| left + column * SQUARE;
    let y = |row: usize| bottom - (row + 1) as f64 * SQUARE;
    let mut text = String::new();
    let lines: Vec<&str> = field.name.split(", ").collect();
    for (number, line) in lines.iter().enumerate() {
        let at = top - 6.0 - 11.0 * (lines.len() - 1 - number) as f64;
        let _ = writeln!(
            text,
            "<text class=\"ch-ink\" x=\"{left:.1}\" y=\"{at:.1}\">{}</text>",
            escaped(line)
        );
    }
    for (row, (name, points)) in field.rows.iter().enumerate() {
        for &(column, value) in *points {
            let grey = (255.0 * (1.0 - darkness(value))).round() as u8;
            let at = (x(column), y(row));
            let _ = write!(
                text,
                "<path fill=\"#{grey:02x}{grey:02x}{grey:02x}\" d=\"M{:.1} {:.1}h{SQUARE}v{SQUARE}h-{SQUARE}z\"/>",
                at.0, at.1
            );
        }
        // Only every fifth row has space for its name.
        if row % 5 == 0 || row + 1 == field.rows.len() {
            let (right, base) = (left - 3.0, y(row) + SQUARE - 0.5);
            let name = escaped(name);
            let _ = write!(
                text,
                "<text class=\"ch-faint\" x=\"{right:.1}\" y=\"{base:.1}\" text-anchor=\"end\">{name}</text>"
            );
        }
        text += "\n";
    }
    let mut free = f64::MIN;
    for (column, name) in columns.iter().enumerate() {
        if x(column as f64) >= free {
            let (x, y) = (x(column as f64) + SQUARE - 0.5, bottom + 5.0);
            let _ = write!(
                text,
                "<text class=\"ch-faint\" x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"end\" transform=\"rotate(-60 {x:.1} \
                 {y:.1})\">{}</text>",
                escaped(name)
            );
            free = x + 2.0 * SQUARE;
        }
    }
    let _ = writeln!(
        text,
        "<path class=\"ch-all\" d=\"M{left:.1} {top:.1}H{right:.1}V{bottom:.1}H{left:.1}z\"/>"
    );
    for &(column, number, of_paper) in &field.chosen {
        let row = field.rows.iter().position(|(name, _)| name.parse() == Ok(number));
        let Some(row) = row else { continue };
        let (x, y) = (x(column), y(row));
        let _ = match of_paper {
            true => writeln!(
                text,
                "<circle class=\"ch-theirs\" cx=\"{:.1}\" cy=\"{:.1}\" r=\"{SQUARE}\"/>",
                x + SQUARE / 2.0,
                y + SQUARE / 2.0
            ),
            false => {
                writeln!(
                    text,
                    "<path class=\"ch-ours\" d=\"M{x:.1} {y:.1}h{SQUARE}v{SQUARE}h-{SQUARE}z\"/>"
                )
            }
        };
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure::{Axis, Series};

    #[test]
    fn dark_squares_stand_where_values_are_high_and_the_chosen_ones_are_marked() {
        let series = |name: &str, of_paper, points| Series {
            name: name.into(),
            of_paper,
            points,
            spread: Vec::new(),
        };
        let picture = Picture {
            title: "evicted".into(),
            x: Axis { label: "writes".into(), scale: Scale::Names(vec!["1".into(), "16".into()]) },
            y: Axis {
                label: "MB".into(),
                scale: Scale::Shades { white: 0.0, black: 1.0, logarithmic: false },
            },
            series: vec![
                series("one, random: 1", false, vec![(0.0, 0.0), (1.0, 0.5)]),
                series("one, random: 2.38", false, vec![(0.0, 0.0), (1.0, 1.0)]),
                series("one, random: chosen", false, vec![(1.0, 2.38)]),
                series("one, random: chosen", true, vec![(0.0, 2.38)]),
            ],
        };
        let svg = svg(&picture, Form::Phone).unwrap();
        let colours = |colour: &str| svg.matches(&format!("<path fill=\"{colour}\"")).count();
        assert_eq!((colours("#ffffff"), colours("#808080"), colours("#000000")), (2, 1, 1));
        assert_eq!(
            (svg.matches("class=\"ch-ours\"").count(), svg.matches("class=\"ch-theirs\"").count()),
            (1, 1)
        );
        let lines = Picture { y: Axis { label: "MB".into(), scale: Scale::Linear }, ..picture };
        assert!(super::svg(&lines, Form::Screen).is_none());
    }
}
