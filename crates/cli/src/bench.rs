//! `okeanos bench`: the workloads of the `bench` floor, with tables.

use crate::error::CliError;
use std::path::PathBuf;

/// Measure small synchronous writes
#[derive(clap::Args)]
pub struct BenchArguments {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    /// Threads that append to a file each
    Streams {
        /// Where the files are made
        #[arg(value_name = "DIR")]
        directory: PathBuf,
    },
}

pub fn run(arguments: BenchArguments) -> Result<(), CliError> {
    let What::Streams { directory } = arguments.what;
    Err(CliError::new(format!("cannot write streams in {} yet", directory.display())))
}
