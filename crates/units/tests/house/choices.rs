//! The choices do not know each other: read from the sources.
//!
//! Rule: below floor 7 no file of a crate's `src` outside `journal/src/policy` names a variant of
//! `DataMode`, nor imports its variants. To pass a mode on, parse it, print it or list
//! `DataMode::ALL` is allowed everywhere: that decides nothing.

use super::sources::{crates, root, sources};
use std::fs;
use std::path::PathBuf;

const ABOVE: [&str; 7] = ["cli", "reproduce", "rigs", "sim", "stages", "workloads", "hostile"];

/// The sources of all crates below floor 7, with their paths from `crates/`.
pub fn below() -> Vec<(PathBuf, String)> {
    let rooms = crates().into_iter().filter(|name| !ABOVE.contains(&name.as_str()));
    let found = rooms.flat_map(|name| sources(root().join("crates").join(name).join("src")));
    let top = root().join("crates");
    let found: Vec<_> =
        found.map(|(path, text)| (path.strip_prefix(&top).unwrap().to_owned(), text)).collect();
    assert!(found.len() > 100, "the sources are not where they are looked for");
    found
}

fn any_of(words: &[&str]) -> impl Fn(&str) -> bool {
    move |line| words.iter().any(|word| line.contains(word))
}

/// The lines outside `allowed` that hold it.
fn lines_with(holds: impl Fn(&str) -> bool, allowed: &[&str]) -> Vec<String> {
    let mut lines = Vec::new();
    for (path, text) in below() {
        if allowed.iter().any(|allowed| path.starts_with(allowed)) {
            continue;
        }
        lines.extend(
            text.lines()
                .filter(|line| holds(line))
                .map(|line| format!("{}: {}", path.display(), line.trim())),
        );
    }
    lines
}

/// Whether a line names a variant of `DataMode`, or several at once.
fn names_a_mode(line: &str) -> bool {
    // A variant: a capital letter and a small one.
    let is_mode = |rest: &str| {
        let mut letters = rest.chars();
        let (first, second) = (letters.next(), letters.next());
        matches!(first, Some('{' | '*'))
            || first.is_some_and(char::is_uppercase) && second.is_some_and(char::is_lowercase)
    };
    line.split("DataMode::").skip(1).any(is_mode)
}

#[test]
fn only_policies_know_what_a_mode_means() {
    assert!(names_a_mode("    DataMode::Ordered => 1,"));
    assert_eq!(lines_with(names_a_mode, &["journal/src/policy"]), [""; 0]);
}

/// Above, the explorer names modes to judge them, and figures to play them.
#[test]
fn of_the_program_only_the_words_of_a_mount_name_modes() {
    let sources = sources(root().join("crates/cli/src"));
    let names_one =
        |text: &String| text.split("#[cfg(test)]").next().unwrap().lines().any(names_a_mode);
    let found = sources.iter().filter(|(_, text)| names_one(text));
    let found: Vec<_> =
        found.map(|(path, _)| path.strip_prefix(root()).unwrap().to_owned()).collect();
    assert_eq!(found, [PathBuf::from("crates/cli/src/mount/options.rs")]);
}

#[test]
fn only_the_block_format_knows_how_blocks_of_the_log_look() {
    let words =
        ["DescriptorBlock", "RevokeBlock", "CommitBlock", "BlockTag", "LogLayout", "Packing"];
    assert_eq!(lines_with(any_of(&words), &["format", "journal/src/records/blocks"]), [""; 0]);
}

/// Its superblock belongs to every format; its blocks do not.
#[test]
fn planner_and_recovery_know_of_jbd2_its_superblock_alone() {
    let known = ["JournalSuperblock", "JournalFormatError", "Seed"];
    let is_more = |line: &str| {
        let names = line.split_once("format::jbd2::").map(|(_, names)| names);
        names.is_some_and(|names| {
            let mut words =
                names.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
            !words.all(|word| known.contains(&word))
        })
    };
    assert!(is_more("use format::jbd2::{JournalSuperblock, BlockTag};"));
    let journal = |line: &String| line.starts_with("journal/");
    let found = lines_with(is_more, &["journal/src/records"]);
    assert_eq!(found.into_iter().filter(journal).collect::<Vec<_>>(), [""; 0]);
}

#[test]
fn only_the_packed_format_knows_how_packed_transactions_look() {
    let words = ["PackedHeader", "RecordReader", "RunWriter"];
    assert_eq!(lines_with(any_of(&words), &["format", "journal/src/records/packed"]), [""; 0]);
}

/// Whether a line names a variant of `RecordFormat`, or what only one format has.
fn names_a_format(line: &str) -> bool {
    let is_variant = |rest: &str| rest.chars().nth(1).is_some_and(char::is_lowercase);
    let variants =
        line.split("RecordFormat::").skip(1).filter(|rest| rest.starts_with(char::is_uppercase));
    variants.into_iter().any(is_variant) || line.contains("PackedLog") || line.contains(".packed")
}

/// What depends on the format is asked of [`journal::records::RecordFormat`], or of the records
/// themselves.
#[test]
fn only_records_know_what_a_format_means() {
    assert!(
        names_a_format("    records: RecordFormat::Packed,")
            && names_a_format("superblock.packed.is_some()")
    );
    assert!(
        !names_a_format("RecordFormat::ALL") && !names_a_format("RecordFormat::by_default(true)")
    );
    assert_eq!(lines_with(names_a_format, &["format", "journal/src/records"]), [""; 0]);
    // The program parses a name, and tells of a log what lies in it.
    let sources = sources(root().join("crates/cli/src"));
    let names_one =
        |text: &String| text.split("#[cfg(test)]").next().unwrap().lines().any(names_a_format);
    let found = sources.iter().filter(|(_, text)| names_one(text));
    let of_program: Vec<_> =
        found.map(|(path, _)| path.strip_prefix(root()).unwrap().to_owned()).collect();
    assert!(
        !of_program.is_empty()
            && of_program.iter().all(|path| path.starts_with("crates/cli/src/inspect"))
    );
}

#[test]
fn nobody_tells_disks_apart_by_their_addresses_in_memory() {
    let compares = any_of(&["addr_eq", "ptr_eq", "ptr::eq"]);
    let of_disks = any_of(&["disk", "home", "journal"]);
    assert!(compares("Rc::ptr_eq(&home, &disk)"));
    assert_eq!(lines_with(|line| compares(line) && of_disks(line), &[]), [""; 0]);
}

/// One walker of a log's order: the ring's, the scattered logs', and that of the runs that recovery
/// found.
#[test]
fn only_logs_say_which_block_follows_which() {
    let allowed = ["journal/src/log_space", "journal/src/recover/find_runs.rs"];
    assert_eq!(lines_with(any_of(&["LogWalk for"]), &allowed), [""; 0]);
}

/// Everybody else gives a plan to it. `whose` and `busy` hand the home's flush through.
#[test]
fn of_the_engine_only_run_plan_makes_anything_durable() {
    let words = [".flush()", ".make_durable(", "Durability::Durable"];
    let allowed = ["run_plan", "whose", "busy"].map(|file| format!("engine/src/{file}.rs"));
    let found = lines_with(any_of(&words), &allowed.each_ref().map(String::as_str));
    let of_engine = found.into_iter().filter(|line| line.starts_with("engine/"));
    assert_eq!(of_engine.collect::<Vec<_>>(), [""; 0]);
}

#[test]
fn only_the_journal_puts_barriers_into_plans() {
    let words = [".barrier(Barrier::", "Step::Barrier(Barrier::TailBeforeReuse)"];
    assert_eq!(lines_with(any_of(&words), &["journal/src"]), [""; 0]);
}

/// The functions of a file, without its tests and comments, whose lines hold `word`.
fn functions_with(file: &str, word: &str) -> Vec<String> {
    let text = fs::read_to_string(root().join("crates").join(file)).unwrap();
    let code = text.split("#[cfg(test)]\nmod tests").next().unwrap().lines();
    let (mut function, mut found) = (String::new(), Vec::new());
    for line in code.filter(|line| !line.trim_start().starts_with("//")) {
        if let Some((before, name)) = line.split_once("fn ")
            && before.split_whitespace().all(|word| word.starts_with("pub") || word == "async")
        {
            function = name
                .chars()
                .take_while(|letter| letter.is_alphanumeric() || *letter == '_')
                .collect();
        }
        if line.contains(word) && found.last() != Some(&function) {
            found.push(function.clone());
        }
    }
    found
}

/// It says what each reason costs, and states none: a flush is what a plan's barrier becomes.
#[test]
fn the_engine_flushes_for_the_barriers_of_plans_alone() {
    for (path, _) in below().into_iter().filter(|(path, _)| path.starts_with("engine/src")) {
        let expected = if path.ends_with("durability.rs") { &["end_phase"][..] } else { &[] };
        let path = path.to_str().unwrap();
        assert_eq!(
            functions_with(path, " Barrier::"),
            expected,
            "{path} names reasons of barriers"
        );
    }
    let run_plan = "engine/src/run_plan.rs";
    for (word, callers) in [
        ("self.end_phase(", &["run"][..]),
        ("self.flush(", &["end_phase"]),
        (".make_durable(", &["flush"]),
        ("disk.flush()", &["flush"]),
        // A write that is durable by itself: in place of a plan's flush, or when no plan is carried
        // out any more.
        ("Durability::Durable", &["sync_home", "write_after_failure", "end_phase", "write"]),
    ] {
        assert_eq!(functions_with(run_plan, word), callers, "{word}");
    }
    let host = "host/src/run_plan.rs";
    assert_eq!(functions_with(host, ".flush()"), ["end_phase"]);
    assert_eq!(functions_with(host, "end_phase("), ["run_plan", "end_phase"]);
    let of_host = lines_with(any_of(&[".flush()"]), &[host]);
    assert_eq!(
        of_host.into_iter().filter(|line| line.starts_with("host/")).collect::<Vec<_>>(),
        [""; 0]
    );
}

/// Each block is durable by itself. A volume has its superblock, the block of multiple-mount
/// protection, and the head of a flush zone. A host has the ledger of its recovery, and an empty
/// journal.
#[test]
fn these_files_write_durably_without_a_plan() {
    let mut found: Vec<_> = below()
        .into_iter()
        .filter(|(path, text)| {
            let code = text.split("#[cfg(test)]\nmod tests").next().unwrap();
            let rooms = ["engine/src", "ext4/src", "host/src", "journal/src"];
            code.contains("Durability::Durable") && rooms.iter().any(|room| path.starts_with(room))
        })
        .map(|(path, _)| path)
        .collect();
    found.sort();
    let expected = [
        "engine/src/run_plan.rs",
        "ext4/src/volume/flush_zone.rs",
        "ext4/src/volume/mmp.rs",
        "ext4/src/volume/superblock.rs",
        "host/src/ledger.rs",
        "host/src/run_plan.rs",
        "host/src/superblock.rs",
    ];
    assert_eq!(found, expected.map(PathBuf::from));
}
