//! Health of a mount, by its daemon's statistics: `list` shows the worst that is wrong, and `check`
//! finds all of it.

use serde_json::Value;

/// Mark by a check or a mount that found damage, or by a recovery that left something out.
pub const MARKED: &str =
    "the volume is marked: errors were found on it earlier, or a recovery left something out";

/// Reason not to call a mount sound, the worst first.
#[derive(Debug, PartialEq, Eq)]
pub enum HealthProblem {
    /// An error has stopped it.
    Stopped(String),
    /// Errors were found on the volume, or a recovery left something out, and no checker has looked
    /// since.
    NeedsCheck(CheckedBy),
    /// The journal holds something, and the mount does not show it.
    JournalNotReplayed,
    /// Number of files that the store of a host refuses.
    FilesFailed(u64),
}

/// Checker that a mount needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckedBy {
    E2fsck,
    /// That of the file system above a block volume.
    FileSystemAbove,
}

/// Returns what is wrong with a mount, the worst first.
pub fn problems(statistics: &Value) -> Vec<HealthProblem> {
    let is = |name: &str| statistics[name].as_bool() == Some(true);
    let checker = match statistics["blocks"].is_object() {
        true => CheckedBy::FileSystemAbove,
        false => CheckedBy::E2fsck,
    };
    let failed_files = statistics["host"]["failed_files"].as_u64().filter(|count| *count > 0);
    let stopped = statistics["failed"].as_str();
    let found = [
        stopped.map(|why| HealthProblem::Stopped(why.to_owned())),
        is("needs_check").then_some(HealthProblem::NeedsCheck(checker)),
        is("journal_not_replayed").then_some(HealthProblem::JournalNotReplayed),
        failed_files.map(HealthProblem::FilesFailed),
    ];
    found.into_iter().flatten().collect()
}

/// Describes the health in a few words; a reason may stand behind a colon.
pub fn in_words(statistics: &Value) -> String {
    match problems(statistics).into_iter().next() {
        Some(HealthProblem::Stopped(why)) => format!("stopped: {why}"),
        Some(HealthProblem::NeedsCheck(CheckedBy::E2fsck)) => {
            "errors were found: unmount it and run e2fsck -f".into()
        }
        Some(HealthProblem::NeedsCheck(CheckedBy::FileSystemAbove)) => {
            "errors were found: check the file system above it, detach it, and clear the error: \
             okeanos blocks drain --clear-error"
                .into()
        }
        Some(HealthProblem::JournalNotReplayed) => {
            "journal not replayed: unmount it; okeanos recover replays it".into()
        }
        Some(HealthProblem::FilesFailed(count)) => {
            format!("{count} files cannot go to the store: see the system log")
        }
        None if statistics["read_only"].as_bool() == Some(true) => "read-only".into(),
        None => "ok".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_worst_problem_is_shown_and_all_are_found() {
        let statistics = json!({ "failed": "a write failed", "needs_check": true,
            "read_only": true });
        assert_eq!(in_words(&statistics), "stopped: a write failed");
        let found = problems(&statistics);
        assert_eq!(found[1..], [HealthProblem::NeedsCheck(CheckedBy::E2fsck)]);
        assert_eq!(in_words(&json!({ "read_only": true, "failed": null })), "read-only");
        assert_eq!(in_words(&json!({ "needs_check": false, "host": { "failed_files": 0 } })), "ok");
        let not_replayed = json!({ "read_only": true, "journal_not_replayed": true });
        assert!(in_words(&not_replayed).starts_with("journal not replayed: "));
    }

    #[test]
    fn no_block_volume_is_sent_to_e2fsck() {
        let words = in_words(&json!({ "needs_check": true, "blocks": {} }));
        assert!(words.contains("--clear-error") && !words.contains("e2fsck"), "{words}");
    }
}
