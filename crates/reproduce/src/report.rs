//! Tables in Markdown of how each statement was judged, and the page that has them.
//!
//! A page has blocks that begin with `<!-- report: FIGURE … -->`, `<!-- report: counts -->` or
//! `<!-- report: joint -->` and end with `<!-- end -->`; what lies between is written by [`fill`].
//! The results of a page stand in a file beside it, so that figures which are not played again keep
//! theirs, and the page can be checked.

use crate::figure::SENSITIVITY;
use crate::figure_record::{FigureRecord, is_of_given_traces};
use crate::identity::{COMMIT, folder_of, programs};
use crate::number::short;
use crate::statement::{WEAK_BASELINE, find, interval, of_figure, statements};
use crate::{Claim, Identity, JointResults, Standing, Statement, Tally, Verdict};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::path::Path;

/// Results of figures, without pictures and notes.
#[derive(Clone, Default, Serialize, Deserialize)]
pub struct KeptResults {
    /// The program that wrote the report, by folders of figures; results of others are not current.
    pub programs: BTreeMap<String, String>,
    /// The commit of that program.
    pub commit: String,
    pub figures: BTreeMap<String, KeptFigure>,
    /// Results on given traces, with the rows of these alone; the figures' results on made ones are
    /// in `figures`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub given: BTreeMap<String, KeptFigure>,
    /// Results of the last joint variation of all chosen numbers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub joint: Option<JointResults>,
}

/// A figure's last results.
#[derive(Clone, Serialize, Deserialize)]
pub struct KeptFigure {
    pub made_by: Identity,
    pub seed: u64,
    pub seeds: u64,
    /// Names and checksums of the traces that were given.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub block_traces: Vec<String>,
    /// Claims; without values for a program whose results named no statements.
    pub claims: Vec<Claim>,
}

impl KeptResults {
    /// Returns the results of finished figures alone.
    pub fn of(finished: &[FigureRecord]) -> KeptResults {
        let mut kept = KeptResults::default();
        kept.add(finished);
        kept
    }
    /// Adds what the points of a hypercube gave; without any, those of the last report stay.
    pub fn with_joint(self, joint: Option<JointResults>) -> KeptResults {
        KeptResults { joint: joint.or(self.joint), ..self }
    }
    /// Returns what a file holds; nothing if there is none.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or is none of results.
    pub fn read(path: &Path) -> io::Result<KeptResults> {
        match std::fs::read_to_string(path) {
            Ok(text) => serde_json::from_str(&text).map_err(io::Error::other),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(KeptResults::default()),
            Err(error) => Err(error),
        }
    }
    /// Replaces the file.
    ///
    /// # Errors
    ///
    /// It cannot be written.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        let json = serde_json::to_string_pretty(self).map_err(io::Error::other)?;
        crate::figure_record::replace(path, &one_line_for_each_claim(&json))
    }

    /// Adds finished figures, which replace earlier results of theirs. Quick ones are left out. The
    /// report is this program's from then on, so nothing that another program played is current,
    /// whether it was finished now or reported before.
    pub fn add(&mut self, finished: &[FigureRecord]) {
        (self.programs, self.commit) = (programs(), COMMIT.into());
        for record in finished.iter().filter(|record| !record.quick) {
            let FigureRecord { seed, seeds, .. } = *record;
            // The parameters of all figures are 300 KB and add nothing: their values are in the
            // checksum of the program, their records in the sources at its commit.
            let made_by = Identity { parameters: BTreeMap::new(), ..record.made_by.clone() };
            let is_given = record.has_given_traces();
            let mut claims = record.results.claims.clone();
            claims.retain(|claim| is_of_given_traces(claim) == is_given);
            let block_traces = if is_given { record.block_traces.clone() } else { Vec::new() };
            let figures = if is_given { &mut self.given } else { &mut self.figures };
            let kept = KeptFigure { made_by, seed, seeds, block_traces, claims };
            figures.insert(record.figure.clone(), kept);
        }
    }

    /// Returns the results that have a statement's row, of every run.
    fn last(&self, statement: &Statement) -> Option<&KeptFigure> {
        let is_given = statement.is_of_given_traces();
        let figures = if is_given { &self.given } else { &self.figures };
        figures.get(statement.figure())
    }
    /// Whether the program that wrote the report played a figure's results.
    fn is_current(&self, figure: &str, kept: &KeptFigure) -> bool {
        self.programs.get(folder_of(figure)) == Some(&kept.made_by.program)
    }
    /// Returns the results that have a statement's row, if they are current.
    fn current_of(&self, statement: &Statement) -> Option<&KeptFigure> {
        self.last(statement).filter(|kept| self.is_current(statement.figure(), kept))
    }

    /// Returns a figure's results if the program that wrote the report played it.
    fn current(&self, figure: &str) -> Option<&KeptFigure> {
        self.figures.get(figure).filter(|kept| self.is_current(figure, kept))
    }
    /// Formats which commits' programs played the figures.
    fn origins(&self) -> String {
        let mut groups: BTreeMap<(&str, bool), Vec<&str>> = BTreeMap::new();
        for (name, figure) in &self.figures {
            let group = (&*figure.made_by.commit, self.current(name).is_some());
            groups.entry(group).or_default().push(name);
        }
        let mut groups: Vec<_> = groups.into_iter().collect();
        groups.sort_by_key(|(_, names)| std::cmp::Reverse(names.len()));
        let commits = match &groups[..] {
            [_] => "one commit".into(),
            groups => format!("{} commits", groups.len()),
        };
        let mut text = format!(
            "Written by the program of {}. The figures are of {commits}:\n\n\
             | played by | figures | counted |\n|---|---|---|\n",
            known(&self.commit)
        );
        for (at, ((commit, is_current), names)) in groups.iter().enumerate() {
            let names = if at == 0 { names.len().to_string() } else { names.join(", ") };
            let counted = if *is_current { "yes" } else { OTHER };
            text += &format!("| {} | {names} | {counted} |\n", known(commit));
        }
        for (name, figure) in &self.given {
            let (commit, traces) = (known(&figure.made_by.commit), figure.block_traces.join(", "));
            let counted = if self.is_current(name, figure) { "yes" } else { OTHER };
            text += &format!("| {commit} | {name} on given traces: {traces} | {counted} |\n");
        }
        text
    }
    fn sensitivity(&self) -> Option<&[Claim]> {
        self.current(SENSITIVITY).map(|kept| &kept.claims[..])
    }
    /// Formats how often a statement keeps its verdict with all chosen numbers varied.
    fn joint_cell(&self, id: &str, judged: Option<Verdict>) -> String {
        self.joint.as_ref().map_or(String::new(), |joint| joint.cell(id, judged))
    }
}

/// Joins the lines of indented JSON that belong to one claim, or to one identity of a program.
fn one_line_for_each_claim(json: &str) -> String {
    let (mut text, mut indent_before) = (String::new(), 0);
    for line in json.lines() {
        let content = line.trim_start();
        let indent = line.len() - content.len();
        let closes = content.starts_with(['}', ']']);
        let is_within = indent > 8 || indent == 8 && !content.starts_with('{');
        if is_within || closes && indent == indent_before {
            text.pop();
            text += if closes || text.ends_with(['{', '[']) { "" } else { " " };
            text += content;
        } else {
            text += line;
            indent_before = indent;
        }
        text += "\n";
    }
    text
}

const OTHER: &str = "no, it is another program";

/// Returns what names a commit.
fn known(commit: &str) -> &str {
    if commit.is_empty() { "an unknown commit" } else { commit }
}

/// The column that `sensitivity` fills.
pub(crate) const DEPENDS: &str = "chosen numbers half and double";
/// The column that the points of [`crate::joint`] fill.
pub(crate) const KEEPS: &str = "keeps its verdict";

/// Returns the paper that makes a claim's statement, or "ours".
pub(crate) fn paper_of(claim: &Claim) -> &'static str {
    claim.announced().map_or("ours", paper)
}

fn paper(statement: &'static Statement) -> &'static str {
    if statement.is_ours {
        return "ours";
    }
    let of_figure = || crate::find(statement.figure()).map(|figure| figure.source);
    let source = statement.source.as_deref().or_else(of_figure).unwrap_or("ours");
    source.split(',').next().unwrap_or(source)
}

/// Returns how a claim depends on the rig's chosen numbers, half and double.
pub(crate) fn dependence(claim: &Claim, sensitivity: Option<&[Claim]>) -> String {
    let found = sensitivity.and_then(|all| all.iter().find(|it| it.statement == claim.statement));
    match found.map(|found| &found.otherwise[..]) {
        None => claim.otherwise.join("; "),
        Some([]) => "alike".into(),
        Some(otherwise) => otherwise.join("; "),
    }
}

/// Formats the counts of each paper's rows, and which commits' programs played them.
pub fn counts(kept: &KeptResults) -> String {
    let names = Tally::default().columns().map(|(name, _)| name);
    let mut text = format!("| paper | {} | not played |\n", names.join(" | "));
    text += &format!("|---|{}\n", "---|".repeat(names.len() + 1));
    let mut papers: Vec<(&str, Vec<&Claim>, usize)> = Vec::new();
    for statement in statements() {
        let name = paper(statement);
        if !papers.iter().any(|(paper, ..)| *paper == name) {
            papers.push((name, Vec::new(), 0));
        }
        let (_, claims, missing) =
            papers.iter_mut().find(|(paper, ..)| *paper == name).expect("it is there now");
        match kept.current_of(statement) {
            None => *missing += 1,
            Some(figure) => {
                claims.extend(figure.claims.iter().filter(|it| it.statement == statement.id));
            }
        }
    }
    for (paper, claims, missing) in papers {
        let counts = Tally::of(claims).columns().map(|(_, count)| count.to_string());
        text += &format!("| {paper} | {} | {missing} |\n", counts.join(" | "));
    }
    text + "\n" + &kept.origins()
}

const HEAD: &str = "| row | statement | paper | agrees | ours | judged | why it is not counted | ";

/// Formats the rows of figures.
pub fn rows(kept: &KeptResults, figures: &[&str]) -> String {
    let mut text = format!("{HEAD}{DEPENDS} | {KEEPS} |\n|{}\n", "---|".repeat(9));
    for figure in figures {
        let add = |cells: [String; 9]| {
            let cells = cells.map(|text| text.replace('|', "\\|").replace('\n', " "));
            format!("| {} |\n", cells.join(" | "))
        };
        match kept.current(figure) {
            Some(current) => {
                for claim in &current.claims {
                    text += &add(played(claim, kept));
                }
            }
            None => {
                for statement in of_figure(figure).filter(|it| !it.is_of_given_traces()) {
                    text += &add(not_played(statement, kept));
                }
            }
        }
        // Rows of given traces stand there when some were given.
        for statement in of_figure(figure).filter(|it| it.is_of_given_traces()) {
            let is_it = |claim: &&Claim| claim.statement == statement.id;
            match kept.current_of(statement).map(|given| given.claims.iter().find(is_it)) {
                Some(claim) => claim.into_iter().for_each(|it| text += &add(played(it, kept))),
                None if kept.last(statement).is_some() => {
                    text += &add(not_played(statement, kept));
                }
                None => {}
            }
        }
    }
    text
}

fn played(claim: &Claim, kept: &KeptResults) -> [String; 9] {
    let (verdict, standing) = (claim.verdict(), claim.standing());
    let judged = match (&standing, verdict) {
        (Standing::Counted, Verdict::Differs) => format!("**{}**", claim.judged()),
        _ => claim.judged(),
    };
    let [says, paper, agrees] = claim.announced().map_or_else(Default::default, stated);
    let ours = match interval(&claim.values) {
        Some((low, high)) if short(low) != short(high) => {
            format!("{} (mean {} to {})", claim.ours, short(low), short(high))
        }
        _ => claim.ours.clone(),
    };
    let reason = standing.reason(&claim.other_choice);
    [
        claim.statement.clone(),
        says,
        paper,
        agrees,
        ours,
        judged,
        reason,
        dependence(claim, kept.sensitivity()),
        kept.joint_cell(&claim.statement, Some(verdict)),
    ]
}

fn not_played(statement: &'static Statement, kept: &KeptResults) -> [String; 9] {
    let [says, paper, agrees] = stated(statement);
    let found = |last: &KeptFigure| {
        let claim = last.claims.iter().find(|claim| claim.statement == statement.id);
        claim.map_or(String::new(), |claim| format!(": {}", claim.ours))
    };
    let last = match kept.last(statement) {
        Some(last) => {
            let (commit, found) = (known(&last.made_by.commit), found(last));
            format!("not played with this program; last {commit}{found}")
        }
        None => "not played".into(),
    };
    let reason = crate::standing(statement).reason("");
    let (none, joint) = (String::new, kept.joint_cell(&statement.id, None));
    [statement.id.clone(), says, paper, agrees, last, none(), reason, none(), joint]
}

fn stated(statement: &Statement) -> [String; 3] {
    let paper = statement.paper.clone().unwrap_or_else(|| "not asked".into());
    [statement.marked(), paper, statement.bound.in_words()]
}

/// Formats everything that is finished, for people.
pub fn markdown(kept: &KeptResults) -> String {
    let all = crate::all();
    let finished: Vec<&str> = all
        .iter()
        .map(|figure| figure.name)
        .filter(|name| *name != SENSITIVITY)
        .filter(|name| kept.figures.contains_key(*name) || kept.given.contains_key(*name))
        .collect();
    format!("{}\n{}\n{WEAK_BASELINE}\n", counts(kept), rows(kept, &finished))
}

/// Formats one row by its identifier, such as `7a/data-over-wasteless`.
pub fn row(kept: &KeptResults, id: &str) -> Option<String> {
    let figure = kept.current_of(find(id)?)?;
    let claim = figure.claims.iter().find(|claim| claim.statement == id)?;
    let cells = played(claim, kept);
    let names = HEAD.trim_matches(['|', ' ']).split(" | ").chain([DEPENDS, KEEPS]);
    let shown = names.zip(&cells).filter(|(_, cell)| !cell.is_empty());
    Some(shown.map(|(name, cell)| format!("{name}: {cell}\n")).collect())
}

const BEGIN: &str = "<!-- report: ";
const END: &str = "<!-- end -->";
/// Blocks that name no figure.
const TABLES: [&str; 2] = ["counts", "joint"];

/// Fills a page's blocks with the tables.
///
/// # Errors
///
/// A block has no end, or names no figure.
pub fn fill(page: &str, kept: &KeptResults) -> Result<String, String> {
    let mut filled = String::new();
    let mut rest = page;
    while let Some(at) = rest.find(BEGIN) {
        let (before, block) = rest.split_at(at);
        let (head, body) =
            block.split_once("-->\n").ok_or("a report's first line does not end".to_owned())?;
        let (_, after) = body.split_once(END).ok_or(format!("{head}-->: it has no {END}"))?;
        let names: Vec<&str> = head[BEGIN.len()..].split_whitespace().collect();
        let is_known = |name: &str| TABLES.contains(&name) || crate::find(name).is_some();
        let unknown = names.iter().find(|name| !is_known(name));
        if let Some(name) = unknown {
            return Err(format!("{head}-->: no figure is called {name}"));
        }
        let table = match names[..] {
            ["counts"] => counts(kept),
            ["joint"] => kept
                .joint
                .as_ref()
                .map_or_else(|| "Not played yet.\n".into(), |joint| joint.summary()),
            _ => rows(kept, &names),
        };
        filled += &format!("{before}{head}-->\n\n{table}\n{END}");
        rest = after;
    }
    Ok(filled + rest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_figure;

    fn kept() -> KeptResults {
        let mut kept = KeptResults::default();
        let mut results = test_figure::results();
        results.claims = vec![
            Claim::of("7b/wasteless-over-data", 1.0),
            Claim::of("7b/wasteless-over-ordered", 0.5),
        ];
        let figure = crate::find("7b").unwrap();
        kept.add(&[FigureRecord::new(&figure, &test_figure::context(7), 1, results)]);
        kept
    }

    #[test]
    fn the_table_shows_how_each_statement_was_judged() {
        let text = rows(&kept(), &["7b"]);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0].matches(" | ").count(), lines[2].matches(" | ").count());
        assert_eq!(
            lines[2],
            "| 7b/wasteless-over-data | wasteless's journal traffic over data journaling's, at the most streams | \
             comparable | 0.667 to 1.5 | 1 | agrees |  |  |  |"
        );
        assert!(lines[3].contains(" ° |") && lines[3].contains("| 0.5 | **differs** |"));
        assert!(markdown(&kept()).ends_with(&format!("\n{WEAK_BASELINE}\n")));
    }

    #[test]
    fn a_claim_is_one_line_of_the_file() {
        let json = serde_json::to_string_pretty(&kept()).unwrap();
        let joined = one_line_for_each_claim(&json);
        let value = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
        assert_eq!(value(&joined), value(&json));
        let first = r#"{"statement": "7b/wasteless-over-data", "values": [1.0], "ours": "1"},"#;
        let lines = joined.lines().skip_while(|line| line.trim_start() != first);
        let ends: Vec<&str> = lines.skip(2).collect();
        assert_eq!(ends, ["      ]", "    }", "  }", "}"], "{joined}");
        assert!(joined.lines().any(|line| line.trim_start().starts_with("\"made_by\": {\"")));
    }

    #[test]
    fn what_another_program_played_is_not_current() {
        let mut kept = kept();
        kept.programs.insert("okeanos".into(), "another".into());
        kept.figures.get_mut("7b").unwrap().made_by.commit = "abc of 2026-01-01".into();
        let text = rows(&kept, &["7b"]);
        assert!(!text.contains("agrees |  |"), "{text}");
        assert!(text.contains("not played with this program; last abc of 2026-01-01"), "{text}");
        let counts = counts(&kept);
        let mut papers = counts.lines().skip(2).take_while(|line| !line.is_empty());
        assert!(papers.all(|line| line.contains(" | 0 | 0 | 0 | 0 | ")));
        let marked = "| abc of 2026-01-01 | 1 | no, it is another program |\n";
        assert!(counts.ends_with(marked), "{counts}");
        assert!(markdown(&kept).contains("| 7b/wasteless-over-data |"));
    }

    #[test]
    fn a_report_is_of_the_program_that_writes_it() {
        let mut kept = kept();
        kept.programs.insert("okeanos".into(), "another".into());
        kept.figures.get_mut("7b").unwrap().made_by.program = "another".into();
        assert!(kept.current("7b").is_some());
        kept.add(&[]);
        let text = rows(&kept, &["7b"]);
        assert!(text.contains("not played with this program; last an unknown commit"), "{text}");
    }

    #[test]
    fn counts_name_the_commits_that_played() {
        let mut kept = kept();
        kept.commit = "def of 2026-01-02".into();
        let of = |commit: &str, kept: &KeptResults| {
            let mut figure = kept.figures["7b"].clone();
            figure.made_by.commit = commit.into();
            figure
        };
        for (name, commit) in [("7b", "abc of 2026-01-01"), ("7a", "abc of 2026-01-01")] {
            kept.figures.insert(name.into(), of(commit, &kept));
        }
        let text = counts(&kept);
        let one = "Written by the program of def of 2026-01-02. The figures are of one commit:\n\n\
                   | played by | figures | counted |\n|---|---|---|\n\
                   | abc of 2026-01-01 | 2 | yes |\n";
        assert!(text.ends_with(one), "{text}");
        kept.figures.insert("8a".into(), of("def of 2026-01-02", &kept));
        let text = counts(&kept);
        assert!(text.contains("The figures are of 2 commits:"), "{text}");
        assert!(text.ends_with("| def of 2026-01-02 | 8a | yes |\n"), "{text}");
    }

    #[test]
    fn results_on_given_traces_stand_beside_those_on_made_ones() {
        let figure = crate::find("manylogs-7").unwrap();
        let mut record =
            FigureRecord::new(&figure, &test_figure::context(1), 5, test_figure::results());
        record.results.claims = vec![Claim::of("manylogs-7/longest", 130.0)];
        let mut kept = KeptResults::of(std::slice::from_ref(&record));
        let json = serde_json::to_string(&kept).unwrap();
        assert!(!json.contains("given") && !json.contains("block_traces"), "{json}");
        record.block_traces = vec!["hour-2.csv (00ff)".into()];
        record.results.claims = vec![Claim::of("manylogs-7/given-longest", 100.0)];
        kept.add(&[record]);
        assert_eq!(kept.given["manylogs-7"].block_traces, ["hour-2.csv (00ff)"]);
        let table = rows(&kept, &["manylogs-7"]);
        assert!(table.contains("| 130 | shown (agrees) | made traces |"), "{table}");
        assert!(table.contains("| 100 | agrees |  |"), "{table}");
        let text = counts(&kept);
        assert!(
            text.contains("| Manylogs (MSST 2016) | 1 | 0 | 0 | 0 | 0 | 0 | 1 | 0 |"),
            "{text}"
        );
        assert!(text.contains("| manylogs-7 on given traces: hour-2.csv (00ff) | yes |"), "{text}");
        kept.given.get_mut("manylogs-7").unwrap().made_by.program = "another".into();
        let table = rows(&kept, &["manylogs-7"]);
        assert!(table.contains("last an unknown commit: 100 |"), "{table}");
    }

    #[test]
    fn a_row_names_the_choices_that_change_its_verdict() {
        let mut kept = kept();
        let figure = crate::find("sensitivity").unwrap();
        let mut results = test_figure::results();
        let changed = Claim::of("7b/wasteless-over-ordered", 0.5);
        results.claims = vec![
            Claim::of("7b/wasteless-over-data", 1.0),
            changed.with_other("tick x 2: 3 (AGREES)".into()),
        ];
        kept.add(&[FigureRecord::new(&figure, &test_figure::context(7), 1, results)]);
        let text = rows(&kept, &["7b"]);
        assert!(text.contains("| agrees |  | alike |  |\n"), "{text}");
        assert!(text.contains("| tick x 2: 3 (AGREES) |  |\n"), "{text}");
    }

    #[test]
    fn a_page_is_filled_and_filled_again_the_same() {
        let page = "# Page\n\n<!-- report: counts -->\nold\n<!-- end -->\n\ntext\n\n<!-- report: 7b -->\n<!-- end -->\nend\n";
        let filled = fill(page, &kept()).unwrap();
        assert!(filled.starts_with("# Page\n\n<!-- report: counts -->\n\n| paper |"));
        assert!(filled.contains("| 7b/wasteless-over-data |") && filled.ends_with("\nend\n"));
        assert!(!filled.contains("old"));
        assert_eq!(fill(&filled, &kept()).unwrap(), filled);
        assert!(fill("<!-- report: 7x -->\n<!-- end -->", &kept()).is_err());
        assert!(fill("<!-- report: 7b -->\n", &kept()).is_err());
    }
}
