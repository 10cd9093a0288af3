use crate::error::CliError;

/// Crash each mode under many writers, recover, and prove that nothing acknowledged is lost
#[derive(clap::Args)]
pub struct DemoArguments {}

pub fn run(_arguments: DemoArguments) -> Result<(), CliError> {
    Err(CliError::new("not yet"))
}
