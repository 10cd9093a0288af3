//! Layers: dependencies between crates go down only. The table in ARCHITECTURE.md is the one place
//! that says which crate stands where.
//!
//! A crate may depend on crates of lower layers, and on those of its own layer that stand behind it
//! in the table.

use crate::sources::Workspace;
use std::collections::BTreeSet;

/// The layer of the programs, and of what only they use.
pub const PROGRAMS: u8 = 7;
/// The layer of the front ends. Below it time, chance and tasks come from `device::World`.
pub const FRONT_ENDS: u8 = 6;

/// Crate, and crates on which it never depends although they stand below it.
const APART: &[(&str, &[&str])] = &[
    ("cli", &["emulated", "volume_images"]),
    ("blocks", &["commit", "ext4", "host", "journal", "volume_images"]),
    ("fuse", &["commit", "engine", "journal", "format", "volume_images"]),
    (
        "fuse_session",
        &[
            "blocks",
            "ceph",
            "commit",
            "disks",
            "emulated",
            "engine",
            "eviction",
            "ext4",
            "format",
            "host",
            "journal",
            "store",
            "volume_images",
        ],
    ),
    ("nbd", &["commit", "engine", "ext4", "format", "disks", "volume_images"]),
    ("ublk", &["commit", "engine", "ext4", "format", "disks", "volume_images"]),
    ("eviction", &["commit", "engine", "ext4", "journal"]),
    ("store", &["commit", "engine", "ext4", "format", "host", "journal", "volume_images"]),
    ("ext4", &["commit", "journal", "volume_images"]),
    ("ceph", &["volume_images"]),
    ("commit", &["ext4", "store", "volume_images"]),
    ("engine", &["volume_images"]),
    ("host", &["volume_images"]),
];

/// Crates that talk to the kernel or to a C library, and may be unsafe.
const UNSAFE: &[&str] = &[
    "ceph",
    "cli",
    "disks",
    "fuse",
    "fuse_session",
    "lab",
    "runtime",
    "terminal",
    "testbeds",
    "ublk",
    "workloads",
];

/// Crates below the front ends whose business is another world than `device::World`.
const WITHOUT_LINTS: &[&str] = &["ceph", "runtime", "store", "volume_images"];

/// One row of the table.
struct Row {
    layer: u8,
    crates: Vec<String>,
    never: String,
}

/// The table of layers.
pub struct Layers {
    rows: Vec<Row>,
}

impl Layers {
    /// Reads the table of ARCHITECTURE.md.
    ///
    /// # Errors
    /// A text that says what the table lacks.
    pub fn read(page: &str) -> Result<Layers, String> {
        let table =
            page.split("\n## Layers").nth(1).ok_or("ARCHITECTURE.md has no table of layers")?;
        let table = table.split("\n## ").next().unwrap_or_default();
        let mut rows = Vec::new();
        for line in table.lines().filter(|line| line.starts_with("| ")) {
            let cells: Vec<_> = line.trim_matches('|').split('|').map(str::trim).collect();
            if let [layer, names, _, never] = cells[..]
                && let Ok(layer) = layer.parse()
            {
                let crates = quoted(names).map(str::to_owned).collect();
                rows.push(Row { layer, crates, never: never.to_owned() });
            }
        }
        if rows.is_empty() {
            Err("the table of layers is empty".to_owned())
        } else {
            Ok(Layers { rows })
        }
    }

    /// The layer of a crate; `None` if the table has no such crate.
    pub fn layer_of(&self, name: &str) -> Option<u8> {
        let row = self.rows.iter().find(|row| row.crates.iter().any(|it| it == name));
        row.map(|row| row.layer)
    }

    /// Returns all crates, in the order of the table.
    fn names(&self) -> Vec<&str> {
        self.rows.iter().flat_map(|row| row.crates.iter().map(String::as_str)).collect()
    }

    /// Returns what the rows say that a crate never does, each with the crates of its row.
    pub fn claims(&self) -> impl Iterator<Item = (&[String], &str)> {
        self.rows.iter().flat_map(|row| {
            let claims = row.never.split("; ").filter(|claim| !claim.is_empty());
            claims.map(|claim| (&row.crates[..], claim))
        })
    }
}

/// The words of a text that stand in backticks.
pub fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// The crates of a manifest's sections of dependencies, with whether tests alone need them.
fn dependencies(workspace: &Workspace, name: &str) -> Result<Vec<(String, bool)>, String> {
    let path = format!("crates/{name}/Cargo.toml");
    let manifest: toml::Table =
        workspace.file(&path)?.parse().map_err(|error| format!("{path}: {error}"))?;
    let mut found = Vec::new();
    for (section, is_test) in
        [("dependencies", false), ("build-dependencies", false), ("dev-dependencies", true)]
    {
        let entries = manifest.get(section).and_then(toml::Value::as_table);
        found.extend(entries.into_iter().flatten().map(|(name, _)| (name.clone(), is_test)));
    }
    Ok(found)
}

/// Checks edges between crates, the lints and the safety of each.
///
/// # Errors
/// A text that names a manifest that cannot be read.
pub fn check(
    workspace: &Workspace,
    layers: &Layers,
    complaints: &mut Vec<String>,
) -> Result<(), String> {
    let order = layers.names();
    let listed: BTreeSet<&str> = order.iter().copied().collect();
    let found: BTreeSet<&str> = workspace.crates.iter().map(String::as_str).collect();
    for name in listed.symmetric_difference(&found) {
        complaints.push(format!("ARCHITECTURE.md: crate {name} and the table of layers disagree"));
    }
    let rank = |name: &str| order.iter().position(|it| *it == name);
    for name in &workspace.crates {
        let dependencies = dependencies(workspace, name)?;
        for (other, _) in dependencies.iter().filter(|(other, _)| listed.contains(other.as_str())) {
            // The table begins with the highest layer.
            if rank(other) <= rank(name) {
                complaints
                    .push(format!("crates/{name}: depends on {other}, which is not below it"));
            }
        }
        let apart = APART.iter().filter(|(one, _)| one == name).flat_map(|(_, never)| *never);
        for never in apart {
            if dependencies.iter().any(|(other, is_test)| other == never && !is_test) {
                complaints.push(format!("crates/{name}: must know nothing of {never}"));
            }
        }
        check_safety(workspace, name, complaints);
        check_lints(workspace, layers, name, complaints)?;
    }
    Ok(())
}

fn check_safety(workspace: &Workspace, name: &str, complaints: &mut Vec<String>) {
    let library = workspace.file(&format!("crates/{name}/src/lib.rs"));
    let forbids = library.is_ok_and(|text| text.contains("forbid(unsafe_code)"));
    if forbids == UNSAFE.contains(&name) {
        let verb = if forbids { "forbids" } else { "allows" };
        complaints.push(format!("crates/{name}: {verb} unsafe code, against xtask's list"));
    }
}

fn check_lints(
    workspace: &Workspace,
    layers: &Layers,
    name: &str,
    complaints: &mut Vec<String>,
) -> Result<(), String> {
    let lints = workspace.file("lints/below-the-front-ends.toml")?;
    let own = workspace.file(&format!("crates/{name}/clippy.toml")).ok();
    let is_below = layers.layer_of(name).is_some_and(|layer| layer < FRONT_ENDS);
    let is_expected = is_below && !WITHOUT_LINTS.contains(&name);
    if is_below && own.is_some_and(|text| text == lints) != is_expected {
        complaints.push(format!("crates/{name}/clippy.toml: lints of a virtual world?"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_says_who_stands_where() {
        let page = "# A\n\n## Layers\n\n| layer | crate | holds | never |\n|---|---|---|---|\n\
                    | 7 | `cli`, `sim` | programs | |\n\
                    | 1 | `device` | disks | waits (`a::b`); x |\n\n## Next";
        let layers = Layers::read(page).unwrap();
        assert_eq!(layers.names(), ["cli", "sim", "device"]);
        assert_eq!((layers.layer_of("sim"), layers.layer_of("nbd")), (Some(7), None));
        assert_eq!(layers.claims().count(), 2);
        assert!(Layers::read("# A").is_err());
    }
}
