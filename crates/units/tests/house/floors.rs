//! ARCHITECTURE's table of floors: every crate stands in it, and every *never* names what holds it.

use super::sources::{crates, root, sources};
use super::{declares_test, names_in};
use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

/// Crate, and crates that it never depends on.
const APART: [(&str, &[&str]); 7] = [
    ("blocks", &["ext4", "host", "journal", "scattered"]),
    ("fuse", &["engine", "journal", "format"]),
    ("nbd", &["engine", "ext4", "format", "disks", "scattered"]),
    ("scattered", &["engine", "ext4", "format", "journal"]),
    ("eviction", &["engine", "ext4", "journal"]),
    ("store", &["engine", "ext4", "format", "host", "journal"]),
    ("ext4", &["journal"]),
];
/// Of ARCHITECTURE's table.
pub const FLOORS_BELOW_THE_DOORS: [u8; 6] = [0, 1, 2, 3, 4, 5];

/// The crates that ARCHITECTURE's table has on this floor.
pub fn crates_on(floor: u8) -> Vec<String> {
    let document = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let rows = rows(&document).into_iter().filter(|row| row[0] == floor.to_string());
    let names = rows.flat_map(|row| row[1].split('`').skip(1).step_by(2));
    names.map(str::to_owned).collect()
}

/// What mounts.
const MOUNTS: [&str; 8] = ["blocks", "ceph", "engine", "ext4", "fuse", "host", "nbd", "store"];

/// In the sections `[dependencies]` and `[build-dependencies]`.
fn dependencies(of: &str) -> BTreeSet<String> {
    let manifest = fs::read_to_string(root().join("crates").join(of).join("Cargo.toml")).unwrap();
    let (mut found, mut wanted) = (BTreeSet::new(), false);
    for line in manifest.lines() {
        if line.starts_with('[') {
            wanted = ["[dependencies]", "[build-dependencies]"].contains(&line.trim());
        } else if wanted && let Some((name, _)) = line.split_once(['.', ' ', '=']) {
            found.insert(name.to_owned());
        }
    }
    found
}

/// The cells of the table: floor, crates, what they hold, never.
fn rows(document: &str) -> Vec<[&str; 4]> {
    let table = document.split("## Floors").nth(1).unwrap().split("\n## ").next().unwrap();
    let cells = |line: &'static str| -> Option<[&str; 4]> {
        let cells: Vec<_> = line.trim_matches('|').split('|').map(str::trim).collect();
        cells.try_into().ok()
    };
    let is_row = |line: &&str| line.starts_with("| ") && line.as_bytes()[2].is_ascii_digit();
    let table: &'static str = Box::leak(table.to_owned().into_boxed_str());
    table
        .lines()
        .filter(is_row)
        .map(|line| cells(line).unwrap_or_else(|| panic!("{line}")))
        .collect()
}

#[test]
fn every_crate_stands_on_one_floor() {
    let document = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let mut told: Vec<_> =
        rows(&document).iter().flat_map(|row| row[1].split('`').skip(1).step_by(2)).collect();
    told.sort_unstable();
    let mut found = crates();
    found.sort();
    assert_eq!(told, found);
}

#[test]
fn every_never_of_a_floor_names_what_holds_it() {
    let document = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    for [_, name, _, never] in rows(&document) {
        for claim in never.split("; ").filter(|claim| !claim.is_empty()) {
            let by_test =
                names_in(claim).into_iter().any(|(owner, test)| declares_test(owner, test));
            let is_file = |word: &str| word.contains('/') && root().join(word).exists();
            let by_file = claim.split('`').skip(1).step_by(2).any(is_file);
            assert!(by_test || by_file, "{name} never {claim}: what holds it?");
        }
    }
}

#[test]
fn rooms_know_no_more_than_architecture_says() {
    for (name, never) in APART {
        let found = dependencies(name);
        assert!(found.contains("device"), "{name}: the dependencies are not found");
        let too_many: Vec<_> = never.iter().filter(|other| found.contains(**other)).collect();
        assert!(too_many.is_empty(), "{name} knows {too_many:?}");
    }
    for name in ["scattered", "eviction"] {
        for (path, text) in sources(root().join("crates").join(name).join("src")) {
            assert!(!text.contains("format::ext4"), "{}", path.display());
        }
    }
}

#[test]
fn what_mounts_makes_no_volume_images() {
    for name in MOUNTS {
        assert!(!dependencies(name).contains("volume_images"), "{name}");
    }
}

/// What the daemon uses is `ceph/client`.
#[test]
fn only_the_helper_knows_the_library_of_ceph() {
    let source = root().join("crates/ceph/src");
    let mut seen = 0;
    for (path, text) in sources(source.clone()) {
        let room = path.strip_prefix(&source).unwrap();
        let knows = text.contains("crate::library") || text.contains("libloading");
        seen += usize::from(knows);
        assert!(
            !knows || room.starts_with("helper") || room.starts_with("library"),
            "{}",
            path.display()
        );
    }
    assert!(seen > 2, "the library is not where it is looked for");
}

#[test]
fn three_files_of_ext4_write_past_the_engine() {
    let source = root().join("crates/ext4/src");
    let writes = |text: &str| {
        ["disk.write(", "home.write(", "disk().write("].iter().any(|call| text.contains(call))
    };
    let found = sources(source.clone()).into_iter().filter(|(_, text)| writes(text));
    let mut found: Vec<_> =
        found.map(|(path, _)| path.strip_prefix(&source).unwrap().to_owned()).collect();
    found.sort();
    assert_eq!(
        found,
        ["volume/flush_zone.rs", "volume/mmp.rs", "volume/superblock.rs"].map(PathBuf::from)
    );
}

/// The kernel lets go of a killed daemon's disks a moment after its end: whoever asks at once waits
/// for it.
#[test]
fn the_command_claims_disks_in_one_place_that_is_patient() {
    let source = root().join("crates/cli/src");
    let claims = |text: &str| {
        let text = text.split("#[cfg(test)]").next().unwrap();
        ["Claim::take(", "disks::lock_image(", "FileDisk::open"]
            .iter()
            .any(|call| text.contains(call))
    };
    let found = sources(source.clone()).into_iter().filter(|(_, text)| claims(text));
    let found: Vec<_> =
        found.map(|(path, _)| path.strip_prefix(&source).unwrap().to_owned()).collect();
    assert_eq!(found, [PathBuf::from("disk/open_disk.rs")]);
}
