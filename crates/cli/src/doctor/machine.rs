//! The machine: its kernel, and what programs may use of it.

use crate::daemon::memory;
use crate::error::CliError;
use runtime::{IoChoice, RealWorld};
use rustix::process::geteuid;
use serde::Serialize;
use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};

#[derive(Serialize, Default)]
pub struct Machine {
    pub kernel: String,
    pub processors: usize,
    /// The kernel's name of their model, where it has one.
    pub processor: Option<String>,
    pub io_uring: bool,
    /// Reason of a refusal.
    pub io_uring_refused: Option<String>,
    pub fuse: bool,
    /// Reason why `/dev/fuse` cannot be opened.
    pub fuse_refused: Option<String>,
    /// Transport that `transport=auto` takes: the same on every kernel (docs/KERNELS.md).
    pub transport_auto: &'static str,
    /// Absent from this kernel if `None`.
    pub fuse_over_io_uring: Option<bool>,
    pub loop_devices: bool,
    /// The driver is loaded.
    pub ublk: bool,
    /// The kernel's NBD client is loaded.
    pub nbd: bool,
    pub fusermount3: Option<PathBuf>,
    pub root: bool,
    /// Whether a daemon started here may lock its program in memory.
    pub may_lock_memory: bool,
    /// Whether the kernel drops mapped pages behind a write past the page cache.
    #[serde(skip)]
    pub drops_written_pages: bool,
}

/// Finds the model's name in the text of `/proc/cpuinfo`.
fn model_of(cpuinfo: &str) -> Option<String> {
    let mut lines = cpuinfo.lines().filter_map(|line| line.split_once(':'));
    let (_, model) = lines.find(|(key, _)| key.trim() == "model name")?;
    Some(model.trim().to_owned()).filter(|model| !model.is_empty())
}

pub fn machine() -> Result<Machine, CliError> {
    let auto = RealWorld::over(IoChoice::Auto).map_err(CliError::no_ring)?;
    let fuse_refused = opened("/dev/fuse").err().map(|error| error.to_string());
    let refused = auto.ring().no_ring().map(ToString::to_string);
    let parameter = fs::read_to_string("/sys/module/fuse/parameters/enable_uring").ok();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let root = geteuid().is_root();
    Ok(Machine {
        kernel: fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().into(),
        processors: std::thread::available_parallelism().map_or(1, usize::from),
        processor: fs::read_to_string("/proc/cpuinfo").ok().and_then(|text| model_of(&text)),
        io_uring: refused.is_none(),
        io_uring_refused: refused,
        fuse: fuse_refused.is_none(),
        fuse_refused,
        transport_auto: "classic",
        fuse_over_io_uring: parameter.map(|value| value.trim() == "Y"),
        loop_devices: opened("/dev/loop-control").is_ok(),
        ublk: Path::new(ublk::abi::CONTROL_PATH).exists(),
        nbd: nbd::NbdClient::is_loaded(),
        fusermount3: std::env::split_paths(&path)
            .map(|directory| directory.join("fusermount3"))
            .find(|program| program.exists()),
        root,
        may_lock_memory: memory::may_lock(),
        drops_written_pages: fuse::drops_written_pages(),
    })
}

/// Opens a device as a mount does: a node without its module, or without rights, is of no use.
fn opened(device: &str) -> std::io::Result<fs::File> {
    OpenOptions::new().read(true).write(true).open(device)
}

/// Whether a release such as `6.1.0-26-amd64` is older. One that cannot be parsed is not.
pub fn is_before(release: &str, wanted: (u32, u32)) -> bool {
    let mut numbers = release.split(|it: char| !it.is_ascii_digit()).map(str::parse);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => (major, minor) < wanted,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_compared_by_number() {
        for (release, is_older) in [
            ("5.14.0-427.el9.x86_64", true),
            ("6.1.0-26-amd64", true),
            ("6.18.44", false),
            ("6.20.0", false),
            ("10.0", false),
            ("?", false),
        ] {
            assert_eq!(is_before(release, (6, 18)), is_older, "{release}");
        }
    }

    #[test]
    fn the_model_is_that_of_the_first_processor() {
        let text =
            "processor\t: 0\nmodel\t\t: 1\nmodel name\t: Some CPU: 3 GHz\n\nprocessor\t: 1\n";
        assert_eq!(model_of(text).as_deref(), Some("Some CPU: 3 GHz"));
        assert_eq!(model_of("processor\t: 0\n"), None);
    }
}
