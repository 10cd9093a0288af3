//! The `okeanos` program: one subcommand a module or a folder, each with `…Arguments` and `run`.
//!
//! Called as `mount.okeanos` or `mount.fuse.okeanos` it is the helper that mount(8) runs for
//! `mount -t okeanos` and for fstab lines.

mod advise;
mod bench;
mod blocks;
mod check;
mod checkpoint;
mod completions;
mod daemon;
mod disk;
mod error;
mod host;
mod inspect;
mod list;
mod man;
mod mkfs;
mod mount;
mod nbd;
mod powercut;
mod programs;
mod recover;
mod reproduce;
mod sim;
mod stats;
mod text;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use daemon::mount_table::{self, Mount};
use daemon::{control, reporter};
use error::CliError;
use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

/// Most of the daemon's memory is pages of a block cache.
#[global_allocator]
static HEAP: runtime::Heap = runtime::Heap::new();

/// A journaling file system for many concurrent small synchronous writes, on the ext4 format
#[derive(Parser)]
#[command(name = "okeanos", version = VERSION, propagate_version = true, max_term_width = 100, after_help = EXAMPLES)]
struct Program {
    #[command(subcommand)]
    command: Command,
}

/// With the commit that it was built from, where that is known (build.rs).
const VERSION: &str = env!("OKEANOS_VERSION");

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
    Bench(bench::BenchArguments),
    Disk(disk::DiskArguments),
    Fingerprint(disk::fingerprint::FingerprintArguments),
    Nbd(nbd::NbdArguments),
    Powercut(powercut::PowercutArguments),
    Sim(sim::SimArguments),
    Reproduce(reproduce::ReproduceArguments),
    Completions(completions::CompletionsArguments),
    #[command(hide = true)]
    Man(man::ManArguments),
    /// What talks to Ceph for a mount, which starts it
    #[command(hide = true)]
    CephHelper,
}

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    let mounts = mounts_of(&arguments);
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // What fails on a mount whose daemon has died fails for that reason.
            let error = match mounts.iter().find(|mount| mount.is_dead()) {
                Some(dead) => control::died(dead).with_code_of(&error),
                None => error,
            };
            reporter::complain(&format!("okeanos: {error}"));
            error.exit_code()
        }
    }
}

/// The mounts that a command line names, or names something in. Asked before it runs: one of the
/// command's own that ends has a better reason.
fn mounts_of(arguments: &[OsString]) -> Vec<Mount> {
    let mut words = arguments.iter().skip(1);
    if words.next().is_some_and(|command| command == "umount") {
        // It takes dead mounts away, and says what keeps it from that.
        return Vec::new();
    }
    let around = |word| mount_table::mount_around(Path::new(word)).ok().flatten();
    words.filter_map(around).filter(Mount::is_okeanos).collect()
}

fn run(arguments: &[OsString]) -> Result<(), CliError> {
    if mount::helper::is_called(arguments) {
        return mount::helper::run(arguments);
    }
    let width = text::output::width();
    let matches =
        at_width(Program::command(), width).term_width(width).try_get_matches_from(arguments);
    let program = matches.and_then(|matches| Program::from_arg_matches(&matches));
    let program = program.unwrap_or_else(|error| end(&error, arguments));
    match program.command {
        Command::Mkfs(arguments) => mkfs::run(arguments),
        Command::Mount(arguments) => mount::run(arguments),
        Command::Umount(arguments) => mount::umount::run(arguments),
        Command::Recover(arguments) if blocks::holds_volume(&arguments.source) => {
            blocks::offline::replay(&arguments)
        }
        Command::Recover(arguments) => recover::run(arguments),
        Command::Inspect(arguments) => inspect::run(arguments),
        Command::Check(arguments) if blocks::holds_volume(&arguments.target) => {
            blocks::offline::check(&arguments.target)
        }
        Command::Check(arguments) => check::run(arguments),
        Command::Checkpoint(arguments) => checkpoint::run(arguments),
        Command::Advise(arguments) => advise::run(arguments),
        Command::List(arguments) => list::run(arguments),
        Command::Stats(arguments) => stats::run(arguments),
        Command::Blocks(arguments) => blocks::run(arguments),
        Command::Host(arguments) => host::run(arguments),
        Command::Bench(arguments) => bench::run(arguments),
        Command::Disk(arguments) => disk::run(arguments),
        Command::Fingerprint(arguments) => disk::fingerprint::run(arguments),
        Command::Nbd(arguments) => nbd::run(arguments),
        Command::Powercut(arguments) => powercut::run(arguments),
        Command::Sim(arguments) => sim::run(arguments),
        Command::Reproduce(arguments) => reproduce::run(arguments),
        Command::Completions(arguments) => completions::run(arguments),
        Command::Man(arguments) => man::run(arguments),
        Command::CephHelper => ceph::run_helper(),
    }
}

/// Help that was asked for, or a wrong command line: prints it, with the exit code that the
/// command's callers know.
fn end(error: &clap::Error, arguments: &[OsString]) -> ! {
    // Nobody may be listening.
    let _ = error.print();
    let is_check = arguments.get(1).is_some_and(|command| command == "check");
    std::process::exit(if is_check && error.use_stderr() {
        check::WRONG_USAGE
    } else {
        error.exit_code()
    })
}

/// Each command's notes, as wide as the terminal; clap itself knows no hanging lines.
fn at_width(command: clap::Command, width: usize) -> clap::Command {
    let notes =
        command.get_after_help().map(|notes| text::notes::at_width(&notes.to_string(), width));
    let long =
        command.get_after_long_help().map(|notes| text::notes::at_width(&notes.to_string(), width));
    let mut command = command.mut_subcommands(|below| at_width(below, width));
    if let Some(notes) = notes {
        command = command.after_help(notes);
    }
    if let Some(notes) = long {
        command = command.after_long_help(notes);
    }
    command
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn every_argument_is_well_defined() {
        super::Program::command().debug_assert();
    }

    /// The help of each option of this name, with its command.
    fn helps(command: &clap::Command, option: &str) -> Vec<(String, String)> {
        let own = command.get_arguments().filter(|argument| argument.get_long() == Some(option));
        let own = own.map(|argument| {
            let help = argument.get_help().map(ToString::to_string).unwrap_or_default();
            (command.get_name().to_owned(), help)
        });
        own.chain(command.get_subcommands().flat_map(|below| helps(below, option))).collect()
    }

    #[test]
    fn options_that_take_a_name_list_the_names() {
        for (option, name, least) in [
            ("model", "cloud-volume", 6),
            ("setup", "wrapping-4k", 1),
            ("fault", "flush-hang@N", 1),
        ] {
            let helps = helps(&super::Program::command(), option);
            assert!(helps.len() >= least, "--{option}: {helps:?}");
            for (command, help) in helps {
                assert!(help.contains(name), "{command} --{option}: {help}");
            }
        }
    }
}
