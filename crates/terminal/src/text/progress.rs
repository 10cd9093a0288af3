//! One line on a terminal that shows the progress of long work. Silent when standard error is not a
//! terminal.

use super::output::printable;
use std::io::{IsTerminal, Write};

pub struct Progress {
    shown: bool,
}

impl Progress {
    pub fn new() -> Progress {
        Progress { shown: std::io::stderr().is_terminal() }
    }
    pub fn show(&self, text: impl std::fmt::Display) {
        if self.shown {
            let mut terminal = std::io::stderr();
            // A progress line that cannot be shown harms nobody.
            let _ = write!(terminal, "\r\x1b[K{}", printable(&text.to_string()))
                .and_then(|()| terminal.flush());
        }
    }
}

impl Default for Progress {
    fn default() -> Progress {
        Progress::new()
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.show("");
    }
}
