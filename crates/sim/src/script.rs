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
    MakeDirectory {
        number: u8,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    End,
    At(u64),
}

#[derive(Clone, Debug)]
pub struct ScriptStep {
    pub action: Action,
    /// Whether the writer waits until the action is durable before it goes on.
    pub sync: bool,
}

pub type Script = Vec<ScriptStep>;

/// How large a script's world is.
#[derive(Clone, Copy, Debug)]
pub struct ScriptSize {
    pub steps: usize,
    pub files: u8,
    /// Bytes of the largest write: large enough to cover whole blocks now and then.
    pub length_max: usize,
}

/// `writers` scripts from one seed.
pub fn make_scripts(seed: u64, writers: usize, size: ScriptSize) -> Vec<Script> {
    let dice = SplitMix::new(seed);
    (0..writers).map(|_| (0..size.steps).map(|_| make_step(&dice, size)).collect()).collect()
}

fn make_step(dice: &SplitMix, size: ScriptSize) -> ScriptStep {
    let below = |limit: u64| dice.next() % limit;
    let file = below(u64::from(size.files)) as u8;
    let action = match below(100) {
        0..15 => Action::Create { file },
        15..50 => Action::Write { file, place: Place::End, length: length(dice, size) },
        50..70 => Action::Write {
            file,
            place: Place::At(below(3 * size.length_max as u64)),
            length: length(dice, size),
        },
        70..80 => Action::Truncate { file, size: below(2 * size.length_max as u64) },
        80..88 => Action::Rename { from: file, to: below(u64::from(size.files)) as u8 },
        88..96 => Action::Unlink { file },
        _ => Action::MakeDirectory { number: below(4) as u8 },
    };
    ScriptStep { action, sync: below(2) == 0 }
}

/// Mostly small, as the writes are that Okeanos is made for.
fn length(dice: &SplitMix, size: ScriptSize) -> usize {
    let limit = if dice.next().is_multiple_of(4) { size.length_max as u64 } else { 300 };
    1 + (dice.next() % limit) as usize
}

/// The bytes that action `step` of `writer` writes: a pattern that is nobody else's.
pub fn pattern(writer: usize, step: usize, length: usize) -> Vec<u8> {
    let dice = SplitMix::new(((writer as u64) << 32) ^ step as u64 ^ 0x6f6b_6561_6e6f_7300);
    // Never zero: a zero that was not written is a hole, or stale.
    (0..length).map(|_| (dice.next() % 255) as u8 + 1).collect()
}
