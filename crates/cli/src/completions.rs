//! `okeanos completions`: for shells, from the definitions that `--help` prints.

use crate::error::CliError;
use crate::text::output::print_as_it_is;
use clap::CommandFactory;
use clap_complete::Shell;

const EXAMPLES: &str = "\
Examples:
  okeanos completions bash >/etc/bash_completion.d/okeanos
  okeanos completions zsh  >/usr/local/share/zsh/site-functions/_okeanos
  okeanos completions fish >~/.config/fish/completions/okeanos.fish

make install and the Debian package put them where the shells look.";

/// Write a shell's completions to standard output
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct CompletionsArguments {
    /// Whose
    #[arg(value_enum, value_name = "SHELL")]
    shell: Shell,
}

pub fn run(arguments: CompletionsArguments) -> Result<(), CliError> {
    let mut script = Vec::new();
    clap_complete::generate(
        arguments.shell,
        &mut crate::Program::command(),
        "okeanos",
        &mut script,
    );
    print_as_it_is(&String::from_utf8_lossy(&script))
}
