//! Documents, comments and names of tests are read in a hurry: they are short.
//!
//! A sentence has at most 25 words. It ends with a full stop, a question mark or an exclamation mark, and where its
//! paragraph, list item, heading or table cell ends. A colon or a semicolon ends none: what it joins counts whole.
//! A colon before a list or a block of code ends its sentence, as the end of a paragraph does.
//! A span of code is one word, and a list of nothing else is no sentence. Blocks of code count nowhere.

use super::is_test;
use super::sources::{root, sources};
use std::fs;
use std::path::PathBuf;

const WORDS_MAX: usize = 25;
/// Of the name of a test, which is read at a glance.
const NAME_WORDS_MAX: usize = 14;

/// All documents: at the root, in `docs` and in `docs/modes`.
fn documents() -> Vec<PathBuf> {
    let folders = ["", "docs", "docs/modes"].map(|folder| root().join(folder));
    let entries = folders.iter().flat_map(|folder| fs::read_dir(folder).unwrap());
    let paths = entries.map(|entry| entry.unwrap().path());
    let found: Vec<_> = paths.filter(|path| path.extension().is_some_and(|it| it == "md")).collect();
    assert!(found.len() > 25, "the documents are not where they are looked for");
    found
}

/// The text with each span of code as one word.
fn without_code(text: &str) -> String {
    let parts = text.split('`').enumerate();
    parts.map(|(index, part)| if index % 2 == 0 { part } else { "code" }).collect()
}

/// Whether a sentence ends with `word`: quotes and brackets may follow its mark.
fn ends_a_sentence(word: &str) -> bool {
    word.trim_end_matches([')', ']', '"', '\'', '*', '_']).ends_with(['.', '?', '!'])
}

/// What follows the mark of a list item, if the line is one.
fn list_item(line: &str) -> Option<&str> {
    let (mark, rest) = line.split_once(' ')?;
    let is_number = || mark.strip_suffix('.').is_some_and(|number| number.parse::<u8>().is_ok());
    (["-", "*"].contains(&mark) || is_number()).then_some(rest)
}

/// The paragraphs, list items, headings and table cells of a document.
fn paragraphs(document: &str) -> Vec<String> {
    let (mut found, mut is_code) = (vec![String::new()], false);
    for line in document.lines() {
        let text = line.trim();
        let is_fence = text.starts_with("```");
        is_code ^= is_fence;
        let is_inside = found.last().is_some_and(|open| !open.is_empty());
        if is_code || is_fence || text.is_empty() || line.starts_with("    ") && !is_inside {
            found.push(String::new());
        } else if text.starts_with('#') {
            found.extend([text.to_owned(), String::new()]);
        } else if text.starts_with('|') {
            found.extend(text.split('|').map(str::to_owned).chain([String::new()]));
        } else if let Some(item) = list_item(text) {
            found.push(format!("{item} "));
        } else {
            let open = found.last_mut().unwrap();
            open.push_str(text);
            open.push(' ');
        }
    }
    found
}

fn sentences(document: &str) -> Vec<String> {
    let mut found = Vec::new();
    for paragraph in paragraphs(document) {
        let text = without_code(&paragraph);
        let words: Vec<_> = text.split_whitespace().collect();
        let parts = words.split_inclusive(|word| ends_a_sentence(word));
        let sentences = parts.filter(|words| !words.iter().all(|word| word.trim_matches(',') == "code"));
        found.extend(sentences.map(|words| words.join(" ")));
    }
    found
}

fn words(sentence: &str) -> usize {
    sentence.split_whitespace().filter(|word| word.chars().any(char::is_alphanumeric)).count()
}

#[test]
fn sentences_of_documents_are_short() {
    let mut long = Vec::new();
    for path in documents() {
        let document = fs::read_to_string(&path).unwrap();
        let too_long = sentences(&document).into_iter().filter(|it| words(it) > WORDS_MAX);
        long.extend(too_long.map(|it| format!("{}: {it}", path.strip_prefix(root()).unwrap().display())));
    }
    assert!(long.is_empty(), "{} of more than {WORDS_MAX} words:\n{}", long.len(), long.join("\n"));
}

/// The comments that stand in lines of their own and begin with `mark`: the line at which each begins, and its text.
fn comments(source: &str, mark: &str) -> Vec<(usize, String)> {
    let mut found: Vec<(usize, String)> = Vec::new();
    let mut is_comment = false;
    for (index, line) in source.lines().enumerate() {
        let text =
            line.trim_start().strip_prefix(mark).map(|text| text.strip_prefix(['/', '!']).unwrap_or(text));
        if text.is_some() && !is_comment {
            found.push((index + 1, String::new()));
        }
        is_comment = text.is_some();
        if let (Some(text), Some((_, comment))) = (text, found.last_mut()) {
            comment.push_str(text.strip_prefix(' ').unwrap_or(text));
            comment.push('\n');
        }
    }
    found
}

#[test]
fn sentences_of_comments_are_short() {
    let (mut long, mut seen) = (Vec::new(), 0);
    let code = ["crates", "fuzz/fuzz_targets"].iter().flat_map(|room| sources(root().join(room)));
    let models = fs::read_dir(root().join("crates/emulated/models")).unwrap().map(|entry| {
        let path = entry.unwrap().path();
        let text = fs::read_to_string(&path).unwrap();
        (path, text)
    });
    let all = code.map(|file| (file, "//")).chain(models.map(|file| (file, "#")));
    for ((path, source), mark) in all {
        let path = path.strip_prefix(root()).unwrap();
        for (line, comment) in comments(&source, mark) {
            seen += 1;
            let too_long = sentences(&comment).into_iter().filter(|it| words(it) > WORDS_MAX);
            long.extend(too_long.map(|it| format!("{}:{line}: {it}", path.display())));
        }
    }
    assert!(seen > 1000, "the comments are not where they are looked for");
    assert!(long.is_empty(), "{} of more than {WORDS_MAX} words:\n{}", long.len(), long.join("\n"));
}

#[test]
fn names_of_tests_are_short() {
    let (mut long, mut seen) = (Vec::new(), 0);
    for (path, source) in sources(root().join("crates")) {
        for (at, _) in source.match_indices("fn ").filter(|(at, _)| is_test(&source[..*at])) {
            let name = source[at + 3..].split('(').next().unwrap();
            seen += 1;
            if name.split('_').count() > NAME_WORDS_MAX {
                long.push(format!("{}: {name}", path.strip_prefix(root()).unwrap().display()));
            }
        }
    }
    assert!(seen > 1000, "the tests are not where they are looked for");
    assert!(long.is_empty(), "{} of more than {NAME_WORDS_MAX} words:\n{}", long.len(), long.join("\n"));
}

#[test]
fn comments_are_told_apart() {
    let told =
        comments("//! One.\n//!\n//! Two\n\nfn f() { // not this\n    // three\n    /// four\n}\n", "//");
    assert_eq!(told, [(1, "One.\n\nTwo\n".to_owned()), (6, "three\nfour\n".to_owned())]);
}

#[test]
fn sentences_are_told_apart() {
    let told = sentences(
        "# A head\n\nOne two\nthree (four.) Five: six; seven `a b. c`?\n\n    code here\n| a. cell | two cells |\n\
         - eight\n    nine\n\n  10. ten\n```\ncode here\n```\n| `a`, `b` |\n",
    );
    let counts: Vec<_> = told.iter().map(|it| words(it)).collect();
    assert_eq!(counts, [2, 4, 4, 1, 1, 2, 2, 1], "{told:?}");
}
