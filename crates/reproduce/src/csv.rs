//! A picture's points as comma-separated values: one line a point, in the order of the series.

use crate::figure::{Picture, Scale};
use crate::number::exact;

/// The head names what x and y are; `of` tells ours from the paper's.
pub(crate) fn csv(picture: &Picture) -> String {
    let mut text = line(["series", "of", &picture.x.label, &picture.y.label]);
    for series in &picture.series {
        let of = if series.of_paper { "paper" } else { "ours" };
        for &(x, y) in &series.points {
            let x = match &picture.x.scale {
                Scale::Names(names) => names.get(x as usize).cloned().unwrap_or_else(|| exact(x)),
                _ => exact(x),
            };
            text += &line([&series.name, of, &x, &exact(y)]);
        }
    }
    text
}

fn line(fields: [&str; 4]) -> String {
    fields.map(quoted).join(",") + "\n"
}

/// As RFC 4180 has it.
fn quoted(field: &str) -> String {
    if field.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", field.replace('"', "\"\""))
    } else {
        field.into()
    }
}

#[cfg(test)]
mod tests {
    use crate::figure::{Axis, Picture, Scale, Series};

    fn axis(label: &str, scale: Scale) -> Axis {
        Axis { label: label.into(), scale }
    }

    #[test]
    fn every_point_has_its_line() {
        let names = Scale::Names(vec!["512 B".into(), "say \"1 KiB\"".into()]);
        let series = |name: &str, of_paper, points| Series { name: name.into(), of_paper, points };
        let picture = Picture {
            title: "speed".into(),
            x: axis("request, bytes", names),
            y: axis("MiB/s", Scale::Linear),
            series: vec![
                series("wasteless", false, vec![(0.0, 1.0 / 3.0), (1.0, 2.0)]),
                series("wasteless", true, vec![(1.0, 4.2)]),
            ],
        };
        let expected = "series,of,\"request, bytes\",MiB/s\n\
                        wasteless,ours,512 B,0.333333\n\
                        wasteless,ours,\"say \"\"1 KiB\"\"\",2\n\
                        wasteless,paper,\"say \"\"1 KiB\"\"\",4.2\n";
        assert_eq!(super::csv(&picture), expected);
    }
}
