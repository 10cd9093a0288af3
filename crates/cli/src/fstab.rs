//! Command line of mount(8): `mount.fuse.okeanos SOURCE DIR [-sfnv] [-o options] [-t type]`. Called
//! by a name that ends with `okeanos-host`, the program mounts a host.

use crate::error::CliError;
use crate::host;
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

/// What a line of fstab(5) mounts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Line {
    Volume,
    Host,
}

/// Returns what to mount if the program was called by a name that mount(8) looks for.
pub fn called_for(arguments: &[OsString]) -> Option<Line> {
    let name = arguments.first().and_then(|path| Path::new(path).file_name())?;
    match name.to_str()? {
        "mount.okeanos" | "mount.fuse.okeanos" | "mount.fuseblk.okeanos" => Some(Line::Volume),
        "mount.okeanos-host" | "mount.fuse.okeanos-host" => Some(Line::Host),
        _ => None,
    }
}

pub fn run(line: Line, arguments: &[OsString]) -> Result<(), CliError> {
    let call = HelperArguments::parse_from(arguments);
    if call.fake {
        return Ok(());
    }
    if line == Line::Host {
        return host::mount_line(&call.source, call.directory, call.options);
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
        assert_eq!(called_for(&["/sbin/mount.fuse.okeanos".into()]), Some(Line::Volume));
        assert_eq!(called_for(&["mount.okeanos".into()]), Some(Line::Volume));
        assert_eq!(called_for(&["/sbin/mount.fuse.okeanos-host".into()]), Some(Line::Host));
        assert_eq!(called_for(&["/usr/bin/okeanos".into()]), None);
        assert_eq!(called_for(&[]), None);
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
