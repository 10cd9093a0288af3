//! `okeanos-lab completions`: completions for shells, from the definitions that `--help` prints.

use crate::error::CliError;
use clap::CommandFactory;

const EXAMPLES: &str = "\
Examples:
  okeanos-lab completions bash >/etc/bash_completion.d/okeanos-lab
  okeanos-lab completions zsh  >/usr/local/share/zsh/site-functions/_okeanos-lab
  okeanos-lab completions fish >~/.config/fish/completions/okeanos-lab.fish

make install and the Debian package put them where the shells look.";

/// Write a shell's completions to standard output
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct CompletionsArguments {
    #[command(flatten)]
    shell: terminal::ShellArguments,
}

pub fn run(arguments: &CompletionsArguments) -> Result<(), CliError> {
    arguments.shell.run(&mut crate::Program::command())
}
