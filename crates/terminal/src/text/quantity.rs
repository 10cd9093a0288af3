//! Sizes and times in the notation of people.

use std::ops::RangeInclusive;
use std::time::Duration;

/// Parses `4096`, `256M`, `1.5G`, `64KiB`, `1GB` as bytes. As in the GNU tools, `K`, `KiB` and the
/// like are binary, `kB`, `MB` and the like decimal.
pub fn parse_size(text: &str) -> Result<u64, String> {
    const LETTERS: &str = "KMGT";
    let (number, unit) = split_unit(text)?;
    let upper = unit.to_ascii_uppercase();
    let mut letters = upper.chars();
    let power =
        letters.next().map_or(Some(0), |letter| LETTERS.find(letter).map(|at| at as i32 + 1));
    let base: f64 = match (power, letters.as_str(), upper.as_str()) {
        (_, _, "" | "B") => 1.0,
        (Some(_), "" | "IB", _) => 1024.0,
        (Some(_), "B", _) => 1000.0,
        _ => {
            return Err(format!(
                "{text:?} is not a size: write 4096, 256K, 128M, 1.5G, 2T, or 1GB for 10^9"
            ));
        }
    };
    let bytes = number * base.powi(power.unwrap_or(0));
    if bytes > u64::MAX as f64 / 2.0 {
        return Err(format!("{text:?} is too large a size"));
    }
    Ok(bytes.round() as u64)
}

/// Parses `5s`, `100ms`, `250us`, `2m`, `1h`; a bare number counts seconds.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    parse_duration_in(text, "s")
}

/// Parses as [`parse_duration`] does, times of up to 292 years, of which clocks count the
/// nanoseconds in 64 bits; a bare number counts `unit_by_default`.
pub fn parse_duration_in(text: &str, unit_by_default: &str) -> Result<Duration, String> {
    let (number, unit) = split_unit(text)?;
    let unit = if unit.is_empty() { unit_by_default } else { unit };
    let seconds = match unit {
        "ns" => number / 1e9,
        "us" => number / 1e6,
        "ms" => number / 1e3,
        "s" => number,
        "m" | "min" => number * 60.0,
        "h" => number * 3600.0,
        _ => return Err(format!("{text:?} is not a time: write 250us, 100ms, 5s, 2m or 1h")),
    };
    Duration::try_from_secs_f64(seconds)
        .ok()
        .filter(|time| time.as_nanos() <= i64::MAX as u128)
        .ok_or_else(|| format!("{text:?} is too long a time"))
}

/// Parses a whole number within `allowed`.
pub fn parse_count(text: &str, allowed: RangeInclusive<u64>) -> Result<u64, String> {
    text.trim().parse().ok().filter(|count| allowed.contains(count)).ok_or_else(|| {
        format!("{text:?} is not a number from {} to {}", allowed.start(), allowed.end())
    })
}

/// Formats bytes without loss, in the largest unit that divides them: `256M`, `1000`.
pub fn exact_size(bytes: u64) -> String {
    let units = [(40, "T"), (30, "G"), (20, "M"), (10, "K")];
    let whole = units.iter().find(|(shift, _)| bytes > 0 && bytes % (1 << shift) == 0);
    whole.map_or(bytes.to_string(), |(shift, unit)| format!("{}{unit}", bytes >> shift))
}

/// Formats a time without loss, in the largest unit of at most a second that divides it: `5s`,
/// `150us`.
pub fn exact_duration(time: Duration) -> String {
    let nanoseconds = time.as_nanos();
    let units = [(1_000_000_000, "s"), (1_000_000, "ms"), (1000, "us"), (1, "ns")];
    let whole = units.iter().find(|(unit, _)| nanoseconds % *unit == 0);
    whole.map_or(String::new(), |(unit, name)| format!("{}{name}", nanoseconds / unit))
}

/// Formats bytes as `4.0 KiB`: at most four digits.
pub fn format_size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{bytes} B") } else { format!("{value:.1} {}", UNITS[unit]) }
}

/// Formats a time as `850 ns`, `12.3 us`, `4.56 ms`, `1.20 s`.
pub fn format_duration(time: Duration) -> String {
    let nanoseconds = time.as_nanos();
    match nanoseconds {
        0..1_000 => format!("{nanoseconds} ns"),
        1_000..1_000_000 => format!("{:.1} us", nanoseconds as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.2} ms", nanoseconds as f64 / 1e6),
        _ => format!("{:.2} s", time.as_secs_f64()),
    }
}

fn split_unit(text: &str) -> Result<(f64, &str), String> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let number = number.parse().map_err(|_| format!("{text:?} does not begin with a number"))?;
    Ok((number, unit.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_people_write_them() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4096),
            ("128", 128),
            ("256M", 256 << 20),
            ("1.5G", 3 << 29),
            ("64KiB", 65536),
            ("1GB", 1_000_000_000),
            ("2kB", 2000),
            ("7B", 7),
            ("1GiB", 1 << 30),
        ] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
        for text in ["", "M", "12Q", "1KBB", "1Bi", "-1", "1..2", "99999999T"] {
            assert!(parse_size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn times_are_read_as_people_write_them() {
        assert_eq!(parse_duration("5s"), Ok(Duration::from_secs(5)));
        assert_eq!(parse_duration("5"), Ok(Duration::from_secs(5)));
        assert_eq!(parse_duration("100ms"), Ok(Duration::from_millis(100)));
        assert_eq!(parse_duration("250us"), Ok(Duration::from_micros(250)));
        assert_eq!(parse_duration_in("80", "us"), Ok(Duration::from_micros(80)));
        assert_eq!(parse_duration_in("2ms", "us"), Ok(Duration::from_millis(2)));
        assert!(parse_duration("5 parsecs").is_err());
        assert!(parse_duration("999999999999999999999h").is_err());
        assert!(parse_duration("2500000h").is_ok());
        // Its nanoseconds are a tenth of a second more than 2^64.
        assert!(parse_duration("18446744073.8s").is_err());
    }

    #[test]
    fn counts_lie_within_what_is_allowed() {
        assert_eq!(parse_count("2", 1..=2), Ok(2));
        for text in ["", "0", "3", "-1", "1K", "two"] {
            let error = parse_count(text, 1..=2).unwrap_err();
            assert!(error.contains("from 1 to 2"), "{text}: {error}");
        }
    }

    #[test]
    fn exact_texts_are_read_back() {
        for (bytes, text) in
            [(0, "0"), (1000, "1000"), (1 << 10, "1K"), (3 << 19, "1536K"), (2 << 40, "2T")]
        {
            assert_eq!(exact_size(bytes), text);
            assert_eq!(parse_size(text), Ok(bytes));
        }
        for (nanoseconds, text) in
            [(0, "0s"), (5_000_000_000, "5s"), (150_000, "150us"), (1_500_000_000, "1500ms")]
        {
            assert_eq!(exact_duration(Duration::from_nanos(nanoseconds)), text);
            assert_eq!(parse_duration(text), Ok(Duration::from_nanos(nanoseconds)));
        }
    }

    #[test]
    fn numbers_are_written_short() {
        assert_eq!(format_size(512), "512 B");
        assert_eq!(format_size(128 << 20), "128.0 MiB");
        assert_eq!(format_duration(Duration::from_micros(4560)), "4.56 ms");
    }
}
