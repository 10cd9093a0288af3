//! Runs of figures into a directory, several at once. A finished figure is not run again, so that
//! an interrupted run continues.

use crate::error::RunError;
use crate::figure_record::FigureRecord;
use crate::jobs::side_by_side;
use crate::{Context, Figure, Jobs, page, seeds};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// Directory of the points of a hypercube within that of the figures.
pub const JOINT: &str = "joint";

pub struct RunOptions {
    /// Directory of the files; made if missing.
    pub out: PathBuf,
    /// Whether to run finished figures again.
    pub again: bool,
    /// Number of seeds for figures that depend on chance; quick ones have one.
    pub seeds: u64,
}

#[derive(Debug)]
pub enum Outcome {
    Ran(Box<FigureRecord>),
    /// Finished before by the same program, with the same seed, models and length.
    WasThere(Box<FigureRecord>),
}

/// Returns the results of `one` for each figure, in their order. Each fills the gaps that the
/// others leave; those of real time run alone, after all others.
pub fn run_all<R: Send>(
    figures: &[Figure],
    jobs: &Jobs,
    one: impl Fn(&Figure) -> R + Sync,
) -> Vec<R> {
    let (alone, beside): (Vec<usize>, Vec<usize>) =
        (0..figures.len()).partition(|&at| figures[at].real_time);
    let of = |at: usize| (at, one(&figures[at]));
    let mut all = side_by_side(jobs.figures_at_once(), beside.len(), |index| of(beside[index]));
    all.extend(alone.into_iter().map(of));
    all.sort_by_key(|(at, _)| *at);
    all.into_iter().map(|(_, of_figure)| of_figure).collect()
}

/// Runs a figure, unless it is finished, and puts its files and a new page into the directory.
pub fn run(figure: &Figure, options: &RunOptions, context: &Context) -> Result<Outcome, RunError> {
    let out = options.out.as_path();
    let at = |path: &Path| {
        let path = path.to_owned();
        |error| RunError::Write { path, error }
    };
    for directory in [Some(out), context.trace.as_deref()].into_iter().flatten() {
        std::fs::create_dir_all(directory).map_err(at(directory))?;
    }
    let seeds = if figure.by_chance && !context.quick { options.seeds.max(1) } else { 1 };
    let same = |found: &FigureRecord| {
        (found.seed, found.seeds, found.quick) == (context.seed, seeds, context.quick)
            && found.is_current()
            && found.block_traces == context.known_block_traces()
    };
    if let Some(found) =
        FigureRecord::read(out, figure.name).filter(|found| !options.again && same(found))
    {
        return Ok(Outcome::WasThere(Box::new(found)));
    }
    let results = seeds::combined(context.each_seed(seeds, figure.run)?);
    let finished = FigureRecord::new(figure, context, seeds, results);
    finished.write(out).and_then(|()| write_page(out)).map_err(at(out))?;
    Ok(Outcome::Ran(Box::new(finished)))
}

/// Writes the page of all figures that are finished in the directory, in the order of the papers.
pub fn write_page(out: &Path) -> io::Result<()> {
    // Figures that end together write one after the other, so that the last page has them all.
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let joint = crate::played_in(&out.join(JOINT));
    let html = page::html(&finished_in(out), joint.as_ref());
    crate::figure_record::replace(&out.join("index.html"), &html)
}

/// Returns the figures that are finished in a directory, in the order of the papers.
pub fn finished_in(out: &Path) -> Vec<FigureRecord> {
    crate::all().iter().filter_map(|figure| FigureRecord::read(out, figure.name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_figure::{self, FIGURE};

    fn options(out: &Path) -> RunOptions {
        RunOptions { out: out.join("figures"), again: false, seeds: 2 }
    }
    fn csv(out: &Path) -> String {
        std::fs::read_to_string(out.join("figures/made-up-1.csv")).unwrap()
    }

    #[test]
    fn the_same_seed_gives_the_same_bytes() {
        let (first, second) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for directory in [&first, &second] {
            run(&FIGURE, &options(directory.path()), &test_figure::context(5)).unwrap();
        }
        assert_eq!(csv(first.path()), csv(second.path()));
        run(&FIGURE, &options(second.path()), &test_figure::context(6)).unwrap();
        assert_ne!(csv(first.path()), csv(second.path()));
    }

    #[test]
    fn a_finished_figure_is_run_again_only_when_asked() {
        let directory = tempfile::tempdir().unwrap();
        let mut options = options(directory.path());
        let once = || run(&FIGURE, &options, &test_figure::context(5)).unwrap();
        assert!(matches!(once(), Outcome::Ran(_)));
        assert!(matches!(once(), Outcome::WasThere(_)));
        options.again = true;
        assert!(matches!(
            run(&FIGURE, &options, &test_figure::context(5)).unwrap(),
            Outcome::Ran(_)
        ));
    }

    #[test]
    fn a_result_of_another_program_is_run_again() {
        let directory = tempfile::tempdir().unwrap();
        let options = options(directory.path());
        let once = || run(&FIGURE, &options, &test_figure::context(5)).unwrap();
        let Outcome::Ran(mut record) = once() else { panic!("it was not there") };
        record.made_by.program = "another".into();
        record.write(&options.out).unwrap();
        assert!(matches!(once(), Outcome::Ran(_)));
        assert!(matches!(once(), Outcome::WasThere(_)));
    }

    #[test]
    fn figures_side_by_side_keep_their_order_and_those_of_real_time_are_alone() {
        let figure = |real_time| Figure { real_time, ..FIGURE };
        let figures = [figure(true), figure(false), figure(false), figure(true), figure(false)];
        let (running, begun) = (Mutex::new(Vec::new()), std::sync::atomic::AtomicUsize::new(0));
        let beside = run_all(&figures, &Jobs::new(1), |figure| {
            running.lock().unwrap().push(());
            let began = begun.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            std::thread::yield_now();
            let all = running.lock().unwrap();
            let alone = all.len() == 1;
            drop(all);
            running.lock().unwrap().pop();
            (figure.real_time, !figure.real_time || alone, began)
        });
        assert_eq!(
            beside.iter().map(|(real_time, ..)| *real_time).collect::<Vec<_>>(),
            [true, false, false, true, false]
        );
        assert!(beside.iter().all(|(_, as_it_should_be, _)| *as_it_should_be), "{beside:?}");
        assert_eq!([beside[0].2, beside[3].2], [3, 4], "behind all others");
    }

    #[test]
    fn an_interrupted_figure_leaves_nothing() {
        static STOP: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(true);
        let directory = tempfile::tempdir().unwrap();
        let context = Context { interrupted: &STOP, ..test_figure::context(5) };
        let error = run(&FIGURE, &options(directory.path()), &context).unwrap_err();
        assert!(error.is_interrupted());
        assert_eq!(std::fs::read_dir(directory.path().join("figures")).unwrap().count(), 0);
    }
}
