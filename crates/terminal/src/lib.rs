//! Shared command-line code of the programs `okeanos` and `okeanos-lab`: errors with a remedy,
//! sizes and times, tables, progress, help at the width of the terminal, completions, man pages.

pub mod error;
pub mod man;
pub mod text;

use clap::{Command, CommandFactory, FromArgMatches};
use clap_complete::Shell;
use error::CliError;
use std::ffi::OsString;
use text::{notes, output};

/// The programs' version, with the commit that they were built from, where that is known
/// (build.rs).
pub const VERSION: &str = env!("OKEANOS_VERSION");

/// Parses a command line; help is as wide as the terminal.
///
/// # Errors
/// Requested help, or the fault in the command line.
pub fn parse<P: CommandFactory + FromArgMatches>(arguments: &[OsString]) -> Result<P, clap::Error> {
    let width = output::width();
    let command = at_width(P::command(), width).term_width(width);
    command.try_get_matches_from(arguments).and_then(|matches| P::from_arg_matches(&matches))
}

/// Wraps each command's notes; clap itself knows no hanging lines.
fn at_width(command: Command, width: usize) -> Command {
    let notes = command.get_after_help().map(|notes| notes::at_width(&notes.to_string(), width));
    let long =
        command.get_after_long_help().map(|notes| notes::at_width(&notes.to_string(), width));
    let mut command = command.mut_subcommands(|below| at_width(below, width));
    if let Some(notes) = notes {
        command = command.after_help(notes);
    }
    if let Some(notes) = long {
        command = command.after_long_help(notes);
    }
    command
}

/// A shell, for a program's `completions`.
#[derive(clap::Args)]
pub struct ShellArguments {
    /// The shell that completes
    #[arg(value_enum, value_name = "SHELL")]
    shell: Shell,
}

impl ShellArguments {
    /// Writes the completions of `program` to standard output.
    ///
    /// # Errors
    /// Standard output cannot be written, and is no pipe that its reader closed.
    pub fn run(&self, program: &mut Command) -> Result<(), CliError> {
        let (mut script, name) = (Vec::new(), program.get_name().to_owned());
        clap_complete::generate(self.shell, program, name, &mut script);
        output::print_as_it_is(&String::from_utf8_lossy(&script))
    }
}

/// Returns the help of each option of this name, with its command.
#[doc(hidden)]
pub fn helps(command: &Command, option: &str) -> Vec<(String, String)> {
    let own = command.get_arguments().filter(|argument| argument.get_long() == Some(option));
    let own = own.map(|argument| {
        let help = argument.get_help().map(ToString::to_string).unwrap_or_default();
        (command.get_name().to_owned(), help)
    });
    own.chain(command.get_subcommands().flat_map(|below| helps(below, option))).collect()
}
