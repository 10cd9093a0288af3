//! Tests that bounds were announced before results, and that every parameter has a record.

use emulated::Shingles;
use reproduce::{Bound, KeptResults, bounds, dimensions, find_statement, parameters, rigs};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use testbeds::{
    BlockLayer, BlockRun, Caching, MetadataTimes, SharedClient, SharedOptions, StageOptions,
};

fn own() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Returns the output of git in this repository; nothing if it fails or is not there.
fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").arg("-C").arg(own()).args(arguments).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Returns the bounds that stood in the files of statements at a commit.
fn bounds_at(commit: &str) -> Option<BTreeMap<String, Bound>> {
    let file = |name: &str| git(&["show", &format!("{commit}:./statements/{name}")]);
    let head = file("head.toml")?;
    let mut all = BTreeMap::new();
    for name in reproduce::files() {
        // A file may be younger.
        let Some(text) = file(name) else { continue };
        all.extend(
            bounds(&head, &text).unwrap_or_else(|error| panic!("{commit}: {name}: {error}")),
        );
    }
    Some(all)
}

#[test]
fn bounds_stood_before_the_results_that_they_judge() {
    let kept = KeptResults::read(&own().join("../../docs/figures.json")).unwrap();
    let mut changed = Vec::new();
    let all = kept.figures.iter().chain(&kept.given);
    // Earlier programs named no statements.
    for (name, figure) in all.filter(|(_, it)| !it.made_by.program.is_empty()) {
        let commit = figure.made_by.commit.split(' ').next().unwrap_or_default();
        assert!(!figure.made_by.commit.ends_with("changed since"), "{name}: sources were changed");
        if git(&["cat-file", "-e", &format!("{commit}^{{commit}}")]).is_none() {
            eprintln!("{name}: no history of {commit}; skipped");
            continue;
        }
        let then = bounds_at(commit).unwrap_or_else(|| panic!("{name}: nothing announced there"));
        for claim in &figure.claims {
            let now = find_statement(&claim.statement).map(|statement| statement.bound);
            if now.as_ref() != then.get(&claim.statement) {
                changed.push(format!(
                    "{}: {now:?}, when played {:?}",
                    claim.statement,
                    then.get(&claim.statement)
                ));
            }
        }
    }
    assert!(changed.is_empty(), "play these again: {changed:#?}");
}

/// Returns the names that a rig has records of, with those of its bases.
fn recorded(rig: &str) -> BTreeSet<&'static str> {
    let mut owners = vec![rig.to_owned()];
    while let Some(base) =
        rigs().iter().find(|it| it.name == owners[owners.len() - 1]).and_then(|it| it.base.clone())
    {
        owners.push(base);
    }
    let of_rig = parameters().iter().filter(|it| it.of.iter().any(|of| owners.contains(of)));
    of_rig.flat_map(|it| &it.names).map(String::as_str).collect()
}

/// Returns the fields of a structure's printed form, and those of its engine's options.
fn fields(printed: &str) -> Vec<&str> {
    let mut is_engine = false;
    let mut found = Vec::new();
    for line in printed.lines() {
        let name = line.trim_start();
        let depth = line.len() - name.len();
        let Some((name, _)) = name.split_once(": ") else { continue };
        if depth == 4 {
            is_engine = name == "engine";
        }
        if (depth == 4 && !is_engine) || (depth == 8 && is_engine) {
            found.push(name);
        }
    }
    found
}

#[test]
fn every_option_of_a_stage_has_a_record() {
    let stages = [
        ("okeanos", StageOptions::of_paper(engine::DataMode::Ordered)),
        ("discreet", StageOptions::of_discreet(engine::DataMode::Ordered, Caching::Off)),
        (
            "manylogs",
            StageOptions::of_manylogs(engine::DataMode::Adaptive, engine::LogKind::Scattered),
        ),
    ];
    for (rig, options) in stages {
        let printed = format!("{options:#?}");
        let fields = fields(&printed);
        assert!(fields.len() > 30, "the fields are not found: {fields:?}");
        has_records(rig, fields);
    }
}

/// Returns the fields of a structure's printed form at all depths.
fn all_fields(printed: &str) -> BTreeSet<&str> {
    printed.lines().filter_map(|line| Some(line.trim_start().split_once(": ")?.0)).collect()
}

/// Returns the fields that a structure has in its source, or that a source gives it.
fn fields_in<'a>(text: &'a str, structure: &str) -> BTreeSet<&'a str> {
    let head = format!("{structure} {{\n");
    let mut found = BTreeSet::new();
    for (at, _) in text.match_indices(&head) {
        let body = &text[at + head.len()..];
        let indent = body.len() - body.trim_start_matches([' ', '\n']).len();
        let lines = body
            .lines()
            .take_while(|line| line.trim_start().len() + indent <= line.len() || line.is_empty());
        let own = lines.filter(|line| line.len() - line.trim_start().len() == indent);
        let names = own.filter_map(|line| {
            line.trim_start().trim_start_matches("pub ").split([':', ',']).next()
        });
        found.extend(names.filter(|name| {
            !name.is_empty() && name.chars().all(|it| it == '_' || it.is_ascii_lowercase())
        }));
    }
    assert!(!found.is_empty(), "{structure} is not found");
    found
}

/// Asserts that a rig has a record of each field.
fn has_records<'a>(rig: &str, fields: impl IntoIterator<Item = &'a str>) {
    let recorded = recorded(rig);
    let missing: Vec<_> = fields.into_iter().filter(|name| !recorded.contains(*name)).collect();
    assert!(missing.is_empty(), "{rig}: {missing:?} need a record in parameters/stages.toml");
}

#[test]
fn every_option_of_block_runs_has_a_record() {
    let run = |layer| BlockRun {
        model: "constellation-es3",
        changes: Vec::new(),
        layer,
        requests: Vec::new().into(),
        checkpoint: false,
    };
    let layers = [
        BlockLayer::Scattered { logged: 0 },
        BlockLayer::Shingled(Shingles::scattered_logs()),
        BlockLayer::Shingled(Shingles::single_log()),
    ];
    let printed = layers.map(|layer| format!("{:#?}", run(layer))).concat();
    let fields = all_fields(&printed);
    assert!(fields.len() > 12, "the fields are not found: {fields:?}");
    has_records("blocks", fields);
    let stage = source("testbeds/src/virtual_time/blocks.rs");
    for given in ["BlocksFormatOptions", "= EngineOptions"] {
        has_records("blocks", fields_in(&stage, given));
    }
    has_records("blocks", constants(&stage));
}

#[test]
fn every_option_of_shared_files_has_a_record() {
    let (time, clients) = (
        Duration::ZERO,
        [
            SharedClient::Cached { writeback: Duration::ZERO, expire: Duration::ZERO },
            SharedClient::Journaled {
                flush: Duration::ZERO,
                writeback: Duration::ZERO,
                destage: None,
            },
        ],
    );
    for client in clients {
        let options = SharedOptions {
            client,
            servers: 3,
            latency: time,
            bytes_per_second: 1,
            home_every: time,
            processor: time,
            metadata: MetadataTimes::default(),
            changes: Vec::new(),
            seed: 1,
        };
        has_records("arion", fields(&format!("{options:#?}")));
        has_records("arion", all_fields(&format!("{client:#?}")));
    }
    // The figures do not see the host's options themselves.
    has_records("arion", fields_in(&source("host/src/options.rs"), "pub struct HostOptions"));
    let stage = source("testbeds/src/virtual_time/shared_files/mod.rs");
    for given in ["ServerDisks", "= Network", "= HostOptions"] {
        has_records("arion", fields_in(&stage, given));
    }
}

/// Returns the text of a source file of another crate.
fn source(path: &str) -> String {
    let path = own().join("..").join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Returns the names of a file's constants.
fn constants(text: &str) -> Vec<&str> {
    let lines =
        text.lines().filter_map(|line| line.trim_start_matches("pub ").strip_prefix("const "));
    lines.filter_map(|line| line.split(':').next()).collect()
}

/// Returns the keys of a model, sections before them; lists and small tables are one.
fn keys(text: &str) -> Vec<String> {
    let mut section = String::new();
    let mut found = Vec::new();
    let mut is_in_list = false;
    for line in text.lines() {
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            section = format!("{name}.");
        } else if is_in_list {
            is_in_list = line != "]";
        } else if let Some((key, value)) = line.split_once(" = ").filter(|_| !line.starts_with('#'))
        {
            is_in_list = value == "[";
            found.push(format!("{section}{key}"));
        }
    }
    found
}

#[test]
fn every_key_of_a_drive_has_a_record() {
    let drives: BTreeSet<&String> = rigs().iter().flat_map(|rig| &rig.drives).collect();
    for drive in drives {
        let (_, text) = emulated::shipped().find(|(name, _)| name == drive).expect("a model");
        let recorded = recorded(&format!("drive {drive}"));
        let keys = keys(text);
        assert!(keys.len() > 15, "the keys are not found: {keys:?}");
        for key in keys.iter().filter(|key| !["name", "about"].contains(&key.as_str())) {
            assert!(recorded.contains(key.as_str()), "{drive}: {key} needs a record");
        }
    }
}

/// Returns the source files of the figures.
fn sources(directory: PathBuf, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(directory).unwrap().flatten() {
        match entry.path() {
            path if path.is_dir() => sources(path, found),
            path => found.push(path),
        }
    }
}

#[test]
fn every_number_of_a_figure_has_a_record() {
    const UNITS: [&str; 3] = ["SECOND", "KIB", "MIB"];
    const TYPES: [&str; 6] = ["u64", "u32", "f64", "Duration", "MetadataTimes", "EvictionWorkload"];
    let all: BTreeSet<&str> =
        parameters().iter().flat_map(|it| &it.names).map(String::as_str).collect();
    let (mut files, mut count) = (Vec::new(), 0);
    sources(own().join("src/figures"), &mut files);
    for path in files {
        let text = std::fs::read_to_string(&path).unwrap();
        let (text, _) = text.split_once("#[cfg(test)]").unwrap_or((&text, ""));
        for line in text.lines() {
            let Some((_, rest)) = line.split_once("const ") else { continue };
            let Some((name, kind)) = rest.split_once(": ") else { continue };
            let kind = kind.trim_start_matches('[').split([' ', ';']).next().unwrap_or_default();
            if TYPES.contains(&kind) && !UNITS.contains(&name) {
                count += 1;
                assert!(all.contains(name), "{}: {name} needs a record", path.display());
            }
        }
    }
    assert!(count > 30, "the constants are not found: {count}");
}

#[test]
fn every_varied_number_is_asked_for_by_its_owner() {
    // Every stage of a rig asks for these, and for the numbers of its drives.
    const OF_STAGES: [&str; 3] = ["tick", "cache_bytes", "journal_size"];
    let mut files = Vec::new();
    sources(own().join("src/figures"), &mut files);
    let texts: Vec<String> =
        files.into_iter().map(|path| std::fs::read_to_string(path).unwrap()).collect();
    for dimension in dimensions() {
        let (owners, name) = (&dimension.parameter.of, dimension.name);
        if owners[0].starts_with("drive ") || OF_STAGES.contains(&name) {
            continue;
        }
        let quoted = |word: &str| format!("\"{word}\"");
        let asks = |text: &String| {
            let names_owner = owners.iter().any(|owner| text.contains(&quoted(owner)));
            text.contains(&quoted(name)) && names_owner
        };
        assert!(texts.iter().any(asks), "{}: no figure asks for it", dimension.in_words());
    }
}
