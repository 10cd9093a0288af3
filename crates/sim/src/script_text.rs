//! Scripts in command-line notation: `nameless:0+5000,fsync write:0@100+37 / create:1`. Steps are
//! separated by spaces, writers by `/`; a step may end with `,fsync`, `,fdatasync` or `,sync`.

use crate::script::{Action, Offset, Script, ScriptStep, Sync};
use std::fmt;

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Action::Create { file } => write!(f, "create:{file}"),
            Action::Write { file, place: Offset::End, length } => {
                write!(f, "append:{file}+{length}")
            }
            Action::Write { file, place: Offset::At(at), length } => {
                write!(f, "write:{file}@{at}+{length}")
            }
            Action::Truncate { file, size } => write!(f, "truncate:{file}@{size}"),
            Action::Rename { from, to } => write!(f, "rename:{from}@{to}"),
            Action::Unlink { file } => write!(f, "unlink:{file}"),
            Action::Link { file, to } => write!(f, "link:{file}@{to}"),
            Action::Nameless { file, length } => write!(f, "nameless:{file}+{length}"),
            Action::Allocate { file, at, length } => write!(f, "allocate:{file}@{at}+{length}"),
            Action::Punch { file, at, length } => write!(f, "punch:{file}@{at}+{length}"),
            Action::Attribute { file, length } => write!(f, "attribute:{file}+{length}"),
            Action::Symlink { number, length } => write!(f, "symlink:{number}+{length}"),
            Action::MakeDirectory { number } => write!(f, "mkdir:{number}"),
            Action::MoveDirectory { number } => write!(f, "move:{number}"),
            Action::RemoveDirectory { number } => write!(f, "rmdir:{number}"),
            Action::Trim { file } => write!(f, "trim:{file}"),
            Action::Address { file } => write!(f, "address:{file}"),
            Action::Wait { file, micros } => write!(f, "wait:{file}+{micros}"),
        }
    }
}

impl fmt::Display for ScriptStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sync = match self.sync {
            Sync::None => "",
            Sync::File => ",fsync",
            Sync::Data => ",fdatasync",
            Sync::Volume => ",sync",
        };
        write!(f, "{}{sync}", self.action)
    }
}

pub fn format_scripts(scripts: &[Script]) -> String {
    let script =
        |script: &Script| script.iter().map(ScriptStep::to_string).collect::<Vec<_>>().join(" ");
    scripts.iter().map(script).collect::<Vec<_>>().join(" / ")
}

/// Parses the output of [`format_scripts`]; the error names the wrong word.
pub fn parse_scripts(text: &str) -> Result<Vec<Script>, String> {
    text.split('/').map(|script| script.split_whitespace().map(parse_step).collect()).collect()
}

fn parse_step(word: &str) -> Result<ScriptStep, String> {
    let (action, sync) = match word.split_once(',') {
        None => (word, Sync::None),
        Some((action, "fsync")) => (action, Sync::File),
        Some((action, "fdatasync")) => (action, Sync::Data),
        Some((action, "sync")) => (action, Sync::Volume),
        Some(_) => return Err(format!("{word}: a step ends with ,fsync or ,fdatasync or ,sync")),
    };
    let action = parse_action(action).ok_or_else(|| format!("{word}: no step of a script"))?;
    Ok(ScriptStep { action, sync })
}

/// Parses an action; `None` if there is no such action, or a number is missing.
fn parse_action(word: &str) -> Option<Action> {
    let (name, rest) = word.split_once(':')?;
    let (rest, length) = match rest.split_once('+') {
        Some((rest, length)) => (rest, Some(length.parse::<u64>().ok()?)),
        None => (rest, None),
    };
    let (file, at) = match rest.split_once('@') {
        Some((file, at)) => (file, Some(at.parse::<u64>().ok()?)),
        None => (rest, None),
    };
    let file: u8 = file.parse().ok()?;
    let to = || u8::try_from(at?).ok();
    Some(match (name, length.map(|length| length as usize)) {
        ("create", None) => Action::Create { file },
        ("append", Some(length)) => Action::Write { file, place: Offset::End, length },
        ("write", Some(length)) => Action::Write { file, place: Offset::At(at?), length },
        ("truncate", None) => Action::Truncate { file, size: at? },
        ("rename", None) => Action::Rename { from: file, to: to()? },
        ("unlink", None) => Action::Unlink { file },
        ("link", None) => Action::Link { file, to: to()? },
        ("nameless", Some(length)) => Action::Nameless { file, length },
        ("allocate", Some(_)) => Action::Allocate { file, at: at?, length: length? },
        ("punch", Some(_)) => Action::Punch { file, at: at?, length: length? },
        ("attribute", Some(length)) => Action::Attribute { file, length },
        ("symlink", Some(length)) => Action::Symlink { number: file, length },
        ("mkdir", None) => Action::MakeDirectory { number: file },
        ("move", None) => Action::MoveDirectory { number: file },
        ("rmdir", None) => Action::RemoveDirectory { number: file },
        ("trim", None) => Action::Trim { file },
        ("address", None) => Action::Address { file },
        ("wait", Some(micros)) => Action::Wait { file, micros: micros as u64 },
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::script::{Mix, ScriptSize, make_scripts};

    #[test]
    fn every_script_can_be_written_down_and_read_again() {
        for mix in [Mix::All, Mix::Overwrites, Mix::Crossing, Mix::Large] {
            for seed in 0..10 {
                let scripts = make_scripts(
                    seed,
                    3,
                    ScriptSize { steps: 200, files: 3, mix, extents: true, block: 1024 },
                );
                assert_eq!(parse_scripts(&format_scripts(&scripts)), Ok(scripts));
            }
        }
    }
    #[test]
    fn a_wrong_word_is_named() {
        for word in ["creat:0", "create", "write:0+5", "append:0", "create:0,now", "rename:0@999"] {
            let said = parse_scripts(&format!("create:0 {word}")).unwrap_err();
            assert!(said.starts_with(word), "{said}");
        }
    }
}
