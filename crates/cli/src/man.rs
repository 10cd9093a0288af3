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
    std::fs::create_dir_all(&directory).map_err(|error| CliError::system(directory.display(), error))?;
    let mut program = crate::Program::command().disable_help_subcommand(true);
    // Names the subcommands "okeanos-mkfs" and hands down what they inherit.
    program.build();
    let helper = directory.join("mount.fuse.okeanos.8");
    let page = program.find_subcommand("mount").map(helper_page).unwrap_or_default();
    std::fs::write(&helper, page).map_err(|error| CliError::system(helper.display(), error))?;
    write_pages(&directory, &program, "1")
}

/// The page of a command, and of all below it.
fn write_pages(directory: &Path, command: &Command, section: &str) -> Result<(), CliError> {
    let name = command.get_display_name().unwrap_or(command.get_name());
    let path = directory.join(format!("{name}.{section}"));
    let mut page = Vec::new();
    render(command, section, &mut page)
        .and_then(|()| std::fs::write(&path, in_ascii(&String::from_utf8_lossy(&page))))
        .map_err(|error| CliError::system(path.display(), error))?;
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
        write_pages(directory, below, if section == "8" { "8" } else { section_of(below.get_name()) })?;
    }
    Ok(())
}

/// What changes or serves a volume is the administrator's; what only looks is everybody's.
fn section_of(command: &str) -> &'static str {
    match command {
        "mkfs" | "mount" | "umount" | "recover" | "check" => "8",
        _ => "1",
    }
}

fn render(command: &Command, section: &str, page: &mut Vec<u8>) -> std::io::Result<()> {
    let man = clap_mangen::Man::new(command.clone()).section(section);
    man.render_title(page)?;
    man.render_name_section(page)?;
    page.extend_from_slice(synopsis(command).as_bytes());
    man.render_description_section(page)?;
    man.render_options_section(page)?;
    if command.get_subcommands().any(|below| !below.is_hide_set()) {
        page.extend_from_slice(&subcommands_section(command, &man)?);
    }
    let notes = command.get_after_long_help().or(command.get_after_help());
    let notes = notes.map(ToString::to_string).unwrap_or_default();
    page.extend_from_slice(notes_sections(&notes).as_bytes());
    if !notes.contains("Exit status") {
        page.extend_from_slice(EXIT_STATUS.as_bytes());
    }
    page.extend_from_slice(format!("{FILES}{SEE_ALSO}").as_bytes());
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
    for below in command.get_subcommands().map(Command::get_name).filter(|name| section_of(name) == "8") {
        text = text.replace(&format!("\\-{below}(1)"), &format!("\\-{below}(8)"));
    }
    Ok(text.into_bytes())
}

const EXIT_STATUS: &str = ".SH \"EXIT STATUS\"\n.TP\n0\nSuccess.\n.TP\n1\nIt failed; standard error says why, and what to do.\n\
                           .TP\n2\nThe command line is wrong.\n";

const FILES: &str = ".SH FILES\n.TP\n\\fI/run/okeanos/\\fR\nSockets of the daemons of root's mounts. An ordinary user's are in \
                     \\fI$XDG_RUNTIME_DIR/okeanos/\\fR, or in \\fI/tmp/okeanos\\-UID/\\fR.\n.TP\n\\fI/run/okeanos\\-public/\\fR\n\
                     Sockets of mounts of root with allow_other, which answer everybody's questions and take no orders.\n.TP\n\
                     \\fI/etc/okeanos/*.conf\\fR\nVolumes of the systemd unit okeanos@.service.\n";

const SEE_ALSO: &str = ".SH \"SEE ALSO\"\n\\fBokeanos\\fR(1), \\fBokeanos\\-mkfs\\fR(8), \\fBokeanos\\-mount\\fR(8), \
                        \\fBmount.fuse.okeanos\\fR(8), \\fBokeanos\\-stats\\fR(1), \\fBmke2fs\\fR(8), \\fBe2fsck\\fR(8), \
                        \\fBext4\\fR(5), \\fBfuse\\fR(4)\n";

/// Headings that are sections of a man page; others head a part of one.
const SECTIONS: [&str; 4] = ["Examples", "Exit status", "Mount options", "Health"];

fn notes_sections(text: &str) -> String {
    let mut page = String::new();
    let mut is_begun = false;
    for note in notes::parse(text) {
        match note {
            Note::Blank => {}
            Note::Paragraph(text) => {
                match SECTIONS.iter().find(|name| text.starts_with(*name) && text.ends_with(':')) {
                    Some(name) => {
                        page += &format!(".SH \"{}\"\n", name.to_uppercase());
                        is_begun = true;
                    }
                    None => {
                        page += if is_begun { ".PP\n" } else { ".SH NOTES\n" };
                        is_begun = true;
                        page += &format!("{}\n", escaped(&text));
                    }
                }
            }
            Note::Entry { term, description, .. } => {
                if !is_begun {
                    page += ".SH NOTES\n";
                    is_begun = true;
                }
                let description = if description.is_empty() { "\\&".into() } else { escaped(&description) };
                page += &format!(".TP\n\\fB{}\\fR\n{description}\n", escaped(&term));
            }
        }
    }
    page
}

/// What roff would take for an escape or a command; and dashes that one can copy.
fn escaped(text: &str) -> String {
    let text = text.replace('\\', "\\e").replace('-', "\\-");
    if text.starts_with(['.', '\'']) { format!("\\&{text}") } else { text }
}

/// Old formatters read bytes, and take those of other characters one by one.
fn in_ascii(page: &str) -> String {
    let told = |c: char| if c.is_ascii() { c.to_string() } else { format!("\\[u{:04X}]", u32::from(c)) };
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
         {}{EXIT_STATUS}{FILES}{SEE_ALSO}",
        notes_sections(&options)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_become_sections_and_no_commands() {
        let section = notes_sections(".c \\ d\n\nExamples:\n  a -b  does it");
        assert_eq!(section, ".SH NOTES\n\\&.c \\e d\n.SH \"EXAMPLES\"\n.TP\n\\fBa \\-b\\fR\ndoes it\n");
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
            for heading in ["DESCRIPTION", "SYNOPSIS", "\"EXIT STATUS\"", "FILES", "\"SEE ALSO\""] {
                assert!(text.contains(&format!(".SH {heading}\n")), "{page}: {heading}");
            }
        }
        let first = std::fs::read_to_string(directory.path().join("okeanos.1")).unwrap();
        assert!(first.contains("mount(8)") && first.contains("stats(1)") && !first.contains("mount(1)"));
    }
}
