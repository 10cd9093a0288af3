//! Reasons why a figure cannot be played.

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
