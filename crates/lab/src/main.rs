//! The `okeanos-lab` program: one subcommand a module or a folder, each with `…Arguments` and
//! `run`. It measures `okeanos` and other file systems, crashes volumes in virtual time, plays the
//! papers' figures, and serves emulated disks.

mod bench;
mod completions;
mod disk;
mod fingerprint;
mod man;
mod nbd;
mod reproduce;
mod sim;

use clap::{Parser, Subcommand};
use error::CliError;
use std::ffi::OsString;
use std::process::ExitCode;
use terminal::man::ManArguments;
use terminal::{VERSION, error, text};

/// Allocator. Most of the memory is pages of block caches and of emulated disks.
#[global_allocator]
static HEAP: runtime::Heap = runtime::Heap::new();

/// The laboratory of Okeanos: benchmarks, the crash explorer, the papers' figures, emulated disks
#[derive(Parser)]
#[command(name = "okeanos-lab", version = VERSION, propagate_version = true, max_term_width = 100,
          after_help = EXAMPLES)]
struct Program {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  okeanos-lab bench demo                               every mode beside the kernel's ext4, with a crash (as root)
  okeanos-lab bench streams /mnt/a                     how many small synchronous writes a file system does
  okeanos-lab disk serve --model cloud-volume --size 8G /tmp/served
                                                       an emulated disk in real time, for losetup
  okeanos-lab sim --rounds 20                          power cuts at every write, in virtual time
  okeanos-lab reproduce list                           the papers' figures

Volumes are made, mounted and recovered by the program okeanos, which has to be installed, too.";

#[derive(Subcommand)]
enum Command {
    Bench(bench::BenchArguments),
    Sim(Box<sim::SimArguments>),
    Reproduce(reproduce::ReproduceArguments),
    Disk(disk::DiskArguments),
    Fingerprint(fingerprint::FingerprintArguments),
    Nbd(nbd::NbdArguments),
    Completions(completions::CompletionsArguments),
    /// Write the man pages into a directory
    #[command(hide = true)]
    Man(ManArguments),
}

fn main() -> ExitCode {
    cli::daemon::mounted::run_program("okeanos-lab", run)
}

fn run(arguments: &[OsString]) -> Result<(), CliError> {
    let program: Program = terminal::parse(arguments).unwrap_or_else(|error| error.exit());
    match program.command {
        Command::Bench(arguments) => bench::run(arguments),
        Command::Sim(arguments) => sim::run(*arguments),
        Command::Reproduce(arguments) => reproduce::run(arguments),
        Command::Disk(arguments) => disk::run(arguments),
        Command::Fingerprint(arguments) => fingerprint::run(arguments),
        Command::Nbd(arguments) => nbd::run(arguments),
        Command::Completions(arguments) => completions::run(&arguments),
        Command::Man(arguments) => man::run(&arguments),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn every_argument_is_well_defined() {
        super::Program::command().debug_assert();
    }

    #[test]
    fn options_that_take_a_name_list_the_names() {
        for (option, name, least) in [
            ("model", "cloud-volume", 6),
            ("setup", "wrapping-4k", 1),
            ("fault", "flush-hang@N", 1),
        ] {
            let helps = terminal::helps(&super::Program::command(), option);
            assert!(helps.len() >= least, "--{option}: {helps:?}");
            for (command, help) in helps {
                assert!(help.contains(name), "{command} --{option}: {help}");
            }
        }
    }
}
