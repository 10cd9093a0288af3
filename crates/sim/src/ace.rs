//! Workloads within the bounds of ACE, the generator of CrashMonkey (Mohan et al., OSDI 2018,
//! Section 4): sequences of one and two operations on few files in two directories, each followed
//! by a persistence point. What the operations need is made, and durable, before.
//!
//! Not here: writes through a mapping and with direct I/O, which are the front end's.

use crate::model::History;
use crate::script::{Action, Offset, Script, ScriptStep, Sync};
use crate::tree::FILES_A_DIRECTORY;

/// Two files in the writer's directory, and two in each of its directories.
const FILES: [u8; 6] = [
    0,
    1,
    FILES_A_DIRECTORY,
    FILES_A_DIRECTORY + 1,
    2 * FILES_A_DIRECTORY,
    2 * FILES_A_DIRECTORY + 1,
];
/// Files of sequences of two, as with ACE.
const FEW_FILES: [u8; 4] = [0, 1, FILES_A_DIRECTORY, FILES_A_DIRECTORY + 1];
const DIRECTORIES: [u8; 2] = [0, 1];
/// Bytes of a file that is there before: three blocks and a part of one.
const CONTENT: usize = 3 * 4096 + 1000;
const BLOCK: u64 = 4096;

/// An operation, and the files that must exist before.
#[derive(Clone)]
struct Operation {
    action: Action,
    needs: Vec<u8>,
}

fn operations(files: &[u8]) -> Vec<Operation> {
    let mut all = Vec::new();
    for file in files.iter().copied() {
        all.push(Operation { action: Action::Create { file }, needs: Vec::new() });
        all.extend(
            of_content(file).into_iter().map(|action| Operation { action, needs: vec![file] }),
        );
        for to in files.iter().copied().filter(|to| *to != file) {
            all.push(Operation { action: Action::Link { file, to }, needs: vec![file] });
            // To a free name, and over another file.
            all.push(Operation { action: Action::Rename { from: file, to }, needs: vec![file] });
            let needs = vec![file, to];
            all.push(Operation { action: Action::Rename { from: file, to }, needs });
        }
    }
    let last = DIRECTORIES[1];
    let of_directories = [
        Action::MakeDirectory { number: last + 1 },
        Action::RemoveDirectory { number: last },
        Action::MoveDirectory { number: last },
        Action::Symlink { number: 0, length: 20 },
    ];
    all.extend(of_directories.map(|action| Operation { action, needs: Vec::new() }));
    all
}

fn of_content(file: u8) -> [Action; 11] {
    let write = |place, length| Action::Write { file, place, length };
    let end = CONTENT as u64;
    [
        write(Offset::End, 4096),
        write(Offset::At(0), 4096),
        write(Offset::At(BLOCK + 100), 5000),
        write(Offset::At(end - 500), 1000),
        Action::Truncate { file, size: BLOCK },
        Action::Truncate { file, size: BLOCK + 500 },
        Action::Allocate { file, at: 0, length: BLOCK },
        Action::Allocate { file, at: end, length: 2 * BLOCK },
        Action::Punch { file, at: BLOCK, length: 2 * BLOCK },
        Action::Attribute { file, length: 100 },
        Action::Unlink { file },
    ]
}

/// Returns the ways in which a step is made durable: sync of the volume, of what it changed (a
/// file, or the directory of a name), and of a file that it gave a name.
fn persistence(action: &Action) -> Vec<Vec<ScriptStep>> {
    let step = |sync| ScriptStep { action: action.clone(), sync };
    let mut all = vec![vec![step(Sync::Volume)], vec![step(Sync::File)]];
    match action {
        Action::Write { .. }
        | Action::Truncate { .. }
        | Action::Allocate { .. }
        | Action::Punch { .. } => all.push(vec![step(Sync::Data)]),
        Action::Create { file }
        | Action::Link { to: file, .. }
        | Action::Rename { to: file, .. } => {
            let then = |sync| ScriptStep { action: Action::Wait { file: *file, micros: 0 }, sync };
            all.push(vec![step(Sync::None), then(Sync::File)]);
            all.push(vec![step(Sync::None), then(Sync::Data)]);
        }
        _ => {}
    }
    all
}

/// A script, and how many of its steps make what the operations need.
#[derive(Clone)]
pub struct Workload {
    pub script: Script,
    pub quiet: usize,
}

/// Sequences of one operation, or of two.
pub struct Ace {
    operations: Vec<Operation>,
    length: usize,
}

impl Ace {
    /// `length`: 1 or 2.
    pub fn new(length: usize) -> Ace {
        let files = if length == 1 { &FILES[..] } else { &FEW_FILES[..] };
        Ace { operations: operations(files), length }
    }
    /// Returns the number of sequences; some have no workload.
    pub fn sequences(&self) -> usize {
        self.operations.len().pow(self.length as u32)
    }
    /// Returns the workloads of one sequence: all combinations of persistence points.
    pub fn workloads(&self, sequence: usize) -> Vec<Workload> {
        let count = self.operations.len();
        match self.length {
            1 => workloads_of(&[&self.operations[sequence]]),
            _ => workloads_of(&[
                &self.operations[sequence / count],
                &self.operations[sequence % count],
            ]),
        }
    }
}

/// Returns the workloads of a sequence, or none if an operation would do nothing.
fn workloads_of(operations: &[&Operation]) -> Vec<Workload> {
    let Some(before) = preparation(operations) else { return Vec::new() };
    let quiet = before.len();
    let mut all = vec![before];
    for (index, operation) in operations.iter().enumerate() {
        let mut ways = persistence(&operation.action);
        if index + 1 < operations.len() {
            ways.push(vec![ScriptStep { action: operation.action.clone(), sync: Sync::None }]);
        }
        let longer = |script: &Script| -> Vec<Script> {
            ways.iter().map(|way| [&script[..], &way[..]].concat()).collect()
        };
        all = all.iter().flat_map(longer).collect();
    }
    all.into_iter().map(|script| Workload { script, quiet }).collect()
}

/// Returns steps that make what the operations need, as far as these do not make it themselves.
fn preparation(operations: &[&Operation]) -> Option<Script> {
    let made = |needs: &[u8]| -> Script {
        let directories = DIRECTORIES.map(|number| Action::MakeDirectory { number });
        let files = FILES.iter().filter(|file| needs.contains(file));
        let files = files.map(|file| Action::Nameless { file: *file, length: CONTENT });
        let mut script: Script = directories
            .into_iter()
            .chain(files)
            .map(|action| ScriptStep { action, sync: Sync::None })
            .collect();
        script.last_mut().expect("two directories").sync = Sync::Volume;
        script
    };
    let all: Vec<u8> = operations.iter().flat_map(|operation| operation.needs.clone()).collect();
    [made(&operations[0].needs), made(&all)].into_iter().find(|before| {
        let mut script = before.clone();
        operations.iter().all(|operation| {
            script.push(ScriptStep { action: operation.action.clone(), sync: Sync::None });
            History::of(0, &script).last_step_changes()
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::Case;
    use crate::setup::{SETUPS, make};
    use engine::DataMode;
    use std::collections::BTreeSet;

    fn all(length: usize) -> impl Iterator<Item = Workload> {
        let ace = Ace::new(length);
        (0..ace.sequences()).flat_map(move |sequence| ace.workloads(sequence))
    }

    #[test]
    fn the_workloads_are_counted_and_all_different() {
        let text = |workload: Workload| crate::script_text::format_scripts(&[workload.script]);
        let ones: Vec<String> = all(1).map(text).collect();
        assert_eq!(ones.iter().collect::<BTreeSet<_>>().len(), ones.len());
        assert_eq!((ones.len(), Ace::new(2).sequences()), (560, 7744));
        assert!(ones.iter().all(|text| crate::script_text::parse_scripts(text).is_ok()));
    }

    /// Some sequences in each mode; `okeanos-lab sim --ace` plays all, on all volumes.
    #[test]
    fn what_a_persistence_point_covers_is_there_after_a_crash() {
        let setup = *SETUPS.iter().find(|setup| setup.name == "ext4-4k").unwrap();
        let disks = make(setup).unwrap();
        let two = Ace::new(2);
        let of_two = (0..two.sequences()).step_by(331).flat_map(|at| two.workloads(at));
        for (index, workload) in all(1).chain(of_two).enumerate().step_by(13) {
            let mode = DataMode::ALL[index / 13 % DataMode::ALL.len()];
            let Workload { script, quiet } = workload;
            let case = Case::given(setup, mode, index as u64, vec![script], quiet);
            if let Err(failure) = crate::run(&case, &disks, None) {
                panic!("{failure}");
            }
        }
    }
}
