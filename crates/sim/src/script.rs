//! Scripts of the writers, made from a seed. Each writer has a directory of its own. So the content
//! that may be found there after a crash follows from the order of its own actions alone.

use runtime::SplitMix;
use std::time::Duration;

/// One action of one writer. Files are known by a number that is also the name they are made with,
/// and says in which directory ([`crate::tree::FILES_A_DIRECTORY`]).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Makes an empty file if the name is free.
    Create {
        file: u8,
    },
    /// Writes bytes that no other action writes; nothing if there is no such file.
    Write {
        file: u8,
        place: Offset,
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
    /// Makes a file without a name, writes it, and then gives it the name if that is free
    /// (O_TMPFILE).
    Nameless {
        file: u8,
        length: usize,
    },
    /// Allocates space from `at` on, and a size that covers it. Only where files have extents.
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
    /// Sets one extended attribute of the given number of bytes.
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
    /// Removes a directory if it is empty.
    RemoveDirectory {
        number: u8,
    },
    /// Discards all free blocks of the volume. The number has no effect.
    Trim {
        file: u8,
    },
    /// Queries the address of the file's first block: from then on its writes are home before they
    /// are answered.
    Address {
        file: u8,
    },
    /// Waits, so that commits and write-back come between two actions, or between an action and its
    /// sync. The sync of this one is that of the file.
    Wait {
        file: u8,
        micros: u64,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offset {
    End,
    At(u64),
}

/// Sync that the writer waits for after an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Sync {
    #[default]
    None,
    /// fsync of the changed file.
    File,
    /// fdatasync of the changed file.
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

/// Most frequent kind of actions of a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mix {
    /// Mix of all kinds of actions. Where there are several writers, at least half of their writes
    /// are longer than a block.
    All,
    /// Small and large writes over the same few blocks, again and again.
    Overwrites,
    /// Writes at odd offsets, half of them across block boundaries, most of them synced, in files
    /// of many pieces.
    Crossing,
    /// Writes of many blocks, and removal of files to free space for them.
    Large,
    /// Writes within single blocks that have no dirty neighbours, many before each sync. One commit
    /// writes more of them home than disks are given at once, and write-back meets them in flight.
    Scattered,
}

impl Mix {
    const NAMES: [(Mix, &str); 5] = [
        (Mix::All, "all"),
        (Mix::Overwrites, "overwrites"),
        (Mix::Crossing, "crossing"),
        (Mix::Large, "large"),
        (Mix::Scattered, "scattered"),
    ];
}
impl std::fmt::Display for Mix {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (_, name) = Mix::NAMES.iter().find(|(mix, _)| mix == self).expect("all have names");
        f.write_str(name)
    }
}
impl std::str::FromStr for Mix {
    type Err = String;
    fn from_str(text: &str) -> Result<Mix, String> {
        let found = Mix::NAMES.iter().find(|(_, name)| *name == text);
        found.map(|(mix, _)| *mix).ok_or_else(|| {
            let names = Mix::NAMES.map(|(_, name)| name);
            format!("there is {}", names.join(", "))
        })
    }
}

/// Size of a script's world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScriptSize {
    /// Actions, waiting not counted.
    pub steps: usize,
    pub files: u8,
    pub mix: Mix,
    /// Whether files have extents, and with them `fallocate`.
    pub extents: bool,
    /// Bytes of the volume's blocks.
    pub block: u64,
}

/// Bytes of the largest write: large enough to cover whole blocks now and then.
const LENGTH_MAX: u64 = 9000;
/// Blocks of a file that writes cross.
const CROSSING_BLOCKS: u64 = 6;
/// Bytes of the largest write where scripts are to fill logs and volumes.
const LARGE_MAX: u64 = 60_000;

/// Files of each writer, and blocks of each file: two writers change more single blocks at once
/// than disks are given.
const SCATTERED_FILES: u8 = 2;
const SCATTERED_BLOCKS: u64 = 48;
/// Times that a script writes many blocks: further ones show little more.
const SCATTERED_STEPS_MAX: usize = 14;
/// Microseconds in which disks do little.
const SCATTERED_PAUSE_MAX: u64 = 300;

/// Discards and queries of addresses in each script.
const REQUESTS: usize = 2;
/// Pauses of all writers in a script, and microseconds: about as long as one is behind another.
const RESTS: usize = 4;
const REST_MICROS: u64 = 3000;

/// Makes `writers` scripts from one seed.
pub fn make_scripts(seed: u64, writers: usize, size: ScriptSize) -> Vec<Script> {
    let rng = SplitMix::new(seed);
    let script = |writer| match size.mix {
        Mix::Scattered => make_scattered(&rng, size, writer),
        _ => (0..size.steps).flat_map(|_| make_steps(&rng, size)).collect(),
    };
    let mut scripts: Vec<Script> = (0..writers).map(script).collect();
    if size.mix == Mix::All && writers > 1 {
        lengthen(&mut scripts, &SplitMix::new(!seed), size.block);
    }
    scripts
}

/// Adds common pauses of all writers, a few times and at the end. The disk is idle for some rounds
/// of write-back then, of which two begin a swap; and some writers come back while logs move.
pub fn add_rests(scripts: &mut [Script], rng: &SplitMix, writeback: Duration) {
    for rest in (0..RESTS).rev() {
        let sync = [Sync::None, Sync::Volume][rng.below(2) as usize];
        // Not all come to it at the same time.
        let micros = REST_MICROS + (2 + rng.below(3)) * writeback.as_micros() as u64;
        for script in scripts.iter_mut() {
            let at = script.len() * (rest + 1) / RESTS;
            let wait = |micros| Action::Wait { file: 0, micros };
            let rest = [wait(1).then(sync), wait(micros + rng.below(REST_MICROS)).then(Sync::None)];
            script.splice(at..at, rest);
        }
    }
}

/// Adds a few discards of free blocks, and queries of addresses of files.
pub fn add_requests(scripts: &mut [Script], rng: &SplitMix, files: u8) {
    for script in scripts {
        for _ in 0..REQUESTS {
            let at = rng.below(script.len() as u64 + 1) as usize;
            let file = rng.below(u64::from(files)) as u8;
            let action = match rng.below(2) {
                0 => Action::Trim { file: 0 },
                _ => Action::Address { file },
            };
            script.insert(at, action.then(Sync::None));
        }
    }
}

/// Makes half of the writes that fit into a block longer than one, so that they may be torn. With
/// several writers a transaction may be locked during them. Uses a random number generator of its
/// own: all else is unchanged.
fn lengthen(scripts: &mut [Script], rng: &SplitMix, block: u64) {
    let below = |limit: u64| rng.next() % limit;
    for step in scripts.iter_mut().flatten() {
        if let Action::Write { length, .. } | Action::Nameless { length, .. } = &mut step.action {
            if *length as u64 <= block && below(2) == 0 {
                *length = (block + 1 + below(2 * block)) as usize;
            }
        }
    }
}

/// Makes a script over existing files. One writer changes a few blocks at a time and syncs the
/// volume. The others change most of theirs, continue while older images of them are in flight for
/// the commit, and sync seldom.
fn make_scattered(rng: &SplitMix, size: ScriptSize, writer: usize) -> Script {
    let below = |limit: u64| rng.next() % limit;
    let syncs_volume = writer % 3 == 0;
    let length = (SCATTERED_BLOCKS * size.block) as usize;
    let made = |file| Action::Nameless { file, length }.then(Sync::None);
    let mut script: Script = (0..SCATTERED_FILES).map(made).collect();
    script.push(Action::Wait { file: 0, micros: 1 }.then(Sync::Volume));
    for _ in 0..size.steps.min(SCATTERED_STEPS_MAX) {
        // Files have 16 blocks; every other block stays clean.
        let (share, sync) = match below(4) {
            _ if syncs_volume => (1, Sync::Volume),
            0..2 => (12, Sync::None),
            2 => (1, Sync::File),
            _ => (1, [Sync::None, Sync::Volume][below(2) as usize]),
        };
        for file in 0..SCATTERED_FILES {
            let blocks = (0..SCATTERED_BLOCKS).step_by(2).filter(|_| below(16) < share);
            script
                .extend(blocks.map(|block| make_single(rng, file, block * size.block, size.block)));
        }
        let file = below(u64::from(SCATTERED_FILES)) as u8;
        script.push(Action::Wait { file, micros: below(SCATTERED_PAUSE_MAX) }.then(Sync::None));
        if sync != Sync::None {
            script.push(Action::Wait { file, micros: 1 }.then(sync));
        }
    }
    script
}

/// Makes a write of the block at `start`, or of a part of it.
fn make_single(rng: &SplitMix, file: u8, start: u64, block: u64) -> ScriptStep {
    let below = |limit: u64| rng.next() % limit;
    let (skip, length) = match below(2) {
        0 => (0, block),
        _ => (below(block / 2), 1 + below(block / 2)),
    };
    Action::Write { file, place: Offset::At(start + skip), length: length as usize }
        .then(Sync::None)
}

/// Makes an action, perhaps with a pause before it, or between it and its sync.
fn make_steps(rng: &SplitMix, size: ScriptSize) -> Vec<ScriptStep> {
    let file = (rng.next() % u64::from(size.files)) as u8;
    let action = match size.mix {
        Mix::All => make_action(rng, size, file),
        Mix::Overwrites => make_overwrite(rng, size, file),
        Mix::Crossing => make_crossing(rng, size, file),
        Mix::Large => make_large(rng, size, file),
        Mix::Scattered => unreachable!("its scripts are made as a whole"),
    };
    let sync = match rng.next() % 8 {
        1..4 if size.mix == Mix::Crossing => Sync::File,
        0..4 => Sync::None,
        4..6 => Sync::File,
        6 => Sync::Data,
        _ => Sync::Volume,
    };
    let pause = || Action::Wait { file, micros: pause(rng) };
    match rng.next() % 8 {
        0..2 => vec![pause().then(Sync::None), action.then(sync)],
        2 if sync != Sync::None => vec![action.then(Sync::None), pause().then(sync)],
        _ => vec![action.then(sync)],
    }
}

/// Returns a pause: about as long as the disk takes for a few writes, or as a transaction lives.
fn pause(rng: &SplitMix) -> u64 {
    let limit = if rng.next() % 2 == 0 { 150 } else { 4000 };
    rng.next() % limit
}

fn make_action(rng: &SplitMix, size: ScriptSize, file: u8) -> Action {
    let below = |limit: u64| rng.next() % limit;
    let pick = || below(u64::from(size.files)) as u8;
    // Half of them at the start of a block.
    let anywhere = || below(3 * LENGTH_MAX) / 4096 * 4096 + below(2) * below(4096);
    match below(100) {
        0..10 => Action::Create { file },
        10..38 => Action::Write { file, place: Offset::End, length: length(rng) },
        38..55 => Action::Write { file, place: Offset::At(anywhere()), length: length(rng) },
        55..62 => Action::Truncate { file, size: below(2 * LENGTH_MAX) },
        62..69 => Action::Rename { from: file, to: pick() },
        69..75 => Action::Unlink { file },
        75..79 => Action::Link { file, to: pick() },
        79..83 => Action::Nameless { file, length: length(rng) },
        83..86 if size.extents => {
            Action::Allocate { file, at: anywhere(), length: 1 + below(2 * LENGTH_MAX) }
        }
        83..89 => Action::Punch { file, at: anywhere(), length: 1 + below(2 * LENGTH_MAX) },
        89..92 => Action::Attribute { file, length: 1 + below(600) as usize },
        92..94 => Action::Symlink { number: below(2) as u8, length: 1 + below(200) as usize },
        94..97 => Action::MakeDirectory { number: below(4) as u8 },
        _ => Action::MoveDirectory { number: 1 + below(3) as u8 },
    }
}

fn make_overwrite(rng: &SplitMix, size: ScriptSize, file: u8) -> Action {
    let below = |limit: u64| rng.next() % limit;
    let write = |at, length| Action::Write { file, place: Offset::At(at), length };
    match below(16) {
        0 => make_action(rng, size, file),
        1..3 => Action::Nameless { file, length: LENGTH_MAX as usize },
        3..10 => write(below(LENGTH_MAX), 1 + below(300) as usize),
        _ => write(below(2) * 4096, (4096 << below(2)) as usize),
    }
}

fn make_crossing(rng: &SplitMix, size: ScriptSize, file: u8) -> Action {
    let below = |limit: u64| rng.next() % limit;
    let block = size.block;
    let odd = || below(CROSSING_BLOCKS) * block + 1 + below(block - 1);
    match below(16) {
        0 => make_action(rng, size, file),
        1..3 => Action::Nameless { file, length: (CROSSING_BLOCKS * block) as usize },
        // Holes, and blocks that are not written yet: later blocks over them have a mapping of
        // several pieces.
        3 => Action::Punch { file, at: odd(), length: 2 * block },
        4 if size.extents => Action::Allocate { file, at: odd(), length: 2 * block },
        4..10 => Action::Write { file, place: Offset::At(odd()), length: 1 + below(300) as usize },
        10 => Action::Write {
            file,
            place: Offset::End,
            length: (block + 1 + below(3 * block)) as usize,
        },
        _ => Action::Write {
            file,
            place: Offset::At(odd()),
            length: (block + 1 + below(3 * block)) as usize,
        },
    }
}

fn make_large(rng: &SplitMix, size: ScriptSize, file: u8) -> Action {
    let below = |limit: u64| rng.next() % limit;
    let length = (1 + below(LARGE_MAX)) as usize;
    match below(16) {
        0..5 => make_action(rng, size, file),
        5..7 => Action::Nameless { file, length },
        7 => Action::Unlink { file },
        8 => Action::Truncate { file, size: below(LARGE_MAX) },
        9 if size.extents => {
            Action::Allocate { file, at: below(LARGE_MAX), length: 1 + below(LARGE_MAX) }
        }
        9..12 => Action::Write { file, place: Offset::At(below(LARGE_MAX)), length },
        _ => Action::Write { file, place: Offset::End, length },
    }
}

/// Returns a length: mostly small, like the writes that Okeanos is made for.
fn length(rng: &SplitMix) -> usize {
    let limit = if rng.next() % 4 == 0 { LENGTH_MAX } else { 300 };
    1 + (rng.next() % limit) as usize
}

impl Action {
    pub fn then(self, sync: Sync) -> ScriptStep {
        ScriptStep { action: self, sync }
    }
}

/// First bytes of every block of a JBD2 journal.
const MAGIC: [u8; 4] = [0xc0, 0x3b, 0x39, 0x98];

/// Returns the bytes that action `step` of `writer` writes: a unique pattern.
pub fn pattern(writer: usize, step: usize, length: usize) -> Vec<u8> {
    let rng = SplitMix::new(((writer as u64) << 32) ^ step as u64 ^ 0x6f6b_6561_6e6f_7300);
    // Never zero: a zero that was not written is a hole, or stale.
    let mut bytes: Vec<u8> = (0..length).map(|_| (rng.next() % 255) as u8 + 1).collect();
    // Sometimes like the start of the journal's own blocks, which a log must not confuse with them.
    if step % 4 == 3 && length >= MAGIC.len() {
        bytes[..MAGIC.len()].copy_from_slice(&MAGIC);
    }
    bytes
}

/// Returns the target of the symbolic link that action `step` of `writer` makes.
pub fn link_target(writer: usize, step: usize, length: usize) -> Vec<u8> {
    pattern(writer, step, length).into_iter().map(|byte| b'a' + byte % 26).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the percentage of the writes that are longer than a block.
    fn share_of_large_writes(scripts: &[Script], block: u64) -> usize {
        let lengths = scripts.iter().flatten().filter_map(|step| match step.action {
            Action::Write { length, .. } => Some(length as u64),
            _ => None,
        });
        let (longer, shorter): (Vec<u64>, Vec<u64>) = lengths.partition(|length| *length > block);
        longer.len() * 100 / (longer.len() + shorter.len())
    }

    #[test]
    fn about_half_of_the_writes_that_cross_are_longer_than_a_block() {
        for block in [1024, 2048, 4096] {
            for extents in [false, true] {
                let size = ScriptSize { steps: 1000, files: 3, mix: Mix::Crossing, extents, block };
                let share = share_of_large_writes(&make_scripts(1, 4, size), block);
                assert!((45..60).contains(&share), "{share} % of the writes, blocks of {block}");
            }
        }
    }

    /// A transaction that is locked under a write tears only those that are longer than a block.
    #[test]
    fn at_least_half_of_the_writes_of_several_writers_are_longer_than_a_block() {
        for block in [1024, 2048, 4096] {
            let of = |writers| {
                let size = ScriptSize { steps: 30, files: 3, mix: Mix::All, extents: true, block };
                let scripts = (1..=400).flat_map(|seed| make_scripts(seed, writers, size));
                share_of_large_writes(&scripts.collect::<Vec<_>>(), block)
            };
            let (alone, several) = (of(1), of(3));
            println!(
                "blocks of {block}: {several} % of the writes of three writers, {alone} % of one's"
            );
            assert!((50..70).contains(&several), "{several} % of the writes, blocks of {block}");
            // The small ones are those that Okeanos is made for.
            assert!((10..30).contains(&alone), "{alone} % of one's writes, blocks of {block}");
        }
    }

    /// A seed that once found something must still do so.
    #[test]
    fn longer_writes_change_nothing_but_their_lengths() {
        let size = ScriptSize { steps: 60, files: 3, mix: Mix::All, extents: true, block: 4096 };
        let without_lengths = |scripts: Vec<Script>| {
            let mut steps: Vec<ScriptStep> = scripts.into_iter().flatten().collect();
            for step in &mut steps {
                if let Action::Write { length, .. } | Action::Nameless { length, .. } =
                    &mut step.action
                {
                    *length = 0;
                }
            }
            steps
        };
        for seed in 1..=20 {
            let first = make_scripts(seed, 3, size).swap_remove(0);
            let alone = make_scripts(seed, 1, size);
            assert_eq!(without_lengths(vec![first]), without_lengths(alone), "seed {seed}");
        }
    }

    #[test]
    fn scattered_scripts_change_many_single_blocks_apart_from_each_other() {
        let size =
            ScriptSize { steps: 14, files: 3, mix: Mix::Scattered, extents: true, block: 1024 };
        let scripts = make_scripts(1, 3, size);
        let single = |step: &ScriptStep| match step.action {
            Action::Write { place: Offset::At(at), length, .. } => {
                assert!(at / 1024 % 2 == 0 && at % 1024 + length as u64 <= 1024, "{at} + {length}");
                true
            }
            _ => false,
        };
        let most = scripts.iter().map(|script| {
            script.chunk_by(|left, right| single(left) == single(right)).map(<[_]>::len).max()
        });
        assert!(most.flatten().max() > Some(32), "never more than 32 at once");
    }
}
