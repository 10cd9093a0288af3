//! Options that several workloads share.

use crate::error::CliError;
use cli::daemon::reporter::complain;
use std::io;
use std::path::Path;
use workloads::SyncKind;

#[derive(Clone, Copy, clap::ValueEnum)]
pub enum Done {
    /// The files are opened O_SYNC
    #[value(name = "o_sync")]
    OSync,
    /// fsync after each write
    #[value(name = "fsync")]
    Fsync,
    /// The page cache has it
    #[value(name = "none")]
    None,
}

impl From<Done> for SyncKind {
    fn from(done: Done) -> SyncKind {
        match done {
            Done::OSync => SyncKind::OSync,
            Done::Fsync => SyncKind::Fsync,
            Done::None => SyncKind::None,
        }
    }
}

/// Returns the given seed, or a random one; prints it on standard error, so that a run can be
/// repeated.
pub fn choose_seed(given: Option<u64>) -> u64 {
    let chance = || {
        u64::from(std::process::id()) ^ std::time::UNIX_EPOCH.elapsed().map_or(0, |it| it.as_secs())
    };
    let seed = given.unwrap_or_else(chance);
    complain(&format!("seed {seed}"));
    seed
}

/// Reports files that could not be made, most often because those of an earlier run exist.
pub fn cannot_run(directory: &Path) -> impl FnOnce(io::Error) -> CliError {
    move |error| {
        CliError::system(directory.display(), error)
            .with_remedy("Give a directory that exists, without the files of an earlier run.")
    }
}
