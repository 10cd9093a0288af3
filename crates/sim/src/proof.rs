//! Record of all explored cases, kept in a state file, and printed as a page.

use crate::case::{Case, CaseReport};
use crate::small_world::SmallReport;
use crate::stalls;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// Everything that was explored with one state file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Proof {
    /// The programs that explored.
    pub programs: BTreeSet<String>,
    /// Results by mode and volume.
    pub combinations: BTreeMap<String, CombinationReport>,
    pub small_worlds: BTreeMap<String, SmallReport>,
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

impl Proof {
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
        for (task, other) in other.stalls {
            let known = self.stalls.entry(task).or_default();
            known.count += other.count;
            known.longest_nanoseconds = known.longest_nanoseconds.max(other.longest_nanoseconds);
        }
    }

    /// Formats it as a Markdown page.
    pub fn page(&self) -> String {
        let mut page = String::from(HEAD);
        let programs: Vec<&str> = self.programs.iter().map(String::as_str).collect();
        let _ = writeln!(page, "Programs: {}.\n", programs.join(", "));
        self.add_combinations(&mut page);
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
        page
    }

    fn add_combinations(&self, page: &mut String) {
        page.push_str(COMBINATIONS_HEAD);
        let mut total = CaseReport::default();
        let mut row = |name: &str, seeds: String, report: &CaseReport| {
            let CaseReport { scripts, cuts, images, lives, later_images, .. } = report;
            let (swaps, writes, torn, checked) =
                (report.swaps, report.writes, report.torn, report.checked);
            let _ = writeln!(
                page,
                "| {name} | {seeds} | {scripts} | {cuts} | {images} | {lives} | {later_images} | \
                 {swaps} | {writes} | {torn} | {checked} |"
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

Made by `okeanos-lab sim --proof FILE...` from the state files of `okeanos-lab sim --state FILE`,
which the explorer writes itself. A round that breaks a promise ends the run and is not counted.
What the columns count: [CRASH_MODEL.md](CRASH_MODEL.md#the-crash-explorer).

";
const COMBINATIONS_HEAD: &str = "\
| mode, volume | seeds | scripts | places to cut | images | second lives | images of these | swaps | writes judged | torn | seen by e2fsck |
|---|---|---|---|---|---|---|---|---|---|---|
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
        assert!(sum.page().contains("| journal ext4-4k | 1-5 | 0 | 0 | 17 |"), "{}", sum.page());
    }
}
