//! The file systems that are compared, and how each is made and mounted.

use crate::real_time::block_volume::BlockVolume;
use crate::real_time::rig::{self, MountedDirectory, RigError};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::str::FromStr;

/// A file system and how it is mounted: `ext4:ordered`, `ext4:fast_commit`, `xfs`, `btrfs`,
/// `okeanos`, `okeanos:wasteless`, `okeanos-classic:wasteless`, `okeanos@/PATH/okeanos:wasteless`,
/// `blocks:ordered`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Contender {
    /// The kernel's ext4, by a word of `EXT4_WORDS`.
    Ext4(String),
    Xfs,
    Btrfs,
    /// Okeanos, with `data=` where a mode is named, and further options after a `+` each.
    Okeanos(Option<String>),
    /// Okeanos without io_uring, also where it could be had.
    OkeanosClassic(Option<String>),
    /// Okeanos of another release, by its program.
    OkeanosOf(PathBuf, Option<String>),
    /// The kernel's ext4, by a word of `EXT4_WORDS`, above a block volume of ours; options of the
    /// volume after a `+` each.
    Blocks(String),
}

/// Words for the kernel's ext4: a mode of `data=`; `fast_commit`, the feature;
/// `async_commit`, `data=writeback` with a commit block that waits for no flush before it, by which
/// recovery recognises a torn transaction only without `metadata_csum` (docs/modes/blocks.md).
const EXT4_WORDS: [&str; 5] = ["ordered", "journal", "writeback", "fast_commit", "async_commit"];

impl FromStr for Contender {
    type Err = String;
    fn from_str(text: &str) -> Result<Contender, String> {
        if let Some(program) = text.strip_prefix("okeanos@") {
            let (program, data) = match program.split_once(':') {
                Some((program, data)) => (program, Some(data.to_owned())),
                None => (program, None),
            };
            return Ok(Contender::OkeanosOf(program.into(), data));
        }
        match text.split_once(':') {
            Some(("ext4", word)) if EXT4_WORDS.contains(&word) => Ok(Contender::Ext4(word.into())),
            Some(("blocks", words))
                if EXT4_WORDS.contains(&words.split('+').next().unwrap_or_default()) =>
            {
                Ok(Contender::Blocks(words.into()))
            }
            Some(("okeanos", data)) => Ok(Contender::Okeanos(Some(data.into()))),
            Some(("okeanos-classic", data)) => Ok(Contender::OkeanosClassic(Some(data.into()))),
            None if text == "okeanos" => Ok(Contender::Okeanos(None)),
            None if text == "okeanos-classic" => Ok(Contender::OkeanosClassic(None)),
            None if text == "xfs" => Ok(Contender::Xfs),
            None if text == "btrfs" => Ok(Contender::Btrfs),
            _ => Err(format!(
                "{text:?} is no file system to compare: ext4:ordered, ext4:journal, ext4:writeback, \
                 ext4:fast_commit, ext4:async_commit (data=writeback,journal_async_commit), xfs, \
                 btrfs, okeanos, okeanos:MODE, okeanos:MODE+OPTION, okeanos-classic:MODE+OPTION \
                 (without io_uring), okeanos@PROGRAM:MODE+OPTION (another release), \
                 blocks:ordered and so on, blocks:ordered+OPTION (ext4 above a block volume)"
            )),
        }
    }
}

impl std::fmt::Display for Contender {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Contender::Ext4(word) => write!(f, "ext4:{word}"),
            Contender::Xfs => f.write_str("xfs"),
            Contender::Btrfs => f.write_str("btrfs"),
            Contender::Okeanos(None) => f.write_str("okeanos"),
            Contender::Okeanos(Some(data)) => write!(f, "okeanos:{data}"),
            Contender::OkeanosClassic(None) => f.write_str("okeanos-classic"),
            Contender::OkeanosClassic(Some(data)) => write!(f, "okeanos-classic:{data}"),
            Contender::OkeanosOf(program, None) => write!(f, "okeanos@{}", program.display()),
            Contender::OkeanosOf(program, Some(data)) => {
                write!(f, "okeanos@{}:{data}", program.display())
            }
            Contender::Blocks(words) => write!(f, "blocks:{words}"),
        }
    }
}

impl Contender {
    pub fn is_ours(&self) -> bool {
        self.of_okeanos().is_some()
    }

    /// Returns what the environment of its daemon has besides.
    pub(crate) fn environment(&self) -> Option<(&'static str, &'static str)> {
        matches!(self, Contender::OkeanosClassic(_)).then_some(("OKEANOS_IO", "classic"))
    }

    /// Returns the program that mounts it, where `program` is this release's.
    pub(crate) fn program<'a>(&'a self, program: &'a Path) -> &'a Path {
        match self {
            Contender::OkeanosOf(other, _) => other,
            _ => program,
        }
    }

    /// Attaches the block volume that lies between the disk and the file system, if one does.
    pub(crate) fn attach(
        &self,
        program: &Path,
        disk: &Path,
    ) -> Result<Option<BlockVolume>, RigError> {
        let Contender::Blocks(words) = self else { return Ok(None) };
        let options = words.split_once('+').map_or("", |(_, options)| options);
        BlockVolume::new(program, &options.replace('+', ","), disk).map(Some)
    }

    /// Returns the mode and options of Okeanos, if it is a volume of Okeanos.
    fn of_okeanos(&self) -> Option<Option<&str>> {
        match self {
            Contender::Okeanos(data)
            | Contender::OkeanosClassic(data)
            | Contender::OkeanosOf(_, data) => Some(data.as_deref()),
            _ => None,
        }
    }

    /// Returns its word of `EXT4_WORDS`, if it is ext4.
    fn of_ext4(&self) -> Option<&str> {
        match self {
            Contender::Ext4(word) => Some(word),
            Contender::Blocks(words) => words.split('+').next(),
            _ => None,
        }
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
        match self.of_ext4() {
            Some("fast_commit") => drop(command.args(["-O", "fast_commit"])),
            Some("async_commit") => drop(command.args(["-O", "^metadata_csum"])),
            _ => (),
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
        if let Some(data) = self.of_okeanos() {
            let options = format!("{}allow_other", mode_option(data));
            let mut daemon = Command::new(self.program(program));
            daemon.envs(self.environment());
            return MountedDirectory::okeanos(daemon, &options, device, directory);
        }
        let (kind, options) = match self {
            Contender::Xfs => ("xfs", "defaults".to_owned()),
            Contender::Btrfs => ("btrfs", "ssd".to_owned()),
            _ => ("ext4", ext4_options(self.of_ext4().unwrap_or("ordered"))),
        };
        MountedDirectory::kernel(kind, &options, device, directory)
    }
}

/// Returns the options with which the kernel's ext4 is mounted for a word of `EXT4_WORDS`.
pub(crate) fn ext4_options(word: &str) -> String {
    match word {
        // Fast commits are a feature of the volume, which is mounted as any other.
        "fast_commit" => "data=ordered".into(),
        "async_commit" => "data=writeback,journal_async_commit".into(),
        data => format!("data={data}"),
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
    fn only_the_classic_one_forbids_a_ring() {
        let environment = |name: &str| name.parse::<Contender>().unwrap().environment();
        assert_eq!(environment("okeanos-classic:wasteless"), Some(("OKEANOS_IO", "classic")));
        assert_eq!(environment("okeanos:wasteless"), None);
    }

    #[test]
    fn only_another_release_has_another_program() {
        let now = Path::new("/now/okeanos");
        let other: Contender = "okeanos@/then/okeanos:wasteless".parse().unwrap();
        assert_eq!(other.program(now), Path::new("/then/okeanos"));
        assert_eq!("okeanos:wasteless".parse::<Contender>().unwrap().program(now), now);
    }

    #[test]
    fn names_of_contenders_are_read_and_written_alike() {
        for name in [
            "ext4:ordered",
            "ext4:fast_commit",
            "ext4:async_commit",
            "xfs",
            "btrfs",
            "okeanos",
            "okeanos:wasteless",
            "okeanos:ordered+cache=64M",
            "okeanos-classic",
            "okeanos-classic:wasteless+cache=64M",
            "okeanos@/release/okeanos",
            "okeanos@/release/okeanos:wasteless+cache=64M",
            "blocks:fast_commit",
            "blocks:ordered+data=wasteless+cache=64M",
        ] {
            assert_eq!(name.parse::<Contender>().unwrap().to_string(), name);
        }
        assert!(
            ["zfs", "ext4:orderd", "ext4", "blocks:wasteless"]
                .iter()
                .all(|name| name.parse::<Contender>().is_err())
        );
    }
}
