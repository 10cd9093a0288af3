//! Other programs: their paths and their output.

use crate::daemon::reporter::complain;
use crate::error::CliError;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Debian's package of each program that is called.
const PACKAGES: [(&str, &str); 5] = [
    ("mke2fs", "e2fsprogs"),
    ("e2fsck", "e2fsprogs"),
    ("losetup", "mount"),
    ("debugfs", "e2fsprogs"),
    ("blkid", "util-linux"),
];

/// Runs a program with the user's terminal.
pub fn run(name: &str, arguments: &[OsString]) -> Result<(), CliError> {
    let status = Command::new(find(name)?).args(arguments).status();
    let status = status.map_err(|error| CliError::system(name, error))?;
    if status.success() {
        return Ok(());
    }
    let words: Vec<_> = arguments.iter().map(|argument| argument.to_string_lossy()).collect();
    Err(CliError::new(format!("{name} {} failed ({status})", words.join(" ")))
        .with_remedy(format!("See above for what {name} said.")))
}

/// Changes the owner of a file on an unmounted volume: debugfs(8).
pub fn give_file(volume: &Path, file: &str, user: u32, group: u32) -> Result<(), CliError> {
    for (field, number) in [("uid", user), ("gid", group)] {
        let order = format!("set_inode_field {file} {field} {number}");
        let output =
            Command::new(find("debugfs")?).args(["-w", "-R", &order, "--"]).arg(volume).output();
        let output = output.map_err(|error| CliError::system("debugfs", error))?;
        // Its exit status is always success, and its first line is about itself.
        let said = String::from_utf8_lossy(&output.stderr);
        let complaint: Vec<_> = said.lines().filter(|line| !line.starts_with("debugfs ")).collect();
        if !output.status.success() || !complaint.is_empty() {
            let complaint = complaint.join("; ");
            return Err(CliError::new(format!(
                "debugfs {order} {}: {complaint}",
                volume.display()
            )));
        }
    }
    Ok(())
}

/// Returns what blkid(8) finds on an image file or device, as in "an ext4 file system (label
/// \"mail\")". It probes the disk itself, not its cache.
pub fn signature_of(path: &Path) -> Result<Option<String>, CliError> {
    const NOTHING: i32 = 2;
    const SEVERAL: i32 = 8;
    let output = Command::new(find("blkid")?).args(["-p", "-o", "export", "--"]).arg(path).output();
    let output = output.map_err(|error| CliError::system("blkid", error))?;
    match output.status.code() {
        Some(0) => {}
        Some(NOTHING) => return Ok(None),
        Some(SEVERAL) => {
            return Ok(Some("several file systems or partition tables at once".into()));
        }
        _ => {
            let said = String::from_utf8_lossy(&output.stderr);
            return Err(CliError::new(format!("blkid {}: {}", path.display(), said.trim())));
        }
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let value =
        |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
    let label = value("LABEL").map_or(String::new(), |label| format!(" (label \"{label}\")"));
    Ok(match (value("TYPE"), value("USAGE"), value("PTTYPE")) {
        (Some(kind), Some("filesystem") | None, _) => {
            Some(format!("a file system of type {kind}{label}"))
        }
        (Some(kind), Some("other"), _) => Some(format!("data of type {kind}{label}")),
        (Some(kind), Some(usage), _) => Some(format!("data of type {kind}, {usage}{label}")),
        (None, _, Some(table)) => Some(format!("a partition table of type {table}")),
        (None, ..) => None,
    })
}

/// Finds a program: in PATH, or in the administrator's directories (not in everybody's PATH).
pub fn find(name: &str) -> Result<PathBuf, CliError> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    let found = places.map(|place| place.join(name)).find(|program| program.is_file());
    let package =
        PACKAGES.iter().find(|(program, _)| *program == name).map_or(name, |(_, package)| package);
    found.ok_or_else(|| {
        CliError::new(format!("the program {name} is not installed"))
            .with_remedy(format!("On Debian: apt-get install {package}"))
    })
}

/// Finds another program of Okeanos: beside this one, as built or installed together, or in PATH.
pub fn of_ours(name: &str) -> Result<PathBuf, CliError> {
    let own = std::env::current_exe().ok();
    let beside = own.and_then(|own| Some(own.parent()?.join(name)));
    beside.filter(|program| program.is_file()).map_or_else(|| find(name), Ok)
}

/// A loop device on an image file, until it is dropped.
pub struct TemporaryLoop(PathBuf);

impl TemporaryLoop {
    pub fn attach(image: &Path) -> Result<TemporaryLoop, CliError> {
        let output = Command::new(find("losetup")?).args(["--find", "--show"]).arg(image).output();
        let output = output.map_err(|error| CliError::system("losetup", error))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            return Err(CliError::new(format!(
                "no loop device for {}: {}",
                image.display(),
                said.trim()
            ))
            .with_remedy(
                "Run as root: mke2fs joins a volume to a journal on a block device only.",
            ));
        }
        Ok(TemporaryLoop(PathBuf::from(String::from_utf8_lossy(&output.stdout).trim())))
    }
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TemporaryLoop {
    fn drop(&mut self) {
        let losetup = find("losetup").unwrap_or_else(|_| "losetup".into());
        let detached = Command::new(losetup).arg("-d").arg(&self.0).status();
        if !detached.is_ok_and(|status| status.success()) {
            complain(&format!(
                "okeanos: {} could not be detached; do it with losetup -d",
                self.0.display()
            ));
        }
    }
}
