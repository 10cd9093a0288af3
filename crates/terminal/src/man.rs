//! Man pages from the definitions that `--help` prints: one of the program, and one per command.

use crate::error::CliError;
use crate::text::notes::{self, Note};
use clap::Command;
use std::path::{Path, PathBuf};

/// Destination of the man pages.
#[derive(clap::Args)]
pub struct ManArguments {
    /// Directory for the pages; made if missing
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,
}

/// Content of a program's pages besides the definitions of its commands.
pub struct Manual {
    /// Commands that change or serve a volume. Their pages are the administrator's, in section 8;
    /// those of other commands are in section 1.
    pub for_administrators: &'static [&'static str],
    /// The section FILES, in roff.
    pub files: &'static str,
    /// Pages, with their sections.
    pub see_also: &'static [(&'static str, u8)],
}

/// The section EXIT STATUS of a command that names no codes of its own, in roff.
pub const EXIT_STATUS: &str = ".SH \"EXIT STATUS\"\n\
                           .TP\n\
                           0\n\
                           Success.\n\
                           .TP\n\
                           1\n\
                           It failed; standard error says why, and what to do.\n\
                           .TP\n\
                           2\n\
                           The command line is wrong.\n";

impl Manual {
    /// Writes the pages of `program` and of all its commands that are not hidden.
    ///
    /// # Errors
    /// The directory cannot be made, or a page cannot be written.
    pub fn write(&self, mut program: Command, directory: &Path) -> Result<(), CliError> {
        std::fs::create_dir_all(directory)
            .map_err(|error| CliError::system(directory.display(), error))?;
        // Names the subcommands "okeanos-mkfs" and hands down what they inherit.
        program = program.disable_help_subcommand(true);
        program.build();
        self.write_pages(directory, &program, "1", "")
    }

    /// Writes the page of a command, and of all its subcommands. `above`: the notes of its parent
    /// command.
    fn write_pages(
        &self,
        directory: &Path,
        command: &Command,
        section: &str,
        above: &str,
    ) -> Result<(), CliError> {
        let name = command.get_display_name().unwrap_or(command.get_name());
        let path = directory.join(format!("{name}.{section}"));
        let mut page = Vec::new();
        self.render(command, section, above, &mut page)
            .and_then(|()| std::fs::write(&path, in_ascii(&String::from_utf8_lossy(&page))))
            .map_err(|error| CliError::system(path.display(), error))?;
        let notes = notes_of(command);
        for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
            let section = if section == "8" { "8" } else { self.section_of(below.get_name()) };
            self.write_pages(directory, below, section, &notes)?;
        }
        Ok(())
    }

    fn section_of(&self, command: &str) -> &'static str {
        if self.for_administrators.contains(&command) { "8" } else { "1" }
    }

    fn render(
        &self,
        command: &Command,
        section: &str,
        above: &str,
        page: &mut Vec<u8>,
    ) -> std::io::Result<()> {
        let man = clap_mangen::Man::new(command.clone()).section(section);
        let man = man.source(format!("okeanos {}", crate::VERSION)).manual("Okeanos");
        man.render_title(page)?;
        man.render_name_section(page)?;
        page.extend_from_slice(synopsis(command).as_bytes());
        man.render_description_section(page)?;
        man.render_options_section(page)?;
        if command.get_subcommands().any(|below| !below.is_hide_set()) {
            page.extend_from_slice(&self.subcommands_section(command, &man)?);
        }
        let name = command.get_display_name().unwrap_or(command.get_name());
        let notes = notes_of(command);
        page.extend_from_slice(notes_sections(&notes).as_bytes());
        if !notes.contains("Examples") {
            // As typed: `okeanos-lab bench streams`.
            let typed = command.get_bin_name().unwrap_or(name);
            page.extend_from_slice(examples_above(typed, above).as_bytes());
        }
        if !notes.contains("Exit status") {
            page.extend_from_slice(EXIT_STATUS.as_bytes());
        }
        page.extend_from_slice(self.end(name).as_bytes());
        Ok(())
    }

    /// Formats the list of subcommands; the library takes all pages for ones of the same section.
    fn subcommands_section(
        &self,
        command: &Command,
        man: &clap_mangen::Man,
    ) -> std::io::Result<Vec<u8>> {
        let mut section = Vec::new();
        man.render_subcommands_section(&mut section)?;
        let mut text = String::from_utf8_lossy(&section).into_owned();
        for below in command
            .get_subcommands()
            .map(Command::get_name)
            .filter(|name| self.section_of(name) == "8")
        {
            text = text.replace(&format!("\\-{below}(1)"), &format!("\\-{below}(8)"));
        }
        Ok(text.into_bytes())
    }

    /// Returns the sections FILES and SEE ALSO of a page, which does not name itself.
    pub fn end(&self, page: &str) -> String {
        let others = self.see_also.iter().filter(|(name, _)| *name != page);
        let pages: Vec<String> =
            others.map(|(name, section)| format!("\\fB{}\\fR({section})", escaped(name))).collect();
        format!("{}.SH \"SEE ALSO\"\n{}\n", self.files, pages.join(", "))
    }
}

fn notes_of(command: &Command) -> String {
    let notes = command.get_after_long_help().or(command.get_after_help());
    notes.map(ToString::to_string).unwrap_or_default()
}

/// Returns the command line as typed: `okeanos mkfs`, not `okeanos-mkfs`.
fn synopsis(command: &Command) -> String {
    let usage = command.clone().render_usage().to_string();
    let usage = usage.trim_start_matches("Usage:").trim();
    let lines: Vec<String> =
        usage.lines().map(|line| format!("\\fB{}\\fR\n", escaped(line.trim()))).collect();
    format!(".SH SYNOPSIS\n{}", lines.join(".br\n"))
}

/// Returns those examples of the parent's notes that use this command.
fn examples_above(command: &str, above: &str) -> String {
    let is_it = |note: &Note| matches!(note, Note::Entry { term, .. } if term.contains(command));
    let entries = notes::parse(above).into_iter().filter(is_it);
    let examples: String = entries.map(|entry| entry_of(&entry)).collect();
    if examples.is_empty() { examples } else { format!(".SH EXAMPLES\n{examples}") }
}

/// Headings that are sections of a man page; others head a part of one.
const SECTIONS: [&str; 4] = ["Examples", "Exit status", "Mount options", "Health"];

/// Turns the notes behind a command's help into sections of a page.
pub fn notes_sections(text: &str) -> String {
    let mut page = String::new();
    let (mut is_begun, mut is_example) = (false, false);
    let mut indents = Vec::new();
    for note in notes::parse(text) {
        match note {
            Note::Blank => {}
            Note::Paragraph(text) => {
                page += &leave(&mut indents);
                match SECTIONS.iter().find(|name| text.starts_with(*name) && text.ends_with(':')) {
                    Some(name) => {
                        page += &format!(".SH \"{}\"\n", name.to_uppercase());
                        (is_begun, is_example) = (true, *name == "Examples");
                    }
                    None => {
                        // Text behind examples belongs to the command.
                        let is_note = !is_begun || is_example && !text.ends_with(':');
                        page += if is_note { ".SH NOTES\n" } else { ".PP\n" };
                        (is_begun, is_example) = (true, is_example && !is_note);
                        page += &format!("{}\n", escaped(&text));
                    }
                }
            }
            Note::Entry { indent, .. } => {
                if !is_begun {
                    page += ".SH NOTES\n";
                    is_begun = true;
                }
                // Entries below an entry.
                while indents.len() > 1 && indents.last() > Some(&indent) {
                    indents.pop();
                    page += ".RE\n";
                }
                if indents.last() < Some(&indent) {
                    page += if indents.is_empty() { "" } else { ".RS\n" };
                    indents.push(indent);
                }
                page += &entry_of(&note);
            }
        }
    }
    page + &leave(&mut indents)
}

/// Ends the entries below entries.
fn leave(indents: &mut Vec<usize>) -> String {
    let open = indents.len().saturating_sub(1);
    indents.clear();
    ".RE\n".repeat(open)
}

fn entry_of(note: &Note) -> String {
    let Note::Entry { term, description, .. } = note else { return String::new() };
    let description = if description.is_empty() { "\\&".into() } else { escaped(description) };
    format!(".TP\n\\fB{}\\fR\n{description}\n", escaped(term))
}

/// Escapes text that roff would take for an escape or a command; dashes can be copied.
pub fn escaped(text: &str) -> String {
    let text = text.replace('\\', "\\e").replace('-', "\\-");
    if text.starts_with(['.', '\'']) { format!("\\&{text}") } else { text }
}

/// Replaces characters beyond ASCII, of which old formatters read each byte as a character.
fn in_ascii(page: &str) -> String {
    let ascii =
        |c: char| if c.is_ascii() { c.to_string() } else { format!("\\[u{:04X}]", u32::from(c)) };
    page.chars().map(ascii).collect()
}

/// Returns what the pages of a directory lack, for the tests of the programs.
#[doc(hidden)]
pub fn faults(directory: &Path) -> std::io::Result<Vec<String>> {
    const HEADINGS: [&str; 6] =
        ["DESCRIPTION", "SYNOPSIS", "EXAMPLES", "\"EXIT STATUS\"", "FILES", "\"SEE ALSO\""];
    let mut faults = Vec::new();
    for page in std::fs::read_dir(directory)? {
        let page = page?.path();
        let text = std::fs::read_to_string(&page)?;
        let mut complain = |what: &str| faults.push(format!("{}: {what}", page.display()));
        for heading in HEADINGS {
            let forms = [format!(".SH {heading}\n"), format!(".SH \"{heading}\"\n")];
            if !forms.iter().any(|form| text.contains(form)) {
                complain(heading);
            }
        }
        let name = page.file_stem().unwrap_or_default().to_string_lossy();
        if text.contains(&format!("\\fB{}\\fR(", escaped(&name))) {
            complain("points at itself");
        }
        if text.contains("\"stats 0.") {
            complain("the version is the program's");
        }
        if text.matches("\n.RS").count() != text.matches("\n.RE").count() {
            complain("indents are not balanced");
        }
    }
    Ok(faults)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_become_sections_and_no_commands() {
        let section = notes_sections(".c \\ d\n\nExamples:\n  a -b  does it");
        assert_eq!(
            section,
            ".SH NOTES\n\\&.c \\e d\n.SH \"EXAMPLES\"\n.TP\n\\fBa \\-b\\fR\ndoes it\n"
        );
    }
}
