//! Figures run one after the other into a directory. A finished one is not run again, so that a run that was
//! interrupted goes on where it was.

use crate::finished::Finished;
use crate::seeds;
use crate::{Context, Figure, FigureError, page};
use std::io;
use std::path::{Path, PathBuf};

pub struct RunOptions {
    /// Where the files go; made if missing.
    pub out: PathBuf,
    /// Run figures that are finished, too.
    pub again: bool,
    /// How many seeds figures are played with that chance decides; quick ones with one.
    pub seeds: u64,
}

#[derive(Debug)]
pub enum Outcome {
    Ran(Box<Finished>),
    /// It was finished with the same seed and length.
    WasThere(Box<Finished>),
}

#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error("{0}")]
    Figure(#[from] FigureError),
    #[error("{path}: {error}")]
    Write { path: PathBuf, error: io::Error },
}

/// Runs a figure, unless it is finished, and puts its files and a new page into the directory.
pub fn run(figure: &Figure, options: &RunOptions, context: &Context) -> Result<Outcome, RunError> {
    let out = options.out.as_path();
    let at = |error| RunError::Write { path: out.to_owned(), error };
    std::fs::create_dir_all(out).map_err(at)?;
    let seeds = if figure.by_chance && !context.quick { options.seeds.max(1) } else { 1 };
    let same = |found: &Finished| {
        (found.seed, found.seeds, found.quick) == (context.seed, seeds, context.quick)
            && found.block_traces == context.names_of_block_traces()
    };
    if let Some(found) = Finished::read(out, figure.name).filter(|found| !options.again && same(found)) {
        return Ok(Outcome::WasThere(Box::new(found)));
    }
    let results = seeds::combined(context.each_seed(seeds, figure.run)?);
    let finished = Finished::new(figure, context, seeds, results);
    finished.write(out).and_then(|()| write_page(out)).map_err(at)?;
    Ok(Outcome::Ran(Box::new(finished)))
}

/// The page of all figures that are finished in the directory, in the order of the papers.
pub fn write_page(out: &Path) -> io::Result<()> {
    crate::finished::replace(&out.join("index.html"), &page::html(&finished_in(out)))
}

/// The figures that are finished in a directory, in the order of the papers.
pub fn finished_in(out: &Path) -> Vec<Finished> {
    crate::all().iter().filter_map(|figure| Finished::read(out, figure.name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::made_up::{self, FIGURE};

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
            run(&FIGURE, &options(directory.path()), &made_up::context(5)).unwrap();
        }
        assert_eq!(csv(first.path()), csv(second.path()));
        run(&FIGURE, &options(second.path()), &made_up::context(6)).unwrap();
        assert_ne!(csv(first.path()), csv(second.path()));
    }

    #[test]
    fn a_finished_figure_is_run_again_only_when_asked() {
        let directory = tempfile::tempdir().unwrap();
        let mut options = options(directory.path());
        let once = || run(&FIGURE, &options, &made_up::context(5)).unwrap();
        assert!(matches!(once(), Outcome::Ran(_)));
        assert!(matches!(once(), Outcome::WasThere(_)));
        options.again = true;
        assert!(matches!(run(&FIGURE, &options, &made_up::context(5)).unwrap(), Outcome::Ran(_)));
    }

    #[test]
    fn an_interrupted_figure_leaves_nothing() {
        static STOP: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(true);
        let directory = tempfile::tempdir().unwrap();
        let context = Context { interrupted: &STOP, ..made_up::context(5) };
        let error = run(&FIGURE, &options(directory.path()), &context).unwrap_err();
        assert!(matches!(error, RunError::Figure(FigureError::Interrupted)));
        assert_eq!(std::fs::read_dir(directory.path().join("figures")).unwrap().count(), 0);
    }
}
