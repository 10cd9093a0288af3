//! The `okeanos` program: one subcommand a module, each with `…Arguments` and `run`.
//!
//! Called as `mount.okeanos` or `mount.fuse.okeanos` it is the helper that mount(8) runs for
//! `mount -t okeanos` and for fstab lines.

mod bench;
mod changing;
mod coerce;
mod control;
mod control_server;
mod daemon;
mod disk;
mod disk_door;
mod disk_serve;
mod error;
mod fingerprint;
mod inspect;
mod loop_device;
mod man;
mod mkfs;
mod mount;
mod mount_helper;
mod mount_options;
mod mount_serve;
mod mount_table;
mod mount_users;
mod mount_words;
mod open_disk;
mod output;
mod own_namespace;
mod porter;
mod powercut;
mod programs;
mod progress;
mod quantity;
mod recover;
mod remount;
mod reporter;
mod reproduce;
mod sim;
mod sim_report;
mod stats;
mod table;
mod umount;

use clap::{Parser, Subcommand};
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
    Umount(umount::UmountArguments),
    Recover(recover::RecoverArguments),
    Inspect(inspect::InspectArguments),
    Stats(stats::StatsArguments),
    Bench(bench::BenchArguments),
    Disk(disk::DiskArguments),
    Fingerprint(fingerprint::FingerprintArguments),
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
    if mount_helper::is_called(&arguments) {
        return mount_helper::run(arguments);
    }
    match Program::parse_from(arguments).command {
        Command::Mkfs(arguments) => mkfs::run(arguments),
        Command::Mount(arguments) => mount::run(arguments),
        Command::Umount(arguments) => umount::run(arguments),
        Command::Recover(arguments) => recover::run(arguments),
        Command::Inspect(arguments) => inspect::run(arguments),
        Command::Stats(arguments) => stats::run(arguments),
        Command::Bench(arguments) => bench::run(arguments),
        Command::Disk(arguments) => disk::run(arguments),
        Command::Fingerprint(arguments) => fingerprint::run(arguments),
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
