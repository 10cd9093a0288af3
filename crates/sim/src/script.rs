//! What the writers do: scripts made from a seed. Each writer has a directory of its own, so that what may be
//! found there after a crash follows from the order of its own actions alone.

use runtime::SplitMix;

/// One action of one writer. Files are known by a number that is also the name they are made with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Makes an empty file if the name is free.
    Create {
        file: u8,
    },
    /// Writes bytes that no other action writes; nothing if there is no such file.
    Write {
        file: u8,
        place: Place,
        length: usize,
    },
    Truncate {
        file: u8,
        size: u64,
    },
    Rename {
        from: u8,
        to: u8,
    },
    Unlink {
        file: u8,
    },
    /// Gives the file one more name, if that is free.
    Link {
        file: u8,
        to: u8,
    },
    /// A file without a name, written, and then given the name if it is free (O_TMPFILE).
    Nameless {
        file: u8,
        length: usize,
    },
    /// Space from `at` on, and a size that covers it. Only where files have extents.
    Allocate {
        file: u8,
        at: u64,
        length: u64,
    },
    Punch {
        file: u8,
        at: u64,
        length: u64,
    },
    /// One extended attribute of so many bytes.
    Attribute {
        file: u8,
        length: usize,
    },
    /// Makes the symbolic link, or removes it if it is there.
    Symlink {
        number: u8,
        length: usize,
    },
    MakeDirectory {
        number: u8,
    },
    /// Moves a directory into directory 0, or out of it again.
    MoveDirectory {
        number: u8,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    End,
    At(u64),
}

/// How long the writer waits after an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Sync {
    #[default]
    None,
    /// fsync of what the action changed.
    File,
    /// fdatasync of it.
    Data,
    /// sync of the whole volume.
    Volume,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScriptStep {
    pub action: Action,
    pub sync: Sync,
}

pub type Script = Vec<ScriptStep>;

/// How large a script's world is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScriptSize {
    pub steps: usize,
    pub files: u8,
    /// Bytes of the largest write: large enough to cover whole blocks now and then.
    pub length_max: usize,
    /// Whether files have extents, and with them `fallocate`.
    pub extents: bool,
}

/// `writers` scripts from one seed.
pub fn make_scripts(seed: u64, writers: usize, size: ScriptSize) -> Vec<Script> {
    let dice = SplitMix::new(seed);
    (0..writers).map(|_| (0..size.steps).map(|_| make_step(&dice, size)).collect()).collect()
}

fn make_step(dice: &SplitMix, size: ScriptSize) -> ScriptStep {
    let below = |limit: u64| dice.next() % limit;
    let pick = || below(u64::from(size.files)) as u8;
    let file = pick();
    // Half of the time where a block begins.
    let anywhere = || below(3 * size.length_max as u64) / 4096 * 4096 + below(2) * below(4096);
    let action = match below(100) {
        0..10 => Action::Create { file },
        10..38 => Action::Write { file, place: Place::End, length: length(dice, size) },
        38..55 => Action::Write { file, place: Place::At(anywhere()), length: length(dice, size) },
        55..62 => Action::Truncate { file, size: below(2 * size.length_max as u64) },
        62..69 => Action::Rename { from: file, to: pick() },
        69..75 => Action::Unlink { file },
        75..79 => Action::Link { file, to: pick() },
        79..83 => Action::Nameless { file, length: length(dice, size) },
        83..86 if size.extents => {
            Action::Allocate { file, at: anywhere(), length: 1 + below(2 * size.length_max as u64) }
        }
        83..89 => Action::Punch { file, at: anywhere(), length: 1 + below(2 * size.length_max as u64) },
        89..92 => Action::Attribute { file, length: 1 + below(600) as usize },
        92..94 => Action::Symlink { number: below(2) as u8, length: 1 + below(200) as usize },
        94..97 => Action::MakeDirectory { number: below(4) as u8 },
        _ => Action::MoveDirectory { number: 1 + below(3) as u8 },
    };
    let sync = match below(8) {
        0..4 => Sync::None,
        4..6 => Sync::File,
        6 => Sync::Data,
        _ => Sync::Volume,
    };
    ScriptStep { action, sync }
}

/// Mostly small, as the writes are that Okeanos is made for.
fn length(dice: &SplitMix, size: ScriptSize) -> usize {
    let limit = if dice.next().is_multiple_of(4) { size.length_max as u64 } else { 300 };
    1 + (dice.next() % limit) as usize
}

/// What every block of a JBD2 journal begins with.
const MAGIC: [u8; 4] = [0xc0, 0x3b, 0x39, 0x98];

/// The bytes that action `step` of `writer` writes: a pattern that is nobody else's.
pub fn pattern(writer: usize, step: usize, length: usize) -> Vec<u8> {
    let dice = SplitMix::new(((writer as u64) << 32) ^ step as u64 ^ 0x6f6b_6561_6e6f_7300);
    // Never zero: a zero that was not written is a hole, or stale.
    let mut bytes: Vec<u8> = (0..length).map(|_| (dice.next() % 255) as u8 + 1).collect();
    // Now and then as the journal's own blocks begin, which a log must not confuse with them.
    if step % 4 == 3 && length >= MAGIC.len() {
        bytes[..MAGIC.len()].copy_from_slice(&MAGIC);
    }
    bytes
}

/// What the symbolic link that action `step` of `writer` makes leads to.
pub fn link_target(writer: usize, step: usize, length: usize) -> Vec<u8> {
    pattern(writer, step, length).into_iter().map(|byte| b'a' + byte % 26).collect()
}
