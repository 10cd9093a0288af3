//! Page of all finished figures in one HTML file that needs no network and no other file.

use crate::chart::{Form, escaped, svg};
use crate::figure_record::FigureRecord;
use crate::figures::otherwise;
use crate::number::short;
use crate::statement::{WEAK_BASELINE, WORDS};
use crate::{Claim, Origin, Tally, Verdict};

pub(crate) fn html(figures: &[FigureRecord]) -> String {
    let rows: String = figures.iter().map(row).collect();
    let papers: String = papers(figures)
        .map(|(paper, tally)| format!("<li>{}: {}.</li>\n", escaped(paper), tally.in_words()))
        .collect();
    let sections: String = figures.iter().map(|figure| section(figure, figures)).collect();
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

/// The column that `sensitivity` fills.
const DEPENDS: &str = "chosen numbers half and double";

/// Returns each paper and the tally of its statements, in the order of the figures.
fn papers(figures: &[FigureRecord]) -> impl Iterator<Item = (&str, Tally)> {
    let mut papers: Vec<(&str, Vec<&Claim>)> = Vec::new();
    for figure in figures {
        let paper = figure.source.split(',').next().unwrap_or(&figure.source);
        let claims = figure.results.claims.iter();
        match papers.iter_mut().find(|(name, _)| *name == paper) {
            Some((_, all)) => all.extend(claims),
            None => papers.push((paper, claims.collect())),
        }
    }
    papers.into_iter().map(|(paper, claims)| (paper, Tally::of(claims)))
}

fn how_judged() -> String {
    let words: Vec<String> = WORDS
        .iter()
        .map(|words| {
            format!("\u{201c}{}\u{201d} {} to {}", words.text, short(words.low), short(words.high))
        })
        .collect();
    format!(
        "A ratio agrees within a factor of two of the paper's number, both as it is and as a logarithm, or within the paper's own \
         spread. It agrees in direction only if the same one is larger by another factor. Words count as ratios: {}; or their \
         inverse. A statement from which a parameter of a disk was derived is called fitted, and not counted; nor are our own. Where something of \
         the rig was chosen after a statement had failed, its row says what, and what the other choice gives.",
        words.join(", ")
    )
}

/// Formats the counts by paper and the statements of all figures, as tables in Markdown.
pub fn markdown(figures: &[FigureRecord]) -> String {
    let cell = |text: &str| text.replace('|', "\\|").replace('\n', " ");
    let mut text = String::from(
        "| paper | agree | direction only | differ | fitted | ours |\n|---|---|---|---|---|---|\n",
    );
    for (paper, Tally { agree, direction_only, differ, fitted, ours }) in papers(figures) {
        text +=
            &format!("| {paper} | {agree} | {direction_only} | {differ} | {fitted} | {ours} |\n");
    }
    text += &format!(
        "\n| figure | statement | paper | ours | judged | chosen after a failure | {DEPENDS} |\n|---|---|---|---|---|---|---|\n"
    );
    for figure in figures {
        for claim in &figure.results.claims {
            let mut judged = claim.judged();
            if claim.verdict == Verdict::Differs && claim.origin == Origin::Paper {
                judged = format!("**{judged}**");
            }
            let depends = dependence(figure, claim, figures);
            let [says, paper, ours, chosen, depends] =
                [&claim.marked(), &claim.paper, &claim.ours, &claim.chosen, &depends]
                    .map(|part| cell(part));
            text += &format!(
                "| {} | {says} | {paper} | {ours} | {judged} | {chosen} | {depends} |\n",
                figure.figure
            );
        }
    }
    let mut notes = String::new();
    for figure in figures {
        for note in &figure.results.notes {
            notes += &format!("- {}: {}\n", figure.figure, note.replace('\n', " "));
        }
    }
    if figures.iter().flat_map(|figure| &figure.results.claims).any(Claim::has_our_ordered) {
        text += &format!("\n{WEAK_BASELINE}\n");
    }
    if notes.is_empty() { text } else { format!("{text}\n{notes}") }
}

fn row(figure: &FigureRecord) -> String {
    let tally = Tally::of(&figure.results.claims);
    let name = escaped(&figure.figure);
    let class = if tally.differ == 0 { "yes" } else { "no" };
    format!(
        "<tr><td><a href=\"#f-{name}\">{name}</a></td><td>{}</td><td class=\"{class}\">{}</td></tr>\n",
        escaped(&figure.title),
        tally.in_words()
    )
}

fn section(figure: &FigureRecord, all: &[FigureRecord]) -> String {
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
        claims = claims(figure, all),
        rerun = rerun(figure),
    )
}

/// Returns how a statement depends on the rig's chosen numbers, half and double.
fn dependence(figure: &FigureRecord, claim: &Claim, all: &[FigureRecord]) -> String {
    match otherwise(all, &figure.figure, &claim.says) {
        None => claim.otherwise.join("; "),
        Some([]) => "alike".into(),
        Some(otherwise) => otherwise.join("; "),
    }
}

fn claims(figure: &FigureRecord, all: &[FigureRecord]) -> String {
    let claims = &figure.results.claims;
    if claims.is_empty() {
        return String::new();
    }
    let row = |claim: &Claim| {
        let class = match (&claim.origin, claim.verdict) {
            (Origin::Paper, Verdict::Agrees) => "yes",
            (Origin::Paper, Verdict::Differs) => "no",
            _ => "part",
        };
        let [says, paper, ours, chosen] =
            [&claim.marked(), &claim.paper, &claim.ours, &claim.chosen].map(|text| escaped(text));
        let judged = escaped(&claim.judged());
        let depends = escaped(&dependence(figure, claim, all));
        format!(
            "<tr><td>{says}</td><td>{paper}</td><td>{ours}</td><td class=\"{class}\">{judged}</td>\
             <td>{chosen}</td><td>{depends}</td></tr>\n"
        )
    };
    let rows: String = claims.iter().map(row).collect();
    let weak = match claims.iter().any(Claim::has_our_ordered) {
        true => format!("<p class=\"source\">{}</p>\n", escaped(WEAK_BASELINE)),
        false => String::new(),
    };
    format!(
        "<table>\n<tr><th>statement</th><th>paper</th><th>ours</th><th>judged</th>\
         <th>chosen after a failure</th><th>{DEPENDS}</th></tr>\n{rows}</table>\n{weak}"
    )
}

/// Describes a rerun, and where the numbers are.
fn rerun(figure: &FigureRecord) -> String {
    let name = escaped(&figure.figure);
    let quick = if figure.quick { " --quick" } else { "" };
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
        "<p class=\"source\">Again: <code>okeanos-lab reproduce {name} --seed {seed}{quick} --again</code>. {same}{shortened} \
         Numbers: {files}.</p>\n",
        seed = figure.seed,
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
    use crate::{Figure, test_figure};

    fn figures() -> Vec<FigureRecord> {
        let context = crate::Context { quick: true, ..test_figure::context(7) };
        vec![FigureRecord::new(&test_figure::FIGURE, &context, 1, test_figure::results())]
    }

    #[test]
    fn the_page_needs_nothing_from_elsewhere() {
        let page = html(&figures());
        let elsewhere = page.replace("http://www.w3.org/2000/svg", "");
        for word in ["http:", "https:", "<script", "@import", "url("] {
            assert!(!elsewhere.contains(word), "{word}");
        }
        assert!(page.contains("Made up &amp; &lt;drawn&gt;") && !page.contains("& <drawn>"));
        // Two pictures, for screens and for phones.
        assert_eq!(page.matches("<svg").count(), 4);
        assert!(page.contains("<li>ours: 1 agree, 0 in direction only, 1 differ.</li>"));
        assert!(page.contains("okeanos-lab reproduce made-up --seed 7 --quick --again"));
    }

    #[test]
    fn the_table_shows_how_each_statement_was_judged() {
        let expected = "| paper | agree | direction only | differ | fitted | ours |\n\
                        |---|---|---|---|---|---|\n\
                        | ours | 1 | 0 | 1 | 0 | 0 |\n\n\
                        | figure | statement | paper | ours | judged | chosen after a failure | chosen numbers half and double |\n\
                        |---|---|---|---|---|---|---|\n\
                        | made-up | wasteless is faster | 4.0x | 4.4x | agrees |  |  |\n\
                        | made-up | ordered is slower ° | 10x | 0.9x | **differs** | a tenth; otherwise 1.1x |  |\n\n\
                        WEAK\n\n- made-up: Nothing here was measured.\n";
        assert_eq!(markdown(&figures()), expected.replace("WEAK", WEAK_BASELINE));
    }

    #[test]
    fn a_row_names_the_choices_that_change_its_verdict() {
        let mut figures = figures();
        let rows = [
            ("wasteless is faster", Vec::new()),
            ("ordered is slower", vec!["tick x 2: 3x (AGREES)".into()]),
        ];
        let mut results = test_figure::results();
        for (claim, (says, otherwise)) in results.claims.iter_mut().zip(rows) {
            claim.says = crate::figures::row_of("made-up", says);
            claim.otherwise = otherwise;
        }
        let sensitivity = Figure { name: "sensitivity", ..test_figure::FIGURE };
        figures.push(FigureRecord::new(&sensitivity, &test_figure::context(7), 1, results));
        let text = markdown(&figures);
        assert!(text.contains("| agrees |  | alike |\n"), "{text}");
        assert!(text.contains("| a tenth; otherwise 1.1x | tick x 2: 3x (AGREES) |\n"), "{text}");
        assert!(html(&figures).contains("<td>tick x 2: 3x (AGREES)</td>"));
    }

    #[test]
    fn a_row_shows_what_a_figure_found_with_other_numbers() {
        let mut figures = figures();
        let claim = &mut figures[0].results.claims[0];
        *claim =
            claim.clone().with_other("times x 0.5: 4x".into()).with_other("times x 2: 5x".into());
        let text = markdown(&figures);
        assert!(text.contains("| agrees |  | times x 0.5: 4x; times x 2: 5x |\n"), "{text}");
    }
}
