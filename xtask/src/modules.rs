//! Files and folders of a crate know each other in one direction.
//!
//! A file knows another if it names something that is declared there, also through a re-export. A
//! folder is what its files are; it and the files in it may know each other.

use crate::sources::{Source, Token, Workspace};
use std::collections::{BTreeMap, BTreeSet};

/// Files that know each other in circles, from `crates/`, and why.
const CIRCLES: &[(&str, &str)] = &[
    ("engine/src", "folders group files by task; the files themselves are in no circle"),
    ("ext4/src", "methods of the open volume stand in every folder, and each of them takes it"),
    ("journal/src/log_space", "methods of the scattered logs stand in three files"),
    ("sim/src", "a case is judged by what a crash of the case left"),
];

/// Crates whose files know each other in one direction although their folders do not.
const FILES_IN_ONE_DIRECTION: &[&str] = &["engine"];

/// A file without its ending; a folder's `mod.rs` is the folder.
type Module = Vec<String>;
type Path = Vec<String>;

/// Names in a file: the paths of its `use` clauses, of its re-exports, and in its code.
#[derive(Default)]
struct Names {
    uses: Vec<Path>,
    reexports: Vec<Path>,
    inline: Vec<Path>,
    words: BTreeSet<String>,
}

impl Names {
    fn of(tokens: &[Token]) -> Names {
        let mut names = Names::default();
        let mut at = 0;
        while at < tokens.len() {
            let is_path = ["crate", "super"].contains(&tokens[at].text.as_str());
            if tokens[at].text == "use" {
                let end = at + tokens[at..].iter().position(|it| it.text == ";").unwrap_or(1);
                let mut paths = Vec::new();
                expand(&[], &tokens[at + 1..end], &mut paths);
                let is_public = is_public(&tokens[..at]);
                if is_public { &mut names.reexports } else { &mut names.uses }.extend(paths);
                at = end;
                continue;
            }
            if is_path && at.checked_sub(1).is_none_or(|before| tokens[before].text != ":") {
                let path = path_at(&tokens[at..]);
                names.inline.extend((path.len() > 1).then_some(path));
            }
            names.words.insert(tokens[at].text.clone());
            at += 1;
        }
        names
    }
}

/// Whether the item that begins behind `before` has a visibility.
fn is_public(before: &[Token]) -> bool {
    match before.last().map(|token| token.text.as_str()) {
        Some("pub") => true,
        // `pub(crate)` and its kin.
        Some(")") => {
            let open = before.iter().rposition(|token| token.text == "(").unwrap_or(0);
            open > 0 && before[open - 1].text == "pub"
        }
        _ => false,
    }
}

/// The names of the path that begins here.
fn path_at(tokens: &[Token]) -> Path {
    let mut path = vec![tokens[0].text.clone()];
    let mut rest = &tokens[1..];
    while let [one, other, name, behind @ ..] = rest
        && (one.text.as_str(), other.text.as_str()) == (":", ":")
        && name.text.chars().all(|letter| letter.is_alphanumeric() || letter == '_')
    {
        path.push(name.text.clone());
        rest = behind;
    }
    path
}

/// Appends the paths of the `use` tree that `tokens` are, each behind `prefix`.
fn expand(prefix: &[String], tokens: &[Token], paths: &mut Vec<Path>) {
    let (mut depth, mut start) = (0, 0);
    for at in 0..=tokens.len() {
        match tokens.get(at).map_or(",", |token| token.text.as_str()) {
            "{" => depth += 1,
            "}" => depth -= 1,
            "," if depth == 0 => {
                expand_part(prefix, &tokens[start..at], paths);
                start = at + 1;
            }
            _ => {}
        }
    }
}

fn expand_part(prefix: &[String], part: &[Token], paths: &mut Vec<Path>) {
    let group = part.iter().position(|token| token.text == "{");
    let head = &part[..group.unwrap_or(part.len())];
    let mut path = prefix.to_vec();
    let renamed = head.iter().position(|token| token.text == "as").unwrap_or(head.len());
    path.extend(head[..renamed].iter().map(|it| it.text.clone()).filter(|it| it != ":"));
    match group {
        Some(open) => expand(&path, &part[open + 1..part.len() - 1], paths),
        None if !path.is_empty() => paths.push(path),
        None => {}
    }
}

/// The modules of one crate.
struct Crate {
    names: BTreeMap<Module, Names>,
}

impl Crate {
    fn read<'a>(name: &str, sources: impl Iterator<Item = &'a Source>) -> Crate {
        let folder = format!("crates/{name}/src/");
        let mut names = BTreeMap::new();
        for source in sources.filter(|source| source.path.starts_with(&folder)) {
            let path = source.path[folder.len()..].trim_end_matches(".rs");
            let mut module: Module = path.split('/').map(str::to_owned).collect();
            module.pop_if(|last| ["lib", "main", "mod"].contains(&last.as_str()));
            names.insert(module, Names::of(&source.tokens));
        }
        Crate { names }
    }

    /// The path that `module` re-exports under this name.
    fn reexport(&self, module: &Module, name: &str) -> Option<&Path> {
        self.names
            .get(module)?
            .reexports
            .iter()
            .find(|path| path.last().is_some_and(|it| it == name))
    }

    /// The file in which `path`, as `module` names it, is declared; `None` in another crate.
    fn file_of(&self, module: &Module, path: &[String]) -> Option<Module> {
        let mut at = module.clone();
        let mut rest = path;
        match path.first()?.as_str() {
            "crate" => (at, rest) = (Module::new(), &path[1..]),
            "self" => rest = &path[1..],
            "super" => {
                while rest.first().is_some_and(|first| first == "super") {
                    at.pop();
                    rest = &rest[1..];
                }
            }
            first if !self.names.contains_key(&child(module, first)) => return None,
            _ => {}
        }
        while let Some((next, behind)) = rest.split_first()
            && self.names.contains_key(&child(&at, next))
        {
            at.push(next.clone());
            rest = behind;
        }
        let exported = rest.first().and_then(|name| self.reexport(&at, name));
        match exported {
            Some(path) if *module != at => self.file_of(&at, path).or(Some(at)),
            _ => Some(at),
        }
    }

    /// The files that a file knows.
    fn known(&self, module: &Module) -> BTreeSet<Module> {
        let names = &self.names[module];
        let is_used =
            |path: &&Path| path.last().is_some_and(|name| names.words.contains(name.as_str()));
        let own = names.reexports.iter().filter(is_used);
        let paths = names.uses.iter().chain(&names.inline).chain(own);
        paths.filter_map(|path| self.file_of(module, path)).filter(|it| it != module).collect()
    }

    /// Returns the files that each file names, wherever they lie. A folder and the files in it may
    /// know each other.
    fn files(&self) -> BTreeMap<String, BTreeSet<String>> {
        let name = |module: &Module| module.join("/");
        let is_folder_of = |one: &Module, other: &Module| one.starts_with(other);
        let mut files = BTreeMap::new();
        for from in self.names.keys() {
            let known = self.known(from).into_iter();
            let apart = known.filter(|to| !is_folder_of(from, to) && !is_folder_of(to, from));
            files.insert(name(from), apart.map(|to| name(&to)).collect());
        }
        files
    }

    /// Returns, for each folder, the files and folders that each of its members names.
    fn folders(&self) -> BTreeMap<Module, BTreeMap<String, BTreeSet<String>>> {
        let mut folders: BTreeMap<Module, BTreeMap<String, BTreeSet<String>>> = BTreeMap::new();
        for from in self.names.keys() {
            for to in self.known(from) {
                let shared = from.iter().zip(&to).take_while(|(one, other)| one == other).count();
                if let (Some(one), Some(other)) = (from.get(shared), to.get(shared)) {
                    let folder = folders.entry(from[..shared].to_vec()).or_default();
                    folder.entry(one.clone()).or_default().insert(other.clone());
                }
            }
        }
        folders
    }
}

fn child(module: &Module, name: &str) -> Module {
    module.iter().cloned().chain([name.to_owned()]).collect()
}

/// Returns what is in a circle, or between two.
fn circle(mut known: BTreeMap<String, BTreeSet<String>>) -> BTreeMap<String, BTreeSet<String>> {
    loop {
        let all: BTreeSet<_> = known.keys().cloned().collect();
        let others: BTreeSet<_> = known.values().flatten().cloned().collect();
        let before = known.len();
        known.values_mut().for_each(|others| others.retain(|other| all.contains(other)));
        known.retain(|name, knows| !knows.is_empty() && others.contains(name));
        if known.len() == before {
            return known;
        }
    }
}

/// Checks all crates.
pub fn check(workspace: &Workspace, complaints: &mut Vec<String>) {
    let (mut found, mut edges) = (BTreeMap::new(), 0);
    for name in &workspace.crates {
        let read = Crate::read(name, workspace.product());
        if FILES_IN_ONE_DIRECTION.contains(&name.as_str()) {
            let circle = circle(read.files());
            if !circle.is_empty() {
                complaints.push(format!("crates/{name}: files in a circle: {circle:?}"));
            }
        }
        for (folder, known) in read.folders() {
            let path: Vec<_> = [name.clone(), "src".to_owned()].into_iter().chain(folder).collect();
            edges += known.values().map(BTreeSet::len).sum::<usize>();
            found.insert(path.join("/"), circle(known));
        }
    }
    if edges < 1000 {
        complaints.push(format!("modules: only {edges} edges between files are found"));
    }
    found.retain(|_, circle| !circle.is_empty());
    for (folder, _) in CIRCLES {
        if found.remove(*folder).is_none() {
            complaints
                .push(format!("modules: crates/{folder} has no circle, and needs no permission"));
        }
    }
    for (folder, circle) in found {
        complaints.push(format!("crates/{folder}: files in a circle, or between two: {circle:?}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sources::tokens_of;

    #[test]
    fn circles_differ_from_lines() {
        let known = |edges: &[(&str, &str)]| {
            let mut known: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
            for (one, other) in edges {
                known.entry((*one).to_owned()).or_default().insert((*other).to_owned());
            }
            circle(known).into_keys().collect::<Vec<_>>()
        };
        assert_eq!(known(&[("a", "b"), ("b", "c"), ("a", "c")]), [""; 0]);
        assert_eq!(known(&[("a", "b"), ("b", "c"), ("c", "b"), ("c", "d")]), ["b", "c"]);
    }

    #[test]
    fn paths_are_read_from_clauses_and_from_code() {
        let text = "use crate::a::{self, B, c::{D, E as F}};\npub(crate) use x::Y;\n\
                    fn f() { let z = super::f::g(1); }";
        let names = Names::of(&tokens_of(text));
        assert_eq!(names.uses.len(), 4);
        assert_eq!(names.uses[3], ["crate", "a", "c", "E"]);
        assert_eq!(names.reexports, [["x", "Y"]]);
        assert_eq!(names.inline, [["super", "f", "g"]]);
    }
}
