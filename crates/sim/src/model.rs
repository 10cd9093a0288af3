//! Expected states of a writer's directory after each of its actions, and whether a recovered
//! directory is one that its mode allows.

use crate::script::{Action, Offset, Script, Sync};
pub use crate::tree::{Tree, TreeEntry, directory_name, file_name, inner_name, link_name};
use crate::tree::{apply, content_of, identity_of, names_of};
use std::collections::BTreeMap;
use std::fmt;
use units::InodeNumber;

/// Outcome of an action. Without space an action does nothing, or a write a part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    Done,
    Refused,
    /// The write ended after this many bytes.
    Short(usize),
}

/// States of one writer's directory: `states[k]` after its first `k` actions.
pub struct History {
    writer: usize,
    script: Script,
    states: Vec<Tree>,
    outcomes: Vec<Outcome>,
    bounds: WriteBounds,
    /// Values that each byte of each file ever had, by the file's identity (the step that made it).
    values: BTreeMap<usize, Vec<ByteSet>>,
    /// Bytes of each file that the action before each state may have changed.
    changed: Vec<Vec<(usize, std::ops::Range<usize>)>>,
    /// Objects that the action before each state synced.
    synced: Vec<Synced>,
    /// Zeros that the action after each state may leave before it completes.
    half_done: Vec<Option<Zeros>>,
}

/// Guarantees of single writes on a volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WriteBounds {
    /// Bytes of the volume's blocks: block journaling never tears a write within one.
    pub block: usize,
    /// Bytes of the longest write that is whole or not at all. A longer one may take several
    /// transactions.
    pub whole_max: usize,
    /// Bytes of the pages at which the kernel splits a write that begins within one; `None`: it
    /// splits none.
    pub page: Option<usize>,
}

impl WriteBounds {
    /// Returns the bytes of the first of two requests that the write comes in.
    pub fn first_request(&self, offset: usize, length: usize) -> Option<usize> {
        let first = offset.next_multiple_of(self.page?) - offset;
        (0 < first && first < length).then_some(first)
    }
}

/// Findings about a directory that is as expected.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DirectoryFindings {
    /// Writes across a block boundary that were begun and not acknowledged, and are promised to be
    /// whole.
    pub writes: u64,
    /// Whether a write too long for that guarantee was found in part.
    pub split: bool,
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

/// Data that a crash may leave (metadata is always a prefix of the actions).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CrashGuarantee {
    /// Content and metadata of the same moment (`journal`, `wasteless`).
    Version,
    /// Only bytes that were written to the file, and every synced one (`ordered`, `selective`).
    Data,
    /// Like `Data`, but no commit waits for overwrites in place: a sync promises those of its own
    /// file alone.
    Reachable,
    /// Synced bytes; anything in bytes never synced (`writeback`).
    Synced,
}

impl History {
    pub fn of(writer: usize, script: &Script) -> History {
        History::with_outcomes(
            writer,
            script,
            &[],
            WriteBounds { block: LARGEST_BLOCK, whole_max: usize::MAX, page: None },
        )
    }

    /// Creates a history. `outcomes`: those other than [`Outcome::Done`].
    pub fn with_outcomes(
        writer: usize,
        script: &Script,
        outcomes: &[Outcome],
        bounds: WriteBounds,
    ) -> History {
        let mut history = History {
            writer,
            script: script.clone(),
            outcomes: outcomes.to_vec(),
            bounds,
            states: vec![Tree::new()],
            values: BTreeMap::new(),
            changed: vec![Vec::new()],
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
            let mut changed = Vec::new();
            for entry in tree.values() {
                let TreeEntry::File { identity, content, .. } = entry else { continue };
                let range = changed_range(content_of(&history.states[step], *identity), content);
                if !range.is_empty() {
                    let values = history.values.entry(*identity).or_default();
                    values.resize(values.len().max(content.len()), ByteSet::default());
                    let values = values[range.clone()].iter_mut();
                    values
                        .zip(&content[range.clone()])
                        .for_each(|(values, byte)| values.insert(*byte));
                    changed.push((*identity, range));
                }
            }
            history.changed.push(changed);
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

    /// Whether the last action changes the state.
    pub fn last_step_changes(&self) -> bool {
        self.states.last_chunk::<2>().is_some_and(|[before, after]| before != after)
    }

    /// Whether `found` is allowed. The last acknowledged sync of everything came after
    /// `acknowledged` actions, that of a file's data alone after `data`. At most `started` actions
    /// had begun.
    pub fn judge(
        &self,
        found: &Found,
        acknowledged: usize,
        data: usize,
        started: usize,
        guarantee: CrashGuarantee,
    ) -> Result<DirectoryFindings, CrashVerdict> {
        let mut nearest = None;
        let window = Window { acknowledged, data: data.max(acknowledged), started };
        let whole =
            |state: &usize| self.write_after(*state).is_some_and(|write| self.is_judged(&write));
        let writes = match guarantee {
            CrashGuarantee::Version => (acknowledged..started).filter(whole).count() as u64,
            CrashGuarantee::Data | CrashGuarantee::Reachable | CrashGuarantee::Synced => 0,
        };
        for state in (acknowledged..=started).rev() {
            match self.matches(found, &self.states[state], state, window, guarantee) {
                Ok(()) => return Ok(DirectoryFindings { writes, split: false }),
                Err(why) => {
                    // The most advanced complaint says most.
                    if nearest.as_ref().is_none_or(|(rank, _)| why.0 > *rank) {
                        nearest = Some((why.0, format!("state {state}: {}", why.1)));
                    }
                }
            }
        }
        let is_torn = |state: &usize| {
            self.parts_after(*state)
                .any(|tree| self.matches(found, &tree, *state, window, guarantee).is_ok())
        };
        let torn = (acknowledged..started).find(is_torn);
        let allowed = |state: usize| {
            self.write_after(state).is_some_and(|write| write.len() > self.bounds.whole_max)
        };
        if torn.is_some_and(allowed) {
            return Ok(DirectoryFindings { writes, split: true });
        }
        let first_request = |state: &usize| {
            self.write_after(*state)
                .and_then(|write| self.bounds.first_request(write.start, write.len()))
                .map(|most| self.part_after(*state, most))
                .is_some_and(|tree| self.matches(found, &tree, *state, window, guarantee).is_ok())
        };
        if (acknowledged..started).any(|state| first_request(&state)) {
            return Ok(DirectoryFindings { writes, split: true });
        }
        let nearest = nearest.map(|(_, why)| why).unwrap_or_default();
        Err(CrashVerdict { acknowledged, started, nearest, torn, writes })
    }

    /// Returns the bytes of the file that the action after `state` writes, as far as their number
    /// is known.
    fn write_after(&self, state: usize) -> Option<std::ops::Range<usize>> {
        let Action::Write { file, place, length } = self.script[state].action else { return None };
        let tree = &self.states[state];
        let content = content_of(tree, identity_of(tree, file)?)?;
        let start = match place {
            Offset::End => content.len(),
            Offset::At(at) => at as usize,
        };
        match self.outcomes.get(state) {
            Some(Outcome::Refused) => None,
            Some(Outcome::Short(most)) => Some(start..start + most),
            Some(Outcome::Done) | None => Some(start..start + length),
        }
    }

    /// Whether the write could be torn between blocks, and is promised not to be.
    fn is_judged(&self, write: &std::ops::Range<usize>) -> bool {
        let block = |byte: usize| byte / self.bounds.block;
        !write.is_empty()
            && block(write.start) != block(write.end - 1)
            && write.len() <= self.bounds.whole_max
            && self.bounds.first_request(write.start, write.len()).is_none()
    }

    /// Returns the states that the write after `state` leaves if it is torn between blocks: its
    /// blocks up to each boundary.
    fn parts_after(&self, state: usize) -> impl Iterator<Item = Tree> {
        let (start, length) =
            self.write_after(state).map_or((0, 0), |write| (write.start, write.len()));
        let first = (start / SMALLEST_BLOCK + 1) * SMALLEST_BLOCK - start;
        (first..length).step_by(SMALLEST_BLOCK).map(move |most| self.part_after(state, most))
    }

    /// Returns the state that the write after `state` leaves if its first `most` bytes are there.
    fn part_after(&self, state: usize, most: usize) -> Tree {
        let mut tree = self.states[state].clone();
        apply(&mut tree, self.writer, state, &self.script[state].action, most);
        tree
    }

    /// Whether `found` is `tree`, which is `state` or a transition to the next one.
    fn matches(
        &self,
        found: &Found,
        tree: &Tree,
        state: usize,
        window: Window,
        guarantee: CrashGuarantee,
    ) -> Result<(), (u8, String)> {
        if !tree.keys().eq(found.keys()) {
            let expected: Vec<_> = tree.keys().collect();
            let names: Vec<_> = found.keys().collect();
            return Err((0, format!("names {names:?}, expected {expected:?}")));
        }
        if let Some(lost) = self.file_lost(state, window.data) {
            return Err((
                0,
                format!("the file of step {lost} is not there, and its data was synced"),
            ));
        }
        let mut inodes = BTreeMap::new();
        for (name, entry) in tree {
            match (entry, &found[name]) {
                (TreeEntry::Directory, FoundEntry::Directory) => {}
                (TreeEntry::Symlink { target }, FoundEntry::Symlink { target: met })
                    if target == met => {}
                (
                    TreeEntry::File { identity, content, attribute },
                    FoundEntry::File { inode, links, content: bytes, attribute: met },
                ) => {
                    if attribute != met {
                        let (met, expected) = (met.len(), attribute.len());
                        let why =
                            format!("{name} has an attribute of {met} bytes, expected {expected}");
                        return Err((1, why));
                    }
                    let names = names_of(tree, *identity);
                    if *links != names || *inodes.entry(*identity).or_insert(*inode) != *inode {
                        return Err((
                            1,
                            format!("{name}, {inode}: {links} links, expected {names} names"),
                        ));
                    }
                    self.content_matches(name, state, *identity, content, bytes, window, guarantee)?
                }
                (entry, met) => return Err((1, format!("{name} is {met:?}, expected {entry:?}"))),
            }
        }
        Ok(())
    }

    /// Returns a file made after `state` whose data was synced up to `data`: the sync of a new file
    /// also commits its name. One made without a name got that by an action of its own.
    fn file_lost(&self, state: usize, data: usize) -> Option<usize> {
        (state + 1..=data).find_map(|synced| {
            let Synced::File(identity) = self.synced[synced] else { return None };
            let is_there = |state: usize| content_of(&self.states[state], identity).is_some();
            let is_named = !matches!(self.script[identity].action, Action::Nameless { .. });
            (is_named && is_there(synced) && !is_there(state)).then_some(identity)
        })
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
        guarantee: CrashGuarantee,
    ) -> Result<(), (u8, String)> {
        if bytes.len() != expected.len() {
            return Err((
                1,
                format!("{name} has {} bytes, expected {}", bytes.len(), expected.len()),
            ));
        }
        let synced = self.last_sync(identity, window.data);
        // Only data whose place and size were committed may be synced without the tree.
        if let Some(synced) = synced.filter(|synced| *synced > state) {
            if let Some(then) = content_of(&self.states[synced], identity) {
                if then.len() != bytes.len() {
                    let (bytes, then) = (bytes.len(), then.len());
                    return Err((
                        1,
                        format!("{name} has {bytes} bytes, {then} were synced after step {synced}"),
                    ));
                }
            }
        }
        let stable = match guarantee {
            CrashGuarantee::Version => None,
            CrashGuarantee::Data => {
                let from =
                    synced.map_or(window.acknowledged, |synced| synced.max(window.acknowledged));
                Some(self.stable(identity, from..=window.started))
            }
            CrashGuarantee::Reachable => Some(self.reachable(identity, synced, window)),
            CrashGuarantee::Synced => synced
                .map(|from| self.untouched(identity, from..=window.started))
                .or(Some(Vec::new())),
        };
        let pieces = bytes.chunks(PIECE).zip(expected.chunks(PIECE)).enumerate();
        let differ = pieces.filter(|(_, (bytes, expected))| bytes != expected);
        let places = differ.flat_map(|(index, (bytes, _))| (index * PIECE..).zip(bytes));
        for (place, byte) in places {
            let fine = match &stable {
                None => {
                    *byte == expected[place]
                        || *byte == 0 && self.may_be_zero(state, identity, place)
                }
                Some(stable) => match stable.get(place).copied().flatten() {
                    Some(promised) => *byte == promised,
                    // Zero: the tail of a block that a truncate cleared, home before its commit.
                    None => {
                        guarantee == CrashGuarantee::Synced
                            || *byte == 0
                            || *byte == expected[place]
                            || self.values[&identity][place].contains(*byte)
                                && self.had(
                                    identity,
                                    synced.unwrap_or(0)..=window.started,
                                    place,
                                    *byte,
                                )
                    }
                },
            };
            if !fine {
                return Err((
                    2,
                    format!(
                        "{name} byte {place} is {byte:#04x}, expected {:#04x}",
                        expected[place]
                    ),
                ));
            }
        }
        Ok(())
    }

    fn may_be_zero(&self, state: usize, identity: usize, place: usize) -> bool {
        let zeros = self.half_done[state].as_ref();
        zeros.is_some_and(|zeros| zeros.identity == identity && zeros.range.contains(&place))
    }

    /// Returns the bytes of a file that were the same in all states of the window: a crash may not
    /// change them.
    fn stable(&self, identity: usize, window: States) -> Vec<Option<u8>> {
        let mut states =
            window.filter_map(|state| Some((state, content_of(&self.states[state], identity)?)));
        let Some((_, first)) = states.next() else { return Vec::new() };
        let mut stable: Vec<Option<u8>> = first.iter().map(|byte| Some(*byte)).collect();
        for (state, content) in states {
            stable.truncate(content.len());
            let Some((_, changed)) =
                self.changed[state].iter().find(|(changed, _)| *changed == identity)
            else {
                continue;
            };
            let changed = changed.start..changed.end.min(stable.len());
            for place in changed.filter(|place| content[*place] != first[*place]) {
                stable[place] = None;
            }
        }
        stable
    }

    /// Returns the bytes of a file that a crash may not change where no commit waits for overwrites
    /// in place. They are as of the file's last sync, or as a committed transaction made them part
    /// of the file or zeroed them, unless overwritten since.
    fn reachable(&self, identity: usize, synced: Option<usize>, window: Window) -> Vec<Option<u8>> {
        let mut promised: Vec<Option<u8>> = Vec::new();
        let mut before: &[u8] = &[];
        for state in 0..=window.started {
            let Some(content) = content_of(&self.states[state], identity) else { continue };
            promised.resize(content.len(), None);
            let is_write =
                state > 0 && matches!(self.script[state - 1].action, Action::Write { .. });
            for (place, byte) in content.iter().enumerate().skip(first_difference(before, content))
            {
                let is_overwritten = is_write && place < before.len();
                if before.get(place) != Some(byte) {
                    promised[place] =
                        (!is_overwritten && state <= window.acknowledged).then_some(*byte);
                }
            }
            if synced == Some(state) {
                promised
                    .iter_mut()
                    .zip(content)
                    .for_each(|(promised, byte)| *promised = Some(*byte));
            }
            before = content;
        }
        promised
    }

    /// Whether a byte of the file had this value in one of these states: in the first, or in one
    /// that changed it.
    fn had(&self, identity: usize, states: States, place: usize, byte: u8) -> bool {
        let has = |state: usize| {
            content_of(&self.states[state], identity)
                .is_some_and(|content| content.get(place) == Some(&byte))
        };
        let changes = |state: &usize| {
            let mut changed = self.changed[*state].iter();
            changed.any(|(of, range)| *of == identity && range.contains(&place))
        };
        has(*states.start()) || states.skip(1).filter(changes).any(has)
    }

    /// Returns the bytes of those blocks that were the same in all states of the window. A block
    /// that a later write allocated, its data not yet home, may expose in `writeback` the old
    /// content of the disk: all of it.
    fn untouched(&self, identity: usize, window: States) -> Vec<Option<u8>> {
        let mut stable = self.stable(identity, window.clone());
        let lengths = || {
            self.states[window.clone()]
                .iter()
                .filter_map(|tree| content_of(tree, identity).map(<[u8]>::len))
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

    /// Returns the last state up to `data` in which this file itself was written and synced.
    fn last_sync(&self, identity: usize, data: usize) -> Option<usize> {
        (0..=data).rev().find(|state| match self.synced[*state] {
            Synced::Nothing => false,
            Synced::File(synced) => synced == identity,
            Synced::All => content_of(&self.states[*state], identity).is_some(),
        })
    }
}

/// Largest block of any setup, in bytes.
const LARGEST_BLOCK: usize = 4096;
const SMALLEST_BLOCK: usize = 1024;
/// Bytes that are compared at once, for speed.
const PIECE: usize = 512;

fn first_difference(before: &[u8], content: &[u8]) -> usize {
    let both = before.len().min(content.len());
    let mut pairs = before.chunks(PIECE).zip(content.chunks(PIECE));
    let whole =
        pairs.position(|(before, content)| before != content).unwrap_or(both / PIECE) * PIECE;
    let rest = before[whole.min(both)..both].iter().zip(&content[whole.min(both)..both]);
    whole.min(both) + rest.take_while(|(before, content)| before == content).count()
}

/// Returns the range from the first byte of `content` to the last that differs from `before`.
fn changed_range(before: Option<&[u8]>, content: &[u8]) -> std::ops::Range<usize> {
    let before = before.unwrap_or_default();
    if before == content {
        return 0..0;
    }
    let differ = |(left, right): (&u8, &u8)| left != right;
    let first = first_difference(before, content);
    if before.len() != content.len() {
        return first..content.len();
    }
    let last = before.iter().zip(content).rposition(differ).unwrap_or(first);
    first..last + 1
}

/// A set of values of a byte. Histories have one for each byte of each file.
#[derive(Clone, Copy, Default)]
struct ByteSet([u64; 4]);

impl ByteSet {
    fn insert(&mut self, byte: u8) {
        self.0[usize::from(byte / 64)] |= 1 << (byte % 64);
    }
    fn contains(&self, byte: u8) -> bool {
        self.0[usize::from(byte / 64)] & 1 << (byte % 64) != 0
    }
}

type States = std::ops::RangeInclusive<usize>;

/// States that a crash may leave: from the last acknowledged sync to the last action begun. And the
/// last one after which a file's data was synced.
#[derive(Clone, Copy)]
struct Window {
    acknowledged: usize,
    data: usize,
    started: usize,
}

/// Content that was read back, by path.
pub type Found = BTreeMap<String, FoundEntry>;

#[derive(Debug, PartialEq, Eq)]
pub enum FoundEntry {
    File { inode: InodeNumber, links: u32, content: Vec<u8>, attribute: Vec<u8> },
    Symlink { target: Vec<u8> },
    Directory,
}

#[derive(Debug)]
pub struct CrashVerdict {
    pub acknowledged: usize,
    pub started: usize,
    pub nearest: String,
    /// A partially applied write that is promised to be whole or not at all.
    pub torn: Option<usize>,
    /// Writes judged: see [`DirectoryFindings::writes`].
    pub writes: u64,
}
impl fmt::Display for CrashVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(step) = self.torn {
            write!(f, "torn: the write of step {step} is there in part; ")?;
        }
        write!(
            f,
            "no state from {} to {} matches; nearest: {}",
            self.acknowledged, self.started, self.nearest
        )
    }
}

/// Returns the zeros of a punched hole, which takes more than one transaction; size and names do
/// not change during it.
fn zeros_of(tree: &Tree, action: &Action) -> Option<Zeros> {
    let Action::Punch { file, at, length } = action else { return None };
    Some(Zeros { identity: identity_of(tree, *file)?, range: *at as usize..(at + length) as usize })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::script::{ScriptStep, pattern};

    const INODE: InodeNumber = InodeNumber(12);

    /// Makes a file, writes it, overwrites it in place, appends to it, and syncs the volume after
    /// step `synced`.
    fn history(synced: usize) -> History {
        let write = |place, length| Action::Write { file: 0, place, length };
        let actions = [
            Action::Create { file: 0 },
            write(Offset::End, 100),
            write(Offset::At(0), 100),
            write(Offset::End, 100),
        ];
        let sync = |step| if step == synced { Sync::Volume } else { Sync::None };
        let step = |(step, action)| ScriptStep { action, sync: sync(step) };
        History::of(0, &actions.into_iter().enumerate().map(step).collect())
    }

    /// Judges a file whose overwritten part is as of step `overwritten`, and whose appended part is
    /// `appended`.
    fn judge(
        history: &History,
        overwritten: usize,
        appended: u8,
        guarantee: CrashGuarantee,
    ) -> bool {
        let tail = if appended == 0 { pattern(0, 3, 100) } else { vec![appended; 100] };
        let content = [pattern(0, overwritten, 100), tail].concat();
        let file = FoundEntry::File { inode: INODE, links: 1, content, attribute: Vec::new() };
        let found = Found::from([(file_name(0), file)]);
        history.judge(&found, 4, 4, 4, guarantee).is_ok()
    }

    #[test]
    fn what_no_commit_waits_for_may_be_missing_until_its_file_is_synced() {
        let unsynced = history(1);
        assert!(
            judge(&unsynced, 2, 0, CrashGuarantee::Reachable)
                && judge(&unsynced, 1, 0, CrashGuarantee::Reachable)
        );
        assert!(!judge(&unsynced, 1, 0, CrashGuarantee::Data), "committed, so it is home");
        assert!(
            !judge(&unsynced, 2, 0xd7, CrashGuarantee::Reachable),
            "what is appended is home before its commit"
        );
        let synced = history(2);
        assert!(
            judge(&synced, 2, 0, CrashGuarantee::Reachable)
                && !judge(&synced, 1, 0, CrashGuarantee::Reachable)
        );
    }
}
