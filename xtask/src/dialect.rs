//! Words of the project's former dialect, for which the field has others. In comments, pages, texts
//! and the parts of names they are looked for as whole words, so `is_over` and `IsOver` hold "is
//! over".
//!
//! Words that the field uses in another sense too ("room", "row", "turn") are left to reviewers.

use crate::sources::Workspace;

/// Words and phrases, each with what stands for it.
const DIALECT: &[(&[&str], &str)] = &[
    (&["tell", "tells", "telling", "told", "untold"], "record, list, print, report"),
    (
        &[
            "go home",
            "goes home",
            "going home",
            "went home",
            "bring home",
            "brings home",
            "brought home",
            "come home",
            "comes home",
            "coming home",
            "came home",
        ],
        "write back, checkpoint",
    ),
    (&["let go", "lets go", "letting go"], "evict, release, close"),
    (&["on its way", "on their way", "sets out", "set out", "under way"], "in flight, running"),
    (&["crowd", "crowds"], "batch"),
    (&["door", "doors"], "front end"),
    (&["house", "houses", "rooms"], "workspace, module"),
    (&["dice"], "random number generator"),
    (&["dear", "dearer"], "expensive"),
    (&["mend", "mends", "mended", "mending"], "fix"),
    (&["long write", "long writes"], "large write, its bytes stated"),
    (&["meanwhile", "whoever", "who asks"], "the actor"),
    (&["half there"], "torn, partially applied"),
    (&["toy", "toys"], "test double"),
    (&["is no more", "is over"], "has ended, is closed"),
    (&["so many", "so long"], "the number, with its unit"),
    (&["without more"], "with no options"),
    (&["it pays"], "is worthwhile"),
    (&["herald", "kick", "liar", "porter", "soil", "story", "stories", "wash"], "what it is"),
];

/// Files that may hold a word all the same: names that others gave, and names that once were ours.
const QUOTED: &[(&str, &str)] = &[
    ("CHANGELOG.md", "door"),
    ("CHANGELOG.md", "told"),
    ("CHANGELOG.md", "untold"),
    ("crates/ceph/tests/all/failures.rs", "tell"),
    // A field of a daemon's reply.
    ("crates/cli/src/checkpoint.rs", "under way"),
    ("crates/cli/src/fingerprint/mod.rs", "tell"),
    ("crates/cli/tests/all/checkpoint.rs", "under way"),
    ("crates/eviction/tests/all/flush_test.rs", "tell"),
    ("crates/sim/src/case.rs", "told"),
    ("crates/sim/src/case.rs", "untold"),
    ("docs/CEPH.md", "tell"),
    // Names of faults, and what programs printed.
    ("docs/FAULTS.md", "dice"),
    ("docs/FAULTS.md", "tells"),
    // Made of texts behind figures.
    ("docs/FIGURES.md", "come home"),
    ("docs/FIGURES.md", "so long"),
    ("docs/modes/host_journal.md", "tell"),
    ("docs/notes/performance.md", "door"),
    ("xtask/src/lines.rs", "so many"),
    ("xtask/src/lines.rs", "whoever"),
];

/// The file that has to hold all of them.
const OWN: &str = "xtask/src/dialect.rs";

/// Crates, from `crates/`, whose sources decide what the published figures show: a change of a name
/// there waits for the next run of the figures.
const BEHIND_FIGURES: &[&str] = &[
    "blocks/src",
    "commit/src",
    "device/src",
    "disks/src",
    "emulated/src",
    "engine/src",
    "eviction/src",
    "ext4/src",
    "format/src",
    "host/src",
    "journal/src",
    "reproduce/src/figures",
    "runtime/src",
    "store/src",
    "testbeds/src",
    "units/src",
    "volume_images/src",
    "workloads/src",
];

/// Bound of the words behind figures. It may only shrink.
const BEHIND_FIGURES_MAX: usize = 105;

/// A word found in a file.
struct Found<'a> {
    path: &'a str,
    line: usize,
    word: &'static str,
    instead: &'static str,
}

/// The parts of names and the words of a text, each with its line (from 1). Between words that
/// belong to no common phrase stands an empty one.
fn words(text: &str) -> Vec<(&str, usize)> {
    let mut words = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let (mut start, mut before) = (0, ' ');
        for (at, letter) in line.char_indices().chain([(line.len(), ' ')]) {
            let begins = letter.is_uppercase() && before.is_lowercase();
            if begins || !letter.is_alphanumeric() {
                if start < at {
                    words.push((&line[start..at], index + 1));
                }
                if !begins && !matches!(letter, ' ' | '_' | '/' | '!') {
                    words.push(("", index + 1));
                }
                start = if begins { at } else { at + letter.len_utf8() };
            }
            before = letter;
        }
    }
    words
}

/// Returns the lines of a text that hold a word or phrase of `phrase`.
fn lines_with<'a>(words: &'a [(&str, usize)], phrase: &'a str) -> impl Iterator<Item = usize> + 'a {
    let length = phrase.split(' ').count();
    let is_phrase = move |part: &&[(&str, usize)]| {
        part.iter().zip(phrase.split(' ')).all(|((word, _), want)| word.eq_ignore_ascii_case(want))
    };
    words.windows(length).filter(is_phrase).map(|part| part[0].1)
}

fn find(workspace: &Workspace) -> Vec<Found<'_>> {
    let sources = workspace.sources.iter().map(|source| (source.path.as_str(), &source.text));
    let pages = workspace.pages.iter().map(|(path, text)| (path.as_str(), text));
    let mut found = Vec::new();
    for (path, text) in sources.chain(pages).filter(|(path, _)| *path != OWN) {
        let words = words(text);
        for (phrases, instead) in DIALECT {
            for word in *phrases {
                let lines = lines_with(&words, word);
                found.extend(lines.map(|line| Found { path, line, word, instead }));
            }
        }
    }
    found
}

fn is_behind_figures(path: &str) -> bool {
    let path = path.strip_prefix("crates/").unwrap_or_default();
    BEHIND_FIGURES.iter().any(|folder| path.starts_with(folder))
}

/// Checks that no word of the dialect is left, but for quotations.
pub fn check(workspace: &Workspace, complaints: &mut Vec<String>) {
    let found = find(workspace);
    let is_quoted = |it: &&Found| QUOTED.contains(&(it.path, it.word));
    for (path, word) in QUOTED {
        if !found.iter().any(|it| (it.path, it.word) == (path, word)) {
            complaints.push(format!("{OWN}: {path} no longer holds \"{word}\""));
        }
    }
    let (behind, others): (Vec<_>, Vec<_>) =
        found.iter().filter(|it| !is_quoted(it)).partition(|it| is_behind_figures(it.path));
    let complaint = |it: &&Found| {
        let Found { path, line, word, instead } = it;
        format!("{path}:{line}: \"{word}\" is no word of the field, which says: {instead}")
    };
    complaints.extend(others.iter().map(complaint));
    if behind.len() > BEHIND_FIGURES_MAX {
        complaints.extend(behind.iter().map(complaint));
        let count = behind.len();
        complaints.push(format!("{count} such words behind figures, {BEHIND_FIGURES_MAX} may be"));
    } else if behind.len() < BEHIND_FIGURES_MAX {
        let count = behind.len();
        complaints.push(format!("{OWN}: BEHIND_FIGURES_MAX can be {count}"));
    }
}

/// Lists how often each word stands behind figures.
pub fn report(workspace: &Workspace) -> String {
    let found = find(workspace);
    let mut text = "words of the former dialect behind figures:\n".to_owned();
    for word in DIALECT.iter().flat_map(|(phrases, _)| *phrases) {
        let of_word = found.iter().filter(|it| it.word == *word && is_behind_figures(it.path));
        let count = of_word.count();
        if count > 0 {
            text += &format!("  {word}: {count}\n");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_whole_words_and_parts_of_names() {
        let words =
            words("Tell them, retell\n// it is\n// over_it, IsOver; tell is Overt (it) pays");
        let lines = |phrase| lines_with(&words, phrase).collect::<Vec<_>>();
        assert_eq!(lines("tell"), [1, 3]);
        assert_eq!(lines("is over"), [2, 3]);
        assert_eq!(lines("it pays"), []);
    }
}
