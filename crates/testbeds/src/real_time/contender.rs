//! The file systems that are compared, and how each is made and mounted.

use crate::real_time::rig::{self, MountedDirectory, RigError};
use std::path::Path;
use std::process::Command;
use std::str::FromStr;

/// A file system and how it is mounted: `ext4:ordered`, `ext4:fast_commit`, `xfs`, `btrfs`,
/// `okeanos`, `okeanos:wasteless`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Contender {
    /// The kernel's ext4 with `data=`.
    Ext4(String),
    Ext4FastCommit,
    Xfs,
    Btrfs,
    /// Okeanos, with `data=` where a mode is named, and further options after a `+` each.
    Okeanos(Option<String>),
}

impl FromStr for Contender {
    type Err = String;
    fn from_str(text: &str) -> Result<Contender, String> {
        match text.split_once(':') {
            Some(("ext4", "fast_commit")) => Ok(Contender::Ext4FastCommit),
            Some(("ext4", data @ ("ordered" | "journal" | "writeback"))) => {
                Ok(Contender::Ext4(data.into()))
            }
            Some(("okeanos", data)) => Ok(Contender::Okeanos(Some(data.into()))),
            None if text == "okeanos" => Ok(Contender::Okeanos(None)),
            None if text == "xfs" => Ok(Contender::Xfs),
            None if text == "btrfs" => Ok(Contender::Btrfs),
            _ => Err(format!(
                "{text:?} is no file system to compare: ext4:ordered, ext4:journal, ext4:writeback, \
                 ext4:fast_commit, xfs, btrfs, okeanos, okeanos:MODE, okeanos:MODE+OPTION"
            )),
        }
    }
}

impl std::fmt::Display for Contender {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Contender::Ext4(data) => write!(f, "ext4:{data}"),
            Contender::Ext4FastCommit => f.write_str("ext4:fast_commit"),
            Contender::Xfs => f.write_str("xfs"),
            Contender::Btrfs => f.write_str("btrfs"),
            Contender::Okeanos(None) => f.write_str("okeanos"),
            Contender::Okeanos(Some(data)) => write!(f, "okeanos:{data}"),
        }
    }
}

impl Contender {
    pub fn is_ours(&self) -> bool {
        matches!(self, Contender::Okeanos(_))
    }

    /// Zeroing must not be deferred, and the image's zeros must stay allocated.
    pub(crate) fn make(&self, device: &Path) -> Result<(), RigError> {
        let mut command = match self {
            Contender::Xfs => Command::new("mkfs.xfs"),
            Contender::Btrfs => Command::new("mkfs.btrfs"),
            _ => Command::new("mke2fs"),
        };
        match self {
            Contender::Xfs | Contender::Btrfs => command.args(["-q", "-f", "-K"]),
            _ => command
                .env("UNIX_IO_NOZEROOUT", "1")
                .args(["-q", "-F", "-t", "ext4", "-J", "size=128"])
                .args(["-E", "nodiscard,lazy_itable_init=0,lazy_journal_init=0"]),
        };
        if *self == Contender::Ext4FastCommit {
            command.args(["-O", "fast_commit"]);
        }
        rig::run(command.arg(device)).map(drop)
    }

    /// Every user may use the mount, as with the kernel's file systems.
    pub(crate) fn mount(
        &self,
        program: &Path,
        device: &Path,
        directory: &Path,
    ) -> Result<MountedDirectory, RigError> {
        match self {
            Contender::Ext4(data) => {
                MountedDirectory::kernel("ext4", &format!("data={data}"), device, directory)
            }
            Contender::Ext4FastCommit => {
                MountedDirectory::kernel("ext4", "data=ordered", device, directory)
            }
            Contender::Xfs => MountedDirectory::kernel("xfs", "defaults", device, directory),
            Contender::Btrfs => MountedDirectory::kernel("btrfs", "ssd", device, directory),
            Contender::Okeanos(data) => {
                let options = format!("{}allow_other", mode_option(data.as_deref()));
                MountedDirectory::okeanos(program, &options, device, directory)
            }
        }
    }
}

/// Returns the prefix of further options: empty if no mode is named.
pub(crate) fn mode_option(data: Option<&str>) -> String {
    data.map(|data| format!("data={},", data.replace('+', ","))).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_contenders_are_read_and_written_alike() {
        for name in [
            "ext4:ordered",
            "ext4:fast_commit",
            "xfs",
            "btrfs",
            "okeanos",
            "okeanos:wasteless",
            "okeanos:ordered+cache=64M",
        ] {
            assert_eq!(name.parse::<Contender>().unwrap().to_string(), name);
        }
        assert!(
            ["zfs", "ext4:orderd", "ext4"].iter().all(|name| name.parse::<Contender>().is_err())
        );
    }
}
