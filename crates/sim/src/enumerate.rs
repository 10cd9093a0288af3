//! Enumerates all short scripts over a small alphabet, to include those that a person would not
//! think of.

use crate::model::History;
use crate::script::{Action, Offset, Script, ScriptStep, Sync};

/// Step before the script proper: file 0 has a block and a part of one, all of it durable.
const FIRST: ScriptStep =
    ScriptStep { action: Action::Nameless { file: 0, length: 5000 }, sync: Sync::Volume };

/// A letter is an action without sync, or a sync of the action before.
#[derive(Clone)]
enum Letter {
    Action(Action),
    Sync(Sync),
}

fn alphabet() -> Vec<Letter> {
    let actions = [
        Action::Create { file: 1 },
        Action::Write { file: 0, place: Offset::At(100), length: 37 },
        Action::Write { file: 0, place: Offset::At(0), length: 4096 },
        Action::Write { file: 0, place: Offset::End, length: 300 },
        Action::Write { file: 1, place: Offset::End, length: 300 },
        Action::Truncate { file: 0, size: 50 },
        Action::Rename { from: 0, to: 1 },
        Action::Rename { from: 1, to: 0 },
        Action::Unlink { file: 0 },
        Action::Link { file: 0, to: 1 },
        Action::Nameless { file: 1, length: 300 },
        Action::Allocate { file: 0, at: 4096, length: 12_288 },
        Action::Punch { file: 0, at: 1000, length: 3600 },
    ];
    let syncs = [Sync::File, Sync::Data, Sync::Volume];
    actions.into_iter().map(Letter::Action).chain(syncs.map(Letter::Sync)).collect()
}

/// Returns all scripts of 1 to `letters` letters in which every action does something, shortest
/// first. The first step of each makes the file they work on.
pub fn scripts(letters: usize) -> Vec<Script> {
    let alphabet = alphabet();
    let mut all = Vec::new();
    let mut longest = vec![vec![FIRST]];
    for _ in 0..letters {
        longest = longest.iter().flat_map(|script| extend(script, &alphabet)).collect();
        all.extend(longest.iter().cloned());
    }
    all
}

fn extend(script: &Script, alphabet: &[Letter]) -> Vec<Script> {
    let one_longer = |letter: &Letter| {
        let mut longer = script.clone();
        match letter {
            Letter::Action(action) => {
                longer.push(ScriptStep { action: action.clone(), sync: Sync::None })
            }
            Letter::Sync(sync) => {
                let last = longer.last_mut()?;
                if last.sync != Sync::None {
                    return None;
                }
                last.sync = *sync;
                return Some(longer);
            }
        }
        History::of(0, &longer).last_step_changes().then_some(longer)
    };
    alphabet.iter().filter_map(one_longer).collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_scripts_are_counted_and_all_different() {
        let scripts = super::scripts(3);
        assert_eq!((super::scripts(1).len(), super::scripts(2).len()), (11, 138));
        let texts: std::collections::BTreeSet<_> = scripts
            .iter()
            .map(|script| crate::script_text::format_scripts(std::slice::from_ref(script)))
            .collect();
        assert_eq!(texts.len(), scripts.len());
    }
}
