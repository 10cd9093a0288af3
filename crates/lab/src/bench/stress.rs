use super::done::choose_seed;
use crate::error::CliError;
use crate::text::output::{print, print_json};
use std::path::PathBuf;
use workloads::{StressOptions, check_stressed, stress};

const EXAMPLES: &str = "\
Examples:
  okeanos-lab bench stress --operations 1000000 /mnt/a
  okeanos-lab bench stress --check /mnt/a                       again after an unmount, or a crash";

/// Threads that make, move, link, write, cut and remove the same few files at once, on any file
/// system
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct StressArguments {
    #[arg(long, default_value = "16", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    threads: u32,
    /// Number of operations of all threads together
    #[arg(long, default_value = "100000")]
    operations: u64,
    /// Seed of the threads' operations, though not of their interleaving; random if not given
    #[arg(long)]
    seed: Option<u64>,
    /// Names in each directory: the fewer, the more the threads meet
    #[arg(long, default_value = "40", value_parser = clap::value_parser!(u64).range(1..))]
    names: u64,
    /// Only check the content of the files that are there
    #[arg(long)]
    check: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Directory for the files; they stay
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

pub fn run(arguments: StressArguments) -> Result<(), CliError> {
    let StressArguments { threads, operations, names, ref directory, .. } = arguments;
    let failed = |error| CliError::system(directory.display(), error);
    if !arguments.check {
        let seed = choose_seed(arguments.seed);
        let report = stress(directory, StressOptions { threads, operations, seed, names })
            .map_err(failed)?;
        if arguments.json {
            print_json(&report)?;
        } else {
            print(&format!(
                "{} operations, {} of them refused\n",
                report.operations, report.refused
            ))?;
        }
    }
    let files = check_stressed(directory).map_err(failed)?;
    if arguments.json { Ok(()) } else { print(&format!("{files} files hold what they may hold\n")) }
}
