//! `okeanos fingerprint`: finds the writes that evict data from a drive's cache, and whether its
//! flush can be trusted.

mod saved;
mod subject;

use crate::error::CliError;
use crate::text::output::{print, print_json};
use crate::text::progress::Progress;
use crate::text::quantity::parse_size;
use crate::text::table::Table;
use eviction::fingerprint::{self as prints, Fingerprint, FingerprintError, Grid, ProbePhase};
use eviction::{FlushTest, Profile, Verdict};
use runtime::RealWorld;
use saved::{BEGIN_ANEW, Conditions, read_saved, save, write};
use serde::Serialize;
use std::ops::{ControlFlow, Range};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use subject::open;
pub use subject::{Behaviour, Subject};

const EXAMPLES: &str = "\
Examples:
  okeanos fingerprint --flush-test --destroy /dev/sdb   does this drive lie about flushes?
  okeanos fingerprint --destroy /dev/sdb                the whole drive may be overwritten
  okeanos fingerprint --destroy --range 10G+4G /dev/sdb that part of it alone
  truncate -s 3G scratch; okeanos fingerprint scratch   inside a file, of 2 GiB or more

An emulated drive, in virtual time: okeanos-lab fingerprint --help.

";

/// Notes on the method, after the examples of a command.
pub const METHOD: &str = "\
Each trial writes a sector, then a workload, then asks for a flush, waits a second, and reads the sector: if
that is slow, the workload had pushed it out of the cache. What is recommended must also have done so at once:
with 64 blocks of 4 KiB waiting in the cache, all over the drive, and no second of rest (--as-paper does without). A whole
fingerprint takes an hour or two on most drives, about one with --quick; stop it with Ctrl-C, and the same command goes
on where it was.

In the directory of --out: eviction.svg and performance.svg (dark: evicted, costly), cells.csv,
fingerprint.json, and drive.profile, which okeanos mkfs --flush-zone takes.";

/// Find out which writes push data out of a drive's cache (for barrier=coerce), or whether its
/// flush lies
#[derive(clap::Args)]
#[command(after_help = format!("{EXAMPLES}{METHOD}"))]
pub struct FingerprintArguments {
    /// Yes, what is on this block device, or in this file, may be overwritten
    #[arg(long)]
    destroy: bool,
    /// Write only there: START+LENGTH
    #[arg(long, value_name = "START+LENGTH", value_parser = parse_range)]
    range: Option<Range<u64>>,
    #[command(flatten)]
    examination: Examination,
    /// A block device, or a file, whose content is lost
    #[arg(value_name = "DEVICE|FILE")]
    disk: PathBuf,
}

/// Examination of a drive, and destination of its result.
#[derive(clap::Args)]
pub struct Examination {
    /// Only answer whether the drive's flush and durable writes cost what its medium costs. Takes
    /// about a minute, longer on a slow drive, which is filled in part first
    #[arg(long)]
    flush_test: bool,
    /// Trials that the chosen workload must pass
    #[arg(long, value_name = "N", default_value_t = 50,
          value_parser = clap::value_parser!(u32).range(1..=100_000))]
    trials: u32,
    /// Run all --trials in every cell of the grid, instead of where they decide most: many hours on
    /// a real drive
    #[arg(long)]
    full: bool,
    /// One trial in most cells: about half the time, and a coarser picture; what is recommended
    /// passes as many as ever
    #[arg(long, conflicts_with = "full")]
    quick: bool,
    /// Recommend what evicts on a drive at rest, a second later; what evicts at once is not tried
    #[arg(long)]
    as_paper: bool,
    /// Directory for the files; made if missing
    #[arg(long, value_name = "DIR", default_value = "fingerprint")]
    out: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

fn parse_range(text: &str) -> Result<Range<u64>, String> {
    let (start, length) = text.split_once('+').ok_or("a range is START+LENGTH, such as 10G+4G")?;
    let (start, length) = (parse_size(start)?, parse_size(length)?);
    start.checked_add(length).map(|end| start..end).ok_or_else(|| "the range is too long".into())
}

#[derive(Serialize)]
struct Found {
    drive: String,
    size: u64,
    trials: u64,
    /// Seconds of this run, on the drive's clock.
    seconds: f64,
    threshold_us: Option<f64>,
    profile: Option<Profile>,
    /// Choice of the paper's method, if that differs.
    of_paper: Option<OfPaper>,
    /// Upper bound of an eviction's failure rate, with 95 % confidence.
    loss_bound: Option<f64>,
    files: PathBuf,
}

/// Another choice, and the reason why it was rejected.
#[derive(Serialize)]
struct OfPaper {
    profile: Profile,
    trials_at_once: u32,
    evicted_at_once: u32,
}

impl OfPaper {
    fn of(state: &Fingerprint, subject: &Subject) -> Option<OfPaper> {
        let workload = state.of_paper.filter(|_| state.of_paper != state.chosen)?;
        let (cell, threshold) = (state.cell(&workload)?, state.threshold()?);
        Some(OfPaper {
            profile: state.profile_of(&workload, &subject.name, subject.size)?,
            trials_at_once: cell.trials_at_once(),
            evicted_at_once: cell.evicted_at_once(threshold),
        })
    }
}

pub fn run(arguments: FingerprintArguments) -> Result<(), CliError> {
    let world = RealWorld::new().map_err(CliError::no_ring)?;
    let subject = open(&world, &arguments)?;
    let result = world.run(examine(subject, arguments.examination));
    world.end();
    result
}

/// Examines a drive, and prints the findings.
///
/// # Errors
/// The drive or the directory of the result fails, or existing measurements are of another drive.
pub async fn examine(subject: Subject, arguments: Examination) -> Result<(), CliError> {
    if arguments.flush_test {
        let progress = Progress::new();
        progress.show("filling what is measured with random bytes");
        subject.fill().await?;
        let mut watch = |what: &str| progress.show(what);
        let test =
            eviction::flush_test(&subject.world, &subject.disk, subject.range.clone(), &mut watch)
                .await
                .map_err(|error| CliError::new(error.to_string()))?;
        drop(progress);
        return if arguments.json {
            print_json(&test)
        } else {
            print(&verdict_text(&subject.name, &test))
        };
    }
    let found = take(&subject, &arguments).await?;
    if arguments.json { print_json(&found) } else { print(&found_text(&found)) }
}

/// Interval at which measurements are saved.
const SAVE_EVERY: Duration = Duration::from_secs(5);

async fn take(subject: &Subject, arguments: &Examination) -> Result<Found, CliError> {
    let out = &arguments.out;
    std::fs::create_dir_all(out).map_err(|error| CliError::system(out.display(), error))?;
    let grid = Grid::of_paper();
    let mut options = prints::FingerprintOptions::adaptive(grid.clone(), subject.range.clone());
    (options.trials, options.at_once) = (arguments.trials, !arguments.as_paper);
    if arguments.full {
        (options.trials_min, options.trials_at_borders) = (arguments.trials, arguments.trials);
    } else if arguments.quick {
        (options.trials_min, options.trials_at_borders) = (1, 3);
    }
    let saved = out.join("fingerprint.json");
    let of = Conditions::of(subject);
    let mut state = read_saved(&saved, &of)?;
    options
        .check_range(subject.disk.geometry().logical_sector)
        .map_err(|error| failure(error, &saved))?;
    subject.fill().await?;
    let progress = Progress::new();
    let (mut last_kept, mut last_shown) = (Instant::now(), Instant::now());
    let mut trouble = None;
    let mut watch = |state: &Fingerprint, at: prints::ProbeProgress| {
        if last_shown.elapsed() > Duration::from_millis(200) {
            last_shown = Instant::now();
            let phase = match at.phase {
                ProbePhase::Calibration => "what cache and medium take",
                ProbePhase::Grid => "every workload",
                ProbePhase::Borders => "where workloads differ",
                ProbePhase::Choice => "the cheapest that evicts",
                ProbePhase::AtOnce => "the cheapest that evicts at once",
            };
            let left = match at.remaining.as_secs() {
                seconds @ 0..120 => format!("{seconds} s"),
                seconds => format!("{} min", seconds.div_ceil(60)),
            };
            progress.show(format!(
                "{phase}: trial {} of {}, about {left} left of this",
                at.done, at.of
            ));
        }
        if last_kept.elapsed() > SAVE_EVERY {
            last_kept = Instant::now();
            if let Err(error) = save(&saved, &of, state) {
                trouble = Some(error);
                return ControlFlow::Break(());
            }
        }
        ControlFlow::Continue(())
    };
    let begun = subject.world.now();
    let result =
        prints::fingerprint(&subject.world, &subject.disk, &options, &mut state, &mut watch).await;
    drop(progress);
    if let Some(error) = trouble {
        return Err(error);
    }
    match &result {
        // Such a beginning is useless to the next run, on a drive whose cache is on by then.
        Err(FingerprintError::NoDifference { .. })
            if state.cells.iter().all(|cell| cell.trials() == 0) =>
        {
            _ = std::fs::remove_file(&saved);
        }
        _ => save(&saved, &of, &state)?,
    }
    result.map_err(|error| failure(error, &saved))?;
    write(&out.join("cells.csv"), &state.csv())?;
    write(&out.join("performance.svg"), &state.performance_picture(&grid, &subject.name))?;
    if let Some(picture) = state.eviction_picture(&grid, &subject.name) {
        write(&out.join("eviction.svg"), &picture)?;
    }
    let profile = state.profile(&subject.name, subject.size);
    if let Some(profile) = &profile {
        write(&out.join("drive.profile"), &profile.format())?;
    }
    Ok(Found {
        drive: subject.name.clone(),
        size: subject.size,
        trials: state
            .cells
            .iter()
            .map(|cell| u64::from(cell.trials() + cell.trials_at_once()))
            .sum(),
        seconds: subject.world.now().since(begun).as_secs_f64(),
        threshold_us: state.threshold().map(|threshold| threshold.0),
        loss_bound: profile.as_ref().map(Profile::loss_bound),
        profile,
        of_paper: OfPaper::of(&state, subject),
        files: out.clone(),
    })
}

fn failure(error: FingerprintError, saved: &Path) -> CliError {
    match error {
        FingerprintError::OtherGrid => {
            CliError::new(format!("{}: {error}", saved.display())).with_remedy(BEGIN_ANEW)
        }
        FingerprintError::RangeTooSmall { .. } => {
            CliError::new(error.to_string()).with_remedy("Give a larger --range, or a larger file.")
        }
        FingerprintError::NoDifference { .. } => CliError::new(error.to_string()).with_remedy(
            "Try --flush-test. A drive with its cache off, flash, and whatever has a cache of the \
             kernel's in front look like this.",
        ),
        error => CliError::new(error.to_string()),
    }
}

fn found_text(found: &Found) -> String {
    let (drive, files) = (&found.drive, found.files.display());
    let of_paper = found.of_paper.as_ref().map_or(String::new(), |paper| {
        let OfPaper { profile, trials_at_once, evicted_at_once } = paper;
        format!(
            "The paper's method chose {}, in {:.1} ms: on a busy drive, looked at as soon as it \
             was answered, it evicted {evicted_at_once} times of {trials_at_once}.\n",
            profile.workload, profile.milliseconds,
        )
    });
    let minutes = found.seconds / 60.0;
    let (Some(profile), Some(bound)) = (&found.profile, found.loss_bound) else {
        return format!(
            "{drive}: no workload of the grid evicted in every trial, at once as well as later ({} \
             trials in all, {minutes:.0} min).\n\
             {of_paper}See {files}/eviction.svg and {files}/cells.csv.\n",
            found.trials
        );
    };
    format!(
        "{drive}: what evicts: {}, in {:.1} ms (found in {minutes:.0} min).\n\
         Tried {} times and always right: with 95 % confidence it fails at most once in {:.0}.\n\
         {of_paper}Pictures and the profile are in {files}. To use it:\n\
         \x20 okeanos mkfs --flush-zone {files}/drive.profile DEVICE\n",
        profile.workload,
        profile.milliseconds,
        profile.trials,
        1.0 / bound,
    )
}

fn verdict_text(name: &str, test: &FlushTest) -> String {
    let mut table = Table::new(["what", "ms (median)"]);
    let mut row = |what: String, time: f64| table.row([what, format!("{time:.3}")]);
    row("read of a random sector".into(), test.random_read_ms);
    row("scattered write, not flushed".into(), test.cached_write_ms);
    for (writes, time) in &test.flush_ms {
        let writes = if *writes == 1 {
            "1 scattered write".into()
        } else {
            format!("{writes} scattered writes")
        };
        row(format!("{writes} and a flush"), *time);
    }
    row("durable write of one sector, repeated".into(), test.durable_write_ms);
    let verdict = match test.verdict {
        Verdict::Honest => "honest: its flush waits for the medium",
        Verdict::Suspicious => {
            "suspicious: unless its cache outlives a power cut (okeanos powercut), do not trust \
             its flush (mount -o barrier=coerce)"
        }
        Verdict::CannotTell => "undecided; cut its power (okeanos powercut --help)",
    };
    let evidence: String = test.evidence.iter().map(|sentence| format!("  {sentence}\n")).collect();
    format!("{table}\n{name}: {verdict}.\n{evidence}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_a_start_and_a_length() {
        assert_eq!(parse_range("1M+2k").unwrap(), 1 << 20..(1 << 20) + 2048);
        assert!(parse_range("5").is_err() && parse_range("1+x").is_err());
    }
}
