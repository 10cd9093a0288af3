//! What the program prints. Whoever stops reading (`okeanos … | head`) has seen enough: no error.

use crate::error::CliError;
use std::fmt::Display;
use std::io::{ErrorKind, Write};

/// Wider lines are tiring to read.
const WIDTH_MAX: usize = 100;
/// Narrower ones hold no word of ours.
const WIDTH_MIN: usize = 40;

/// How wide help may be: as the terminal, or as COLUMNS says.
pub fn width() -> usize {
    let mut size = libc::winsize { ws_row: 0, ws_col: 0, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: the call fills the live structure, or fails.
    let is_told = unsafe { libc::ioctl(libc::STDOUT_FILENO, libc::TIOCGWINSZ, &raw mut size) } == 0;
    let told = (is_told && size.ws_col > 0).then_some(usize::from(size.ws_col));
    let width = told.or_else(|| std::env::var("COLUMNS").ok()?.parse().ok());
    width.unwrap_or(WIDTH_MAX).clamp(WIDTH_MIN, WIDTH_MAX)
}

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
    let text =
        serde_json::to_string_pretty(value).map_err(|error| CliError::new(error.to_string()))?;
    print(&format_args!("{text}\n"))
}
