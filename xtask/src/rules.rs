//! Rules on which files may name what: the five choices do not know each other, only worlds ask for
//! the time, one place claims disks.
//!
//! A rule is a list of patterns, a scope, and the files in the scope that may hold them. A pattern
//! is a row of Rust tokens; `VARIANT` stands for any name in camel case. Comments and tests do not
//! count. Each allowed file must hold a pattern: a permission that nobody uses is an error too.

use crate::layers::Layers;
use crate::sources::{Source, Token, Workspace};

/// Files to which a rule applies.
enum Scope {
    /// The sources of all crates below the layer of the programs.
    BelowPrograms,
    /// The sources of all crates below the layer of the front ends.
    BelowFrontEnds,
    /// The sources of all crates.
    Everywhere,
    /// The files whose path begins so, from `crates/`.
    Folder(&'static str),
}

/// One rule.
pub struct Rule {
    /// The name by which pages cite it: `tidy::NAME`.
    pub name: &'static str,
    patterns: &'static [&'static str],
    scope: Scope,
    /// Beginnings of paths, from `crates/`.
    allowed: &'static [&'static str],
    /// The line must hold one of these words too, unless the list is empty.
    beside: &'static [&'static str],
}

impl Rule {
    const fn new(
        name: &'static str,
        patterns: &'static [&'static str],
        scope: Scope,
        allowed: &'static [&'static str],
    ) -> Rule {
        Rule { name, patterns, scope, allowed, beside: &[] }
    }

    fn applies_to(&self, path: &str, layer: Option<u8>) -> bool {
        match self.scope {
            Scope::BelowPrograms => layer.is_some_and(|layer| layer < crate::layers::PROGRAMS),
            Scope::BelowFrontEnds => layer.is_some_and(|layer| layer < crate::layers::FRONT_ENDS),
            Scope::Everywhere => true,
            Scope::Folder(folder) => path.starts_with(folder),
        }
    }
}

pub const RULES: &[Rule] = &[
    Rule::new(
        "only_policies_know_what_a_mode_means",
        &["DataMode::VARIANT", "DataMode::{", "DataMode::*"],
        Scope::BelowPrograms,
        &["journal/src/policy"],
    ),
    Rule::new(
        "only_mount_options_name_modes",
        &["DataMode::VARIANT", "DataMode::{", "DataMode::*"],
        Scope::Folder("cli/src"),
        &["cli/src/mount/options.rs"],
    ),
    Rule::new(
        "only_the_block_format_knows_jbd2_blocks",
        &["DescriptorBlock", "RevokeBlock", "CommitBlock", "BlockTag", "LogLayout", "Packing"],
        Scope::BelowPrograms,
        &["format", "journal/src/records/blocks"],
    ),
    Rule::new(
        "only_the_packed_format_knows_packed_transactions",
        &["PackedHeader", "RecordReader", "RunWriter"],
        Scope::BelowPrograms,
        &["format", "journal/src/records/packed"],
    ),
    Rule::new(
        "only_records_know_what_a_format_means",
        &["RecordFormat::VARIANT", "PackedLog", ".packed"],
        Scope::BelowPrograms,
        &["format", "journal/src/records"],
    ),
    Rule::new(
        "only_inspect_knows_record_formats",
        &["RecordFormat::VARIANT", "PackedLog", ".packed"],
        Scope::Folder("cli/src"),
        &["cli/src/inspect"],
    ),
    Rule {
        name: "disks_are_not_compared_by_address",
        patterns: &["addr_eq", "ptr_eq", "ptr::eq"],
        scope: Scope::BelowPrograms,
        allowed: &[],
        beside: &["disk", "home", "journal"],
    },
    Rule::new(
        "only_logs_say_which_block_follows_which",
        &["LogWalk for"],
        Scope::BelowPrograms,
        &["journal/src/log_space", "journal/src/recover/find_runs.rs"],
    ),
    Rule::new(
        "only_the_executor_makes_the_engine_durable",
        &[".flush(", ".make_durable(", "Durability::Durable"],
        Scope::Folder("engine/src"),
        &[
            // A home that measures another.
            "engine/src/writeback/utilization.rs",
        ],
    ),
    Rule::new(
        "only_the_executor_makes_a_commit_durable",
        &[".flush(", ".make_durable(", "Durability::Durable"],
        Scope::Folder("commit/src"),
        &["commit/src/executor.rs", "commit/src/home.rs"],
    ),
    Rule::new(
        "only_the_executor_makes_a_host_durable",
        &[".flush("],
        Scope::Folder("host/src"),
        // The journal's disk passes on what the executor asks for.
        &["host/src/journal_disk.rs"],
    ),
    Rule::new(
        "only_the_journal_states_barriers",
        &[".barrier(Barrier::", "Step::Barrier(Barrier::TailBeforeReuse"],
        Scope::BelowPrograms,
        &["journal/src"],
    ),
    Rule::new(
        "these_files_write_durably_without_a_plan",
        &["Durability::Durable"],
        Scope::Folder("ext4/src"),
        &[
            "ext4/src/volume/flush_zone.rs",
            "ext4/src/volume/mmp.rs",
            "ext4/src/volume/superblock.rs",
        ],
    ),
    Rule::new(
        "these_files_of_a_host_write_durably",
        &["Durability::Durable"],
        Scope::Folder("host/src"),
        &["host/src/ledger.rs", "host/src/superblock.rs"],
    ),
    Rule::new(
        "few_files_of_ext4_write_past_the_engine",
        &["disk.write(", "home.write(", "disk().write("],
        Scope::Folder("ext4/src"),
        &[
            // Passes on what the engine writes, when the volume is still ours.
            "ext4/src/volume/protected_disk.rs",
            "ext4/src/volume/flush_zone.rs",
            "ext4/src/volume/mmp.rs",
            "ext4/src/volume/superblock.rs",
        ],
    ),
    Rule::new(
        "the_journal_waits_for_nothing_and_touches_no_disk",
        &["async", "await", "dyn Disk", "dyn World", "Durability::Durable"],
        Scope::Folder("journal/src"),
        &[],
    ),
    Rule::new(
        "only_worlds_and_real_stores_have_clocks_and_threads",
        &["std::sync::", "std::thread", "thread::spawn", "SystemTime::now", "Instant::now("],
        Scope::BelowFrontEnds,
        &[
            // The worlds themselves; wakers and the heap serve all threads that there may be.
            "runtime/src",
            // Whether this machine aligns large buffers, found out once.
            "device/src/buffer.rs",
            // Which deliberate fault is on, read once.
            "units/src/faults.rs",
            // Real stores: one directory, and Ceph in a process of its own.
            "store/src/local",
            "ceph/src/helper",
            "ceph/src/library",
        ],
    ),
    // What reports neither fails nor waits: these macros panic where nobody reads any more, and
    // wait where nobody reads yet. Programs and daemons are one binary.
    Rule::new(
        "what_reports_neither_fails_nor_waits",
        &["println!", "eprintln!", "print!", "eprint!", "dbg!"],
        Scope::Everywhere,
        &[],
    ),
    Rule::new(
        "only_the_helper_knows_the_library_of_ceph",
        &["crate::library", "libloading"],
        Scope::Folder("ceph/src"),
        &["ceph/src/helper", "ceph/src/library"],
    ),
    Rule::new("evictions_know_no_ext4", &["format::ext4"], Scope::Folder("eviction/src"), &[]),
    Rule::new("the_engine_knows_no_inodes", &["InodeNumber"], Scope::Folder("engine/src"), &[]),
    // The kernel releases a killed daemon's disks a moment after its end: one place is patient.
    Rule::new(
        "disks_are_claimed_in_one_place",
        &["Claim::take(", "disks::lock_image(", "FileDisk::open"],
        Scope::Folder("cli/src"),
        &["cli/src/disk/open_disk.rs"],
    ),
];

/// A pattern, and the only functions of a file that may hold it.
const CALLERS: &[(&str, &str, &[&str])] = &[
    ("commit/src/executor.rs", "self.end_phase(", &["run"]),
    ("commit/src/executor.rs", "self.flush(", &["end_phase"]),
    ("commit/src/executor.rs", ".make_durable(", &["flush"]),
    ("commit/src/executor.rs", "disk.flush(", &["flush"]),
    // A write that is durable by itself: in place of a plan's flush, or after a failure.
    (
        "commit/src/executor.rs",
        "Durability::Durable",
        &["end_phase", "sync_home", "write", "write_after_failure"],
    ),
    ("commit/src/durability.rs", "Barrier::VARIANT", &["end_phase"]),
];

/// Checks all rules.
pub fn check(workspace: &Workspace, layers: &Layers, complaints: &mut Vec<String>) {
    for rule in RULES {
        check_rule(rule, workspace, layers, complaints);
    }
    for (path, pattern, expected) in CALLERS {
        let Some(source) = workspace.product().find(|it| it.path == format!("crates/{path}"))
        else {
            complaints.push(format!("rules: {path} is gone: state its rule for what replaces it"));
            continue;
        };
        let found = functions_with(source, &lex(pattern));
        if found != *expected {
            complaints.push(format!("{path}: {pattern} in {found:?}, expected {expected:?}"));
        }
    }
}

fn check_rule(rule: &Rule, workspace: &Workspace, layers: &Layers, complaints: &mut Vec<String>) {
    let patterns: Vec<_> = rule.patterns.iter().map(|pattern| lex(pattern)).collect();
    let mut used = vec![false; rule.allowed.len()];
    let mut read = 0;
    for source in workspace.product() {
        let path = source.path.strip_prefix("crates/").unwrap_or(&source.path);
        if !rule.applies_to(path, layers.layer_of(source.crate_name())) {
            continue;
        }
        read += 1;
        let lines: Vec<_> = source.text.lines().collect();
        for line in patterns.iter().flat_map(|pattern| matches(&source.tokens, pattern)) {
            let text = lines[line - 1].to_lowercase();
            if !rule.beside.is_empty() && !rule.beside.iter().any(|word| text.contains(word)) {
                continue;
            }
            match rule.allowed.iter().position(|allowed| is_within(path, allowed)) {
                Some(index) => used[index] = true,
                None => complaints.push(format!("crates/{path}:{line}: {}", rule.name)),
            }
        }
    }
    if read == 0 {
        complaints.push(format!("rules: {} applies to no file", rule.name));
    }
    for (allowed, _) in rule.allowed.iter().zip(used).filter(|(_, used)| !used) {
        complaints.push(format!("rules: {} allows {allowed}, which does not need it", rule.name));
    }
}

fn is_within(path: &str, folder: &str) -> bool {
    path.strip_prefix(folder).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Splits a pattern into tokens: words, and single signs.
fn lex(pattern: &str) -> Vec<String> {
    let mut tokens: Vec<String> = Vec::new();
    let mut is_word = false;
    for letter in pattern.chars() {
        let belongs = letter.is_alphanumeric() || letter == '_';
        match tokens.last_mut() {
            Some(word) if belongs && is_word => word.push(letter),
            _ if letter.is_whitespace() => {}
            _ => tokens.push(letter.to_string()),
        }
        is_word = belongs;
    }
    tokens
}

fn fits(token: &str, wanted: &str) -> bool {
    if wanted != "VARIANT" {
        return token == wanted;
    }
    let mut letters = token.chars();
    letters.next().is_some_and(char::is_uppercase) && letters.next().is_some_and(char::is_lowercase)
}

/// The lines on which the pattern begins.
fn matches(tokens: &[Token], pattern: &[String]) -> Vec<usize> {
    let windows = tokens.windows(pattern.len());
    let found = windows.filter(|window| {
        window.iter().zip(pattern).all(|(token, wanted)| fits(&token.text, wanted))
    });
    found.map(|window| window[0].line).collect()
}

/// The functions whose bodies hold the pattern, sorted.
fn functions_with(source: &Source, pattern: &[String]) -> Vec<String> {
    let (mut open, mut found) = (Vec::<(String, usize)>::new(), Vec::new());
    let (mut depth, mut brackets, mut declared) = (0, 0, None);
    for (at, token) in source.tokens.iter().enumerate() {
        match token.text.as_str() {
            "fn" => declared = source.tokens.get(at + 1).map(|name| name.text.clone()),
            // The declaration of a trait's method has no body; `[u8; 2]` of a signature is no end.
            ";" if brackets == 0 => declared = None,
            "(" | "[" => brackets += 1,
            ")" | "]" => brackets -= 1,
            "{" => {
                depth += 1;
                open.extend(declared.take().map(|name| (name, depth)));
            }
            "}" => {
                open.pop_if(|(_, inside)| *inside == depth);
                depth -= 1;
            }
            _ => {}
        }
        let rest = &source.tokens[at..];
        let fits_here = rest.len() >= pattern.len()
            && rest.iter().zip(pattern).all(|(token, wanted)| fits(&token.text, wanted));
        // A call is no declaration of the same name.
        let is_declared = at > 0 && source.tokens[at - 1].text == "fn";
        if let (true, false, Some((name, _))) = (fits_here, is_declared, open.last()) {
            found.push(name.clone());
        }
    }
    found.sort();
    found.dedup();
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sources::tokens_of;

    fn holds(text: &str, pattern: &str) -> bool {
        !matches(&tokens_of(text), &lex(pattern)).is_empty()
    }

    #[test]
    fn patterns_match_tokens_not_letters() {
        assert!(holds("match mode { DataMode::Ordered => 1, _ => 2 }", "DataMode::VARIANT"));
        assert!(holds("use journal::DataMode::{Ordered, Journal};", "DataMode::{"));
        assert!(!holds("DataMode::ALL", "DataMode::VARIANT"));
        assert!(!holds("let s = \"DataMode::Ordered\"; // DataMode::Ordered", "DataMode::VARIANT"));
        assert!(holds("eprintln!(\"x\")", "eprintln!") && !holds("my_println!(1)", "println!"));
    }

    #[test]
    fn callers_are_found_by_function() {
        let text = "impl A { fn one(&self) { self.flush(); } fn two(&self) { |x| { x } ; } \
                    fn flush(&self, _: [u8; 2]) { async { disk.flush() } } }";
        let source = Source {
            path: "crates/a/src/lib.rs".to_owned(),
            text: text.to_owned(),
            tokens: tokens_of(text),
            quoted_lines: Default::default(),
            syntax: syn::parse_file(text).unwrap(),
        };
        assert_eq!(functions_with(&source, &lex(".flush(")), ["flush", "one"]);
        assert_eq!(functions_with(&source, &lex("self.flush(")), ["one"]);
        assert_eq!(functions_with(&source, &lex("flush(")), ["flush", "one"]);
    }

    #[test]
    fn allowed_folders_end_at_names() {
        assert!(is_within("format/src/a.rs", "format") && is_within("a/b.rs", "a/b.rs"));
        assert!(!is_within("formatter/src/a.rs", "format"));
    }
}
