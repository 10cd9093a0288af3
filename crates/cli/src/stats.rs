use crate::error::CliError;
use std::path::PathBuf;

/// Tell what a mounted volume wrote where, and how fast its syncs are
#[derive(clap::Args)]
pub struct StatsArguments {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Where the volume is mounted
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,
}

pub fn run(arguments: StatsArguments) -> Result<(), CliError> {
    Err(CliError::new(format!("no statistics of {} yet", arguments.directory.display())))
}
