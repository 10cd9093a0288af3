//! Joint variation of all chosen numbers: every statement at each point of a Latin hypercube.
//!
//! A point is a short run of every figure with statements, with one value of each chosen number.
//! Figures of Okeanos have their ends alone, as in `sensitivity`; others are quick runs. A point
//! has a file of its own, so a run that was stopped goes on with the next point. Point 0 has the
//! values as chosen; a statement keeps its verdict at a point where it is judged as at point 0.

use crate::error::{FigureError, RunError};
use crate::figure::SENSITIVITY;
use crate::hypercube::{dimensions, overrides, shares};
use crate::identity::{COMMIT, checksum, folder_of, programs};
use crate::jobs::side_by_side;
use crate::overrides::Overrides;
use crate::statement::{find, of_figure};
use crate::{Context, Figure, Jobs, Varied, Verdict};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

/// Number of points beside the one as chosen.
pub const POINTS: usize = 32;

/// A run over all points.
pub struct JointRun<'a> {
    /// Directory of the points' files; made if missing.
    pub out: &'a Path,
    pub figures: &'a [Figure],
    /// Seed of the points. Figures are played with the first seed at each of them.
    pub seed: u64,
    pub jobs: Arc<Jobs>,
    /// Progress callback, called with the point, its figures that are done, and all figures.
    pub progress: &'a (dyn Fn(usize, usize, usize) + Sync),
    pub interrupted: &'static AtomicBool,
}

/// Identity of what played a point.
#[derive(Clone, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct PointIdentity {
    programs: BTreeMap<String, String>,
    /// Checksum of the ranges, of the points in them, and of the forms of the figures.
    points: String,
    seed: u64,
}

/// The file of a point.
#[derive(Serialize, Deserialize)]
struct PointRecord {
    made_by: PointIdentity,
    figures: BTreeMap<String, PointFigure>,
}

/// A figure at a point.
#[derive(Default, Serialize, Deserialize)]
struct PointFigure {
    /// The value of each statement; none if it is no number.
    values: BTreeMap<String, Option<f64>>,
    /// The changed numbers that the figure asked for.
    reached: BTreeSet<String>,
    /// The reason why it could not be played.
    failed: Option<String>,
}

/// Results of all points that were played.
#[derive(Clone, Default, Debug, Serialize, Deserialize)]
pub struct JointResults {
    made_by: PointIdentity,
    /// The commit of the program that reported them; its sources are those that played.
    commit: String,
    /// Number of points played, the one as chosen not among them.
    pub played: usize,
    rows: BTreeMap<String, JointRow>,
    /// The figures that each number reaches.
    reached: BTreeMap<String, BTreeSet<String>>,
    /// Figures that could not be played: number of points, and the first reason.
    failed: BTreeMap<String, (usize, String)>,
}

/// Values of a statement as text, one for each point and the one as chosen first: a number, `nan`,
/// or `-` where it could not be played.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(transparent)]
struct JointRow(String);

/// Share of points at which a statement kept its verdict.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeptShare {
    /// The verdict as chosen, in the short form.
    pub verdict: Verdict,
    pub kept: usize,
    /// Number of points at which it could be played.
    pub of: usize,
}

fn identity(seed: u64) -> PointIdentity {
    let mut programs = programs();
    programs.remove("kernel");
    let ranges: Vec<String> = dimensions()
        .iter()
        .map(|it| format!("{:?} {} {:?}\n", it.parameter.of, it.name, it.span))
        .collect();
    let forms: Vec<_> = figures().iter().map(|it| (it.name, short_form(it))).collect();
    let shares = shares(seed, POINTS, ranges.len());
    let text = format!("{}{shares:?}{forms:?}", ranges.concat());
    PointIdentity { programs, points: checksum(text.as_bytes()), seed }
}

/// Returns the figures that are played: those with statements, but for real time.
pub fn figures() -> Vec<Figure> {
    let has_statements = |figure: &Figure| of_figure(figure.name).next().is_some();
    let is_played =
        |figure: &Figure| !figure.real_time && figure.name != SENSITIVITY && has_statements(figure);
    let mut figures: Vec<Figure> = crate::all().into_iter().filter(is_played).collect();
    // The longest first, so that none is left alone at the end of a point.
    figures.sort_by_key(|figure| std::cmp::Reverse(figure.minutes));
    figures
}

/// Figures of Okeanos that know no other short form than the quick one.
const QUICK_ALONE: [&str; 2] = ["table-1-scale", "threshold"];

/// Returns whether a figure is quick at a point, and what is varied in it otherwise. Quick runs of
/// Okeanos' figures judge two of five statements otherwise than whole ones.
fn short_form(figure: &Figure) -> (bool, Option<Varied>) {
    let has_ends = ["okeanos", "atc"].contains(&folder_of(figure.name));
    match has_ends && !QUICK_ALONE.contains(&figure.name) {
        true => (false, Some(Varied::Nothing)),
        false => (true, None),
    }
}

fn path_of(out: &Path, point: usize) -> PathBuf {
    out.join(format!("point-{point:02}.json"))
}

fn read(out: &Path, point: usize) -> Option<PointRecord> {
    serde_json::from_str(&std::fs::read_to_string(path_of(out, point)).ok()?).ok()
}

impl JointRun<'_> {
    /// Plays the points that the same program has not played with the same ranges and seed.
    ///
    /// # Errors
    ///
    /// The run was interrupted, or a file cannot be written. A figure that cannot be played at a
    /// point is noted there.
    pub fn play(&self) -> Result<(), RunError> {
        let failed = |path: PathBuf| move |error| RunError::Write { path, error };
        std::fs::create_dir_all(self.out).map_err(failed(self.out.to_owned()))?;
        let made_by = identity(self.seed);
        let shares = shares(self.seed, POINTS, dimensions().len());
        for point in 0..=POINTS {
            if read(self.out, point).is_some_and(|record| record.made_by == made_by) {
                continue;
            }
            let of_point = || match point {
                0 => Overrides::default(),
                _ => overrides(&shares[point - 1]),
            };
            let figures = self.play_point(point, &of_point)?;
            let made_by = made_by.clone();
            let path = path_of(self.out, point);
            serde_json::to_string_pretty(&PointRecord { made_by, figures })
                .map_err(io::Error::other)
                .and_then(|json| crate::figure_record::replace(&path, &(json + "\n")))
                .map_err(failed(path))?;
        }
        Ok(())
    }

    fn play_point(
        &self,
        point: usize,
        of_point: &(dyn Fn() -> Overrides + Sync),
    ) -> Result<BTreeMap<String, PointFigure>, FigureError> {
        let (done, figures) = (Mutex::new(0), self.figures);
        let one = |at: usize| {
            let played = self.play_figure(&figures[at], of_point());
            let mut done = done.lock().expect("nobody panics while holding it");
            *done += 1;
            (self.progress)(point, *done, figures.len());
            Ok((figures[at].name.to_owned(), played?))
        };
        side_by_side(self.jobs.figures_at_once(), figures.len(), one).into_iter().collect()
    }

    fn play_figure(
        &self,
        figure: &Figure,
        overrides: Overrides,
    ) -> Result<PointFigure, FigureError> {
        let overrides = Arc::new(overrides);
        let (quick, varied) = short_form(figure);
        let context = Context {
            seed: 1,
            run_index: 0,
            quick,
            jobs: self.jobs.clone(),
            progress: Arc::new(|_, _| ()),
            interrupted: self.interrupted,
            trace: None,
            block_traces: None,
            varied,
            overrides: overrides.clone(),
        };
        let mut played = PointFigure::default();
        match (figure.run)(&context) {
            Ok(results) => {
                let value = |values: &[f64]| values.first().copied();
                let claims = results.claims.iter();
                played.values =
                    claims.map(|it| (it.statement.clone(), value(&it.values))).collect();
            }
            Err(FigureError::Interrupted) => return Err(FigureError::Interrupted),
            Err(error) => played.failed = Some(error.to_string()),
        }
        let reached = overrides.reached().into_iter();
        played.reached = reached.map(|(owner, name)| format!("{owner}: {name}")).collect();
        Ok(played)
    }
}

/// Returns the results of the points in a directory that this program has played; nothing without
/// the point as chosen.
pub fn played_in(out: &Path) -> Option<JointResults> {
    let chosen = read(out, 0).filter(|record| record.made_by == identity(record.made_by.seed))?;
    let made_by = chosen.made_by.clone();
    let current = |point| read(out, point).filter(|record| record.made_by == made_by);
    let points: Vec<PointRecord> = (1..=POINTS).filter_map(current).collect();
    Some(combined(&chosen, &points))
}

fn combined(chosen: &PointRecord, points: &[PointRecord]) -> JointResults {
    let mut results = JointResults {
        made_by: chosen.made_by.clone(),
        commit: COMMIT.into(),
        played: points.len(),
        ..JointResults::default()
    };
    for (name, figure) in &chosen.figures {
        for id in figure.values.keys() {
            let value = |record: &PointRecord| record.figures.get(name)?.values.get(id).copied();
            let of_point = |record: &PointRecord| match value(record) {
                Some(Some(value)) => crate::number::exact(value),
                Some(None) => "nan".into(),
                None => "-".into(),
            };
            let values: Vec<String> = std::iter::once(chosen).chain(points).map(of_point).collect();
            results.rows.insert(id.clone(), JointRow(values.join(" ")));
        }
        for played in points.iter().filter_map(|record| record.figures.get(name)) {
            for number in &played.reached {
                results.reached.entry(number.clone()).or_default().insert(name.clone());
            }
            if let Some(why) = &played.failed {
                let failed = results.failed.entry(name.clone()).or_insert((0, why.clone()));
                failed.0 += 1;
            }
        }
    }
    results
}

impl JointResults {
    /// Returns how often a statement kept its verdict; nothing if no chosen number reaches its
    /// figure, or if it was not played.
    pub fn kept(&self, id: &str) -> Option<KeptShare> {
        let statement = find(id)?;
        let row = self.rows.get(id)?;
        if !self.reached.values().any(|figures| figures.contains(statement.figure())) {
            return None;
        }
        let judge = |value: &str| match value.parse::<f64>() {
            Ok(value) if value.is_finite() => Some(statement.bound.judge(&[value])),
            Ok(_) => Some(statement.bound.judge(&[])),
            Err(_) => None,
        };
        let mut verdicts = row.0.split(' ').map(judge);
        let verdict = verdicts.next()??;
        let at_points: Vec<Verdict> = verdicts.flatten().collect();
        let kept = at_points.iter().filter(|one| **one == verdict).count();
        Some(KeptShare { verdict, kept, of: at_points.len() })
    }
    /// Formats the share of points at which a statement keeps its verdict, and that verdict if it
    /// is not `judged`, that of the figure itself.
    pub fn cell(&self, id: &str, judged: Option<Verdict>) -> String {
        match self.kept(id) {
            None if self.rows.contains_key(id) => "no chosen number reaches it".into(),
            None => String::new(),
            Some(KeptShare { verdict, kept, of }) if judged == Some(verdict) => {
                format!("{kept}/{of}")
            }
            Some(KeptShare { verdict, kept, of }) => {
                format!("{kept}/{of} ({} in the short form)", verdict.name())
            }
        }
    }
    /// Formats what was played, and the ranges of all numbers with the figures that they reach.
    pub fn summary(&self) -> String {
        let mut text = format!(
            "Played: {} of {POINTS} points of seed {}, by {}.",
            self.played,
            self.made_by.seed,
            if self.commit.is_empty() { "an unknown commit" } else { &self.commit }
        );
        for (figure, (count, why)) in &self.failed {
            text += &format!(" {figure} could not be played at {count}: {why}.");
        }
        text += "\n\n| number | as chosen | range | reaches |\n|---|---|---|---|\n";
        for dimension in dimensions() {
            let owners = &dimension.parameter.of;
            let names = owners.iter().map(|owner| format!("{owner}: {}", dimension.name));
            let figures: BTreeSet<&String> =
                names.filter_map(|name| self.reached.get(&name)).flatten().collect();
            let figures: Vec<&str> = figures.into_iter().map(String::as_str).collect();
            let cells = [
                dimension.in_words(),
                dimension.parameter.value.clone().unwrap_or_default(),
                dimension.span.in_words(),
                if figures.is_empty() { "nothing".into() } else { figures.join(", ") },
            ];
            text += &format!("| {} |\n", cells.join(" | "));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_figure::{self, FIGURE};
    use crate::{Claim, Results};
    use std::sync::atomic::{AtomicUsize, Ordering};

    static PLAYED: AtomicUsize = AtomicUsize::new(0);

    /// Returns the factor of the tick below which that share of the points lies.
    fn factor(points: i32) -> f64 {
        0.25 * 10f64.powf(f64::from(points) / POINTS as f64)
    }

    /// A figure whose first statement differs where the tick is long, and that cannot be played
    /// where it is longest.
    fn run(context: &Context) -> Result<Results, FigureError> {
        PLAYED.fetch_add(1, Ordering::SeqCst);
        let tick = context.overrides.number("okeanos", "tick", 1.0);
        if tick > factor(31) {
            return Err(FigureError::Other("too long".into()));
        }
        let faster = if tick > factor(24) { 100.0 } else { 4.4 };
        let claims =
            vec![Claim::of("made-up/faster", faster), Claim::of("made-up/slower", f64::NAN)];
        Ok(Results { claims, ..test_figure::results() })
    }

    fn play(out: &Path, figures: &[Figure]) {
        let run = JointRun {
            out,
            figures,
            seed: 1,
            jobs: Arc::new(Jobs::new(2)),
            progress: &|_, _, _| (),
            interrupted: &test_figure::INTERRUPTED,
        };
        run.play().unwrap();
    }

    #[test]
    fn a_stopped_run_goes_on_with_the_missing_points() {
        let directory = tempfile::tempdir().unwrap();
        let figures = [Figure { run, ..FIGURE }];
        play(directory.path(), &figures);
        let whole = played_in(directory.path()).unwrap();
        assert_eq!((whole.played, PLAYED.load(Ordering::SeqCst)), (POINTS, POINTS + 1));
        std::fs::remove_file(path_of(directory.path(), 7)).unwrap();
        std::fs::write(path_of(directory.path(), 8), "half a point").unwrap();
        assert_eq!(played_in(directory.path()).unwrap().played, POINTS - 2);
        play(directory.path(), &figures);
        assert_eq!(PLAYED.load(Ordering::SeqCst), POINTS + 3);
        let again = played_in(directory.path()).unwrap();
        assert_eq!(format!("{again:?}"), format!("{whole:?}"));

        let kept = KeptShare { verdict: Verdict::Agrees, kept: 24, of: 31 };
        assert_eq!(whole.kept("made-up/faster"), Some(kept));
        let kept = KeptShare { verdict: Verdict::Differs, kept: 31, of: 31 };
        assert_eq!(whole.kept("made-up/slower"), Some(kept), "what has no value differs");
        assert!(whole.summary().contains("made-up could not be played at 1: too long."));
        assert!(whole.summary().contains("| okeanos: tick | 4 ms | 0.25 to 2.5 times | made-up |"));
    }

    #[test]
    fn what_no_number_reaches_is_not_counted() {
        let directory = tempfile::tempdir().unwrap();
        play(directory.path(), &[FIGURE]);
        let results = played_in(directory.path()).unwrap();
        assert_eq!(results.kept("made-up/faster"), None);
        assert_eq!(results.cell("made-up/faster", None), "no chosen number reaches it");
        assert_eq!(results.cell("7a/data-over-wasteless", None), "");
    }

    #[test]
    fn every_statement_of_a_paper_is_played() {
        let figures = figures();
        let is_played = |name: &str| figures.iter().any(|figure| figure.name == name);
        for statement in crate::statement::statements().iter().filter(|it| !it.is_ours) {
            let is_made_up = statement.figure() == FIGURE.name;
            let is_real = statement.figure().starts_with("kernel-");
            assert!(is_made_up || is_real || is_played(statement.figure()), "{}", statement.id);
        }
    }
}
