//! Input of the works, made once outside the volumes, identical in each run: a tree of sources,
//! packed and as a repository.

use super::Scale;
use crate::real_time::rig::{self, RigError};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use workloads::ActorRandom;

/// Number of files, as in a medium-sized program.
const FILES: u64 = 6000;
const FILES_IN_DIRECTORY: u64 = 25;
/// Average bytes of a file.
const MEAN: u64 = 9000;
const SEED: u64 = 1;
/// The string that `grep` searches for; in every hundredth file.
pub(super) const NEEDLE: &str = "needle_in_the_hay";

pub(super) struct Sources {
    directory: tempfile::TempDir,
}

impl Sources {
    pub fn new(scale: Scale) -> Result<Sources, RigError> {
        let directory = tempfile::tempdir().map_err(RigError::at("a directory for sources"))?;
        let sources = Sources { directory };
        let tree = sources.path("tree");
        write_tree(&tree, scale.of(FILES)).map_err(RigError::at(tree.display()))?;
        rig::run(
            Command::new("tar").arg("-C").arg(&tree).arg("-cf").arg(sources.archive()).arg("."),
        )?;
        let git = |arguments: &[&str]| {
            rig::run(
                Command::new("git")
                    .env("GIT_CONFIG_GLOBAL", "/dev/null")
                    .arg("-C")
                    .arg(&tree)
                    .args(arguments),
            )
            .map(drop)
        };
        if Command::new("git").arg("--version").output().is_ok() {
            git(&["init", "-q"])?;
            git(&["add", "."])?;
            git(&[
                "-c",
                "user.name=bench",
                "-c",
                "user.email=bench@localhost",
                "commit",
                "-q",
                "-m",
                "tree",
            ])?;
        }
        Ok(sources)
    }
    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }
    /// Makes a fresh directory outside the volumes, which `user` alone may enter.
    pub fn directory_of(&self, name: &str, user: &str) -> Result<PathBuf, RigError> {
        let path = self.path(name);
        if path.exists() {
            std::fs::remove_dir_all(&path).map_err(RigError::at(path.display()))?;
        }
        rig::directory_of(&path, user)?;
        // Other users may traverse the path but not list it.
        let passable = std::fs::Permissions::from_mode(0o711);
        std::fs::set_permissions(self.directory.path(), passable)
            .map_err(RigError::at(path.display()))?;
        Ok(path)
    }
    pub fn archive(&self) -> PathBuf {
        self.path("tree.tar")
    }
    pub fn repository(&self) -> PathBuf {
        self.path("tree")
    }
}

/// Writes files of lines of words, with sizes distributed as sizes of sources are.
fn write_tree(tree: &Path, files: u64) -> std::io::Result<()> {
    let rng = ActorRandom::new(SEED, 0);
    for number in 0..files {
        let directory = tree.join(format!("part{}", number / FILES_IN_DIRECTORY));
        std::fs::create_dir_all(&directory)?;
        let mut file = std::io::BufWriter::new(std::fs::File::create(
            directory.join(format!("file{number}.c")),
        )?);
        let mut left = rng.size_around(MEAN) as i64;
        if number % 100 == 0 {
            writeln!(file, "{NEEDLE}")?;
        }
        while left > 0 {
            let word = rng.below(1 << 30);
            left -= match rng.below(8) {
                0 => writeln!(file, " {word:x};").map(|()| 9)?,
                _ => write!(file, " {word:x}").map(|()| 8)?,
            };
        }
        file.flush()?;
    }
    Ok(())
}
