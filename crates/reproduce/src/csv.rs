//! A picture's points as comma-separated values: one line a point, in the order of the series.

use crate::figure::{Picture, Scale};
use crate::number::exact;

/// Formats a picture. The head names x and y; `of` separates ours from the paper's. Over several
/// seeds y is the mean, and lies with 90 % between lowest and highest.
pub(crate) fn csv(picture: &Picture) -> String {
    let spreads = picture.series.iter().any(|series| !series.spread.is_empty());
    let line = |fields: [&str; 4], low: &str, high: &str| match spreads {
        true => line(&[&fields[..], &[low, high]].concat()),
        false => line(&fields),
    };
    let mut text = line(["series", "of", &picture.x.label, &picture.y.label], "lowest", "highest");
    for series in &picture.series {
        let of = if series.of_paper { "paper" } else { "ours" };
        for (at, &(x, y)) in series.points.iter().enumerate() {
            let x = match &picture.x.scale {
                Scale::Names(names) => names.get(x as usize).cloned().unwrap_or_else(|| exact(x)),
                _ => exact(x),
            };
            let (low, high) = series
                .spread
                .get(at)
                .map_or_else(Default::default, |spread| (exact(spread.0), exact(spread.1)));
            text += &line([&series.name, of, &x, &exact(y)], &low, &high);
        }
    }
    text
}

fn line(fields: &[&str]) -> String {
    fields.iter().map(|field| quoted(field)).collect::<Vec<_>>().join(",") + "\n"
}

/// Quotes a field as RFC 4180 does.
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
        let series = |name: &str, of_paper, points| Series {
            name: name.into(),
            of_paper,
            points,
            spread: Vec::new(),
        };
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
