//! What a writer's directory looks like after each of its actions, and whether a recovered directory is one
//! that its mode allows.

use crate::script::{Action, Place, Script, pattern};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Contents by name. Directories made by the script have no content.
pub type Tree = BTreeMap<String, Entry>;

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Entry {
    File { identity: usize, content: Vec<u8> },
    Directory,
}

/// All states of one writer's directory: `states[k]` after its first `k` actions.
pub struct History {
    states: Vec<Tree>,
    /// For each file, by identity (the step that made it): all values each byte ever had.
    values: BTreeMap<usize, Vec<BTreeSet<u8>>>,
    /// For each state, the file that the action before it wrote and synced.
    synced: Vec<Option<String>>,
}

pub fn file_name(file: u8) -> String {
    format!("file-{file}")
}
pub fn directory_name(number: u8) -> String {
    format!("directory-{number}")
}

/// What a crash may leave of data (metadata is always a prefix of the actions).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Promise {
    /// Content and metadata of the same moment (`journal`, `wasteless`).
    Version,
    /// Only bytes that were written to the file, and every synced one (`ordered`, `selective`).
    Data,
    /// Synced bytes; anything in bytes never synced (`writeback`).
    Synced,
}

impl History {
    pub fn of(writer: usize, script: &Script) -> History {
        let mut history = History { states: vec![Tree::new()], values: BTreeMap::new(), synced: vec![None] };
        for (step, scripted) in script.iter().enumerate() {
            let mut tree = history.states[step].clone();
            let touched = apply(&mut tree, writer, step, &scripted.action);
            for entry in tree.values() {
                if let Entry::File { identity, content } = entry {
                    let values = history.values.entry(*identity).or_default();
                    values.resize_with(values.len().max(content.len()), BTreeSet::new);
                    for (place, byte) in content.iter().enumerate() {
                        values[place].insert(*byte);
                    }
                }
            }
            history.states.push(tree);
            history.synced.push(touched.filter(|_| scripted.sync));
        }
        history
    }

    /// The state before action `step` (0 is the first): what the action will meet.
    pub fn before(&self, step: usize) -> &Tree {
        &self.states[step]
    }

    /// Is `found` allowed, when the last acknowledged sync came after `acknowledged` actions and at most `started`
    /// actions had begun?
    pub fn judge(
        &self,
        found: &Found,
        acknowledged: usize,
        started: usize,
        promise: Promise,
    ) -> Result<(), Verdict> {
        let mut nearest = None;
        for state in (acknowledged..=started).rev() {
            match self.matches(found, state, acknowledged..=started, promise) {
                Ok(()) => return Ok(()),
                Err(why) => {
                    // The complaint that got furthest says most.
                    if nearest.as_ref().is_none_or(|(rank, _)| why.0 > *rank) {
                        nearest = Some((why.0, format!("state {state}: {}", why.1)));
                    }
                }
            }
        }
        Err(Verdict { acknowledged, started, nearest: nearest.map(|(_, why)| why).unwrap_or_default() })
    }

    fn matches(
        &self,
        found: &Found,
        state: usize,
        window: Window,
        promise: Promise,
    ) -> Result<(), (u8, String)> {
        let tree = &self.states[state];
        if !tree.keys().eq(found.keys()) {
            let expected: Vec<_> = tree.keys().collect();
            let names: Vec<_> = found.keys().collect();
            return Err((0, format!("names {names:?}, expected {expected:?}")));
        }
        for (name, entry) in tree {
            match (entry, &found[name]) {
                (Entry::Directory, None) => {}
                (Entry::File { identity, content }, Some(bytes)) => {
                    self.content_matches(name, *identity, content, bytes, window.clone(), promise)?
                }
                _ => return Err((1, format!("{name} is of the wrong kind"))),
            }
        }
        Ok(())
    }

    fn content_matches(
        &self,
        name: &str,
        identity: usize,
        expected: &[u8],
        bytes: &[u8],
        window: Window,
        promise: Promise,
    ) -> Result<(), (u8, String)> {
        if bytes.len() != expected.len() {
            return Err((1, format!("{name} has {} bytes, expected {}", bytes.len(), expected.len())));
        }
        let stable = match promise {
            Promise::Version => None,
            Promise::Data => Some(self.stable(identity, window)),
            Promise::Synced => {
                let from = self.last_sync(identity, *window.start());
                from.map(|from| self.untouched(identity, from..=*window.end())).or(Some(Vec::new()))
            }
        };
        for (place, byte) in bytes.iter().enumerate() {
            let fine = match &stable {
                None => *byte == expected[place],
                Some(stable) => match stable.get(place).copied().flatten() {
                    Some(promised) => *byte == promised,
                    // Zero: the tail of a block that a truncate cleared, home before its commit.
                    None => {
                        promise == Promise::Synced
                            || *byte == 0
                            || self.values[&identity][place].contains(byte)
                    }
                },
            };
            if !fine {
                return Err((
                    2,
                    format!("{name} byte {place} is {byte:#04x}, expected {:#04x}", expected[place]),
                ));
            }
        }
        Ok(())
    }

    /// The bytes of a file that were the same in all states of the window: a crash may not change them.
    fn stable(&self, identity: usize, window: Window) -> Vec<Option<u8>> {
        let mut stable: Option<Vec<Option<u8>>> = None;
        for tree in &self.states[window] {
            let Some(content) = content_of(tree, identity) else { continue };
            match &mut stable {
                None => stable = Some(content.iter().map(|byte| Some(*byte)).collect()),
                Some(stable) => {
                    stable.truncate(content.len());
                    for (known, byte) in stable.iter_mut().zip(content) {
                        if *known != Some(*byte) {
                            *known = None;
                        }
                    }
                }
            }
        }
        stable.unwrap_or_default()
    }

    /// The bytes of those blocks that were the same in all states of the window. A block that a later write
    /// allocated, its data not yet home, may show in `writeback` what the disk held before: all of it.
    fn untouched(&self, identity: usize, window: Window) -> Vec<Option<u8>> {
        let mut stable = self.stable(identity, window.clone());
        let lengths = || {
            self.states[window.clone()].iter().filter_map(|tree| content_of(tree, identity).map(<[u8]>::len))
        };
        if lengths().min() != lengths().max() {
            stable.truncate(stable.len() / LARGEST_BLOCK * LARGEST_BLOCK);
        }
        for block in stable.chunks_mut(LARGEST_BLOCK) {
            if block.contains(&None) {
                block.fill(None);
            }
        }
        stable
    }

    /// The last state up to `acknowledged` in which this file itself was written.
    fn last_sync(&self, identity: usize, acknowledged: usize) -> Option<usize> {
        (0..=acknowledged).rev().find(|state| {
            let name = self.synced[*state].as_ref();
            name.and_then(|name| self.states[*state].get(name))
                .is_some_and(|entry| matches!(entry, Entry::File { identity: i, .. } if *i == identity))
        })
    }
}

/// Bytes; no setup has larger blocks.
const LARGEST_BLOCK: usize = 4096;

/// From the last acknowledged sync to the last action begun: the states that a crash may leave.
type Window = std::ops::RangeInclusive<usize>;

/// What was read back: names to contents, `None` for directories.
pub type Found = BTreeMap<String, Option<Vec<u8>>>;

#[derive(Debug)]
pub struct Verdict {
    pub acknowledged: usize,
    pub started: usize,
    pub nearest: String,
}
impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "no state from {} to {} matches; nearest: {}",
            self.acknowledged, self.started, self.nearest
        )
    }
}

fn content_of(tree: &Tree, wanted: usize) -> Option<&[u8]> {
    tree.values().find_map(|entry| match entry {
        Entry::File { identity, content } if *identity == wanted => Some(content.as_slice()),
        _ => None,
    })
}

/// Applies one action; tells the name of the file it wrote.
fn apply(tree: &mut Tree, writer: usize, step: usize, action: &Action) -> Option<String> {
    match action {
        Action::Create { file } => {
            let fresh = Entry::File { identity: step, content: Vec::new() };
            tree.entry(file_name(*file)).or_insert(fresh);
            None
        }
        Action::Write { file, place, length } => {
            let name = file_name(*file);
            let Some(Entry::File { content, .. }) = tree.get_mut(&name) else { return None };
            let start = match place {
                Place::End => content.len(),
                Place::At(at) => *at as usize,
            };
            content.resize(content.len().max(start + length), 0);
            content[start..start + length].copy_from_slice(&pattern(writer, step, *length));
            Some(name)
        }
        Action::Truncate { file, size } => {
            let name = file_name(*file);
            let Some(Entry::File { content, .. }) = tree.get_mut(&name) else { return None };
            content.resize(*size as usize, 0);
            Some(name)
        }
        Action::Rename { from, to } => {
            if from != to
                && let Some(entry) = tree.remove(&file_name(*from))
            {
                tree.insert(file_name(*to), entry);
            }
            None
        }
        Action::Unlink { file } => {
            tree.remove(&file_name(*file));
            None
        }
        Action::MakeDirectory { number } => {
            tree.entry(directory_name(*number)).or_insert(Entry::Directory);
            None
        }
    }
}
