//! Why a figure cannot be played.

#[derive(Debug, thiserror::Error)]
pub enum FigureError {
    #[error("{0}")]
    Stage(#[from] testbeds::StageError),
    #[error("{0}")]
    Io(#[from] std::io::Error),
    #[error("interrupted")]
    Interrupted,
    /// A program, trace or device did not do what it was asked.
    #[error("{0}")]
    Other(String),
}
