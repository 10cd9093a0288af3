//! The notes behind a command's help: parsed once, shown at the width of a terminal and as a man
//! page.
//!
//! Lines that begin without a space are paragraphs. An indented line is an entry: its term, two
//! spaces or more, and its description, which continues in lines with the same indentation.

const GAP: &str = "  ";
/// Least columns for descriptions; with fewer they go below their terms.
const DESCRIPTION_MIN: usize = 28;

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Note {
    Blank,
    Paragraph(String),
    Entry { indent: usize, term: String, column: usize, description: String },
}

pub fn parse(text: &str) -> Vec<Note> {
    let mut notes: Vec<Note> = Vec::new();
    for line in text.lines() {
        let (words, indent) = (line.trim(), line.len() - line.trim_start().len());
        match notes.last_mut() {
            _ if words.is_empty() => notes.push(Note::Blank),
            Some(Note::Paragraph(text)) if indent == 0 && !text.ends_with(':') => {
                *text += &format!(" {words}")
            }
            _ if indent == 0 => notes.push(Note::Paragraph(words.into())),
            Some(Note::Entry { indent: before, column, description, .. })
                if indent == *column || description.is_empty() && indent > *before + 2 =>
            {
                *column = indent;
                *description += if description.is_empty() { "" } else { " " };
                *description += words;
            }
            _ => {
                let (term, rest) = words.split_once(GAP).unwrap_or((words, ""));
                let column =
                    if rest.is_empty() { usize::MAX } else { line.len() - rest.trim_start().len() };
                let (term, description) = (term.into(), rest.trim().into());
                notes.push(Note::Entry { indent, term, column, description });
            }
        }
    }
    notes
}

/// Wraps `text` to at most `width` columns, as far as words allow.
pub fn at_width(text: &str, width: usize) -> String {
    let notes = parse(text);
    let mut out = String::new();
    for note in &notes {
        match note {
            Note::Blank => out.push('\n'),
            Note::Paragraph(text) => wrap(text, String::new(), 0, width, &mut out),
            Note::Entry { indent, term, description, .. } if description.is_empty() => {
                wrap(term, " ".repeat(*indent), indent + 4, width, &mut out);
            }
            Note::Entry { indent, term, column, description } => {
                let head = format!("{}{term}", " ".repeat(*indent));
                let fits = column + DESCRIPTION_MIN <= width;
                if fits && head.chars().count() + GAP.len() <= *column {
                    wrap(description, format!("{head:<column$}"), *column, width, &mut out);
                } else {
                    let column = if fits { *column } else { indent + 4 };
                    wrap(term, " ".repeat(*indent), indent + 4, width, &mut out);
                    wrap(description, " ".repeat(column), column, width, &mut out);
                }
            }
        }
    }
    out.truncate(out.trim_end().len());
    out
}

/// Wraps `text`; `first` precedes the first line, `indent` spaces the others.
fn wrap(text: &str, first: String, indent: usize, width: usize, out: &mut String) {
    let mut line = first;
    let mut is_empty = true;
    for word in text.split(' ').filter(|word| !word.is_empty()) {
        if !is_empty && line.chars().count() + 1 + word.chars().count() > width {
            *out += line.trim_end();
            out.push('\n');
            line = " ".repeat(indent);
            is_empty = true;
        }
        if !is_empty {
            line.push(' ');
        }
        line += word;
        is_empty = false;
    }
    *out += line.trim_end();
    out.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
Examples:
  okeanos mkfs disk.img 1G     an image file that takes space only as it fills
  okeanos mkfs --flush-zone drive.profile /dev/sdb1

A paragraph of several words that
goes on.
  data=MODE            what the journal holds:
                         ordered     nothing, but data is home before its commit
  barrier=flush|none|coerce
                       none only where a disk keeps its cache";

    #[test]
    fn notes_fit_the_width_and_say_the_same() {
        for width in [40, 60, 80, 100] {
            let text = at_width(TEXT, width);
            assert!(
                text.lines().all(|line| line.chars().count() <= width.max(53)),
                "{width}\n{text}"
            );
            let words = |text: &str| text.split_whitespace().map(String::from).collect::<Vec<_>>();
            assert_eq!(words(&text), words(TEXT), "{width}");
        }
        assert!(at_width(TEXT, 100).contains("A paragraph of several words that goes on."));
    }

    #[test]
    fn descriptions_hang_below_themselves() {
        let text = at_width(TEXT, 66);
        let at = text.lines().position(|line| line.contains("ordered")).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[at + 1].starts_with("                             "), "{text}");
        assert!(
            text.contains("  barrier=flush|none|coerce\n                       none only"),
            "{text}"
        );
        let narrow = at_width(TEXT, 40);
        assert!(
            narrow.contains("  okeanos mkfs disk.img 1G\n      an image file that"),
            "{narrow}"
        );
    }
}
