//! One name of a type has one meaning: within a crate, and among the types that crates offer each
//! other. A function fits a screen.

use crate::sources::{Workspace, is_test};
use std::collections::{BTreeMap, BTreeSet};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

/// Longest function, in lines with its signature.
const FUNCTION_LINES_MAX: usize = 70;

/// Functions that are longer still. The list may only shrink.
const LONG_FUNCTIONS: &[(&str, &str)] = &[
    ("crates/ceph/src/helper/serve.rs", "call"),
    ("crates/ceph/src/helper/serve.rs", "call_on_file"),
    ("crates/cli/src/fingerprint/mod.rs", "take"),
    ("crates/cli/src/host/mount.rs", "run_daemon"),
    ("crates/cli/src/inspect/logs.rs", "report"),
    ("crates/cli/src/inspect/record.rs", "fmt"),
    ("crates/cli/src/mount/serve.rs", "bring_up"),
    ("crates/cli/src/mount/serve.rs", "serve"),
    ("crates/eviction/src/flush_test.rs", "judge"),
    (
        "crates/ext4/tests/all/features/ea_inode.rs",
        "new_values_in_inodes_of_their_own_are_those_that_the_kernel_reads",
    ),
    ("crates/ext4/tests/all/names/operations.rs", "renames_obey_their_rules"),
    ("crates/format/src/ext4/superblock.rs", "check_geometry"),
    ("crates/format/src/jbd2/tables.rs", "superblock"),
    ("crates/fuse/src/host_front_end/mod.rs", "perform"),
    ("crates/fuse_session/src/request.rs", "operation"),
    ("crates/host/tests/all/explorer.rs", "play"),
    ("crates/hostile/tests/all/golden.rs", "open_and_list"),
    ("crates/reproduce/src/chart/shades.rs", "draw"),
    ("crates/reproduce/src/figures/arion/figure_4.rs", "figure_4"),
    ("crates/reproduce/src/figures/arion/figure_5.rs", "figure_5"),
    ("crates/reproduce/src/figures/okeanos/filebench.rs", "table_1"),
    ("crates/reproduce/src/figures/okeanos/postmark.rs", "figure_10a"),
    ("crates/sim/src/model.rs", "content_matches"),
    ("crates/sim/src/tree.rs", "apply"),
    ("crates/sim/src/writer.rs", "step"),
    ("crates/testbeds/src/virtual_time/shared_files/mod.rs", "build"),
    ("crates/workloads/src/filebench/flow.rs", "step"),
];

/// Crates at the top, whose types nobody imports.
const TOP: &[&str] = &["cli", "lab", "reproduce"];

/// Names that stand several times in one crate, each private to a file or folder.
const IN_ONE_CRATE: &[(&str, &str)] = &[
    ("Cell", "one run of a figure: each figure has its own settings"),
    ("Played", "a cell of a figure, and what it gave"),
    ("State", "what the clones of a handle share"),
];

/// The declarations of one file.
#[derive(Default)]
struct Declarations {
    /// Name, and whether it is `pub` without a bound.
    types: Vec<(String, bool)>,
    /// Name, first line, and number of lines.
    functions: Vec<(String, usize, usize)>,
}

impl Declarations {
    fn note(&mut self, name: &syn::Ident, visibility: &syn::Visibility) {
        let is_public = matches!(visibility, syn::Visibility::Public(_));
        self.types.push((name.to_string(), is_public));
    }

    fn measure(&mut self, name: &syn::Ident, whole: &impl Spanned) {
        let (first, last) = (name.span().start().line, whole.span().end().line);
        self.functions.push((name.to_string(), first, last - first + 1));
    }
}

impl<'a> Visit<'a> for Declarations {
    fn visit_item_mod(&mut self, item: &'a syn::ItemMod) {
        if !is_test(&item.attrs) {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_struct(&mut self, item: &'a syn::ItemStruct) {
        self.note(&item.ident, &item.vis);
    }

    fn visit_item_enum(&mut self, item: &'a syn::ItemEnum) {
        self.note(&item.ident, &item.vis);
    }

    fn visit_item_trait(&mut self, item: &'a syn::ItemTrait) {
        self.note(&item.ident, &item.vis);
        visit::visit_item_trait(self, item);
    }

    fn visit_item_fn(&mut self, item: &'a syn::ItemFn) {
        self.measure(&item.sig.ident, item);
        visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'a syn::ImplItemFn) {
        self.measure(&item.sig.ident, item);
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_trait_item_fn(&mut self, item: &'a syn::TraitItemFn) {
        self.measure(&item.sig.ident, item);
    }
}

/// The words behind each `before` of `text`, up to the next semicolon.
fn words_behind<'a>(text: &'a str, before: &str) -> BTreeSet<&'a str> {
    let clauses = text.split(before).skip(1).filter_map(|rest| rest.split(';').next());
    let is_end = |letter: char| !letter.is_alphanumeric() && letter != '_';
    clauses.flat_map(|clause| clause.split(is_end)).collect()
}

fn complain_of_twins(
    found: &BTreeMap<String, Vec<String>>,
    allowed: &[(&str, &str)],
    complaints: &mut Vec<String>,
) {
    let twice: Vec<_> = found.iter().filter(|(_, places)| places.len() > 1).collect();
    for (name, places) in &twice {
        if !allowed.iter().any(|(one, _)| one == name) {
            complaints.push(format!("type {name} has several meanings: {}", places.join(", ")));
        }
    }
    for (name, _) in allowed {
        if !twice.iter().any(|(one, _)| one == name) {
            complaints.push(format!("types: {name} stands once, and needs no permission"));
        }
    }
}

/// Checks the names of types and the lengths of functions.
pub fn check(workspace: &Workspace, complaints: &mut Vec<String>) {
    let mut here: BTreeMap<(String, String), Vec<String>> = BTreeMap::new();
    let mut offered: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut long = BTreeSet::new();
    for source in &workspace.sources {
        let mut declarations = Declarations::default();
        declarations.visit_file(&source.syntax);
        for (function, line, lines) in declarations.functions {
            let is_allowed =
                LONG_FUNCTIONS.iter().any(|(path, name)| *path == source.path && *name == function);
            if lines > FUNCTION_LINES_MAX && is_allowed {
                long.insert((source.path.clone(), function));
            } else if lines > FUNCTION_LINES_MAX {
                complaints.push(format!("{}:{line}: {function} has {lines} lines", source.path));
            }
        }
        if !source.is_product() {
            continue;
        }
        let name = source.crate_name();
        let library = workspace.file(&format!("crates/{name}/src/lib.rs")).unwrap_or_default();
        let reexported = words_behind(&library, "pub use ");
        let open = words_behind(&library, "pub mod ");
        let first = source.path.split('/').nth(3).unwrap_or_default().trim_end_matches(".rs");
        for (type_name, is_public) in declarations.types {
            here.entry((name.to_owned(), type_name.clone())).or_default().push(source.path.clone());
            if is_public && (open.contains(first) || reexported.contains(type_name.as_str())) {
                offered.entry(type_name).or_default().insert(name.to_owned());
            }
        }
    }
    for (path, name) in LONG_FUNCTIONS {
        if !long.contains(&((*path).to_owned(), (*name).to_owned())) {
            complaints.push(format!("{path}: {name} is short, and needs no permission"));
        }
    }
    let mut twins: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for ((_, name), places) in here.into_iter().filter(|(_, places)| places.len() > 1) {
        twins.entry(name).or_default().extend(places);
    }
    complain_of_twins(&twins, IN_ONE_CRATE, complaints);
    let offered: BTreeMap<_, Vec<String>> = offered
        .into_iter()
        .map(|(name, crates)| {
            (name, crates.into_iter().filter(|it| !TOP.contains(&it.as_str())).collect())
        })
        .collect();
    complain_of_twins(&offered, &[], complaints);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn declarations_of_tests_do_not_count() {
        let text =
            "pub struct A;\nenum B {}\nfn long() {\n\n}\n#[cfg(test)]\nmod tests { struct C; }";
        let mut found = Declarations::default();
        found.visit_file(&syn::parse_file(text).unwrap());
        assert_eq!(found.types, [("A".to_owned(), true), ("B".to_owned(), false)]);
        assert_eq!(found.functions, [("long".to_owned(), 3, 3)]);
    }
}
