//! Command line of mount(8): `mount.fuse.okeanos SOURCE DIR [-sfnv] [-o options] [-t type]`.

use crate::error::CliError;
use crate::mount::{self, MountArguments};
use clap::Parser;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

#[derive(Parser, Debug)]
#[command(name = "mount.fuse.okeanos")]
struct HelperArguments {
    source: PathBuf,
    directory: PathBuf,
    /// Mount options, separated by commas
    #[arg(short = 'o', value_delimiter = ',')]
    options: Vec<String>,
    /// Pass over options that are not known
    #[arg(short = 's')]
    sloppy: bool,
    /// Check, but do not mount
    #[arg(short = 'f')]
    fake: bool,
    #[arg(short = 'n')]
    no_mtab: bool,
    #[arg(short = 'v')]
    verbose: bool,
    #[arg(short = 't')]
    kind: Option<String>,
}

/// Whether the program was called by a name that mount(8) looks for.
pub fn is_called(arguments: &[OsString]) -> bool {
    let name = arguments.first().and_then(|path| Path::new(path).file_name());
    name.is_some_and(|name| {
        name == "mount.okeanos" || name == "mount.fuse.okeanos" || name == "mount.fuseblk.okeanos"
    })
}

pub fn run(arguments: &[OsString]) -> Result<(), CliError> {
    let call = HelperArguments::parse_from(arguments);
    if call.fake {
        return Ok(());
    }
    mount::run(MountArguments {
        foreground: false,
        verbose: false,
        sloppy: call.sloppy,
        options: call.options,
        source: call.source,
        directory: Some(call.directory),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_distinguishes_helper_and_program() {
        assert!(is_called(&["/sbin/mount.fuse.okeanos".into()]));
        assert!(is_called(&["mount.okeanos".into()]));
        assert!(!is_called(&["/usr/bin/okeanos".into()]));
        assert!(!is_called(&[]));
    }

    #[test]
    fn a_call_of_mount_is_understood() {
        let call = HelperArguments::try_parse_from([
            "mount.fuse.okeanos",
            "/dev/sdb",
            "/mnt",
            "-n",
            "-s",
            "-o",
            "rw,data=ordered",
            "-t",
            "fuse.okeanos",
        ])
        .unwrap();
        assert_eq!(call.options, ["rw", "data=ordered"]);
        assert!(call.sloppy && call.no_mtab && !call.verbose);
        assert_eq!(call.kind.as_deref(), Some("fuse.okeanos"));
    }
}
