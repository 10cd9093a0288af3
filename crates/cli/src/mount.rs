use crate::error::CliError;
use std::path::PathBuf;

/// Mount a volume
#[derive(clap::Args)]
pub struct MountArguments {
    /// Stay in the foreground
    #[arg(short, long)]
    pub foreground: bool,
    /// Mount options, separated by commas
    #[arg(short, value_delimiter = ',')]
    pub options: Vec<String>,
    /// An image file or block device
    #[arg(value_name = "IMAGE|DEVICE")]
    pub source: PathBuf,
    /// Where to mount it
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,
}

pub fn run(arguments: MountArguments) -> Result<(), CliError> {
    let MountArguments { foreground: _, options: _, source, directory } = arguments;
    Err(CliError::new(format!("cannot mount {} on {} yet", source.display(), directory.display())))
}
