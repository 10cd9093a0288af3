//! `okeanos-lab man`: okeanos-lab.1, and one page for each command.

use crate::error::CliError;
use clap::CommandFactory;
use std::path::Path;
use terminal::man::{ManArguments, Manual};

const MANUAL: Manual = Manual {
    for_administrators: &[],
    files: ".SH FILES\n\
            .TP\n\
            \\fI/run/okeanos/\\fR\n\
            Sockets of the disks that root serves. An ordinary user's are in \
            \\fI$XDG_RUNTIME_DIR/okeanos/\\fR, or in \\fI/tmp/okeanos\\-UID/\\fR.\n",
    see_also: &[
        ("okeanos-lab", 1),
        ("okeanos-lab-bench", 1),
        ("okeanos-lab-sim", 1),
        ("okeanos-lab-reproduce", 1),
        ("okeanos-lab-disk", 1),
        ("okeanos", 1),
        ("losetup", 8),
    ],
};

pub fn run(arguments: &ManArguments) -> Result<(), CliError> {
    write(&arguments.directory)
}

fn write(directory: &Path) -> Result<(), CliError> {
    MANUAL.write(crate::Program::command(), directory)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_a_page() {
        let directory = tempfile::tempdir().unwrap();
        write(directory.path()).unwrap();
        for page in ["okeanos-lab.1", "okeanos-lab-bench-streams.1", "okeanos-lab-disk-serve.1"] {
            assert!(directory.path().join(page).exists(), "{page}");
        }
        let faults = terminal::man::faults(directory.path()).unwrap();
        assert!(faults.is_empty(), "{faults:#?}");
    }
}
