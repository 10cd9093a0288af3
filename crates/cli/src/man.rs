//! Man pages from the definitions that `--help` prints: okeanos.1 and one page a command.

use crate::error::CliError;
use clap::{Command, CommandFactory};
use std::path::{Path, PathBuf};

/// Write the man pages into a directory
#[derive(clap::Args)]
pub struct ManArguments {
    /// Where the pages go; made if missing
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

pub fn run(arguments: ManArguments) -> Result<(), CliError> {
    let directory = arguments.directory;
    std::fs::create_dir_all(&directory).map_err(|error| CliError::system(directory.display(), error))?;
    let mut program = crate::Program::command().disable_help_subcommand(true);
    // Names the subcommands "okeanos-mkfs" and hands down what they inherit.
    program.build();
    write_page(&directory, &program, "1")?;
    for command in program.get_subcommands().filter(|command| !command.is_hide_set()) {
        write_page(&directory, command, section(command.get_name()))?;
    }
    Ok(())
}

/// What changes or serves a volume is the administrator's; what only looks is everybody's.
fn section(command: &str) -> &'static str {
    match command {
        "mkfs" | "mount" | "umount" | "recover" => "8",
        _ => "1",
    }
}

fn write_page(directory: &Path, command: &Command, section: &str) -> Result<(), CliError> {
    let name = command.get_display_name().unwrap_or(command.get_name());
    let path = directory.join(format!("{name}.{section}"));
    let mut page = Vec::new();
    let written = clap_mangen::Man::new(command.clone()).section(section).render(&mut page);
    written
        .and_then(|()| std::fs::write(&path, page))
        .map_err(|error| CliError::system(path.display(), error))
}
