//! Reasons why a figure cannot be played, or its files cannot be written.

use std::io;
use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
pub enum FigureError {
    #[error("{0}")]
    Stage(#[from] testbeds::StageError),
    #[error("{0}")]
    Io(#[from] std::io::Error),
    #[error("interrupted")]
    Interrupted,
    /// A failure of a program, trace or device.
    #[error("{0}")]
    Other(String),
}

#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error("{0}")]
    Figure(#[from] FigureError),
    #[error("{path}: {error}")]
    Write { path: PathBuf, error: io::Error },
}

impl RunError {
    /// Whether it was interrupted from outside: the same run continues with it.
    pub fn is_interrupted(&self) -> bool {
        matches!(self, RunError::Figure(FigureError::Interrupted))
    }
}
