use crate::error::CliError;
use crate::text::output::{print, print_json};
use std::path::PathBuf;
use workloads::{Acknowledged, verify};

const EXAMPLES: &str = "\
Examples, after a crash:
  okeanos recover disk.img && okeanos mount disk.img /mnt/a
  okeanos-lab bench verify --acknowledged ack.json /mnt/a";

/// Check that everything acknowledged to `bench streams` is there
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct VerifyArguments {
    /// Output of `bench streams --acknowledged`
    #[arg(long, value_name = "FILE")]
    acknowledged: PathBuf,
    /// Fail, too, if a file ends in a torn record that was never acknowledged
    #[arg(long)]
    strict: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Directory of the files
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

pub fn run(arguments: VerifyArguments) -> Result<(), CliError> {
    let path = &arguments.acknowledged;
    let text =
        std::fs::read_to_string(path).map_err(|error| CliError::system(path.display(), error))?;
    let acknowledged: Acknowledged = serde_json::from_str(&text).map_err(|error| {
        CliError::new(format!("{} lists no acknowledgements: {error}", path.display()))
    })?;
    if acknowledged.size == 0 {
        return Err(CliError::new(format!("{} lists records of 0 bytes", path.display())));
    }
    let verdict = verify(&arguments.directory, &acknowledged)
        .map_err(|error| CliError::system(arguments.directory.display(), error))?;
    if arguments.json {
        print_json(&verdict)?;
    } else {
        let mut text = format!(
            "{} records acknowledged, {} lost; {} more are there, {} files end torn\n",
            verdict.acknowledged, verdict.lost, verdict.unacknowledged, verdict.torn
        );
        verdict.complaints.iter().for_each(|complaint| text += &format!("  {complaint}\n"));
        print(&text)?;
    }
    if verdict.lost > 0 {
        return Err(CliError::new(format!("{} acknowledged records are lost", verdict.lost)));
    }
    if arguments.strict && verdict.torn > 0 {
        return Err(CliError::new(format!("{} files end in a torn record", verdict.torn)));
    }
    Ok(())
}
