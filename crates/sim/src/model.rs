//! What a writer's directory looks like after each of its actions, and whether a recovered directory is one
//! that its mode allows.

use crate::script::{Action, Place, Script, Sync, link_target, pattern};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use units::InodeNumber;

/// What there is, by path. A file with two names is there twice, with the same identity.
pub type Tree = BTreeMap<String, Entry>;

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Entry {
    File { identity: usize, content: Vec<u8>, attribute: Vec<u8> },
    Symlink { target: Vec<u8> },
    Directory,
}

/// What became of an action. Without room an action does nothing, or a write a part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    Done,
    Refused,
    /// The write ended after so many bytes.
    Short(usize),
}

/// All states of one writer's directory: `states[k]` after its first `k` actions.
pub struct History {
    writer: usize,
    script: Script,
    states: Vec<Tree>,
    /// Whether writes may take several transactions: they are longer than one may be, or the volume is full.
    splits: bool,
    /// For each file, by identity (the step that made it): all values each byte ever had.
    values: BTreeMap<usize, Vec<BTreeSet<u8>>>,
    /// For each state, what the action before it synced.
    synced: Vec<Synced>,
    /// For each state, the zeros that the action after it may leave before it is done.
    half_done: Vec<Option<Zeros>>,
}

enum Synced {
    Nothing,
    /// The file that the action wrote.
    File(usize),
    All,
}

/// A range of a file that is zeroed in more than one transaction.
struct Zeros {
    identity: usize,
    range: std::ops::Range<usize>,
}

pub fn file_name(file: u8) -> String {
    format!("file-{file}")
}
pub fn directory_name(number: u8) -> String {
    format!("directory-{number}")
}
/// Where a directory is that was moved.
pub fn inner_name(number: u8) -> String {
    format!("{}/{}", directory_name(0), directory_name(number))
}
pub fn link_name(number: u8) -> String {
    format!("link-{number}")
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
        History::with_outcomes(writer, script, &[], false)
    }

    /// `outcomes`: as far as they are not [`Outcome::Done`].
    pub fn with_outcomes(writer: usize, script: &Script, outcomes: &[Outcome], splits: bool) -> History {
        let mut history = History {
            writer,
            script: script.clone(),
            splits,
            states: vec![Tree::new()],
            values: BTreeMap::new(),
            synced: vec![Synced::Nothing],
            half_done: Vec::new(),
        };
        for (step, scripted) in script.iter().enumerate() {
            let mut tree = history.states[step].clone();
            history.half_done.push(zeros_of(&tree, &scripted.action));
            let touched = match outcomes.get(step).copied().unwrap_or(Outcome::Done) {
                Outcome::Done => apply(&mut tree, writer, step, &scripted.action, usize::MAX),
                Outcome::Refused => None,
                Outcome::Short(most) => apply(&mut tree, writer, step, &scripted.action, most),
            };
            for entry in tree.values() {
                if let Entry::File { identity, content, .. } = entry {
                    let values = history.values.entry(*identity).or_default();
                    values.resize_with(values.len().max(content.len()), BTreeSet::new);
                    for (place, byte) in content.iter().enumerate() {
                        values[place].insert(*byte);
                    }
                }
            }
            history.states.push(tree);
            history.synced.push(match (scripted.sync, touched) {
                (Sync::Volume, _) => Synced::All,
                (Sync::File | Sync::Data, Some(identity)) => Synced::File(identity),
                _ => Synced::Nothing,
            });
        }
        history.half_done.push(None);
        history
    }

    /// Whether the last action leaves anything else than what it met.
    pub fn last_step_changes(&self) -> bool {
        self.states.last_chunk::<2>().is_some_and(|[before, after]| before != after)
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
        let window = || acknowledged..=started;
        for state in window().rev() {
            match self.matches(found, &self.states[state], state, window(), promise) {
                Ok(()) => return Ok(()),
                Err(why) => {
                    // The complaint that got furthest says most.
                    if nearest.as_ref().is_none_or(|(rank, _)| why.0 > *rank) {
                        nearest = Some((why.0, format!("state {state}: {}", why.1)));
                    }
                }
            }
        }
        let split = |state: usize| self.parts_after(state);
        if (acknowledged..started).any(|state| {
            split(state).any(|tree| self.matches(found, &tree, state, window(), promise).is_ok())
        }) {
            return Ok(());
        }
        Err(Verdict { acknowledged, started, nearest: nearest.map(|(_, why)| why).unwrap_or_default() })
    }

    /// What the write after `state` may leave when it took several transactions: it up to each block.
    fn parts_after(&self, state: usize) -> impl Iterator<Item = Tree> {
        let action = &self.script[state].action;
        let length = match action {
            Action::Write { length, .. } if self.splits => *length,
            _ => 0,
        };
        let start = match action {
            Action::Write { file, place: Place::End, .. } => {
                let identity = identity_of(&self.states[state], *file);
                identity.and_then(|identity| content_of(&self.states[state], identity)).map_or(0, <[u8]>::len)
            }
            Action::Write { place: Place::At(at), .. } => *at as usize,
            _ => 0,
        };
        let first = (start / SMALLEST_BLOCK + 1) * SMALLEST_BLOCK - start;
        (first..length).step_by(SMALLEST_BLOCK).map(move |most| {
            let mut tree = self.states[state].clone();
            apply(&mut tree, self.writer, state, action, most);
            tree
        })
    }

    /// Whether `found` is `tree`, which is `state` or on the way to the next one.
    fn matches(
        &self,
        found: &Found,
        tree: &Tree,
        state: usize,
        window: Window,
        promise: Promise,
    ) -> Result<(), (u8, String)> {
        if !tree.keys().eq(found.keys()) {
            let expected: Vec<_> = tree.keys().collect();
            let names: Vec<_> = found.keys().collect();
            return Err((0, format!("names {names:?}, expected {expected:?}")));
        }
        let mut inodes = BTreeMap::new();
        for (name, entry) in tree {
            match (entry, &found[name]) {
                (Entry::Directory, FoundEntry::Directory) => {}
                (Entry::Symlink { target }, FoundEntry::Symlink { target: met }) if target == met => {}
                (
                    Entry::File { identity, content, attribute },
                    FoundEntry::File { inode, links, content: bytes, attribute: met },
                ) => {
                    if attribute != met {
                        let (met, expected) = (met.len(), attribute.len());
                        let why = format!("{name} has an attribute of {met} bytes, expected {expected}");
                        return Err((1, why));
                    }
                    let names = names_of(tree, *identity);
                    if *links != names || *inodes.entry(*identity).or_insert(*inode) != *inode {
                        return Err((1, format!("{name}, {inode}: {links} links, expected {names} names")));
                    }
                    self.content_matches(name, state, *identity, content, bytes, window.clone(), promise)?
                }
                (entry, met) => return Err((1, format!("{name} is {met:?}, expected {entry:?}"))),
            }
        }
        Ok(())
    }

    #[allow(clippy::too_many_arguments)]
    fn content_matches(
        &self,
        name: &str,
        state: usize,
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
                None => *byte == expected[place] || *byte == 0 && self.may_be_zero(state, identity, place),
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

    fn may_be_zero(&self, state: usize, identity: usize, place: usize) -> bool {
        let zeros = self.half_done[state].as_ref();
        zeros.is_some_and(|zeros| zeros.identity == identity && zeros.range.contains(&place))
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

    /// The last state up to `acknowledged` in which this file itself was written and synced.
    fn last_sync(&self, identity: usize, acknowledged: usize) -> Option<usize> {
        (0..=acknowledged).rev().find(|state| match self.synced[*state] {
            Synced::Nothing => false,
            Synced::File(synced) => synced == identity,
            Synced::All => content_of(&self.states[*state], identity).is_some(),
        })
    }
}

/// Bytes; no setup has larger or smaller blocks.
const LARGEST_BLOCK: usize = 4096;
const SMALLEST_BLOCK: usize = 1024;

/// From the last acknowledged sync to the last action begun: the states that a crash may leave.
type Window = std::ops::RangeInclusive<usize>;

/// What was read back, by path.
pub type Found = BTreeMap<String, FoundEntry>;

#[derive(Debug)]
pub enum FoundEntry {
    File { inode: InodeNumber, links: u32, content: Vec<u8>, attribute: Vec<u8> },
    Symlink { target: Vec<u8> },
    Directory,
}

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
        Entry::File { identity, content, .. } if *identity == wanted => Some(content.as_slice()),
        _ => None,
    })
}

fn names_of(tree: &Tree, wanted: usize) -> u32 {
    let is_name = |entry: &&Entry| matches!(entry, Entry::File { identity, .. } if *identity == wanted);
    tree.values().filter(is_name).count() as u32
}

fn identity_of(tree: &Tree, file: u8) -> Option<usize> {
    match tree.get(&file_name(file)) {
        Some(Entry::File { identity, .. }) => Some(*identity),
        _ => None,
    }
}

/// A punched hole takes more than one transaction; size and names do not change meanwhile.
fn zeros_of(tree: &Tree, action: &Action) -> Option<Zeros> {
    let Action::Punch { file, at, length } = action else { return None };
    Some(Zeros { identity: identity_of(tree, *file)?, range: *at as usize..(at + length) as usize })
}

/// Applies one action, of a write at most `most` bytes; tells which file it wrote.
fn apply(tree: &mut Tree, writer: usize, step: usize, action: &Action, most: usize) -> Option<usize> {
    let fresh = |content| Entry::File { identity: step, content, attribute: Vec::new() };
    match action {
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
                Place::End => content.len(),
                Place::At(at) => *at as usize,
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
            if !same && let Some(entry) = tree.remove(&file_name(*from)) {
                tree.insert(file_name(*to), entry);
            }
            None
        }
        Action::Link { file, to } => {
            if let Some(entry) = tree.get(&file_name(*file)).cloned() {
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
                tree.insert(name, Entry::Symlink { target: link_target(writer, step, *length) });
            }
            None
        }
        Action::MakeDirectory { number } => {
            if !tree.contains_key(&inner_name(*number)) {
                tree.entry(directory_name(*number)).or_insert(Entry::Directory);
            }
            None
        }
        Action::MoveDirectory { number } => {
            let (outer, inner) = (directory_name(*number), inner_name(*number));
            if tree.contains_key(&directory_name(0)) {
                if tree.remove(&outer).is_some() {
                    tree.insert(inner, Entry::Directory);
                } else if tree.remove(&inner).is_some() {
                    tree.insert(outer, Entry::Directory);
                }
            }
            None
        }
        Action::Wait { file, .. } => identity_of(tree, *file),
    }
}

/// Changes content and attribute of a file under all its names; tells which it was.
fn change(tree: &mut Tree, file: u8, act: impl Fn(&mut Vec<u8>, &mut Vec<u8>)) -> Option<usize> {
    let wanted = identity_of(tree, file)?;
    for entry in tree.values_mut() {
        if let Entry::File { identity, content, attribute } = entry
            && *identity == wanted
        {
            act(content, attribute);
        }
    }
    Some(wanted)
}
