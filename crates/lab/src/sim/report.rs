//! Report of the crash explorer, as a table or JSON.

use crate::error::CliError;
use crate::text::table::Table;
use device::LongSteps;
use eviction::Profile;
use sim::CaseReport;
use sim::lying_disk::LyingDisk;
use sim::small_world::SmallReport;
use std::collections::BTreeMap;

/// Counts so far, by mode.
pub type Reports = BTreeMap<&'static str, CaseReport>;

/// Evictions that replaced flushes, and their reliability for single sectors.
#[derive(serde::Serialize)]
pub struct Evictions {
    profile: Profile,
    /// Upper bound of an eviction's failure rate, with 95 % confidence.
    loss_bound: f64,
    /// Sectors written, evicted and cut off at once, and how many of them were lost.
    targets: u64,
    targets_lost: u64,
}

/// Sectors, enough to see one loss in a thousand.
const TARGETS: u64 = 10_000;

impl Evictions {
    pub fn of(lying_disk: LyingDisk) -> Option<Evictions> {
        let profile = lying_disk.profile?;
        let targets_lost = sim::lying_disk::lost_targets(lying_disk.replacement, &profile, TARGETS);
        Some(Evictions {
            loss_bound: profile.loss_bound(),
            profile,
            targets: TARGETS,
            targets_lost,
        })
    }
}

impl std::fmt::Display for Evictions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Evictions { profile, loss_bound, targets, targets_lost } = self;
        writeln!(
            f,
            "evictions: {}; tried {} times, so with 95 % confidence a sector is lost at most once \
             in {:.0}; of {targets} sectors it lost {targets_lost}",
            profile.workload,
            profile.trials,
            1.0 / loss_bound
        )
    }
}

pub fn print(reports: &Reports, evictions: Option<&Evictions>, json: bool) -> Result<(), CliError> {
    let mut total = CaseReport::default();
    reports.values().for_each(|report| total.add(*report));
    if json {
        return crate::text::output::print_json(
            &serde_json::json!({ "modes": reports, "total": total, "evictions": evictions }),
        );
    }
    let names = columns(&total).map(|(name, _)| name);
    let mut table = Table::new(["mode"].into_iter().chain(names));
    let all = [("all", &total)];
    for (name, report) in reports.iter().map(|(name, report)| (*name, report)).chain(all) {
        let counts = columns(report).map(|(_, count)| count.to_string());
        table.row([name.to_owned()].into_iter().chain(counts));
    }
    let evictions = evictions.map(ToString::to_string).unwrap_or_default();
    let verdict = match total.lost {
        0 => "nothing lost".to_owned(),
        lost => {
            format!("{:.2} % of the cuts lost something", lost as f64 * 100.0 / total.cuts as f64)
        }
    };
    crate::text::output::print(&format_args!("{table}{evictions}{verdict}\n"))
}

/// Prints the exhaustive explorations.
pub fn print_small_worlds(explored: &[(&str, SmallReport)]) -> Result<(), CliError> {
    let mut table = Table::new([
        "small world",
        "lives",
        "with swaps",
        "places to cut",
        "images",
        "different",
        "second lives",
        "later images",
        "different",
    ]);
    for (name, report) in explored {
        let SmallReport { lives, swapped, cuts, images, states, .. } = *report;
        let later = [report.second_lives, report.second_images, report.second_states];
        let counts = [lives, swapped, cuts, images, states].into_iter().chain(later);
        table.row([(*name).to_owned()].into_iter().chain(counts.map(|count| count.to_string())));
    }
    crate::text::output::print(&table)
}

/// Prints steps of tasks that took more than 2 ms of processor time.
pub fn print_stalls(stalls: &[LongSteps]) -> Result<(), CliError> {
    let mut table = Table::new(["task", "steps of 2 ms", "longest (ms)"]);
    for LongSteps { task, count, longest } in stalls {
        let longest = format!("{:.1}", longest.as_secs_f64() * 1e3);
        table.row([(*task).to_owned(), count.to_string(), longest]);
    }
    crate::text::output::print(&table)
}

/// Returns every count with its name.
fn columns(report: &CaseReport) -> [(&'static str, u64); 28] {
    // Destructured in full: a new count must not be forgotten here.
    let CaseReport {
        scripts,
        cuts,
        images,
        recoveries,
        recoveries_cut,
        lives,
        later_images,
        checked,
        faults,
        hostile,
        met,
        refused,
        writes,
        torn,
        split,
        redirected,
        swaps,
        kept,
        by_table,
        not_by_table,
        by_snapshot,
        not_by_snapshot,
        lost,
        trimmed,
        located,
        gaps,
        unequal_disks,
        other_checkpoints,
    } = *report;
    [
        ("scripts", scripts),
        ("places to cut", cuts),
        ("images", images),
        ("recovered", recoveries),
        ("cut again", recoveries_cut),
        ("lived on", lives),
        ("later images", later_images),
        ("seen by e2fsck", checked),
        ("faults", faults),
        ("bitmaps that lied", hostile),
        ("of them met", met),
        ("no room", refused),
        ("writes judged", writes),
        ("torn", torn),
        ("split", split),
        ("read from the log", redirected),
        ("logs swapped", swaps),
        ("went on with logs", kept),
        ("tables accepted", by_table),
        ("tables refused", not_by_table),
        ("snapshots accepted", by_snapshot),
        ("snapshots refused", not_by_snapshot),
        ("cuts that lost", lost),
        ("trimmed", trimmed),
        ("asked addresses", located),
        ("with gaps", gaps),
        ("unequal disks", unequal_disks),
        ("other checkpoint=", other_checkpoints),
    ]
}
