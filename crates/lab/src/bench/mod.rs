//! `okeanos-lab bench`: the workloads, with tables.

mod compare;
mod demo;
mod done;
mod environment;
mod filebench;
mod growth;
mod mixed;
mod mpi_io;
mod postmark;
mod programs;
mod read_back;
mod replay;
mod streams;
mod stress;
mod verify;

use crate::error::CliError;

const EXAMPLES: &str = "\
Examples:
  okeanos-lab bench streams /mnt/a      how many small synchronous writes any file system does
  okeanos-lab bench demo                every mode beside the kernel's ext4, with a crash (as root)
  okeanos-lab bench compare             the same work interleaved on several file systems (as root)";

/// Measure small synchronous writes, and prove that none is lost
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct BenchArguments {
    #[command(subcommand)]
    what: BenchCommand,
}

#[derive(clap::Subcommand)]
enum BenchCommand {
    Streams(streams::StreamsArguments),
    Verify(verify::VerifyArguments),
    Stress(stress::StressArguments),
    Postmark(postmark::PostmarkArguments),
    Filebench(filebench::FilebenchArguments),
    Replay(replay::LogReplayArguments),
    MpiIo(mpi_io::MpiIoArguments),
    ReadBack(read_back::ReadBackArguments),
    Compare(compare::CompareArguments),
    Mixed(mixed::MixedArguments),
    Growth(growth::GrowthArguments),
    Programs(programs::ProgramsArguments),
    Demo(demo::DemoArguments),
}

pub fn run(arguments: BenchArguments) -> Result<(), CliError> {
    match arguments.what {
        BenchCommand::Streams(arguments) => streams::run(arguments),
        BenchCommand::Verify(arguments) => verify::run(arguments),
        BenchCommand::Stress(arguments) => stress::run(arguments),
        BenchCommand::Postmark(arguments) => postmark::run(arguments),
        BenchCommand::Filebench(arguments) => filebench::run(arguments),
        BenchCommand::Replay(arguments) => replay::run(arguments),
        BenchCommand::MpiIo(arguments) => mpi_io::run(arguments),
        BenchCommand::ReadBack(arguments) => read_back::run(arguments),
        BenchCommand::Compare(arguments) => compare::run(arguments),
        BenchCommand::Mixed(arguments) => mixed::run(arguments),
        BenchCommand::Growth(arguments) => growth::run(arguments),
        BenchCommand::Programs(arguments) => programs::run(arguments),
        BenchCommand::Demo(arguments) => demo::run(arguments),
    }
}

fn rig_error(error: testbeds::RigError) -> CliError {
    CliError::new(error.to_string())
}
