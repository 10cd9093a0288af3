//! Record of all explored cases, kept in a state file, and printed as a page.

use crate::case::{Case, CaseReport};
use crate::small_world::SmallReport;
use crate::stalls;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::ops::{Add, AddAssign};

/// Counts of everything that was explored with one state file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Proof {
    /// The programs that explored.
    pub programs: BTreeSet<String>,
    /// Results by mode and volume.
    pub combinations: BTreeMap<String, CombinationReport>,
    pub small_worlds: BTreeMap<String, SmallReport>,
    /// Counts of what explorers in the tests of other crates played, by suite.
    pub suites: BTreeMap<String, SuiteReport>,
    /// Steps longer than 2 ms, by task.
    pub stalls: BTreeMap<String, Stalls>,
}

/// Results of one combination.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CombinationReport {
    pub first_seed: u64,
    pub last_seed: u64,
    pub report: CaseReport,
}

/// Long steps of one task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Stalls {
    pub count: u64,
    pub longest_nanoseconds: u64,
}

/// Counts of an explorer in a test.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SuiteReport {
    pub first_seed: u64,
    pub last_seed: u64,
    pub counts: BTreeMap<String, u64>,
}

/// Crash images, and those that were recovered and judged: the others equal one of these.
#[derive(Clone, Copy, Debug, Default)]
struct Total {
    images: u64,
    recovered: u64,
}

impl Add for Total {
    type Output = Total;
    fn add(self, other: Total) -> Total {
        let Total { images, recovered } = other;
        Total { images: self.images + images, recovered: self.recovered + recovered }
    }
}

impl AddAssign for Total {
    fn add_assign(&mut self, other: Total) {
        *self = *self + other;
    }
}

/// A line of [`disks::explored`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Explored {
    pub suite: String,
    pub program: String,
    /// Least and greatest seed of its cases.
    pub seed: u64,
    pub last: u64,
    pub counts: BTreeMap<String, u64>,
}

impl Proof {
    /// Adds what a test has recorded.
    pub fn add_explored(&mut self, explored: Explored) {
        let Explored { suite, program, seed, last, counts } = explored;
        self.programs.insert(program);
        self.add_suite(suite, SuiteReport { first_seed: seed, last_seed: last, counts });
    }
    fn add_suite(&mut self, suite: String, other: SuiteReport) {
        let first_seed = other.first_seed;
        let none = SuiteReport { first_seed, ..SuiteReport::default() };
        let played = self.suites.entry(suite).or_insert(none);
        played.first_seed = played.first_seed.min(first_seed);
        played.last_seed = played.last_seed.max(other.last_seed);
        for (name, count) in other.counts {
            *played.counts.entry(name).or_default() += count;
        }
    }
    /// Adds a case in which nothing was lost.
    pub fn add(&mut self, case: &Case, report: CaseReport) {
        let name = format!("{} {}", case.mode.name(), case.setup.name);
        let none = CombinationReport { first_seed: case.seed, ..CombinationReport::default() };
        let played = self.combinations.entry(name).or_insert(none);
        played.first_seed = played.first_seed.min(case.seed);
        played.last_seed = played.last_seed.max(case.seed);
        played.report.add(report);
    }
    /// Adds a small world in which nothing was lost.
    pub fn add_small_world(&mut self, name: &str, report: SmallReport) {
        self.small_worlds.entry(name.to_owned()).or_default().add(report);
    }
    /// Adds the long steps that were seen since the last call.
    pub fn add_stalls(&mut self) {
        for steps in stalls::take() {
            let known = self.stalls.entry(steps.task.to_owned()).or_default();
            known.count += steps.count;
            let longest = u64::try_from(steps.longest.as_nanos()).unwrap_or(u64::MAX);
            known.longest_nanoseconds = known.longest_nanoseconds.max(longest);
        }
    }
    /// Adds the content of another state file.
    pub fn merge(&mut self, other: Proof) {
        self.programs.extend(other.programs);
        for (name, other) in other.combinations {
            let played = self.combinations.entry(name).or_insert(CombinationReport {
                first_seed: other.first_seed,
                ..CombinationReport::default()
            });
            played.first_seed = played.first_seed.min(other.first_seed);
            played.last_seed = played.last_seed.max(other.last_seed);
            played.report.add(other.report);
        }
        for (name, report) in other.small_worlds {
            self.add_small_world(&name, report);
        }
        for (suite, report) in other.suites {
            self.add_suite(suite, report);
        }
        for (task, other) in other.stalls {
            let known = self.stalls.entry(task).or_default();
            known.count += other.count;
            known.longest_nanoseconds = known.longest_nanoseconds.max(other.longest_nanoseconds);
        }
    }

    /// Formats it as a Markdown page. `command`: what made the page.
    pub fn page(&self, command: &str) -> String {
        let mut page = String::from(HEAD);
        let programs: Vec<&str> = self.programs.iter().map(String::as_str).collect();
        let _ = writeln!(page, "Made by:\n\n    {command}\n");
        let _ = writeln!(page, "Programs: {}.\n", programs.join(", "));
        self.add_totals(&mut page);
        self.add_combinations(&mut page);
        self.add_small_worlds(&mut page);
        self.add_suites(&mut page);
        self.add_long_steps(&mut page);
        page
    }

    /// Adds up all explorers.
    fn add_totals(&self, page: &mut String) {
        let (mut all, mut second, mut scattered) =
            (Total::default(), Total::default(), Total::default());
        let mut add = |name: &str, first: Total, later: Total| {
            all += first + later;
            second += later;
            // Modes and kinds of logs make up the name of a combination.
            if name.contains("scattered") {
                scattered += first + later;
            }
        };
        for (name, CombinationReport { report, .. }) in &self.combinations {
            let first = Total { images: report.images, recovered: report.recoveries };
            let later = Total { images: report.later_images, recovered: report.later_images };
            add(name, first, later);
        }
        for (name, report) in &self.small_worlds {
            let first = Total { images: report.images, recovered: report.states };
            let later = Total { images: report.second_images, recovered: report.second_states };
            add(name, first, later);
        }
        let mut suites = [("hosts", Total::default()), ("blocks", Total::default())];
        for (name, SuiteReport { counts, .. }) in &self.suites {
            let [images, later] =
                ["images", "second lives"].map(|it| counts.get(it).copied().unwrap_or(0));
            let [first, later] = [images.saturating_sub(later), later]
                .map(|images| Total { images, recovered: images });
            add(name, first, later);
            for (_, sum) in suites.iter_mut().filter(|(kind, _)| name.starts_with(*kind)) {
                *sum += first + later;
            }
        }
        page.push_str(TOTALS_HEAD);
        let kinds = [("all", all), ("of second lives", second), ("scattered logs", scattered)];
        for (name, Total { images, recovered }) in kinds.into_iter().chain(suites) {
            let _ = writeln!(page, "| {name} | {images} | {recovered} |");
        }
        page.push_str("\n## Volumes\n\n");
    }

    fn add_small_worlds(&self, page: &mut String) {
        if !self.small_worlds.is_empty() {
            page.push_str(SMALL_HEAD);
        }
        for (name, report) in &self.small_worlds {
            let SmallReport { lives, cuts, images, states, second_lives, .. } = report;
            let (swapped, second_images) = (report.swapped, report.second_images);
            let _ = writeln!(
                page,
                "| {name} | {lives} | {swapped} | {cuts} | {images} | {states} | {second_lives} | \
                 {second_images} | {} |",
                report.second_states
            );
        }
    }

    fn add_suites(&self, page: &mut String) {
        if !self.suites.is_empty() {
            page.push_str(SUITES_HEAD);
        }
        for (name, report) in &self.suites {
            let seeds = match report.last_seed {
                0 => "all".to_owned(),
                last => format!("{}-{last}", report.first_seed),
            };
            let _ = write!(page, "| {name} | {seeds} |");
            for column in SUITE_COLUMNS {
                let _ = match report.counts.get(column) {
                    Some(count) => write!(page, " {count} |"),
                    None => write!(page, " |"),
                };
            }
            page.push('\n');
        }
    }

    fn add_long_steps(&self, page: &mut String) {
        page.push_str("\n## Steps of more than 2 ms of processor time\n\n");
        if self.stalls.is_empty() {
            page.push_str("None.\n");
        } else {
            page.push_str("| task | steps | longest (ms) |\n|---|---|---|\n");
        }
        for (task, Stalls { count, longest_nanoseconds }) in &self.stalls {
            let _ =
                writeln!(page, "| {task} | {count} | {:.1} |", *longest_nanoseconds as f64 / 1e6);
        }
    }

    fn add_combinations(&self, page: &mut String) {
        page.push_str(COMBINATIONS_HEAD);
        let mut total = CaseReport::default();
        let mut row = |name: &str, seeds: String, report: &CaseReport| {
            let CaseReport { scripts, cuts, images, recoveries, lives, later_images, .. } = report;
            let (swaps, writes, torn, checked) =
                (report.swaps, report.writes, report.torn, report.checked);
            let _ = writeln!(
                page,
                "| {name} | {seeds} | {scripts} | {cuts} | {images} | {recoveries} | {lives} | \
                 {later_images} | {swaps} | {writes} | {torn} | {checked} |"
            );
        };
        for (name, played) in &self.combinations {
            total.add(played.report);
            let seeds = format!("{}-{}", played.first_seed, played.last_seed);
            row(name, seeds, &played.report);
        }
        row("all", String::new(), &total);
    }
}

const HEAD: &str = "\
# What was explored

The state files and records of explorers, added up. A run that breaks a promise ends at once and is
not counted, so what stands here lost nothing. The columns are explained in
[CRASH_MODEL.md](CRASH_MODEL.md#the-crash-explorer).

";
const TOTALS_HEAD: &str = "\
| crash images | made | recovered and judged (the others equal one of these) |
|---|---|---|
";
const COMBINATIONS_HEAD: &str = "\
| mode, volume | seeds | scripts | places to cut | images | recovered | second lives | images of these | swaps | writes judged | torn | seen by e2fsck |
|---|---|---|---|---|---|---|---|---|---|---|---|
";
const SUITE_COLUMNS: [&str; 5] = ["scripts", "cuts", "images", "second lives", "recoveries cut"];
const SUITES_HEAD: &str = "
## Block devices and hosts

| suite | seeds | scripts | cuts | images | second lives | recoveries cut |
|---|---|---|---|---|---|---|
";
const SMALL_HEAD: &str = "
## Small worlds, exhaustively

| world | lives | with a swap | places to cut | images | different ones | second lives | images of these | different ones |
|---|---|---|---|---|---|---|---|---|
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_two_files_hold_is_added() {
        let played = |first_seed, last_seed, images| CombinationReport {
            first_seed,
            last_seed,
            report: CaseReport { images, ..CaseReport::default() },
        };
        let proof = |played| Proof {
            combinations: BTreeMap::from([("journal ext4-4k".to_owned(), played)]),
            ..Proof::default()
        };
        let mut sum = proof(played(3, 5, 10));
        sum.merge(proof(played(1, 4, 7)));
        assert_eq!(sum, proof(played(1, 5, 17)));
        for seed in [4, 9] {
            let counts = BTreeMap::from([("images".to_owned(), 3)]);
            let (suite, program) = ("blocks".to_owned(), "1".to_owned());
            sum.add_explored(Explored { suite, program, seed, last: seed, counts });
        }
        let page = sum.page("this");
        assert!(page.contains("| journal ext4-4k | 1-5 | 0 | 0 | 17 |"), "{page}");
        assert!(page.contains("| blocks | 4-9 | | | 6 | | |"), "{page}");
    }
}
