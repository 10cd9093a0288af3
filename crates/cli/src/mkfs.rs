//! `okeanos mkfs`: mke2fs with the options that suit Okeanos, and image files.

use crate::error::CliError;
use crate::quantity::parse_size;
use std::ffi::OsString;
use std::path::PathBuf;

/// Make a volume in an image file or on a block device
#[derive(clap::Args)]
pub struct MkfsArguments {
    /// Size of the journal (mke2fs chooses if not given)
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    journal_size: Option<u64>,
    /// Put the journal on this device or image file, which is made a journal device first
    #[arg(long, value_name = "DEVICE")]
    journal_device: Option<PathBuf>,
    /// An image file or block device
    #[arg(value_name = "IMAGE|DEVICE")]
    target: PathBuf,
    /// Size of the image file, which is made if it does not exist
    #[arg(value_parser = parse_size)]
    size: Option<u64>,
    /// More arguments for mke2fs
    #[arg(last = true, value_name = "MKE2FS ARGUMENTS")]
    extra: Vec<OsString>,
}

pub fn run(arguments: MkfsArguments) -> Result<(), CliError> {
    let MkfsArguments { journal_size: _, journal_device: _, target, size: _, extra: _ } = arguments;
    Err(CliError::new(format!("cannot make a volume in {} yet", target.display())))
}
