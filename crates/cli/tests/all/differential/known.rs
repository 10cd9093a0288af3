//! Differences that docs/POSIX.md has a row about. The lists may only shrink: one that an
//! exploration no longer meets fails.

use super::explore::{KnownDifference, Step};

fn has(script: &[Step], words: &str) -> bool {
    script.iter().any(|step| step.call.text.contains(words))
}
fn ends(script: &[Step], words: &str) -> bool {
    script.last().is_some_and(|step| step.call.text.contains(words))
}

const COLLAPSED: KnownDifference = KnownDifference {
    row: "`fallocate` with COLLAPSE_RANGE or INSERT_RANGE",
    is_this: |script, what| ends(script, "collapse") && what.starts_with("Operation not"),
};
const NOT_ALIGNED: KnownDifference = KnownDifference {
    row: "`O_DIRECT` with an offset, a length or a buffer that is not aligned",
    is_this: |script, what| has(script, "O_DIRECT") && what.contains("instead of Invalid argument"),
};
const IN_DIRECTORY: KnownDifference = KnownDifference {
    row: "`lseek` on a directory",
    is_this: |script, _| has(script, "x = open d") && ends(script, "lseek x"),
};

/// Differences of volumes from the kernel's ext4.
pub const OF_VOLUMES: &[KnownDifference] = &[COLLAPSED, NOT_ALIGNED, IN_DIRECTORY];

/// Differences of one host from the directory behind it.
pub const OF_HOSTS: &[KnownDifference] = &[
    COLLAPSED,
    NOT_ALIGNED,
    IN_DIRECTORY,
    KnownDifference {
        row: "`O_TMPFILE` on a host",
        is_this: |script, what| {
            ends(script, "without a name") && what.starts_with("Operation not supported")
        },
    },
    KnownDifference {
        row: "`fallocate` with ZERO_RANGE on a host",
        is_this: |script, what| {
            ends(script, "zero x") && what.starts_with("Operation not supported")
        },
    },
    KnownDifference {
        row: "`chown(FILE, -1, -1)` on a host",
        is_this: |script, what| {
            ends(script, "chown a -1 -1") && has(script, "chmod a 6755") && what.contains("106755")
        },
    },
];

/// Differences of two hosts from two processes.
pub const OF_TWO_HOSTS: &[KnownDifference] = &[
    KnownDifference {
        row: "`stat` and `lseek(SEEK_END)` of a file that another host has changed",
        is_this: |script, _| ends(script, "lseek x, end"),
    },
    KnownDifference {
        row: "the offset of a descriptor with `O_APPEND` after a write",
        is_this: |script, what| {
            has(script, "append only") && ends(script, "write x") && what.contains("flags 0o102001")
        },
    },
    KnownDifference {
        row: "a file that one host removes while a program of another has it open",
        is_this: |script, what| ends(script, "unlink") && what.contains("links 0 size 0"),
    },
];
