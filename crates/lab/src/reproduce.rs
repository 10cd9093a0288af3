//! `okeanos-lab reproduce`: reruns the papers' figures.

use crate::error::CliError;
use crate::text::output::{print, print_json};
use crate::text::progress::Progress;
use crate::text::table::Table;
use ::reproduce::{
    Context, Figure, FigureRecord, JOINT, Jobs, KeptResults, Outcome, RunOptions, Tally,
};
use clap::{Args, Subcommand};
use cli::daemon::reporter::complain;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const EXAMPLES: &str = "\
Examples:
  okeanos-lab reproduce list                   what there is, and how long it takes
  okeanos-lab reproduce 7a                     one figure, into ./figures
  okeanos-lab reproduce all --out results      see results/index.html then
  okeanos-lab reproduce kernel-7a              as root: the kernel's file systems on
                                               the same drive, in real time
  okeanos-lab reproduce 7a/data-over-wasteless the figure of one row of the tables,
                                               and then the row
  okeanos-lab reproduce report --out results   how each statement was judged, as
                                               tables in Markdown
  okeanos-lab reproduce report --page docs/FIGURES.md
                                               the same in the blocks of a page

A figure makes emulated disks, plays its workload on them in virtual time, and
writes NAME.csv (the points), NAME.svg (ours and the paper's together) and
NAME.json (everything, with the paper's statements and how each was judged).
index.html shows all figures of the directory and needs no network.

Figures are played side by side, no more parts of them at once than --jobs.
Ctrl-C ends the run when the parts in progress are done, a second one at once.
The same command goes on from there: figures that are finished by the same
program, with the same seed and models, are not run again, unless --again is
given. The same seed gives the same bytes; figures that begin with kernel- are measured by the clock on the wall
and differ from run to run.";

const HYPERCUBE_EXAMPLES: &str = "\
Examples:
  okeanos-lab reproduce hypercube --out results   the points, into results/joint
  okeanos-lab reproduce report --out results      tables with the share of points
                                                  at which each verdict is kept";

/// Rerun the papers' figures on emulated disks, our numbers beside theirs
#[derive(Args)]
#[command(after_help = EXAMPLES, args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
          disable_help_subcommand = true)]
pub struct ReproduceArguments {
    #[command(subcommand)]
    what: Option<ReproduceCommand>,
    #[command(flatten)]
    run: RunArguments,
}

#[derive(Subcommand)]
enum ReproduceCommand {
    /// The figures: name, what it does, about how long it takes
    List {
        /// JSON instead of a table
        #[arg(long)]
        json: bool,
    },
    /// Vary all chosen numbers jointly: every statement at each of 32 points. The same command
    /// goes on with a run that was stopped
    #[command(after_help = HYPERCUBE_EXAMPLES)]
    Hypercube {
        /// Directory whose `joint` gets the points; made if missing
        #[arg(long, value_name = "DIR", default_value = "figures")]
        out: PathBuf,
        /// Decides where the points lie
        #[arg(long, value_name = "N", default_value_t = 1)]
        seed: u64,
        /// Parts of figures played at once; all processors if not given. Changes no number
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
        jobs: Option<u16>,
    },
    /// The papers' statements and how each was judged, from figures that are finished
    Report {
        /// Directory of the figures
        #[arg(long, value_name = "DIR", default_value = "figures")]
        out: PathBuf,
        /// Write the tables into the blocks `<!-- report: FIGURE … -->` of this page, and the
        /// results into figures.json beside it, which has those of other figures, too
        #[arg(long, value_name = "FILE")]
        page: Option<PathBuf>,
    },
}

#[derive(Args)]
struct RunArguments {
    /// Names from `okeanos-lab reproduce list`, or all: every figure that does not run in real
    /// time. FIGURE/ROW prints a row of the tables, too
    #[arg(required = true, value_name = "FIGURE")]
    figures: Vec<String>,
    /// Directory for the files; made if missing
    #[arg(long, value_name = "DIR", default_value = "figures")]
    out: PathBuf,
    /// Decides everything that chance decides. Figures in which it does are played with several
    /// seeds, this one and the next
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Number of seeds to play them with
    #[arg(long, value_name = "N", default_value_t = ::reproduce::SEEDS,
          value_parser = clap::value_parser!(u64).range(1..=10))]
    seeds: u64,
    /// Parts of figures played at once; all processors if not given. Changes no number
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    jobs: Option<u16>,
    /// Run finished figures again
    #[arg(long)]
    again: bool,
    /// Shorter runs and fewer points, to see that everything works: shapes need not come out
    #[arg(long)]
    quick: bool,
    /// Also write the requests of every disk to files in DIR/FIGURE, as `okeanos-lab disk replay`
    /// reads them. All figures make some gigabytes. The kernel's and Discreet's figures write none
    #[arg(long, value_name = "DIR")]
    trace: Option<PathBuf>,
    /// Block traces for manylogs-6 to -8: every file of the directory, in a format that
    /// `okeanos-lab disk replay` reads. Without it these figures make traces of their own
    #[arg(long, value_name = "DIR")]
    block_traces: Option<PathBuf>,
}

pub fn run(arguments: ReproduceArguments) -> Result<(), CliError> {
    match arguments.what {
        Some(ReproduceCommand::List { json }) => list(json),
        Some(ReproduceCommand::Report { out, page }) => report(&out, page.as_deref()),
        Some(ReproduceCommand::Hypercube { out, seed, jobs }) => hypercube(&out, seed, jobs),
        None => run_figures(arguments.run),
    }
}

#[derive(Serialize)]
struct ListedFigure {
    name: &'static str,
    title: &'static str,
    source: &'static str,
    about: &'static str,
    minutes: u32,
    real_time: bool,
}

fn list(json: bool) -> Result<(), CliError> {
    let figures = ::reproduce::all().into_iter().map(|figure| {
        let Figure { name, title, source, about, minutes, real_time, .. } = figure;
        ListedFigure { name, title, source, about, minutes, real_time }
    });
    let figures: Vec<ListedFigure> = figures.collect();
    if json {
        return print_json(&figures);
    }
    print(&figures.iter().map(listed_text).collect::<String>())
}

/// Formats name, title and minutes in one line; below it source and description.
fn listed_text(figure: &ListedFigure) -> String {
    let clock = if figure.real_time { ", in real time, as root" } else { "" };
    let head = format!("{:<10}  {}", figure.name, figure.title);
    let mut text =
        format!("{head}\n{:12}{}; about {} min{clock}\n", "", figure.source, figure.minutes);
    for line in wrapped(figure.about, 88) {
        text += &format!("{:12}{line}\n", "");
    }
    text + "\n"
}

fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                *line += &format!(" {word}");
            }
            _ => lines.push(word.into()),
        }
    }
    lines
}

fn report(out: &Path, page: Option<&Path>) -> Result<(), CliError> {
    let finished = ::reproduce::finished_in(out);
    let joint = ::reproduce::played_in(&out.join(JOINT));
    if finished.is_empty() && joint.is_none() {
        return Err(CliError::new(format!("{} holds no finished figure", out.display()))
            .with_remedy("run `okeanos-lab reproduce all --out DIR` first"));
    }
    let Some(page) = page else {
        let kept = KeptResults::of(&finished).with_joint(joint);
        return print(&::reproduce::markdown(&kept));
    };
    let failed = |path: &Path, error: &dyn std::fmt::Display| {
        CliError::new(format!("{}: {error}", path.display()))
    };
    let beside = page.with_file_name("figures.json");
    let mut kept = KeptResults::read(&beside).map_err(|error| failed(&beside, &error))?;
    kept.add(&finished);
    let kept = kept.with_joint(joint);
    let text = std::fs::read_to_string(page).map_err(|error| failed(page, &error))?;
    let filled = ::reproduce::fill(&text, &kept).map_err(|error| failed(page, &error))?;
    kept.write(&beside).map_err(|error| failed(&beside, &error))?;
    std::fs::write(page, filled).map_err(|error| failed(page, &error))
}

fn hypercube(out: &Path, seed: u64, jobs: Option<u16>) -> Result<(), CliError> {
    crate::HEAP.keep();
    listen_for_interrupts();
    let out = out.join(JOINT);
    let (begin, shown) = (Instant::now(), Progress::new());
    let run = ::reproduce::JointRun {
        out: &out,
        figures: &::reproduce::figures_of_points(),
        seed,
        jobs: Arc::new(Jobs::new(at_once(jobs))),
        progress: &|point, done, all| {
            let minutes = begin.elapsed().as_secs() / 60;
            let points = ::reproduce::POINTS;
            shown.show(format_args!(
                "{minutes} min: point {point} of {points}, figure {done}/{all}"
            ));
        },
        interrupted: &INTERRUPTED,
    };
    let played = run.play();
    drop(shown);
    match played {
        Ok(()) => print(&"see `okeanos-lab reproduce report`\n"),
        Err(error) if error.is_interrupted() => Err(CliError::new("interrupted".to_owned())
            .with_remedy("the same command goes on with the points that are not played")),
        Err(error) => Err(CliError::new(error.to_string())),
    }
}

/// Returns the number of parts played at once.
fn at_once(jobs: Option<u16>) -> usize {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    jobs.map_or(processors, usize::from)
}

/// Set by Ctrl-C: no further part of a figure begins.
static INTERRUPTED: AtomicBool = AtomicBool::new(false);

fn run_figures(arguments: RunArguments) -> Result<(), CliError> {
    crate::HEAP.keep();
    let figures = chosen(&arguments.figures)?;
    let rows = arguments.figures.iter().filter(|name| name.contains('/'));
    let options = RunOptions { out: arguments.out, again: arguments.again, seeds: arguments.seeds };
    let jobs = Arc::new(Jobs::new(at_once(arguments.jobs)));
    listen_for_interrupts();
    let playing = Arc::new(Playing::new());
    let one = |figure: &Figure| {
        let (begin, name, shown) = (Instant::now(), figure.name, playing.clone());
        let context = Context {
            seed: arguments.seed,
            run_index: 0,
            quick: arguments.quick,
            jobs: jobs.clone(),
            progress: Arc::new(move |done, all| shown.show(name, done, all)),
            interrupted: &INTERRUPTED,
            trace: arguments.trace.as_ref().map(|directory| directory.join(name)),
            block_traces: arguments.block_traces.clone(),
            varied: None,
            overrides: Arc::default(),
        };
        let outcome = ::reproduce::run(figure, &options, &context);
        playing.ended(name);
        if let Err(error) = &outcome {
            if !error.is_interrupted() {
                complain(&format!("okeanos-lab: {name}: {error}"));
            }
        }
        (outcome, begin.elapsed())
    };
    let outcomes = ::reproduce::run_all(&figures, &jobs, one);
    drop(playing);
    let mut table = Table::new(["figure", "statements", "took"]);
    let (mut left, mut failed) = (0, Vec::new());
    for (figure, (outcome, took)) in figures.iter().zip(outcomes) {
        match outcome {
            Ok(Outcome::Ran(finished)) => row(&mut table, &finished, &minutes(took)),
            Ok(Outcome::WasThere(finished)) => row(&mut table, &finished, "was there"),
            Err(error) if error.is_interrupted() => left += 1,
            Err(_) => failed.push(figure.name),
        }
    }
    print(&table)?;
    if !failed.is_empty() {
        return Err(CliError::new(format!("failed: {}", failed.join(", "))));
    }
    if left > 0 {
        return Err(CliError::new(format!(
            "interrupted: {left} of {} figures are not finished",
            figures.len()
        ))
        .with_remedy("the same command goes on with these"));
    }
    let kept = KeptResults::of(&::reproduce::finished_in(&options.out));
    for row in rows.filter_map(|id| ::reproduce::row(&kept, id)) {
        print(&format_args!("{row}\n"))?;
    }
    print(&format_args!("see {}\n", options.out.join("index.html").display()))
}

/// The figures that are being played, as one line of progress.
struct Playing {
    begin: Instant,
    /// Parts done and all parts, by name.
    figures: Mutex<BTreeMap<&'static str, (usize, usize)>>,
    progress: Progress,
}

impl Playing {
    fn new() -> Playing {
        Playing { begin: Instant::now(), figures: Mutex::default(), progress: Progress::new() }
    }
    fn show(&self, figure: &'static str, done: usize, all: usize) {
        let mut figures = self.figures.lock().expect("nobody panics while holding it");
        figures.insert(figure, (done, all));
        let parts = |(name, (done, all)): (&&str, &(usize, usize))| format!("{name} {done}/{all}");
        let parts: Vec<String> = figures.iter().map(parts).collect();
        let minutes = self.begin.elapsed().as_secs() / 60;
        self.progress.show(format_args!("{minutes} min: {}", parts.join(", ")));
    }
    fn ended(&self, figure: &str) {
        self.figures.lock().expect("nobody panics while holding it").remove(figure);
    }
}

fn row(table: &mut Table, finished: &FigureRecord, took: &str) {
    let tally = Tally::of(&finished.results.claims);
    table.row([finished.figure.clone(), tally.in_words(), took.into()]);
}

fn minutes(time: Duration) -> String {
    let seconds = time.as_secs();
    format!("{}:{:02} min", seconds / 60, seconds % 60)
}

/// Returns the named figures, each once, in the order of the papers.
fn chosen(names: &[String]) -> Result<Vec<Figure>, CliError> {
    let known: Vec<&str> = ::reproduce::all().iter().map(|figure| figure.name).collect();
    let is_known = |name: &&String| {
        *name == "all"
            || known.contains(&name.as_str())
            || ::reproduce::find_statement(name).is_some()
    };
    if let Some(name) = names.iter().find(|name| !is_known(name)) {
        return Err(unknown(name, &known));
    }
    let wanted = |figure: &Figure| {
        let of_row = |name: &str| name.split('/').next() == Some(figure.name);
        let named = names.iter().any(|name| of_row(name));
        named || (!figure.real_time && names.iter().any(|name| name == "all"))
    };
    Ok(::reproduce::all().into_iter().filter(wanted).collect())
}

fn unknown(name: &str, known: &[&str]) -> CliError {
    let nearest = nearest(name, known);
    let remedy = match nearest.is_empty() {
        true => "see `okeanos-lab reproduce list`".into(),
        false => format!("the nearest: {}; all: `okeanos-lab reproduce list`", nearest.join(", ")),
    };
    CliError::new(format!("no figure is called {name:?}")).with_remedy(remedy)
}

/// Returns at most three names that differ little from what was typed.
fn nearest<'a>(typed: &str, known: &[&'a str]) -> Vec<&'a str> {
    let plain = |text: &str| -> String {
        let lower = text.to_lowercase();
        let bare =
            ["figure", "fig"].iter().find_map(|word| lower.strip_prefix(word)).unwrap_or(&lower);
        bare.chars().filter(|letter| letter.is_alphanumeric()).collect()
    };
    let typed = plain(typed);
    let mut far: Vec<(usize, &str)> =
        known.iter().map(|name| (distance(&typed, &plain(name)), *name)).collect();
    far.sort_by_key(|(distance, _)| *distance);
    let Some(&(least, _)) = far.first() else { return Vec::new() };
    let near = |distance: usize| {
        distance <= least + usize::from(least > 0) && distance <= 1.max(typed.len() / 2)
    };
    far.into_iter().filter(|(distance, _)| near(*distance)).map(|(_, name)| name).take(3).collect()
}

/// Returns the number of letters to be changed, added or removed to make one text of the other.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, to) in b.iter().enumerate() {
            let best = (diagonal + usize::from(from != *to)).min(row[j] + 1).min(row[j + 1] + 1);
            diagonal = std::mem::replace(&mut row[j + 1], best);
        }
    }
    row[b.len()]
}

/// Notes the first Ctrl-C; the second ends the program, as by default.
fn listen_for_interrupts() {
    extern "C" fn note(_signal: libc::c_int) {
        INTERRUPTED.store(true, Ordering::Relaxed);
        let text = b"\nending when the parts in progress are done; Ctrl-C again: at once\n";
        // SAFETY: write(2) may be called in a signal handler; the text lives for ever.
        unsafe { libc::write(2, text.as_ptr().cast(), text.len()) };
    }
    // SAFETY: the structure is filled in before use, and the handler calls only what a handler may.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = note as extern "C" fn(libc::c_int) as libc::sighandler_t;
        action.sa_flags = libc::SA_RESETHAND | libc::SA_RESTART;
        libc::sigaction(libc::SIGINT, &action, std::ptr::null_mut());
        libc::sigaction(libc::SIGTERM, &action, std::ptr::null_mut());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_mistyped_finds_its_neighbours() {
        let known = ["1", "7a", "7b", "7c", "10a", "table-1", "raid-0", "kernel-7a"];
        assert_eq!(nearest("fig7a", &known), ["7a"]);
        assert_eq!(nearest("Figure-10a", &known), ["10a"]);
        assert_eq!(nearest("table1", &known), ["table-1"]);
        assert_eq!(nearest("7d", &known), ["7a", "7b", "7c"]);
        assert_eq!(nearest("kernel7", &known), ["kernel-7a"]);
        assert!(nearest("everything", &known).is_empty());
    }

    #[test]
    fn a_row_names_its_figure() {
        let names = |names: &[&str]| -> Vec<&str> {
            let names: Vec<String> = names.iter().map(|name| name.to_string()).collect();
            chosen(&names).ok().unwrap().iter().map(|figure| figure.name).collect()
        };
        assert_eq!(names(&["7a/data-over-wasteless", "7a", "13"]), ["7a", "13"]);
        assert!(chosen(&["7a/no-such-row".into()]).is_err());
    }

    #[test]
    fn distances_count_letters() {
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("7a", "7b"), 1);
        assert_eq!(distance("raid0", "raid0"), 0);
        assert_eq!(distance("kitten", "sitting"), 3);
    }
}
