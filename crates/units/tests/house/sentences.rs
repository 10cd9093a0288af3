//! Documents, comments and names of tests are read in a hurry: they are short.

use super::is_test;
use super::sources::{root, sources};
use std::fs;

const WORDS_MAX: usize = 25;
/// Of the name of a test, which is read at a glance.
const NAME_WORDS_MAX: usize = 14;

/// Documents whose sentences are.
const SHORT: [&str; 22] = [
    "README.md",
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "docs/CRASH_MODEL.md",
    "docs/DISKS.md",
    "docs/FIGURES.md",
    "docs/GLOSSARY.md",
    "docs/HACKING.md",
    "docs/MOUNT_OPTIONS.md",
    "docs/ON_DISK.md",
    "docs/PERFORMANCE.md",
    "docs/POSIX.md",
    "docs/TRACES.md",
    "docs/modes/README.md",
    "docs/modes/adaptive.md",
    "docs/modes/coerce.md",
    "docs/modes/journal.md",
    "docs/modes/ordered.md",
    "docs/modes/selective.md",
    "docs/modes/wasteless.md",
    "docs/modes/writeback.md",
];

/// The sentences of a document, outside of tables, code, headings and links' targets.
fn sentences(document: &str) -> Vec<String> {
    let (mut found, mut text, mut is_code) = (Vec::new(), String::new(), false);
    let mut end = |text: &mut String| {
        let parts = text.replace(": ", ". ").replace("; ", ". ");
        found.extend(parts.split(". ").map(str::to_owned).filter(|part| !part.trim().is_empty()));
        text.clear();
    };
    for line in document.lines() {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        let begins = ["- ", "* ", "1. ", "2. ", "3. "].iter().any(|mark| line.trim_start().starts_with(mark));
        let is_text = !is_code && !is_fence && !["#", "    "].iter().any(|mark| line.starts_with(mark));
        let is_text = is_text && !line.trim_start().starts_with('|');
        if !is_text || begins || line.trim().is_empty() {
            end(&mut text);
        }
        if is_text {
            text.push_str(line.trim());
            text.push(' ');
        }
    }
    end(&mut text);
    found
}

fn words(sentence: &str) -> usize {
    sentence.split_whitespace().filter(|word| word.chars().any(char::is_alphanumeric)).count()
}

#[test]
fn sentences_of_documents_are_short() {
    for name in SHORT {
        let document = fs::read_to_string(root().join(name)).unwrap();
        let long: Vec<_> = sentences(&document).into_iter().filter(|it| words(it) > WORDS_MAX).collect();
        assert!(long.is_empty(), "{name}: more than {WORDS_MAX} words:\n{}", long.join("\n"));
    }
}

/// The comments of a source that stand in lines of their own: the line at which each begins, and its text.
fn comments(source: &str) -> Vec<(usize, String)> {
    let mut found: Vec<(usize, String)> = Vec::new();
    let mut is_comment = false;
    for (index, line) in source.lines().enumerate() {
        let text =
            line.trim_start().strip_prefix("//").map(|text| text.strip_prefix(['/', '!']).unwrap_or(text));
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
    for (path, source) in ["crates", "fuzz/fuzz_targets"].iter().flat_map(|room| sources(root().join(room))) {
        let path = path.strip_prefix(root()).unwrap();
        for (line, comment) in comments(&source) {
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
    let told = comments("//! One.\n//!\n//! Two\n\nfn f() { // not this\n    // three\n    /// four\n}\n");
    assert_eq!(told, [(1, "One.\n\nTwo\n".to_owned()), (6, "three\nfour\n".to_owned())]);
}

#[test]
fn sentences_are_told_apart() {
    let told = sentences(
        "# A head\n\nOne two\nthree. Four: five.\n\n    code here\n| a table |\n- six\n\n  | its table |\n- seven\n",
    );
    assert_eq!(told.iter().map(|it| words(it)).collect::<Vec<_>>(), [3, 1, 1, 1, 1]);
}
