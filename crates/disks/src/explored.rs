//! Record of what explorers in tests have played on memory disks: `okeanos-lab sim --proof` adds it
//! to that of its own.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::Write;

/// Environment variable with the file to append to; without it nothing is recorded.
const FILE: &str = "OKEANOS_EXPLORED";

/// Counts of the cases that a run has played, by suite. One that breaks a promise is not saved.
#[derive(Default)]
pub struct ExploredCases {
    suites: BTreeMap<String, Suite>,
}

struct Suite {
    first_seed: u64,
    last_seed: u64,
    counts: BTreeMap<&'static str, u64>,
}

impl ExploredCases {
    /// Adds a case: its suite, its seed, and counts.
    pub fn add(&mut self, suite: &str, seed: u64, counts: &[(&'static str, u64)]) {
        let none = || Suite { first_seed: seed, last_seed: seed, counts: BTreeMap::new() };
        let suite = self.suites.entry(suite.to_owned()).or_insert_with(none);
        suite.first_seed = suite.first_seed.min(seed);
        suite.last_seed = suite.last_seed.max(seed);
        for (name, count) in counts {
            *suite.counts.entry(name).or_default() += count;
        }
    }

    /// Appends a line for each suite.
    ///
    /// # Panics
    /// The file cannot be written: a record with gaps is worth nothing.
    pub fn save(self) {
        let Some(path) = std::env::var_os(FILE) else { return };
        let lines: String =
            self.suites.into_iter().map(|(name, suite)| suite.line(&name)).collect();
        // One write, so that lines of several threads do not mix.
        let file = OpenOptions::new().create(true).append(true).open(&path);
        let written = file.and_then(|mut file| file.write_all(lines.as_bytes()));
        written.unwrap_or_else(|error| panic!("{}: {error}", path.to_string_lossy()));
    }
}

impl Suite {
    fn line(&self, name: &str) -> String {
        let Suite { first_seed, last_seed, counts } = self;
        let counts: Vec<_> =
            counts.iter().map(|(name, count)| format!("{name:?}:{count}")).collect();
        let (program, counts) = (env!("CARGO_PKG_VERSION"), counts.join(","));
        let seeds = format!(r#""seed":{first_seed},"last":{last_seed}"#);
        format!(r#"{{"suite":{name:?},"program":{program:?},{seeds},"counts":{{{counts}}}}}"#)
            + "\n"
    }
}

/// Records one case ([`ExploredCases::add`]).
pub fn record(suite: &str, seed: u64, counts: &[(&'static str, u64)]) {
    let mut explored = ExploredCases::default();
    explored.add(suite, seed, counts);
    explored.save();
}

/// Returns the seed behind the last one recorded of suites whose names begin so; 0 if none is.
pub fn next_seed(suites: &str) -> u64 {
    let recorded = std::env::var_os(FILE).and_then(|path| std::fs::read_to_string(path).ok());
    let last = |line: &str| {
        let (_, behind) = line.split_once(r#""last":"#)?;
        behind.split(',').next()?.parse::<u64>().ok()
    };
    let begins = format!(r#"{{"suite":"{suites}"#);
    let of_these = recorded.iter().flat_map(|text| text.lines());
    let of_these = of_these.filter(|line| line.starts_with(&begins));
    of_these.filter_map(last).max().map_or(0, |last| last + 1)
}
