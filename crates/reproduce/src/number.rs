//! Numbers as text, the same on every run and every machine.

/// Formats with six significant digits at most, no exponent: for tables that programs read.
pub(crate) fn exact(value: f64) -> String {
    digits(value, 6)
}

/// Formats three significant digits, thousands apart, for people: `1,200`, `4.25`, `0.012`.
pub(crate) fn short(value: f64) -> String {
    if value.is_nan() {
        // A ratio of two counts that are both none.
        return "0 / 0".into();
    }
    let text = if value.abs() < 1000.0 { digits(value, 3) } else { format!("{value:.0}") };
    let (whole, fraction) = match text.split_once('.') {
        Some((whole, fraction)) => (whole, format!(".{fraction}")),
        None => (text.as_str(), String::new()),
    };
    let (sign, figures) = whole.split_at(usize::from(whole.starts_with('-')));
    let mut grouped = String::new();
    for (index, figure) in figures.chars().enumerate() {
        if index > 0 && (figures.len() - index) % 3 == 0 {
            grouped.push(',');
        }
        grouped.push(figure);
    }
    format!("{sign}{grouped}{fraction}")
}

fn digits(value: f64, significant: i32) -> String {
    if value == 0.0 {
        return "0".into();
    }
    // The exponent after rounding: 9.9999999 has the one of 10.
    let scientific = format!("{value:.*e}", significant as usize - 1);
    let exponent: i32 =
        scientific.split_once('e').map_or(0, |(_, exponent)| exponent.parse().unwrap_or(0));
    let places = (significant - 1 - exponent).max(0) as usize;
    let text = format!("{value:.places$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').into() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_get_six_digits() {
        let cases = [
            (0.0, "0"),
            (1.0, "1"),
            (0.1 + 0.2, "0.3"),
            (1234567.0, "1234567"),
            (9.9999999, "10"),
            (-0.000123456789, "-0.000123457"),
            (4.2 * 1048576.0, "4404019"),
        ];
        for (value, text) in cases {
            assert_eq!(exact(value), text);
        }
    }

    #[test]
    fn people_get_three_digits_and_thousands() {
        let cases = [
            (0.0, "0"),
            (0.01234, "0.0123"),
            (4.2, "4.2"),
            (999.6, "1,000"),
            (1234.4, "1,234"),
            (-12345678.0, "-12,345,678"),
            (100.0, "100"),
        ];
        for (value, text) in cases {
            assert_eq!(short(value), text);
        }
    }
}
