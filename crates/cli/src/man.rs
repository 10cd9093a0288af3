//! Man pages from the definitions that `--help` prints: okeanos.1 and one page a command.

use crate::error::CliError;
use crate::text::notes::{self, Note};
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
    std::fs::create_dir_all(&directory)
        .map_err(|error| CliError::system(directory.display(), error))?;
    let mut program = crate::Program::command().disable_help_subcommand(true);
    // Names the subcommands "okeanos-mkfs" and hands down what they inherit.
    program.build();
    let helper = directory.join("mount.fuse.okeanos.8");
    let page = program.find_subcommand("mount").map(helper_page).unwrap_or_default();
    std::fs::write(&helper, page).map_err(|error| CliError::system(helper.display(), error))?;
    write_pages(&directory, &program, "1", "")
}

/// The page of a command, and of all below it. `above`: the notes of the command that it belongs
/// to.
fn write_pages(
    directory: &Path,
    command: &Command,
    section: &str,
    above: &str,
) -> Result<(), CliError> {
    let name = command.get_display_name().unwrap_or(command.get_name());
    let path = directory.join(format!("{name}.{section}"));
    let mut page = Vec::new();
    render(command, section, above, &mut page)
        .and_then(|()| std::fs::write(&path, in_ascii(&String::from_utf8_lossy(&page))))
        .map_err(|error| CliError::system(path.display(), error))?;
    let notes = notes_of(command);
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
        let section = if section == "8" { "8" } else { section_of(below.get_name()) };
        write_pages(directory, below, section, &notes)?;
    }
    Ok(())
}

/// What changes or serves a volume is the administrator's; what only looks is everybody's.
fn section_of(command: &str) -> &'static str {
    match command {
        "mkfs" | "mount" | "umount" | "recover" | "check" | "blocks" => "8",
        _ => "1",
    }
}

fn notes_of(command: &Command) -> String {
    let notes = command.get_after_long_help().or(command.get_after_help());
    notes.map(ToString::to_string).unwrap_or_default()
}

fn render(
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
        page.extend_from_slice(&subcommands_section(command, &man)?);
    }
    let name = command.get_display_name().unwrap_or(command.get_name());
    let notes = notes_of(command);
    page.extend_from_slice(notes_sections(&notes).as_bytes());
    if !notes.contains("Examples") {
        page.extend_from_slice(examples_above(&name.replace('-', " "), above).as_bytes());
    }
    if !notes.contains("Exit status") {
        page.extend_from_slice(EXIT_STATUS.as_bytes());
    }
    page.extend_from_slice(format!("{FILES}{}", see_also(name)).as_bytes());
    Ok(())
}

/// As one types it: `okeanos mkfs`, not `okeanos-mkfs`.
fn synopsis(command: &Command) -> String {
    let usage = command.clone().render_usage().to_string();
    let usage = usage.trim_start_matches("Usage:").trim();
    let lines: Vec<String> =
        usage.lines().map(|line| format!("\\fB{}\\fR\n", escaped(line.trim()))).collect();
    format!(".SH SYNOPSIS\n{}", lines.join(".br\n"))
}

/// The library takes all pages for ones of the same section.
fn subcommands_section(command: &Command, man: &clap_mangen::Man) -> std::io::Result<Vec<u8>> {
    let mut section = Vec::new();
    man.render_subcommands_section(&mut section)?;
    let mut text = String::from_utf8_lossy(&section).into_owned();
    for below in
        command.get_subcommands().map(Command::get_name).filter(|name| section_of(name) == "8")
    {
        text = text.replace(&format!("\\-{below}(1)"), &format!("\\-{below}(8)"));
    }
    Ok(text.into_bytes())
}

const EXIT_STATUS: &str = ".SH \"EXIT STATUS\"\n.TP\n0\nSuccess.\n.TP\n1\nIt failed; standard error says why, and what to do.\n\
                           .TP\n2\nThe command line is wrong.\n";

const FILES: &str = ".SH FILES\n.TP\n\\fI/run/okeanos/\\fR\nSockets of the daemons of root's mounts. An ordinary user's are in \
                     \\fI$XDG_RUNTIME_DIR/okeanos/\\fR, or in \\fI/tmp/okeanos\\-UID/\\fR.\n.TP\n\\fI/run/okeanos\\-public/\\fR\n\
                     Sockets of mounts of root with allow_other, which answer everybody's questions and take no orders.\n.TP\n\
                     \\fI/etc/okeanos/*.conf\\fR\nVolumes of the systemd unit okeanos@.service.\n.TP\n\\fI/etc/okeanos/hosts/*.conf\\fR\n\
                     Stores of the systemd unit okeanos-host@.service.\n";

const SEE_ALSO: [(&str, u8); 10] = [
    ("okeanos", 1),
    ("okeanos-mkfs", 8),
    ("okeanos-mount", 8),
    ("okeanos-stats", 1),
    ("mount.fuse.okeanos", 8),
    ("mount", 8),
    ("mke2fs", 8),
    ("e2fsck", 8),
    ("ext4", 5),
    ("fuse", 4),
];

/// All but the page itself.
fn see_also(name: &str) -> String {
    let others = SEE_ALSO.iter().filter(|(page, _)| *page != name);
    let pages: Vec<String> =
        others.map(|(page, section)| format!("\\fB{}\\fR({section})", escaped(page))).collect();
    format!(".SH \"SEE ALSO\"\n{}\n", pages.join(", "))
}

/// Those of the examples above that are of this command.
fn examples_above(command: &str, above: &str) -> String {
    let is_it = |note: &Note| matches!(note, Note::Entry { term, .. } if term.contains(command));
    let entries = notes::parse(above).into_iter().filter(is_it);
    let examples: String = entries.map(|entry| entry_of(&entry)).collect();
    if examples.is_empty() { examples } else { format!(".SH EXAMPLES\n{examples}") }
}

/// Headings that are sections of a man page; others head a part of one.
const SECTIONS: [&str; 4] = ["Examples", "Exit status", "Mount options", "Health"];

fn notes_sections(text: &str) -> String {
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
                        // What stands behind examples is of the command.
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

/// The end of the entries below entries.
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

/// What roff would take for an escape or a command; and dashes that one can copy.
fn escaped(text: &str) -> String {
    let text = text.replace('\\', "\\e").replace('-', "\\-");
    if text.starts_with(['.', '\'']) { format!("\\&{text}") } else { text }
}

/// Old formatters read bytes, and take those of other characters one by one.
fn in_ascii(page: &str) -> String {
    let told =
        |c: char| if c.is_ascii() { c.to_string() } else { format!("\\[u{:04X}]", u32::from(c)) };
    page.chars().map(told).collect()
}

/// The helper that mount(8) runs, under the names that it looks for.
fn helper_page(mount: &Command) -> String {
    let options = mount.get_after_long_help().map(ToString::to_string).unwrap_or_default();
    format!(
        ".TH mount.fuse.okeanos 8\n.SH NAME\nmount.fuse.okeanos \\- mount an okeanos volume by mount(8) and fstab(5)\n\
         .SH SYNOPSIS\n\\fBmount \\-t fuse.okeanos\\fR [\\fB\\-o\\fR \\fIoptions\\fR] \\fIsource\\fR \\fIdirectory\\fR\n.br\n\
         \\fBmount.fuse.okeanos\\fR \\fIsource\\fR \\fIdirectory\\fR [\\fB\\-sfnv\\fR] [\\fB\\-o\\fR \\fIoptions\\fR]\n\
         .SH DESCRIPTION\nA name of \\fBokeanos\\fR(1): called so, it mounts as \\fBokeanos\\-mount\\fR(8) does. \
         \\fBmount\\fR(8) runs it for the types fuse.okeanos, fuseblk.okeanos and okeanos. A line of \\fI/etc/fstab\\fR:\n\
         .PP\n.nf\n/dev/sdb1  /mnt/a  fuse.okeanos  allow_other,nofail  0 0\n.fi\n\
         .PP\nWithout allow_other only root gets in.\n\
         .SH OPTIONS\n.TP\n\\fB\\-s\\fR\nPass over mount options that are not known.\n.TP\n\\fB\\-f\\fR\nCheck the command line, and do \
         not mount.\n.TP\n\\fB\\-n\\fR, \\fB\\-v\\fR, \\fB\\-t\\fR \\fItype\\fR\nTaken, as mount(8) gives them.\n\
         {}{EXIT_STATUS}{FILES}{}",
        notes_sections(&options),
        see_also("mount.fuse.okeanos")
    )
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

    #[test]
    fn every_command_has_a_page() {
        let directory = tempfile::tempdir().unwrap();
        run(ManArguments { directory: directory.path().to_owned() }).unwrap();
        for page in [
            "okeanos.1",
            "okeanos-mount.8",
            "okeanos-bench-streams.1",
            "okeanos-inspect-journal.1",
            "mount.fuse.okeanos.8",
        ] {
            let text = std::fs::read_to_string(directory.path().join(page)).unwrap();
            let (own, _) = page.rsplit_once('.').unwrap();
            assert!(
                !text.contains(&format!("\\fB{}\\fR(", escaped(own))),
                "{page} points at itself"
            );
        }
        let headings =
            ["DESCRIPTION", "SYNOPSIS", "EXAMPLES", "\"EXIT STATUS\"", "FILES", "\"SEE ALSO\""];
        for page in std::fs::read_dir(directory.path()).unwrap() {
            let page = page.unwrap().path();
            let text = std::fs::read_to_string(&page).unwrap();
            for heading in headings {
                let is_there = [heading.to_owned(), format!("\"{heading}\"")]
                    .iter()
                    .any(|heading| text.contains(&format!(".SH {heading}\n")));
                assert!(is_there, "{}: {heading}", page.display());
            }
            assert!(
                !text.contains("\"stats 0."),
                "the version is the program's: {}",
                page.display()
            );
            assert_eq!(
                text.matches("\n.RS").count(),
                text.matches("\n.RE").count(),
                "{}",
                page.display()
            );
        }
        let first = std::fs::read_to_string(directory.path().join("okeanos.1")).unwrap();
        assert!(
            first.contains("mount(8)") && first.contains("stats(1)") && !first.contains("mount(1)")
        );
    }
}
