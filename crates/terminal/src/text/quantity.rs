//! Sizes and times in the notation of people.

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
    let (number, unit) = split_unit(text)?;
    let seconds = match unit {
        "ns" => number / 1e9,
        "us" => number / 1e6,
        "ms" => number / 1e3,
        "" | "s" => number,
        "m" | "min" => number * 60.0,
        "h" => number * 3600.0,
        _ => return Err(format!("{text:?} is not a time: write 250us, 100ms, 5s, 2m or 1h")),
    };
    Duration::try_from_secs_f64(seconds).map_err(|_| format!("{text:?} is too long a time"))
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
        assert!(parse_duration("5 parsecs").is_err());
        assert!(parse_duration("999999999999999999999h").is_err());
    }

    #[test]
    fn numbers_are_written_short() {
        assert_eq!(format_size(512), "512 B");
        assert_eq!(format_size(128 << 20), "128.0 MiB");
        assert_eq!(format_duration(Duration::from_micros(4560)), "4.56 ms");
    }
}
