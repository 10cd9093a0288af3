//! The `okeanos` program: one subcommand a module or a folder, each with `…Arguments` and `run`.
//!
//! Called as `mount.okeanos`, `mount.fuse.okeanos` or `mount.fuse.okeanos-host` it is the helper
//! that mount(8) runs for `mount -t` and for fstab lines.
//!
//! `okeanos-lab` (crate `lab`) serves emulated disks as this program serves volumes, and examines
//! and exports them as this program does real ones: the parts that it needs are public.

mod advise;
mod blocks;
mod check;
pub mod checkpoint;
mod completions;
pub mod daemon;
pub mod disk;
pub mod doctor;
pub mod fingerprint;
mod fstab;
mod health;
mod host;
mod inspect;
mod list;
mod look;
mod man;
mod mke2fs_options;
mod mkfs;
mod mount;
mod moved;
pub mod nbd;
mod options;
mod powercut;
mod programs;
mod recover;
mod stats;

use clap::{Parser, Subcommand};
use error::CliError;
use std::ffi::OsString;
use std::process::ExitCode;
use terminal::man::ManArguments;
use terminal::{VERSION, error, text};

/// A journaling file system for many concurrent small synchronous writes, on the ext4 format
#[derive(Parser)]
#[command(name = "okeanos", version = VERSION, propagate_version = true, max_term_width = 100,
          after_help = EXAMPLES)]
struct Program {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  okeanos mkfs disk.img 1G                           a volume in an image file
  okeanos mount -o data=wasteless disk.img /mnt/a    mount it
  okeanos list                                       what is mounted, and how it is
  okeanos stats --watch /mnt/a                       what happens there, a line a second
  okeanos umount /mnt/a                              returns when everything is home";

#[derive(Subcommand)]
enum Command {
    Mkfs(mkfs::MkfsArguments),
    Mount(mount::MountArguments),
    Umount(mount::umount::UmountArguments),
    Recover(recover::RecoverArguments),
    Inspect(inspect::InspectArguments),
    List(list::ListArguments),
    Check(check::CheckArguments),
    Checkpoint(checkpoint::CheckpointArguments),
    Advise(advise::AdviseArguments),
    Stats(stats::StatsArguments),
    Blocks(blocks::BlocksArguments),
    Host(host::HostArguments),
    Doctor(doctor::DoctorArguments),
    Fingerprint(fingerprint::FingerprintArguments),
    Nbd(nbd::NbdArguments),
    Powercut(powercut::PowercutArguments),
    Completions(completions::CompletionsArguments),
    /// Write the man pages into a directory
    #[command(hide = true)]
    Man(ManArguments),
    /// Talk to Ceph for a mount, which starts this process
    #[command(hide = true)]
    CephHelper,
}

/// Runs the program.
pub fn main() -> ExitCode {
    daemon::mounted::run_program("okeanos", run)
}

fn run(arguments: &[OsString]) -> Result<(), CliError> {
    daemon::file_size::lift_limit();
    daemon::mounted::refuse_silent(arguments).map_err(|error| match is_check(arguments) {
        true => error.with_code(check::NOT_CHECKED),
        false => error,
    })?;
    if let Some(line) = fstab::called_for(arguments) {
        return fstab::run(line, arguments);
    }
    moved::refuse(arguments)?;
    let program: Program =
        terminal::parse(arguments).unwrap_or_else(|error| end(&error, arguments));
    match program.command {
        Command::Mkfs(arguments) => mkfs::run(arguments),
        Command::Mount(arguments) => mount::run(arguments),
        Command::Umount(arguments) => mount::umount::run(arguments),
        Command::Recover(arguments) if blocks::holds_volume(&arguments.source) => {
            blocks::offline::replay(&arguments)
        }
        Command::Recover(arguments) => recover::run(arguments),
        Command::Inspect(arguments) => inspect::run(arguments),
        Command::Check(arguments) => check::run(arguments),
        Command::Checkpoint(arguments) => checkpoint::run(arguments),
        Command::Advise(arguments) => advise::run(arguments),
        Command::List(arguments) => list::run(arguments),
        Command::Stats(arguments) => stats::run(arguments),
        Command::Blocks(arguments) => blocks::run(arguments),
        Command::Host(arguments) => host::run(arguments),
        Command::Doctor(arguments) => doctor::run(arguments),
        Command::Fingerprint(arguments) => fingerprint::run(arguments),
        Command::Nbd(arguments) => nbd::run(arguments),
        Command::Powercut(arguments) => powercut::run(arguments),
        Command::Completions(arguments) => completions::run(&arguments),
        Command::Man(arguments) => man::run(&arguments),
        Command::CephHelper => ceph::run_helper(),
    }
}

/// Prints requested help, or a command line error, with the exit code that the command's callers
/// know.
fn end(error: &clap::Error, arguments: &[OsString]) -> ! {
    // Standard output may be closed.
    let _ = error.print();
    if let Some(tip) = stats::tip(arguments) {
        daemon::reporter::complain(&format!("\n  tip: {tip}"));
    }
    std::process::exit(if is_check(arguments) && error.use_stderr() {
        check::WRONG_USAGE
    } else {
        error.exit_code()
    })
}

fn is_check(arguments: &[OsString]) -> bool {
    arguments.get(1).is_some_and(|command| command == "check")
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn every_argument_is_well_defined() {
        super::Program::command().debug_assert();
    }
}
