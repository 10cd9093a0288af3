//! Page of all finished figures in one HTML file that needs no network and no other file.

use crate::chart::{Form, escaped, svg};
use crate::figure::SENSITIVITY;
use crate::figure_record::FigureRecord;
use crate::number::short;
use crate::report::{DEPENDS, KEEPS, dependence, paper_of};
use crate::statement::{WEAK_BASELINE, words};
use crate::{Claim, JointResults, Standing, Tally, Verdict};

pub(crate) fn html(figures: &[FigureRecord], joint: Option<&JointResults>) -> String {
    let rows: String = figures.iter().map(row).collect();
    let papers: String = papers(figures)
        .map(|(paper, tally)| format!("<li>{}: {}.</li>\n", escaped(paper), tally.in_words()))
        .collect();
    let sections: String = figures.iter().map(|figure| section(figure, figures, joint)).collect();
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>Okeanos: the papers' figures, rerun</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n\
         <h1>The papers' figures, rerun</h1>\n\
         <p>Filled markers and drawn lines are ours; hollow markers and dashed lines are the paper's, as far as its text \
         states numbers. A line that lies under others is wider, and the legend names those on it. Disks are emulated, so ratios count, not absolute values.</p>\n\
         <ul>\n{papers}</ul>\n<p>{}</p>\n\
         <table>\n<tr><th>figure</th><th>what</th><th>statements</th></tr>\n{rows}</table>\n\
         {sections}</main>\n</body>\n</html>\n",
        escaped(&how_judged())
    )
}

/// Returns each paper and the tally of its statements, in the order of the figures. What another
/// program played is not counted.
fn papers(figures: &[FigureRecord]) -> impl Iterator<Item = (&str, Tally)> {
    let mut papers: Vec<(&str, Vec<&Claim>)> = Vec::new();
    // Sensitivity shows the other figures' statements once more.
    let is_counted = |it: &&FigureRecord| it.figure != SENSITIVITY && it.is_current();
    let others = figures.iter().filter(is_counted);
    for claim in others.flat_map(|figure| &figure.results.claims) {
        let paper = paper_of(claim);
        match papers.iter_mut().find(|(name, _)| *name == paper) {
            Some((_, all)) => all.push(claim),
            None => papers.push((paper, vec![claim])),
        }
    }
    papers.into_iter().map(|(paper, claims)| (paper, Tally::of(claims)))
}

fn how_judged() -> String {
    let words: Vec<String> = words()
        .iter()
        .map(|words| {
            format!("\u{201c}{}\u{201d} {} to {}", words.text, short(words.low), short(words.high))
        })
        .collect();
    format!(
        "A ratio agrees within a factor of two of the paper's number, both as it is and as a logarithm, or within the paper's own \
         spread where it gives one. It agrees in direction only if the same one is larger by another factor. Words count as ratios: {}; or their \
         inverse. What is played with several seeds is judged by the 90 % interval of its mean, and undecided where a bound lies within that. \
         A statement from whose figure a parameter was derived is fitted; one after whose failure something was chosen is chosen. Neither is counted as agreeing, nor are our own.",
        words.join(", ")
    )
}

fn row(figure: &FigureRecord) -> String {
    let tally = Tally::of(&figure.results.claims);
    let name = escaped(&figure.figure);
    let class = if tally.differ == 0 { "yes" } else { "no" };
    let other = if figure.is_current() { "" } else { "; not counted, of another program" };
    format!(
        "<tr><td><a href=\"#f-{name}\">{name}</a></td><td>{}</td><td class=\"{class}\">{}{other}</td></tr>\n",
        escaped(&figure.title),
        tally.in_words()
    )
}

fn section(figure: &FigureRecord, all: &[FigureRecord], joint: Option<&JointResults>) -> String {
    let name = escaped(&figure.figure);
    let pictures: String = figure
        .results
        .pictures
        .iter()
        .map(|picture| {
            let (screen, phone) = (svg(picture, Form::Screen), svg(picture, Form::Phone));
            format!(
                "<figure><div class=\"wide\">{screen}</div><div class=\"narrow\">{phone}</div></figure>\n"
            )
        })
        .collect();
    let notes: String =
        figure.results.notes.iter().map(|note| format!("<li>{}</li>\n", escaped(note))).collect();
    let notes = if notes.is_empty() { notes } else { format!("<ul>\n{notes}</ul>\n") };
    format!(
        "<section id=\"f-{name}\">\n<h2>{name}: {title}</h2>\n<p class=\"source\">{source}</p>\n<p>{about}</p>\n\
         {pictures}<p><strong>{verdict}</strong></p>\n{claims}{notes}{rerun}</section>\n",
        title = escaped(&figure.title),
        source = escaped(&figure.source),
        about = escaped(&figure.about),
        verdict = escaped(&figure.verdict()),
        claims = claims(figure, all, joint),
        rerun = rerun(figure),
    )
}

fn claims(figure: &FigureRecord, all: &[FigureRecord], joint: Option<&JointResults>) -> String {
    let claims = &figure.results.claims;
    if claims.is_empty() {
        return String::new();
    }
    let sensitivity = all.iter().find(|figure| figure.figure == SENSITIVITY);
    let sensitivity = sensitivity.map(|figure| &figure.results.claims[..]);
    let row = |claim: &Claim| {
        let standing = claim.standing();
        let class = match (&standing, claim.verdict()) {
            (Standing::Counted, Verdict::Agrees) => "yes",
            (Standing::Counted, Verdict::Differs) => "no",
            _ => "part",
        };
        let statement = claim.announced();
        let says = statement.map_or(claim.statement.clone(), |statement| statement.marked());
        let paper = statement.and_then(|statement| statement.paper.clone()).unwrap_or_default();
        let agrees = statement.map(|statement| statement.bound.in_words()).unwrap_or_default();
        let cells = [
            (says, ""),
            (paper, ""),
            (agrees, ""),
            (claim.ours.clone(), ""),
            (claim.judged(), class),
            (standing.reason(&claim.other_choice), ""),
            (dependence(claim, sensitivity), ""),
            (
                joint.map_or_else(String::new, |it| {
                    it.cell(&claim.statement, Some(claim.verdict()))
                }),
                "",
            ),
        ];
        let cell = |(text, class): (String, &str)| match class {
            "" => format!("<td>{}</td>", escaped(&text)),
            class => format!("<td class=\"{class}\">{}</td>", escaped(&text)),
        };
        format!("<tr>{}</tr>\n", cells.map(cell).concat())
    };
    let rows: String = claims.iter().map(row).collect();
    let is_weak =
        |claim: &Claim| claim.announced().is_some_and(|statement| statement.has_our_ordered());
    let weak = match claims.iter().any(is_weak) {
        true => format!("<p class=\"source\">{}</p>\n", escaped(WEAK_BASELINE)),
        false => String::new(),
    };
    format!(
        "<table>\n<tr><th>statement</th><th>paper</th><th>agrees</th><th>ours</th><th>judged</th>\
         <th>why it is not counted</th><th>{DEPENDS}</th><th>{KEEPS}</th></tr>\n{rows}</table>\n{weak}"
    )
}

/// Describes a rerun, and where the numbers are.
fn rerun(figure: &FigureRecord) -> String {
    let name = escaped(&figure.figure);
    let quick = if figure.quick { " --quick" } else { "" };
    let traces = if figure.has_given_traces() { " --block-traces DIR" } else { "" };
    let same = match figure.real_time {
        true => "Measured by the clock on the wall: numbers differ from run to run.",
        false => "The same seed gives the same bytes.",
    };
    let link = |file: String| format!("<a href=\"{0}\">{0}</a>", escaped(&file));
    let numbers =
        (0..figure.results.pictures.len()).map(|number| link(figure.file_name(number, "csv")));
    let files: Vec<String> = numbers.chain([link(format!("{}.json", figure.figure))]).collect();
    let shortened = match figure.quick {
        true => " <strong>Shortened by --quick: shapes need not come out.</strong>",
        false => "",
    };
    format!(
        "<p class=\"source\">Played by program {program}{commit}. Again: <code>okeanos-lab reproduce {name} --seed {seed}{quick}{traces} --again</code>. {same}{shortened} \
         Numbers: {files}.</p>\n",
        seed = figure.seed,
        program = escaped(&figure.made_by.program),
        commit = match &*figure.made_by.commit {
            "" => String::new(),
            commit => format!(", commit {}", escaped(commit)),
        },
        files = files.join(", ")
    )
}

const STYLE: &str = "\
:root{color-scheme:light dark}\
body{font:16px/1.5 system-ui,'DejaVu Sans',sans-serif;margin:0;background:#fff;color:#1b1b1b}\
main{max-width:940px;margin:0 auto;padding:1.5rem}\
h2{margin:3rem 0 0}\
a{color:#0067b0}\
figure{margin:1rem 0;border:1px solid #d5d5d5}\
figure svg{display:block;width:100%;height:auto}.narrow{display:none}\
table{border-collapse:collapse;margin:1rem 0;width:100%}\
th,td{border:1px solid #d5d5d5;padding:.3rem .6rem;text-align:left;vertical-align:top}\
.source{color:#5c5c5c;font-size:.9em;margin:.2rem 0}\
.yes{color:#00744f}.no{color:#b02a00;font-weight:600}\
code{font-size:.95em}\
@media (max-width:700px){main{padding:.7rem}.wide{display:none}.narrow{display:block}th,td{padding:.2rem .35rem}}\
@media (prefers-color-scheme:dark){body{background:#161616;color:#ececec}a{color:#58aef2}\
figure,th,td{border-color:#444}.source{color:#a8a8a8}.yes{color:#2fc795}.no{color:#ff8a45}}";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_figure;

    fn figures() -> Vec<FigureRecord> {
        let context = crate::Context { quick: true, ..test_figure::context(7) };
        vec![FigureRecord::new(&test_figure::FIGURE, &context, 1, test_figure::results())]
    }

    #[test]
    fn the_page_needs_nothing_from_elsewhere() {
        let page = html(&figures(), None);
        let elsewhere = page.replace("http://www.w3.org/2000/svg", "");
        for word in ["http:", "https:", "<script", "@import", "url("] {
            assert!(!elsewhere.contains(word), "{word}");
        }
        assert!(page.contains("Made up &amp; &lt;drawn&gt;") && !page.contains("& <drawn>"));
        // Two pictures, for screens and for phones.
        assert_eq!(page.matches("<svg").count(), 4);
        assert!(page.contains("<li>ours: 1 agree, 0 direction only, 1 differ, 0 undecided.</li>"));
        assert!(page.contains("okeanos-lab reproduce made-up --seed 7 --quick --again"));
    }

    #[test]
    fn what_another_program_played_is_marked_and_not_counted() {
        let mut figures = figures();
        assert!(!html(&figures, None).contains("another program"));
        figures[0].made_by.program = "another".into();
        let page = html(&figures, None);
        assert!(page.contains("1 differ, 0 undecided; not counted, of another program</td>"));
        assert!(!page.contains("<li>ours:"));
    }
}
