//! The `okeanos` program: one subcommand a module or a folder, each with `…Arguments` and `run`.
//!
//! Called as `mount.okeanos` or `mount.fuse.okeanos` it is the helper that mount(8) runs for
//! `mount -t okeanos` and for fstab lines.

mod bench;
mod daemon;
mod disk;
mod error;
mod host;
mod inspect;
mod man;
mod mkfs;
mod mount;
mod powercut;
mod programs;
mod recover;
mod reproduce;
mod sim;
mod stats;
mod text;

use clap::{Parser, Subcommand};
use daemon::reporter;
use error::CliError;
use std::ffi::OsString;
use std::process::ExitCode;

/// A journaling file system for many concurrent small synchronous writes, on the ext4 format
#[derive(Parser)]
#[command(name = "okeanos", version, propagate_version = true, max_term_width = 100, after_help = EXAMPLES)]
struct Program {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  okeanos mkfs disk.img 1G                           a volume in an image file
  okeanos mount -o data=wasteless disk.img /mnt/a    mount it
  okeanos stats /mnt/a                               what was written where, and how fast syncs are
  okeanos umount /mnt/a                              returns when everything is home";

#[derive(Subcommand)]
enum Command {
    Mkfs(mkfs::MkfsArguments),
    Mount(mount::MountArguments),
    Umount(mount::umount::UmountArguments),
    Recover(recover::RecoverArguments),
    Inspect(inspect::InspectArguments),
    Stats(stats::StatsArguments),
    Host(host::HostArguments),
    Bench(bench::BenchArguments),
    Disk(disk::DiskArguments),
    Fingerprint(disk::fingerprint::FingerprintArguments),
    Powercut(powercut::PowercutArguments),
    Sim(sim::SimArguments),
    Reproduce(reproduce::ReproduceArguments),
    #[command(hide = true)]
    Man(man::ManArguments),
}

fn main() -> ExitCode {
    match run(std::env::args_os().collect()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            reporter::complain(&format!("okeanos: {error}"));
            error.exit_code()
        }
    }
}

fn run(arguments: Vec<OsString>) -> Result<(), CliError> {
    if mount::helper::is_called(&arguments) {
        return mount::helper::run(arguments);
    }
    match Program::parse_from(arguments).command {
        Command::Mkfs(arguments) => mkfs::run(arguments),
        Command::Mount(arguments) => mount::run(arguments),
        Command::Umount(arguments) => mount::umount::run(arguments),
        Command::Recover(arguments) => recover::run(arguments),
        Command::Inspect(arguments) => inspect::run(arguments),
        Command::Stats(arguments) => stats::run(arguments),
        Command::Host(arguments) => host::run(arguments),
        Command::Bench(arguments) => bench::run(arguments),
        Command::Disk(arguments) => disk::run(arguments),
        Command::Fingerprint(arguments) => disk::fingerprint::run(arguments),
        Command::Powercut(arguments) => powercut::run(arguments),
        Command::Sim(arguments) => sim::run(arguments),
        Command::Reproduce(arguments) => reproduce::run(arguments),
        Command::Man(arguments) => man::run(arguments),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;
    #[test]
    fn every_argument_is_well_defined() {
        super::Program::command().debug_assert();
    }
}
