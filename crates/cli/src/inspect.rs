//! `okeanos inspect`: what is on a volume, told as a person would.

use crate::error::CliError;
use std::path::PathBuf;

/// Tell what is on a volume, without changing it
#[derive(clap::Args)]
pub struct InspectArguments {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    /// The superblock
    Super(Place),
    /// Every block group
    Groups(Place),
    /// Every record in the journal
    Journal(Place),
}

#[derive(clap::Args)]
struct Place {
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// An image file or block device
    #[arg(value_name = "IMAGE|DEVICE")]
    source: PathBuf,
}

pub fn run(arguments: InspectArguments) -> Result<(), CliError> {
    let (What::Super(place) | What::Groups(place) | What::Journal(place)) = arguments.what;
    let _ = place.json;
    Err(CliError::new(format!("cannot inspect {} yet", place.source.display())))
}
