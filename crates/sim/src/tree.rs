//! Content of a writer's directory, and its changes by each action.

use crate::script::{Action, Offset, link_target, pattern};
use std::collections::BTreeMap;
use std::rc::Rc;

/// Entries by path. A file with two names is there twice, with the same identity.
pub type Tree = BTreeMap<String, TreeEntry>;

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TreeEntry {
    /// A file; content is shared, as most actions leave most files unchanged.
    File {
        identity: usize,
        content: Rc<Vec<u8>>,
        attribute: Vec<u8>,
    },
    Symlink {
        target: Vec<u8>,
    },
    Directory,
}

/// Files with numbers from this on lie in directory 0, from twice this on in directory 1.
pub const FILES_A_DIRECTORY: u8 = 100;

/// Returns the path of a file.
pub fn file_name(file: u8) -> String {
    let name = format!("file-{}", file % FILES_A_DIRECTORY);
    match file / FILES_A_DIRECTORY {
        0 => name,
        inner => format!("{}/{name}", directory_name(inner - 1)),
    }
}
pub fn directory_name(number: u8) -> String {
    format!("directory-{number}")
}
/// Returns the path of a directory that was moved.
pub fn inner_name(number: u8) -> String {
    format!("{}/{}", directory_name(0), directory_name(number))
}
pub fn link_name(number: u8) -> String {
    format!("link-{number}")
}

/// Whether the directory that a path lies in is there.
fn has_parent(tree: &Tree, path: &str) -> bool {
    path.rsplit_once('/').is_none_or(|(parent, _)| tree.contains_key(parent))
}

fn is_within(path: &str, directory: &str) -> bool {
    path.strip_prefix(directory).is_some_and(|rest| rest.starts_with('/'))
}

/// Moves a directory with what lies in it.
fn move_directory(tree: &mut Tree, from: &str, to: &str) {
    let is_moved = |path: &String| *path == from || is_within(path, from);
    let moved: Vec<String> = tree.keys().filter(|path| is_moved(path)).cloned().collect();
    for path in moved {
        let entry = tree.remove(&path).expect("it was listed");
        tree.insert(format!("{to}{}", &path[from.len()..]), entry);
    }
}

pub(crate) fn content_of(tree: &Tree, wanted: usize) -> Option<&[u8]> {
    tree.values().find_map(|entry| match entry {
        TreeEntry::File { identity, content, .. } if *identity == wanted => {
            Some(content.as_slice())
        }
        _ => None,
    })
}

pub(crate) fn names_of(tree: &Tree, wanted: usize) -> u32 {
    let is_name = |entry: &&TreeEntry| {
        matches!(entry, TreeEntry::File { identity,
        .. } if *identity == wanted)
    };
    tree.values().filter(is_name).count() as u32
}

pub(crate) fn identity_of(tree: &Tree, file: u8) -> Option<usize> {
    match tree.get(&file_name(file)) {
        Some(TreeEntry::File { identity, .. }) => Some(*identity),
        _ => None,
    }
}

/// Applies one action, of a write at most `most` bytes; returns the file that it wrote.
pub(crate) fn apply(
    tree: &mut Tree,
    writer: usize,
    step: usize,
    action: &Action,
    most: usize,
) -> Option<usize> {
    let fresh = |content| TreeEntry::File {
        identity: step,
        content: Rc::new(content),
        attribute: Vec::new(),
    };
    match action {
        Action::Create { file } | Action::Nameless { file, .. }
            if !has_parent(tree, &file_name(*file)) =>
        {
            None
        }
        Action::Create { file } => {
            tree.entry(file_name(*file)).or_insert(fresh(Vec::new()));
            None
        }
        Action::Nameless { file, length } => {
            tree.entry(file_name(*file)).or_insert(fresh(pattern(writer, step, *length)));
            Some(step)
        }
        Action::Write { file, place, length } => change(tree, *file, |content, _| {
            let start = match place {
                Offset::End => content.len(),
                Offset::At(at) => *at as usize,
            };
            let end = start + most.min(*length);
            content.resize(content.len().max(end), 0);
            content[start..end].copy_from_slice(&pattern(writer, step, *length)[..end - start]);
        }),
        Action::Truncate { file, size } => {
            change(tree, *file, |content, _| content.resize(*size as usize, 0))
        }
        Action::Allocate { file, at, length } => {
            let end = (at + length) as usize;
            change(tree, *file, |content, _| content.resize(content.len().max(end), 0))
        }
        Action::Punch { file, at, length } => change(tree, *file, |content, _| {
            let end = content.len().min((at + length) as usize);
            content[end.min(*at as usize)..end].fill(0);
        }),
        Action::Attribute { file, length } => {
            change(tree, *file, |_, attribute| *attribute = pattern(writer, step, *length));
            None
        }
        Action::Rename { from, to } => {
            let same = identity_of(tree, *from) == identity_of(tree, *to);
            if !same && has_parent(tree, &file_name(*to)) {
                if let Some(entry) = tree.remove(&file_name(*from)) {
                    tree.insert(file_name(*to), entry);
                }
            }
            None
        }
        Action::Link { file, to } => {
            let found = tree.get(&file_name(*file)).cloned();
            if let Some(entry) = found.filter(|_| has_parent(tree, &file_name(*to))) {
                tree.entry(file_name(*to)).or_insert(entry);
            }
            None
        }
        Action::Unlink { file } => {
            tree.remove(&file_name(*file));
            None
        }
        Action::Symlink { number, length } => {
            let name = link_name(*number);
            if tree.remove(&name).is_none() {
                tree.insert(
                    name,
                    TreeEntry::Symlink { target: link_target(writer, step, *length) },
                );
            }
            None
        }
        Action::MakeDirectory { number } => {
            if !tree.contains_key(&inner_name(*number)) {
                tree.entry(directory_name(*number)).or_insert(TreeEntry::Directory);
            }
            None
        }
        Action::MoveDirectory { number } => {
            let (outer, inner) = (directory_name(*number), inner_name(*number));
            if tree.contains_key(&directory_name(0)) {
                match tree.contains_key(&outer) {
                    true => move_directory(tree, &outer, &inner),
                    false => move_directory(tree, &inner, &outer),
                }
            }
            None
        }
        Action::RemoveDirectory { number } => {
            let name = directory_name(*number);
            if !tree.keys().any(|path| is_within(path, &name)) {
                tree.remove(&name);
            }
            None
        }
        Action::Trim { .. } | Action::Address { .. } => None,
        Action::Wait { file, .. } => identity_of(tree, *file),
    }
}

/// Changes content and attribute of a file under all its names; returns the file.
fn change(tree: &mut Tree, file: u8, act: impl Fn(&mut Vec<u8>, &mut Vec<u8>)) -> Option<usize> {
    let wanted = identity_of(tree, file)?;
    for entry in tree.values_mut() {
        if let TreeEntry::File { identity, content, attribute } = entry {
            if *identity == wanted {
                act(Rc::make_mut(content), attribute);
            }
        }
    }
    Some(wanted)
}
