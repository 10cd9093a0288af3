//! `okeanos recover`: replays the journal of a volume that was not unmounted.

use crate::error::CliError;
use std::path::PathBuf;

/// Replay the journal of a volume after a crash
#[derive(clap::Args)]
pub struct RecoverArguments {
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Only tell what would be replayed
    #[arg(long)]
    dry_run: bool,
    /// The external journal of the volume
    #[arg(long, value_name = "DEVICE")]
    journal_device: Option<PathBuf>,
    /// An image file or block device
    #[arg(value_name = "IMAGE|DEVICE")]
    source: PathBuf,
}

pub fn run(arguments: RecoverArguments) -> Result<(), CliError> {
    let RecoverArguments { json: _, dry_run: _, journal_device: _, source } = arguments;
    Err(CliError::new(format!("cannot recover {} yet", source.display())))
}
