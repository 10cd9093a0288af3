//! What the program prints. Whoever stops reading (`okeanos … | head`) has seen enough: no error.

use crate::error::CliError;
use std::fmt::Display;
use std::io::{ErrorKind, Write};

pub fn print(text: &impl Display) -> Result<(), CliError> {
    let mut out = std::io::stdout().lock();
    match write!(out, "{text}").and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(CliError::system("standard output", error))
        }
        _ => Ok(()),
    }
}

pub fn print_json(value: &impl serde::Serialize) -> Result<(), CliError> {
    let text = serde_json::to_string_pretty(value).map_err(|error| CliError::new(error.to_string()))?;
    print(&format_args!("{text}\n"))
}
