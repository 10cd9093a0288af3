//! `okeanos man`: okeanos.1, one page a command, and one for the helper that mount(8) runs.

use crate::error::CliError;
use clap::{Command, CommandFactory};
use std::path::Path;
use terminal::man::{ManArguments, Manual, notes_sections};

const MANUAL: Manual = Manual {
    for_administrators: &["mkfs", "mount", "umount", "recover", "check", "blocks", "host"],
    files: FILES,
    see_also: &[
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
    ],
};

const FILES: &str = ".SH FILES\n\
                     .TP\n\
                     \\fI/run/okeanos/\\fR\n\
                     Sockets of the daemons of root's mounts. An ordinary user's are in \
                     \\fI$XDG_RUNTIME_DIR/okeanos/\\fR, or in \\fI/tmp/okeanos\\-UID/\\fR.\n\
                     .TP\n\
                     \\fI/run/okeanos\\-public/\\fR\n\
                     Sockets of mounts of root with allow_other, which answer everybody's \
                     questions and take no orders.\n\
                     .TP\n\
                     \\fI/etc/okeanos/*.conf\\fR\n\
                     Volumes of the systemd unit okeanos@.service.\n\
                     .TP\n\
                     \\fI/etc/okeanos/blocks/*.conf\\fR\n\
                     Block volumes of the systemd unit okeanos-blocks@.service.\n\
                     .TP\n\
                     \\fI/etc/okeanos/hosts/*.conf\\fR\n\
                     Stores of the systemd unit okeanos-host@.service.\n";

pub fn run(arguments: &ManArguments) -> Result<(), CliError> {
    write(&arguments.directory)
}

fn write(directory: &Path) -> Result<(), CliError> {
    let program = crate::Program::command();
    MANUAL.write(program.clone(), directory)?;
    let helper = directory.join("mount.fuse.okeanos.8");
    let page = program.find_subcommand("mount").map(helper_page).unwrap_or_default();
    std::fs::write(&helper, page).map_err(|error| CliError::system(helper.display(), error))
}

/// Page of the helper that mount(8) runs, under the names that it looks for.
fn helper_page(mount: &Command) -> String {
    let options = mount.get_after_long_help().map(ToString::to_string).unwrap_or_default();
    format!(
        ".TH mount.fuse.okeanos 8\n\
         .SH NAME\n\
         mount.fuse.okeanos \\- mount an okeanos volume by mount(8) and fstab(5)\n\
         .SH SYNOPSIS\n\
         \\fBmount \\-t fuse.okeanos\\fR [\\fB\\-o\\fR \\fIoptions\\fR] \\fIsource\\fR \
         \\fIdirectory\\fR\n\
         .br\n\
         \\fBmount.fuse.okeanos\\fR \\fIsource\\fR \\fIdirectory\\fR [\\fB\\-sfnv\\fR] \
         [\\fB\\-o\\fR \\fIoptions\\fR]\n\
         .SH DESCRIPTION\n\
         A name of \\fBokeanos\\fR(1): called so, it mounts as \\fBokeanos\\-mount\\fR(8) does. \
         \\fBmount\\fR(8) runs it for the types fuse.okeanos, fuseblk.okeanos and okeanos, and for \
         fuse.okeanos-host, which mounts a host as \\fBokeanos\\-host\\-mount\\fR(8) does. Lines \
         of \\fI/etc/fstab\\fR:\n\
         .PP\n\
         .nf\n\
         /dev/sdb1  /mnt/a  fuse.okeanos  allow_other,nofail  0 0\n\
         ceph:  /mnt/b  fuse.okeanos-host  journal=/dev/sdc1,name=mail,allow_other,_netdev,nofail  0 0\n.fi\n\
         .PP\n\
         Without allow_other only root gets in.\n\
         .SH OPTIONS\n\
         .TP\n\
         \\fB\\-s\\fR\n\
         Pass over mount options that are not known.\n\
         .TP\n\
         \\fB\\-f\\fR\n\
         Check the command line, and do not mount.\n\
         .TP\n\
         \\fB\\-n\\fR, \\fB\\-v\\fR, \\fB\\-t\\fR \\fItype\\fR\n\
         Taken, as mount(8) gives them.\n\
         {}.SH \"EXIT STATUS\"\n\
         .TP\n\
         0\n\
         Success.\n\
         .TP\n\
         1\n\
         The command line is wrong.\n\
         .TP\n\
         32\n\
         The mount failed; standard error says why, and what to do.\n\
         {}",
        notes_sections(&options),
        MANUAL.end("mount.fuse.okeanos")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the pages of ours that a text names, as `okeanos-mount(8)` or in bold.
    fn pages_named(text: &str) -> Vec<String> {
        let plain = ["\\fB", "\\fI", "\\fR"]
            .iter()
            .fold(text.replace("\\-", "-"), |text, font| text.replace(font, ""));
        let is_of_name = |c: char| c.is_ascii_alphanumeric() || "-.".contains(c);
        let sections = plain.match_indices('(').filter_map(|(at, _)| {
            let section = plain[at + 1..].split_once(')')?.0;
            let name = plain[..at].rsplit(|c| !is_of_name(c)).next()?;
            let is_page = section.parse::<u8>().is_ok() && name.contains("okeanos");
            is_page.then(|| format!("{name}.{section}"))
        });
        sections.collect()
    }

    #[test]
    fn every_page_that_is_named_exists() {
        let directory = tempfile::tempdir().unwrap();
        write(directory.path()).unwrap();
        let units = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../systemd"));
        let (mut named, mut missing) = (0, Vec::new());
        for folder in [directory.path(), units] {
            for file in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
                let pages = pages_named(&std::fs::read_to_string(&file).unwrap());
                named += pages.len();
                let is_missing = |page: &String| !directory.path().join(page).exists();
                missing
                    .extend(pages.into_iter().filter(is_missing).map(|page| (file.clone(), page)));
            }
        }
        assert!(named > 100 && missing.is_empty(), "{named} {missing:?}");
    }

    #[test]
    fn every_command_has_a_page() {
        let directory = tempfile::tempdir().unwrap();
        write(directory.path()).unwrap();
        for page in [
            "okeanos.1",
            "okeanos-mount.8",
            "okeanos-stats.1",
            "okeanos-inspect-journal.1",
            "mount.fuse.okeanos.8",
        ] {
            assert!(directory.path().join(page).exists(), "{page}");
        }
        let faults = terminal::man::faults(directory.path()).unwrap();
        assert!(faults.is_empty(), "{faults:#?}");
        let first = std::fs::read_to_string(directory.path().join("okeanos.1")).unwrap();
        assert!(
            first.contains("mount(8)") && first.contains("stats(1)") && !first.contains("mount(1)")
        );
    }
}
