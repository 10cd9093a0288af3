//! Statements of the papers and of ours, as announced in `statements/*.toml`.
//!
//! The files hold what a paper states and when it agrees; the code of a figure holds only how a
//! value is computed. They change in commits of their own, before runs.

mod bound;

pub(crate) use bound::mean_and_half;
pub use bound::{Bound, Direction, Verdict, interval};

use serde::Deserialize;
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// One row: what is stated, and when it agrees.
#[derive(Debug, PartialEq)]
pub struct Statement {
    /// `FIGURE/NAME`.
    pub id: String,
    /// The statement in our words: "data journaling's journal traffic over wasteless's, at the most
    /// streams".
    pub says: String,
    /// The paper's number or words: "6.4 (27 / 4.2 MiB/s)". `None`: no paper asks.
    pub paper: Option<String>,
    /// The paper, where it is not the figure's own.
    pub source: Option<String>,
    /// The reason why the row is shown and not counted.
    pub shown_only: Option<String>,
    /// Whether it is a question of our own.
    pub is_ours: bool,
    pub bound: Bound,
}

/// Meaning of a paper's words as a ratio; the same for every statement.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Words {
    pub text: String,
    /// Alternative wording with the same meaning.
    pub like: String,
    pub low: f64,
    pub high: f64,
}

/// A file of statements.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    words: Vec<Words>,
    #[serde(default)]
    statement: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    id: String,
    says: String,
    paper: Option<String>,
    source: Option<String>,
    shown_only: Option<String>,
    direction: Option<Direction>,
    ratio: Option<f64>,
    value: Option<f64>,
    between: Option<(f64, f64)>,
    words: Option<String>,
    within: Option<(f64, f64)>,
    at_least: Option<f64>,
    at_most: Option<f64>,
}

/// Name and text of each file. Statements of the last two, and those that no paper asks, are ours.
const FILES: &[(&str, &str)] = &[
    ("head.toml", include_str!("../../statements/head.toml")),
    ("okeanos.toml", include_str!("../../statements/okeanos.toml")),
    ("atc.toml", include_str!("../../statements/atc.toml")),
    ("discreet.toml", include_str!("../../statements/discreet.toml")),
    ("manylogs.toml", include_str!("../../statements/manylogs.toml")),
    ("arion.toml", include_str!("../../statements/arion.toml")),
    ("manylogs-more.toml", include_str!("../../statements/manylogs-more.toml")),
    #[cfg(test)]
    ("test_statements.toml", include_str!("test_statements.toml")),
    ("kernel.toml", include_str!("../../statements/kernel.toml")),
    ("ours.toml", include_str!("../../statements/ours.toml")),
];
const OURS: [&str; 2] = ["kernel.toml", "ours.toml"];

/// Returns the names of the files of statements.
pub fn files() -> impl Iterator<Item = &'static str> {
    FILES.iter().map(|(name, _)| *name)
}

/// Returns the words and their bounds, for the page that explains them.
pub fn words() -> &'static [Words] {
    &announced().words
}

/// Returns the statements in the order of the files.
pub fn statements() -> &'static [Statement] {
    &announced().statements
}

pub fn find(id: &str) -> Option<&'static Statement> {
    announced().by_id.get(id).map(|at| &announced().statements[*at])
}

/// Returns a figure's statements in the order of the files.
pub fn of_figure(figure: &str) -> impl Iterator<Item = &'static Statement> {
    statements().iter().filter(move |statement| statement.figure() == figure)
}

/// Returns the bound of each statement in a file's text, as it was at some commit. `head` is the
/// text of `head.toml` there.
///
/// # Errors
///
/// The file is no file of statements.
pub fn bounds(head: &str, text: &str) -> Result<BTreeMap<String, Bound>, String> {
    let words = parse(head)?.words;
    let entries = parse(text)?.statement.into_iter();
    entries.map(|entry| Ok((entry.id.clone(), entry.bound(&words)?))).collect()
}

fn parse(text: &str) -> Result<File, String> {
    toml::from_str(text).map_err(|error| error.to_string())
}

struct Announced {
    words: Vec<Words>,
    statements: Vec<Statement>,
    by_id: BTreeMap<String, usize>,
}

fn announced() -> &'static Announced {
    static ANNOUNCED: LazyLock<Announced> =
        LazyLock::new(|| read(FILES).expect("the files are part of the program, and tested"));
    &ANNOUNCED
}

fn read(files: &[(&str, &str)]) -> Result<Announced, String> {
    let mut announced =
        Announced { words: Vec::new(), statements: Vec::new(), by_id: BTreeMap::new() };
    for (name, text) in files {
        let file = parse(text).map_err(|error| format!("{name}: {error}"))?;
        announced.words.extend(file.words);
        for entry in file.statement {
            let at = announced.statements.len();
            if announced.by_id.insert(entry.id.clone(), at).is_some() {
                return Err(format!("{name}: {} stands twice", entry.id));
            }
            let bound = entry.bound(&announced.words)?;
            let Entry { id, says, paper, source, shown_only, .. } = entry;
            let is_ours = OURS.contains(name) || paper.is_none();
            announced.statements.push(Statement {
                id,
                says,
                paper,
                source,
                shown_only,
                is_ours,
                bound,
            });
        }
    }
    Ok(announced)
}

impl Entry {
    fn bound(&self, words: &[Words]) -> Result<Bound, String> {
        let of_words = match &self.words {
            None => None,
            Some(text) => {
                let found = words.iter().find(|words| words.text == *text);
                let found = found.ok_or(format!("{}: nothing says what {text:?} is", self.id))?;
                Some((found.low, found.high))
            }
        };
        let all = [
            self.ratio.map(bound::near_ratio),
            self.value.map(|value| (value / 2.0, value * 2.0)),
            self.between,
            of_words,
            self.within,
            self.at_least.map(|least| (least, f64::INFINITY)),
            self.at_most.map(|most| (f64::NEG_INFINITY, most)),
        ];
        let is_ratio = self.ratio.is_some() || self.between.is_some() || self.words.is_some();
        let mut given = all.into_iter().flatten();
        let (Some((low, high)), None) = (given.next(), given.next()) else {
            return Err(format!("{}: it needs one bound", self.id));
        };
        let side = match (is_ratio, low >= 1.0, high <= 1.0) {
            (true, true, _) => Some(Direction::Above),
            (true, _, true) => Some(Direction::Below),
            _ => None,
        };
        if low >= high || side != self.direction {
            return Err(format!("{}: from {low} to {high}, which is {side:?}", self.id));
        }
        Ok(Bound { low, high, direction: self.direction })
    }
}

impl Statement {
    pub fn figure(&self) -> &str {
        self.id.split('/').next().unwrap_or_default()
    }
    /// Whether it is judged on traces that are given, and not on made ones.
    pub fn is_of_given_traces(&self) -> bool {
        let (_, name) = self.id.split_once('/').unwrap_or_default();
        name.split('-').next() == Some("given")
    }
    /// Whether our ordered mode is part of it, not the kernel's.
    pub fn has_our_ordered(&self) -> bool {
        self.says.contains("ordered") && !self.says.contains("(the kernel's)")
    }
    /// Returns the statement, with the mark of [`WEAK_BASELINE`] where it applies.
    pub fn marked(&self) -> String {
        let mark = if self.has_our_ordered() { " °" } else { "" };
        format!("{}{mark}", self.says)
    }
}

/// Caveat of statements with our ordered mode.
pub const WEAK_BASELINE: &str = "° Our ordered mode has a part in it, which is a weak baseline: in Postmark, in real time and on the same disks, it makes \
less than half of the transactions of the kernel's (kernel-10a). What is compared with it may look better for that.";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_are_read_and_name_figures() {
        read(FILES).map(|_| ()).unwrap();
        for statement in statements().iter().filter(|one| one.figure() != "made-up") {
            assert!(crate::find(statement.figure()).is_some(), "{}", statement.id);
        }
    }

    #[test]
    fn a_statement_has_one_bound_on_its_side_of_one() {
        let read =
            |rest: &str| bounds("", &format!("[[statement]]\nid = \"1/a\"\nsays = \"\"\n{rest}"));
        let wrong = [
            "",
            "ratio = 2\nvalue = 3",
            "ratio = 2",
            "ratio = 2\ndirection = \"below\"",
            "words = \"a lot\"",
            "within = [3, 2]",
            "at_least = 2\ncolour = 3",
        ];
        for rest in wrong {
            assert!(read(rest).is_err(), "{rest}");
        }
        assert!(read("ratio = 2\ndirection = \"above\"").is_ok());
    }
}
