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
    write_pages(&directory, &program, "1")
}

/// The page of a command, and of all below it.
fn write_pages(directory: &Path, command: &Command, section: &str) -> Result<(), CliError> {
    let name = command.get_display_name().unwrap_or(command.get_name());
    let path = directory.join(format!("{name}.{section}"));
    let mut page = Vec::new();
    render(command, section, &mut page)
        .and_then(|()| std::fs::write(&path, page))
        .map_err(|error| CliError::system(path.display(), error))?;
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
        write_pages(directory, below, if section == "8" { "8" } else { section_of(below.get_name()) })?;
    }
    Ok(())
}

/// What changes or serves a volume is the administrator's; what only looks is everybody's.
fn section_of(command: &str) -> &'static str {
    match command {
        "mkfs" | "mount" | "umount" | "recover" => "8",
        _ => "1",
    }
}

fn render(command: &Command, section: &str, page: &mut Vec<u8>) -> std::io::Result<()> {
    let man = clap_mangen::Man::new(command.clone()).section(section);
    man.render_title(page)?;
    man.render_name_section(page)?;
    man.render_synopsis_section(page)?;
    man.render_description_section(page)?;
    man.render_options_section(page)?;
    if command.get_subcommands().any(|below| !below.is_hide_set()) {
        page.extend_from_slice(&subcommands_section(command, &man)?);
    }
    if let Some(notes) = command.get_after_long_help().or(command.get_after_help()) {
        page.extend_from_slice(notes_section(&notes.to_string()).as_bytes());
    }
    Ok(())
}

/// The library takes all pages for ones of the same section.
fn subcommands_section(command: &Command, man: &clap_mangen::Man) -> std::io::Result<Vec<u8>> {
    let mut section = Vec::new();
    man.render_subcommands_section(&mut section)?;
    let mut text = String::from_utf8_lossy(&section).into_owned();
    for below in command.get_subcommands().map(Command::get_name).filter(|name| section_of(name) == "8") {
        text = text.replace(&format!("\\-{below}(1)"), &format!("\\-{below}(8)"));
    }
    Ok(text.into_bytes())
}

/// Notes and examples line by line, as `--help` shows them.
fn notes_section(notes: &str) -> String {
    let mut section = ".SH NOTES\n.nf\n".to_owned();
    for line in notes.lines() {
        // What roff would take for a command or an escape.
        let line = line.replace('\\', "\\e").replace('-', "\\-");
        let guard = if line.starts_with(['.', '\'']) { "\\&" } else { "" };
        section += &format!("{guard}{line}\n");
    }
    section + ".fi\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_keep_their_lines_and_are_no_commands() {
        let section = notes_section("Example:\n  a -b\n.c \\ d");
        assert_eq!(section, ".SH NOTES\n.nf\nExample:\n  a \\-b\n\\&.c \\e d\n.fi\n");
    }

    #[test]
    fn every_command_has_a_page() {
        let directory = tempfile::tempdir().unwrap();
        run(ManArguments { directory: directory.path().to_owned() }).unwrap();
        for page in ["okeanos.1", "okeanos-mount.8", "okeanos-bench-streams.1", "okeanos-inspect-journal.1"] {
            let text = std::fs::read_to_string(directory.path().join(page)).unwrap();
            assert!(text.contains(".SH DESCRIPTION"), "{page}");
        }
        let first = std::fs::read_to_string(directory.path().join("okeanos.1")).unwrap();
        assert!(first.contains("mount(8)") && first.contains("stats(1)") && !first.contains("mount(1)"));
    }
}
