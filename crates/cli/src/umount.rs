use crate::error::CliError;
use std::path::PathBuf;

/// Unmount a volume; returns when everything is home
#[derive(clap::Args)]
pub struct UmountArguments {
    /// Where it is mounted
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,
}

pub fn run(arguments: UmountArguments) -> Result<(), CliError> {
    Err(CliError::new(format!("cannot unmount {} yet", arguments.directory.display())))
}
