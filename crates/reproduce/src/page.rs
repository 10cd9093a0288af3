//! All finished figures in one HTML page that needs no network and no other file.

use crate::chart::{escaped, svg};
use crate::figure::Claim;
use crate::finished::Finished;

pub(crate) fn html(figures: &[Finished]) -> String {
    let (held, all) = count(figures.iter().flat_map(|figure| &figure.results.claims));
    let rows: String = figures.iter().map(row).collect();
    let sections: String = figures.iter().map(section).collect();
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>Okeanos: the papers' figures, rerun</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n\
         <h1>The papers' figures, rerun</h1>\n\
         <p>Filled markers and drawn lines are ours; hollow markers and dashed lines are the paper's, as far as its text \
         states numbers. Disks are emulated, so ratios count, not absolute values. Of the papers' {all} statements that \
         were checked, {held} hold.</p>\n\
         <table>\n<tr><th>figure</th><th>what</th><th>statements that hold</th></tr>\n{rows}</table>\n\
         {sections}</main>\n</body>\n</html>\n"
    )
}

/// The statements of all figures as a table in Markdown.
pub fn markdown(figures: &[Finished]) -> String {
    let cell = |text: &str| text.replace('|', "\\|").replace('\n', " ");
    let mut text = "| figure | statement | paper | ours | holds |\n|---|---|---|---|---|\n".to_owned();
    for figure in figures {
        for Claim { says, paper, ours, holds } in &figure.results.claims {
            let holds = if *holds { "yes" } else { "**no**" };
            let [says, paper, ours] = [says, paper, ours].map(|part| cell(part));
            text += &format!("| {} | {says} | {paper} | {ours} | {holds} |\n", figure.figure);
        }
    }
    let mut notes = String::new();
    for figure in figures {
        for note in &figure.results.notes {
            notes += &format!("- {}: {}\n", figure.figure, note.replace('\n', " "));
        }
    }
    if notes.is_empty() { text } else { format!("{text}\n{notes}") }
}

fn count<'a>(claims: impl Iterator<Item = &'a Claim>) -> (usize, usize) {
    claims.fold((0, 0), |(held, all), claim| (held + usize::from(claim.holds), all + 1))
}

fn row(figure: &Finished) -> String {
    let (held, all) = count(figure.results.claims.iter());
    let name = escaped(&figure.figure);
    let class = if held == all { "yes" } else { "no" };
    format!(
        "<tr><td><a href=\"#f-{name}\">{name}</a></td><td>{}</td><td class=\"{class}\">{held} of {all}</td></tr>\n",
        escaped(&figure.title)
    )
}

fn section(figure: &Finished) -> String {
    let name = escaped(&figure.figure);
    let pictures: String = figure
        .results
        .pictures
        .iter()
        .map(|picture| format!("<figure>{}</figure>\n", svg(picture)))
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
        claims = claims(&figure.results.claims),
        rerun = rerun(figure),
    )
}

fn claims(claims: &[Claim]) -> String {
    if claims.is_empty() {
        return String::new();
    }
    let row = |Claim { says, paper, ours, holds }: &Claim| {
        let (class, holds) = if *holds { ("yes", "yes") } else { ("no", "no") };
        let [says, paper, ours] = [says, paper, ours].map(|text| escaped(text));
        format!("<tr><td>{says}</td><td>{paper}</td><td>{ours}</td><td class=\"{class}\">{holds}</td></tr>\n")
    };
    let rows: String = claims.iter().map(row).collect();
    format!("<table>\n<tr><th>statement</th><th>paper</th><th>ours</th><th>holds</th></tr>\n{rows}</table>\n")
}

/// How to run it again, and where its numbers are.
fn rerun(figure: &Finished) -> String {
    let name = escaped(&figure.figure);
    let quick = if figure.quick { " --quick" } else { "" };
    let same = match figure.real_time {
        true => "Measured by the clock on the wall: numbers differ from run to run.",
        false => "The same seed gives the same bytes.",
    };
    let link = |file: String| format!("<a href=\"{0}\">{0}</a>", escaped(&file));
    let numbers = (0..figure.results.pictures.len()).map(|number| link(figure.file_name(number, "csv")));
    let files: Vec<String> = numbers.chain([link(format!("{}.json", figure.figure))]).collect();
    let shortened = match figure.quick {
        true => " <strong>Shortened by --quick: shapes need not come out.</strong>",
        false => "",
    };
    format!(
        "<p class=\"source\">Again: <code>okeanos reproduce {name} --seed {seed}{quick} --again</code>. {same}{shortened} \
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
figure svg{display:block;width:100%;height:auto}\
table{border-collapse:collapse;margin:1rem 0;width:100%}\
th,td{border:1px solid #d5d5d5;padding:.3rem .6rem;text-align:left;vertical-align:top}\
.source{color:#5c5c5c;font-size:.9em;margin:.2rem 0}\
.yes{color:#00744f}.no{color:#b02a00;font-weight:600}\
code{font-size:.95em}\
@media (prefers-color-scheme:dark){body{background:#161616;color:#ececec}a{color:#58aef2}\
figure,th,td{border-color:#444}.source{color:#a8a8a8}.yes{color:#2fc795}.no{color:#ff8a45}}";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::made_up;

    fn figures() -> Vec<Finished> {
        vec![Finished::new(&made_up::FIGURE, 7, true, made_up::results())]
    }

    #[test]
    fn the_page_needs_nothing_from_elsewhere() {
        let page = html(&figures());
        let elsewhere = page.replace("http://www.w3.org/2000/svg", "");
        for word in ["http:", "https:", "<script", "@import", "url("] {
            assert!(!elsewhere.contains(word), "{word}");
        }
        assert!(page.contains("Made up &amp; &lt;drawn&gt;") && !page.contains("& <drawn>"));
        assert_eq!(page.matches("<svg").count(), 2);
        assert!(page.contains("2 statements that were checked, 1 hold"));
        assert!(page.contains("okeanos reproduce made-up --seed 7 --quick --again"));
    }

    #[test]
    fn the_table_tells_which_statements_hold() {
        let expected = "| figure | statement | paper | ours | holds |\n\
                        |---|---|---|---|---|\n\
                        | made-up | wasteless is faster | 4.0x | 4.4x | yes |\n\
                        | made-up | ordered is slower | 10x | 0.9x | **no** |\n\n\
                        - made-up: Nothing here was measured.\n";
        assert_eq!(markdown(&figures()), expected);
    }
}
