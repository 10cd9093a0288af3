//! Commands that moved: from `okeanos` to `okeanos-lab`, and scattered logs from `okeanos nbd` to
//! `okeanos blocks`; and commands that `okeanos blocks` and `okeanos host` lack.

use crate::error::CliError;
use std::ffi::OsString;

const MOVED: [&str; 4] = ["bench", "disk", "reproduce", "sim"];
/// Commands of both programs: an emulated drive (`--model`) belongs to the laboratory.
const OF_BOTH: [&str; 2] = ["fingerprint", "nbd"];

/// Commands that have commands of their own, and what these lack: one command of that name is for
/// volumes, block volumes and hosts.
const FOR_EVERYTHING: [(&str, &[&str]); 2] = [
    ("blocks", &["list", "check", "stats", "recover", "umount", "checkpoint"]),
    ("host", &["list", "check", "stats", "umount", "checkpoint"]),
];

/// clap's exit code for a wrong command line.
const WRONG_USAGE: u8 = 2;

/// Refuses a command line of `okeanos-lab`, or one that asks `okeanos nbd` for scattered logs.
pub fn refuse(arguments: &[OsString]) -> Result<(), CliError> {
    let command = arguments.get(1).and_then(|word| word.to_str()).unwrap_or_default();
    let names_model = |word: &OsString| {
        word.to_str().is_some_and(|word| word == "--model" || word.starts_with("--model="))
    };
    let second = arguments.get(2).and_then(|word| word.to_str()).unwrap_or_default();
    let is_for_everything =
        |(part, lacks): &(&str, &[&str])| *part == command && lacks.contains(&second);
    if FOR_EVERYTHING.iter().any(is_for_everything) {
        return Err(CliError::new(format!("okeanos {command} has no command {second}"))
            .with_remedy(format!("One command is for everything: see okeanos {second} --help."))
            .with_code(WRONG_USAGE));
    }
    if MOVED.contains(&command) {
        Err(of_lab(command, command))
    } else if OF_BOTH.contains(&command) && arguments.iter().any(names_model) {
        Err(of_lab(&format!("{command} --model"), command))
    } else if command == "nbd" && arguments.iter().any(|word| word == "--scattered") {
        Err(CliError::new("okeanos nbd exports disks as they are, without scattered logs")
            .with_remedy(
                "Make a block volume: okeanos blocks format --scattered-logs DEVICE. Export it: \
                 okeanos blocks attach --via nbd --socket PATH DEVICE.",
            )
            .with_code(WRONG_USAGE))
    } else {
        Ok(())
    }
}

/// Returns the error that `okeanos-lab COMMAND` does `what`.
fn of_lab(what: &str, command: &str) -> CliError {
    CliError::new(format!("{what} is a command of okeanos-lab"))
        .with_remedy(format!("See okeanos-lab {command} --help; it has a package of its own."))
        .with_code(WRONG_USAGE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moved_command_names_its_program() {
        let refuse = |words: &[&str]| {
            let line: Vec<_> = ["okeanos"].iter().chain(words).map(OsString::from).collect();
            super::refuse(&line)
        };
        let error = refuse(&["bench", "demo"]).unwrap_err();
        assert_eq!(error.code(), 2);
        assert!(error.to_string().starts_with("bench is a command of okeanos-lab\n"), "{error}");
        let error = refuse(&["nbd", "--socket", "s", "--model=samsung-16"]).unwrap_err();
        assert!(error.to_string().contains("See okeanos-lab nbd --help"), "{error}");
        let error =
            refuse(&["nbd", "--scattered", "--format", "disk.img"]).unwrap_err().to_string();
        let names = |text: &str| error.contains(text);
        assert!(names("blocks format --scattered-logs") && names("attach --via nbd"), "{error}");
        assert!(refuse(&["mount", "bench"]).is_ok() && refuse(&["nbd", "disk.img"]).is_ok());
        for (part, command) in [("blocks", "list"), ("blocks", "recover"), ("host", "umount")] {
            let error = refuse(&[part, command]).unwrap_err().to_string();
            assert!(error.contains(&format!("okeanos {command} --help")), "{error}");
        }
        assert!(refuse(&["host", "recover"]).is_ok() && refuse(&["blocks", "inspect"]).is_ok());
        assert!(refuse(&[]).is_ok());
    }
}
