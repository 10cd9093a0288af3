//! A figure's files: JSON with everything, and for each picture a CSV and an SVG.
//!
//! All are written to temporary files and renamed; the JSON last, so that a reader who sees it sees
//! a whole figure.

use crate::figure::{Figure, Results, Scale};
use crate::{Claim, Context, Identity, Standing, Statement, Tally, Verdict, chart, csv};
use serde::{Deserialize, Serialize};
use std::io;
use std::path::{Path, PathBuf};

/// A figure that has been run. It holds neither time nor place of the run: the same seed gives the
/// same bytes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FigureRecord {
    pub figure: String,
    pub title: String,
    pub source: String,
    pub about: String,
    /// Measured in wall-clock time: numbers differ from run to run.
    pub real_time: bool,
    pub seed: u64,
    pub quick: bool,
    /// Number of seeds, from `seed` on.
    #[serde(default)]
    pub seeds: u64,
    /// Names and checksums of the given block traces.
    #[serde(default)]
    pub block_traces: Vec<String>,
    /// Identity of the program and models that made the figure.
    pub made_by: Identity,
    #[serde(flatten)]
    pub results: Results,
}

impl FigureRecord {
    pub fn new(figure: &Figure, context: &Context, seeds: u64, results: Results) -> FigureRecord {
        let Figure { name, title, source, about, real_time, .. } = *figure;
        FigureRecord {
            figure: name.into(),
            title: title.into(),
            source: source.into(),
            about: about.into(),
            real_time,
            seed: context.seed,
            quick: context.quick,
            seeds,
            block_traces: context.known_block_traces(),
            made_by: Identity::of(name),
            results: drawable(results),
        }
    }

    /// Returns `None` if it is not there, or not written by this version.
    pub fn read(directory: &Path, figure: &str) -> Option<FigureRecord> {
        let text = std::fs::read_to_string(json_path(directory, figure)).ok()?;
        serde_json::from_str(&text).ok()
    }

    pub fn write(&self, directory: &Path) -> io::Result<()> {
        // From here on the figure counts as not finished, whatever it was before.
        remove_if_there(&json_path(directory, &self.figure))?;
        for (number, picture) in self.results.pictures.iter().enumerate() {
            replace(&directory.join(self.file_name(number, "csv")), &csv::csv(picture))?;
            replace(
                &directory.join(self.file_name(number, "svg")),
                &chart::svg(picture, chart::Form::Screen),
            )?;
        }
        let json = serde_json::to_string_pretty(self).map_err(io::Error::other)?;
        replace(&json_path(directory, &self.figure), &(json + "\n"))
    }

    /// Returns `7a.csv`; for several pictures `14-1.csv`, `14-2.csv`, ….
    pub(crate) fn file_name(&self, picture: usize, ending: &str) -> String {
        match self.results.pictures.len() {
            1 => format!("{}.{ending}", self.figure),
            _ => format!("{}-{}.{ending}", self.figure, picture + 1),
        }
    }

    /// Whether it is what this program would find with the same seeds.
    pub fn is_current(&self) -> bool {
        self.made_by.plays_as(&Identity::of(&self.figure))
    }

    /// Whether it has rows that are judged on given traces, and was played on some.
    pub(crate) fn has_given_traces(&self) -> bool {
        self.results.claims.iter().any(is_of_given_traces)
    }

    /// Summarises in a sentence how far we agree with the paper.
    pub fn verdict(&self) -> String {
        let claims = &self.results.claims;
        if self.figure == crate::figure::SENSITIVITY {
            return "Statements of other figures, judged with each choice.".into();
        }
        let tally = Tally::of(claims);
        let differs = |claim: &&Claim| {
            claim.standing() == Standing::Counted && claim.verdict() == Verdict::Differs
        };
        let in_words = |claim: &Claim| {
            let statement = claim.announced()?;
            let paper = statement.paper.as_deref().unwrap_or_default();
            Some(format!("{} (paper: {paper}; ours: {})", statement.says, claim.ours))
        };
        let differing: Vec<String> = claims.iter().filter(differs).filter_map(in_words).collect();
        if claims.is_empty() {
            "Nothing that the paper states can be held against this.".into()
        } else if differing.is_empty() {
            format!("Of the statements {}.", tally.in_words())
        } else {
            format!("Of the statements {}: {}.", tally.in_words(), differing.join("; "))
        }
    }
}

/// Whether a claim is a row of given traces.
pub(crate) fn is_of_given_traces(claim: &Claim) -> bool {
    claim.announced().is_some_and(Statement::is_of_given_traces)
}

pub(crate) fn json_path(directory: &Path, figure: &str) -> PathBuf {
    directory.join(format!("{figure}.json"))
}

/// Replaces a file atomically.
pub(crate) fn replace(path: &Path, text: &str) -> io::Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    let beside = path.with_file_name(name);
    std::fs::write(&beside, text)?;
    std::fs::rename(&beside, path)
}

fn remove_if_there(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Leaves out points that cannot be drawn (a quotient by zero, a missing name), and adds a note.
fn drawable(mut results: Results) -> Results {
    for picture in &mut results.pictures {
        let names = match &picture.x.scale {
            Scale::Names(names) => names.len() as f64,
            _ => f64::INFINITY,
        };
        for series in &mut picture.series {
            let before = series.points.len();
            series.points.retain(|(x, y)| x.is_finite() && y.is_finite() && *x < names);
            let lost = before - series.points.len();
            if lost > 0 {
                results.notes.push(format!(
                    "{}: {lost} of {before} points of {} have no value.",
                    picture.title, series.name
                ));
            }
        }
    }
    results
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_figure;

    #[test]
    fn what_is_written_is_read_again() {
        let directory = tempfile::tempdir().unwrap();
        let mut results = test_figure::results();
        results.pictures[0].series[0].points.push((3.0, f64::NAN));
        let finished =
            FigureRecord::new(&test_figure::FIGURE, &test_figure::context(7), 1, results);
        finished.write(directory.path()).unwrap();
        let read = FigureRecord::read(directory.path(), "made-up").unwrap();
        assert_eq!(read.seed, 7);
        assert_eq!(read.results.pictures[1].series.len(), 2);
        assert_eq!(
            read.results.notes.last().unwrap(),
            "Lines: 1 of 4 points of wasteless have no value."
        );
        let mut names: Vec<_> = std::fs::read_dir(directory.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        assert_eq!(
            names,
            ["made-up-1.csv", "made-up-1.svg", "made-up-2.csv", "made-up-2.svg", "made-up.json"]
        );
    }

    #[test]
    fn a_result_of_another_program_or_model_is_not_current() {
        let record = FigureRecord::new(
            &crate::find("7a").unwrap(),
            &test_figure::context(7),
            1,
            test_figure::results(),
        );
        assert!(record.is_current() && !record.made_by.parameters.is_empty());
        let mut other = record.clone();
        other.made_by.program = "another".into();
        assert!(!other.is_current());
        let mut other = record;
        other.made_by.models.insert("cheetah-15k5-300".into(), "another".into());
        assert!(!other.is_current());
    }

    #[test]
    fn a_figure_half_written_does_not_count() {
        let directory = tempfile::tempdir().unwrap();
        let finished = FigureRecord::new(
            &test_figure::FIGURE,
            &test_figure::context(7),
            1,
            test_figure::results(),
        );
        finished.write(directory.path()).unwrap();
        // The second picture cannot be replaced.
        std::fs::remove_file(directory.path().join("made-up-2.svg")).unwrap();
        std::fs::create_dir(directory.path().join("made-up-2.svg")).unwrap();
        assert!(finished.write(directory.path()).is_err());
        assert!(FigureRecord::read(directory.path(), "made-up").is_none());
    }

    #[test]
    fn the_verdict_names_what_differs() {
        let mut finished = FigureRecord::new(
            &test_figure::FIGURE,
            &test_figure::context(7),
            1,
            test_figure::results(),
        );
        assert_eq!(
            finished.verdict(),
            "Of the statements 1 agree, 0 direction only, 1 differ, 0 undecided: ordered is slower (paper: 10x; ours: 0.9x)."
        );
        finished.results.claims.truncate(1);
        assert_eq!(
            finished.verdict(),
            "Of the statements 1 agree, 0 direction only, 0 differ, 0 undecided."
        );
        finished.results.claims.clear();
        assert!(finished.verdict().starts_with("Nothing"));
    }
}
