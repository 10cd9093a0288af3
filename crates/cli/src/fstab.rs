//! Command line of mount(8): `mount.fuse.okeanos SOURCE DIR [-sfnv] [-N namespace] [-o options]
//! [-t type]`. Called by a name that ends with `okeanos-host`, the program mounts a host.

use crate::error::CliError;
use crate::host;
use crate::mount::{self, MountArguments};
use clap::Parser;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

#[derive(Parser, Debug)]
#[command(name = "mount.fuse.okeanos")]
struct HelperArguments {
    /// An image file or block device; of a host, the store
    source: PathBuf,
    /// Directory to mount it on
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
    /// Taken, as mount(8) gives it
    #[arg(short = 'n')]
    no_mtab: bool,
    /// Taken, as mount(8) gives it
    #[arg(short = 'v')]
    verbose: bool,
    /// The type, as mount(8) gives it
    #[arg(short = 't')]
    kind: Option<String>,
    /// The mount namespace to mount in, as mount(8) gives it with its own option of this name
    #[arg(short = 'N', value_name = "NAMESPACE")]
    namespace: Option<PathBuf>,
}

/// Kind of mount that a line of fstab(5) describes.
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

/// Exit codes of mount(8).
const WRONG_USAGE: i32 = 1;
const MOUNT_FAILED: u8 = 32;

pub fn run(line: Line, arguments: &[OsString]) -> Result<(), CliError> {
    let call = HelperArguments::try_parse_from(arguments).unwrap_or_else(|error| {
        // Standard output may be closed.
        let _ = error.print();
        std::process::exit(if error.use_stderr() { WRONG_USAGE } else { 0 })
    });
    match call.fake {
        true => Ok(()),
        false => {
            let entered = call.namespace.as_deref().map_or(Ok(()), enter);
            entered.and_then(|()| mount(line, call)).map_err(|error| error.with_code(MOUNT_FAILED))
        }
    }
}

/// Enters a mount namespace, in which all paths are looked up from then on.
fn enter(namespace: &Path) -> Result<(), CliError> {
    let system = |error| CliError::system(namespace.display(), error);
    let opened = File::open(namespace).map_err(system)?;
    // SAFETY: the descriptor is open.
    match unsafe { libc::setns(opened.as_raw_fd(), libc::CLONE_NEWNS) } {
        0 => Ok(()),
        _ => Err(system(io::Error::last_os_error())),
    }
}

fn mount(line: Line, call: HelperArguments) -> Result<(), CliError> {
    if line == Line::Host && call.options.iter().any(|option| option == "remount") {
        // The options are a host's; none of them can change.
        return mount::remount::run(None, &call.directory, &["remount".into()], true);
    }
    if line == Line::Host {
        return host::mount_line(&call.source, call.directory, call.options);
    }
    mount::run(MountArguments {
        foreground: false,
        verbose: false,
        read_only: false,
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
            "-N",
            "/proc/7/ns/mnt",
        ])
        .unwrap();
        assert_eq!(call.options, ["rw", "data=ordered"]);
        assert!(call.sloppy && call.no_mtab && !call.verbose);
        assert_eq!(call.kind.as_deref(), Some("fuse.okeanos"));
        assert_eq!(call.namespace.as_deref(), Some(Path::new("/proc/7/ns/mnt")));
    }
}
