//! Files and folders know each other in one direction: read from the sources.
//!
//! A file knows another if it names something that is declared there, also through a re-export. A
//! folder is what its files are. It and the files in it may know each other, since they are one
//! room.

use super::sources::{crates, root, sources};
use std::collections::{BTreeMap, BTreeSet};

/// Where files know each other in circles, from `crates/`, and why.
const CIRCLES: [(&str, &str); 4] = [
    ("ext4/src", "methods of the open volume stand in every folder, and each of them takes it"),
    ("journal/src/log_space", "methods of the scattered logs stand in three files"),
    ("scattered/src", "methods of the disk's state stand with what they are for"),
    ("sim/src", "a case is judged by what a crash of the case left"),
];

/// A file without its ending; a folder's `mod.rs` is the folder.
type Module = Vec<String>;

struct Crate {
    /// Without comments and tests.
    texts: BTreeMap<Module, String>,
    /// Of a module, what each name that it re-exports stands for.
    exports: BTreeMap<Module, BTreeMap<String, Vec<String>>>,
}

impl Crate {
    fn read(name: &str) -> Crate {
        let folder = root().join("crates").join(name).join("src");
        let mut texts = BTreeMap::new();
        for (path, text) in sources(folder.clone()) {
            let path = path.strip_prefix(&folder).unwrap().with_extension("");
            let mut module: Module =
                path.iter().map(|part| part.to_str().unwrap().to_owned()).collect();
            module.pop_if(|last| ["lib", "main", "mod"].contains(&last.as_str()));
            let text = text.split("#[cfg(test)]\nmod tests").next().unwrap();
            let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
            texts.insert(module, code.collect::<Vec<_>>().join("\n"));
        }
        let mut exports: BTreeMap<Module, BTreeMap<_, _>> = BTreeMap::new();
        for (module, text) in &texts {
            let paths = uses(text)
                .into_iter()
                .filter(|(is_public, _)| *is_public)
                .flat_map(|(_, paths)| paths);
            let names = paths.map(|path| (path.last().unwrap().clone(), path));
            exports.insert(module.clone(), names.collect());
        }
        Crate { texts, exports }
    }

    /// The file in which `path`, as `module` names it, is declared; `None` if that is another
    /// crate.
    fn file_of(&self, module: &[String], path: &[String]) -> Option<Module> {
        let mut at = module.to_vec();
        let mut rest = path;
        match path[0].as_str() {
            "crate" => (at, rest) = (Module::new(), &path[1..]),
            "self" => rest = &path[1..],
            "super" => {
                while let Some(("super", behind)) =
                    rest.split_first().map(|(first, behind)| (&**first, behind))
                {
                    at.pop();
                    rest = behind;
                }
            }
            first if !self.texts.contains_key(&below(module, first)) => return None,
            _ => {}
        }
        while let Some((next, behind)) = rest.split_first()
            && self.texts.contains_key(&below(&at, next))
        {
            at.push(next.clone());
            rest = behind;
        }
        let exported = rest.first().and_then(|name| self.exports.get(&at)?.get(name));
        match exported {
            Some(path) if *module != at => self.file_of(&at, path).or(Some(at)),
            _ => Some(at),
        }
    }

    /// Which files the file knows.
    fn known(&self, module: &Module) -> BTreeSet<Module> {
        let mut body = self.texts[module].clone();
        while let Some(at) = body.find("pub use ") {
            body.replace_range(at..at + body[at..].find(';').unwrap(), "");
        }
        let mut paths = inline(&body);
        paths.extend(uses(&body).into_iter().flat_map(|(_, paths)| paths));
        let is_used = |name: &str| {
            body.split(|c: char| !c.is_alphanumeric() && c != '_').any(|it| it == name)
        };
        let own = self.exports[module].iter().filter(|(name, _)| is_used(name));
        paths.extend(own.map(|(_, path)| path.clone()));
        paths
            .iter()
            .filter_map(|path| self.file_of(module, path))
            .filter(|other| other != module)
            .collect()
    }

    /// Of each folder, which of its files and folders know which.
    fn folders(&self) -> BTreeMap<Module, BTreeMap<String, BTreeSet<String>>> {
        let mut folders: BTreeMap<Module, BTreeMap<String, BTreeSet<String>>> = BTreeMap::new();
        for from in self.texts.keys() {
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

fn below(module: &[String], name: &str) -> Module {
    module.iter().cloned().chain([name.to_owned()]).collect()
}

/// The `use` clauses: whether each is public, and the paths that it names.
fn uses(text: &str) -> Vec<(bool, Vec<Vec<String>>)> {
    let mut found = Vec::new();
    for line in text.match_indices("use ").map(|(at, _)| at) {
        let before = text[..line].rsplit('\n').next().unwrap().trim();
        if before.is_empty() || before.starts_with("pub") {
            let clause: String =
                text[line + 4..].split(';').next().unwrap().split_whitespace().collect();
            let mut paths = Vec::new();
            expand(&[], &clause, &mut paths);
            found.push((!before.is_empty(), paths));
        }
    }
    found
}

fn expand(prefix: &[String], tree: &str, paths: &mut Vec<Vec<String>>) {
    let (mut depth, mut start) = (0, 0);
    for (at, letter) in tree.char_indices().chain([(tree.len(), ',')]) {
        match letter {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                let part = &tree[start..at];
                start = at + 1;
                let (head, group) =
                    part.split_once('{').map_or((part, None), |(head, rest)| (head, Some(rest)));
                let mut path = prefix.to_vec();
                path.extend(head.split("::").filter(|word| !word.is_empty()).map(str::to_owned));
                match group {
                    Some(group) => expand(&path, group.strip_suffix('}').unwrap(), paths),
                    None if !path.is_empty() => paths.push(path),
                    None => {}
                }
            }
            _ => {}
        }
    }
}

/// Paths of this crate that stand in the code.
fn inline(text: &str) -> Vec<Vec<String>> {
    let starts = ["crate::", "super::"].into_iter().flat_map(|word| text.match_indices(word));
    let starts = starts.filter(|(at, _)| !text[..*at].ends_with("::"));
    let path = |(at, _): (usize, &str)| {
        let end = text[at..].find(|c: char| !c.is_alphanumeric() && c != '_' && c != ':');
        let path = &text[at..end.map_or(text.len(), |end| at + end)];
        path.split("::").filter(|word| !word.is_empty()).map(str::to_owned).collect()
    };
    starts.map(path).collect()
}

/// What is in a circle, or between two.
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

#[test]
fn files_and_folders_know_each_other_in_one_direction() {
    let (mut found, mut seen) = (BTreeMap::new(), 0);
    for name in crates() {
        for (folder, known) in Crate::read(&name).folders() {
            let path: Vec<_> = [name.clone(), "src".to_owned()].into_iter().chain(folder).collect();
            seen += known.values().map(BTreeSet::len).sum::<usize>();
            found.insert(path.join("/"), circle(known));
        }
    }
    assert!(seen > 1000, "the files' knowledge of each other is not found: {seen}");
    found.retain(|_, circle| !circle.is_empty());
    for (folder, _) in CIRCLES {
        assert!(found.remove(folder).is_some(), "{folder} has no circle: it needs no leave");
    }
    assert!(found.is_empty(), "in circles, or between two: {found:#?}");
}

#[test]
fn circles_are_told_from_lines() {
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
    let text = "use crate::a::{self, B, c::{D, E}};\npub use x::Y;\nlet z = super::f::g(1);";
    let all: Vec<_> =
        uses(text).into_iter().map(|(is_public, paths)| (is_public, paths.len())).collect();
    assert_eq!(all, [(false, 4), (true, 1)]);
    assert_eq!(inline(text)[1], ["super", "f", "g"]);
}
