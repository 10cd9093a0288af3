//! Record of what explorers in tests have played on memory disks: `okeanos-lab sim --proof` adds it
//! to that of its own.

use std::fs::OpenOptions;
use std::io::Write;

/// Environment variable with the file to append to; without it nothing is recorded.
const FILE: &str = "OKEANOS_EXPLORED";

/// Appends a line: a suite, the seed of its case, and counts.
///
/// # Panics
/// The file cannot be written: a record with gaps is worth nothing.
pub fn record(suite: &str, seed: u64, counts: &[(&str, u64)]) {
    let Some(path) = std::env::var_os(FILE) else { return };
    let counts: Vec<String> =
        counts.iter().map(|(name, count)| format!("{name:?}:{count}")).collect();
    let program = env!("CARGO_PKG_VERSION");
    let counts = counts.join(",");
    let line = format!(
        r#"{{"suite":{suite:?},"program":{program:?},"seed":{seed},"counts":{{{counts}}}}}"#
    );
    // One write, so that lines of several threads do not mix.
    let file = OpenOptions::new().create(true).append(true).open(&path);
    let written = file.and_then(|mut file| file.write_all(format!("{line}\n").as_bytes()));
    written.unwrap_or_else(|error| panic!("{}: {error}", path.to_string_lossy()));
}

/// Returns the seed behind the last one recorded; 0 if none is.
pub fn next_seed() -> u64 {
    let recorded = std::env::var_os(FILE).and_then(|path| std::fs::read_to_string(path).ok());
    let seed = |line: &str| {
        let (_, behind) = line.split_once(r#""seed":"#)?;
        behind.split(',').next()?.parse::<u64>().ok()
    };
    recorded.iter().flat_map(|text| text.lines()).filter_map(seed).max().map_or(0, |last| last + 1)
}
