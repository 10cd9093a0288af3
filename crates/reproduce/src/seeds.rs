//! Combination of several seeds into one result: means and confidence intervals.

use crate::statement::mean_and_half;
use crate::{Claim, Results, Scale, Series};

/// Number of seeds of a figure that depends on chance, unless it is quick.
pub const SEEDS: u64 = 5;

/// Combines the results of one figure with consecutive seeds, at least one. Pictures of shades are
/// those of the first.
pub(crate) fn combined(mut all: Vec<Results>) -> Results {
    let others = all.split_off(1);
    let mut first = all.pop().expect("at least one seed");
    if others.is_empty() {
        return first;
    }
    for (at, picture) in first.pictures.iter_mut().enumerate() {
        if matches!(picture.y.scale, Scale::Shades { .. }) {
            continue;
        }
        for (of, series) in
            picture.series.iter_mut().enumerate().filter(|(_, series)| !series.of_paper)
        {
            let same = |results: &'_ Results| results.pictures.get(at)?.series.get(of).cloned();
            let same: Vec<Series> = others.iter().filter_map(same).collect();
            average(series, &same);
        }
    }
    for (at, claim) in first.claims.iter_mut().enumerate() {
        let same: Vec<&Claim> =
            others.iter().filter_map(|results| results.claims.get(at)).collect();
        add(claim, &same);
    }
    first.notes.push(format!(
        "Means of {} seeds; a bar at a point is where its mean lies with 90 %. A statement is judged by that interval of its value, and its \
         numbers are those of all, or the least and the largest.",
        others.len() + 1
    ));
    first
}

/// Averages points that every seed has; others stay those of the first.
fn average(series: &mut Series, others: &[Series]) {
    let mut spread = Vec::new();
    for (at, point) in series.points.iter_mut().enumerate() {
        let of_others = others.iter().filter_map(|other| other.points.get(at));
        let values: Vec<f64> = std::iter::once(point.1)
            .chain(of_others.filter(|other| other.0 == point.0).map(|other| other.1))
            .collect();
        let (mean, half) = mean_and_half(&values);
        point.1 = mean;
        spread.push((mean - half, mean + half));
    }
    series.spread = spread;
}

/// Adds the values of the other seeds; one without a value leaves none.
fn add(claim: &mut Claim, others: &[&Claim]) {
    if std::iter::once(&*claim).chain(others.iter().copied()).any(|one| one.values.is_empty()) {
        claim.values.clear();
    } else {
        claim.values.extend(others.iter().flat_map(|other| other.values.iter().copied()));
    }
    if others.iter().any(|other| other.ours != claim.ours) {
        let found: Vec<&str> =
            std::iter::once(&*claim.ours).chain(others.iter().map(|other| &*other.ours)).collect();
        claim.ours = together(&found);
    }
}

/// Maximum length of a table's cell.
const LONGEST: usize = 130;

/// Combines the texts of several seeds: the least and the largest of numbers. Others stand one
/// after the other, unless that is long and only their numbers differ.
fn together(found: &[&str]) -> String {
    let parts: Vec<Vec<&str>> = found.iter().map(|text| parts(text)).collect();
    let is_number = |part: &str| part.starts_with(|letter: char| letter.is_ascii_digit());
    let frame = |parts: &[&str]| -> Vec<String> {
        parts
            .iter()
            .map(|part| if is_number(part) { String::new() } else { part.to_string() })
            .collect()
    };
    let joined = found.join("; ");
    let of_numbers = parts.iter().all(|parts| parts.len() == 1 && is_number(parts[0]));
    let alike = || parts.iter().all(|other| frame(other) == frame(&parts[0]));
    if of_numbers || (joined.chars().count() > LONGEST && alike()) {
        let at = |at: usize| range(parts.iter().map(|parts| parts[at]).collect());
        return (0..parts[0].len()).map(at).collect();
    }
    joined
}

/// Splits text into numbers and the text between them.
fn parts(text: &str) -> Vec<&str> {
    let is_digit = |at: usize| text.as_bytes().get(at).is_some_and(u8::is_ascii_digit);
    // Points and commas belong to a number only within it.
    let in_number = |at: usize| {
        is_digit(at)
            || (at > 0
                && b".,".contains(&text.as_bytes()[at])
                && is_digit(at - 1)
                && is_digit(at + 1))
    };
    let mut parts = Vec::new();
    let mut from = 0;
    for at in 1..=text.len() {
        if at == text.len() || in_number(at) != in_number(at - 1) {
            parts.push(&text[from..at]);
            from = at;
        }
    }
    parts
}

/// Returns the least and the largest, as they were written; other text is the same everywhere.
fn range(mut found: Vec<&str>) -> String {
    let value = |text: &str| text.replace(',', "").parse().unwrap_or(0.0);
    found.sort_by(|one, other| f64::total_cmp(&value(one), &value(other)));
    match (found[0], found[found.len() - 1]) {
        (least, largest) if least == largest => least.into(),
        (least, largest) => format!("{least} to {largest}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Verdict, test_figure};

    #[test]
    fn several_seeds_give_means_with_their_interval() {
        let with = |y: f64, ours: &str, value: f64| {
            let mut results = test_figure::results();
            results.pictures[0].series[0].points[0].1 = y;
            results.claims[0].ours = ours.into();
            results.claims[0].values = vec![value];
            results
        };
        let results =
            combined(vec![with(1.0, "4.4x", 4.4), with(2.0, "3x", 3.0), with(3.0, "9x", 9.0)]);
        let series = &results.pictures[0].series[0];
        assert_eq!(series.points[0], (1.0, 2.0));
        // Standard deviation 1, of three: 2.92 / sqrt(3).
        assert!((series.spread[0].1 - 3.686).abs() < 1e-3, "{:?}", series.spread[0]);
        assert_eq!(series.spread[1], (4.0, 4.0));
        assert!(
            results.pictures[0].series[1].spread.is_empty(),
            "the paper's points have one value"
        );
        let claim = &results.claims[0];
        assert_eq!((claim.verdict(), &*claim.ours), (Verdict::Undecided, "4.4x; 3x; 9x"));
        assert_eq!(claim.values, [4.4, 3.0, 9.0]);
        assert_eq!(results.claims[1].ours, "0.9x");
        let numbers = ["9.5", "1,001", "12"].map(|ours| with(1.0, ours, 4.0));
        assert_eq!(combined(numbers.into()).claims[0].ours, "9.5 to 1,001");
    }

    #[test]
    fn a_long_cell_gives_the_range_of_each_number() {
        assert_eq!(together(&["3 of 4", "4 of 4"]), "3 of 4; 4 of 4");
        let long = |kept: &str, ms: &str| {
            format!(
                "the reader keeps {kept} %, and a sync takes {ms} ms, which is less, as with all"
            )
        };
        let (one, other) = (long("80", "5.9"), long("1,080", "5.8"));
        assert_eq!(together(&[&one, &other]), long("80 to 1,080", "5.8 to 5.9"));
        let another = one.replace("less", "more");
        assert_eq!(together(&[&one, &another]), format!("{one}; {another}"));
        assert_eq!(together(&["1.5", "inf"]), "1.5; inf");
    }
}
