//! Standard output. A reader that stops early (`okeanos … | head`) is no error.

use crate::error::CliError;
use std::borrow::Cow;
use std::fmt::Display;
use std::io::{ErrorKind, Write};

/// Maximum number of columns: wider lines are tiring to read.
const WIDTH_MAX: usize = 100;
/// Least columns: narrower lines hold none of our words.
const WIDTH_MIN: usize = 40;

/// Returns the width of help: that of the terminal, or COLUMNS.
pub fn width() -> usize {
    let size = rustix::termios::tcgetwinsize(std::io::stdout()).ok();
    let columns = size.map(|size| usize::from(size.ws_col)).filter(|columns| *columns > 0);
    let width = columns.or_else(|| std::env::var("COLUMNS").ok()?.parse().ok());
    width.unwrap_or(WIDTH_MAX).clamp(WIDTH_MIN, WIDTH_MAX)
}

/// Prints text for people, with names of files, volumes and processes that others chose.
pub fn print(text: &impl Display) -> Result<(), CliError> {
    print_as_it_is(&harmless(&text.to_string()))
}

pub fn print_json(value: &impl serde::Serialize) -> Result<(), CliError> {
    let text =
        serde_json::to_string_pretty(value).map_err(|error| CliError::new(error.to_string()))?;
    print_as_it_is(&format_args!("{}\n", escaped(&text)))
}

/// Prints text without foreign names: scripts, manual pages.
pub fn print_as_it_is(text: &impl Display) -> Result<(), CliError> {
    let mut out = std::io::stdout().lock();
    match write!(out, "{text}").and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(CliError::system("standard output", error))
        }
        _ => Ok(()),
    }
}

/// Returns the text without anything that a terminal would obey: control characters, those above
/// ASCII too, become question marks. Lines and tabs stay.
pub fn harmless(text: &str) -> Cow<'_, str> {
    if !text.chars().any(is_order) || units::fault!("terminal-obeys-names") {
        return text.into();
    }
    text.chars().map(|c| if is_order(c) { '?' } else { c }).collect::<String>().into()
}

/// Returns a name for a line of text: [`harmless`], and its line ends and tabs are question marks,
/// too, so that it cannot pass for a line of its own.
pub fn printable(name: &str) -> Cow<'_, str> {
    match name.chars().any(char::is_control) {
        false => name.into(),
        true => name.chars().map(|c| if c.is_control() { '?' } else { c }).collect(),
    }
}

/// Escapes in JSON control characters above ASCII, which occur only in strings; JSON has escapes
/// for those of ASCII.
pub fn escaped(json: &str) -> Cow<'_, str> {
    if !json.chars().any(is_order) {
        return json.into();
    }
    let escape = |c: char| if is_order(c) { format!("\\u{:04x}", c as u32) } else { c.into() };
    json.chars().map(escape).collect::<String>().into()
}

fn is_order(c: char) -> bool {
    c.is_control() && !matches!(c, '\n' | '\t')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_gives_a_terminal_orders() {
        assert_eq!(harmless("a\x1b[31m\u{9b}2J\rb\x7f\tc\n"), "a?[31m?2J?b?\tc\n");
        assert_eq!(harmless("größe\n"), "größe\n");
        assert_eq!(printable("größe\n\x1b[A\t"), "größe??[A?");
        let json = serde_json::to_string("\u{9b}2J\x1b\x7f").unwrap();
        let text = escaped(&json);
        assert!(!text.chars().any(char::is_control), "{text}");
        assert_eq!(serde_json::from_str::<String>(&text).unwrap(), "\u{9b}2J\x1b\x7f");
    }
}
