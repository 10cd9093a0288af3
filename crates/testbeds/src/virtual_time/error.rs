//! Reasons why a stage cannot be built, or its workload not be played.

#[derive(Debug, thiserror::Error)]
pub enum StageError {
    #[error("no disk model is called {name:?}, and as a file: {error}")]
    NoModel { name: String, error: std::io::Error },
    #[error("disk model {name}: {error}")]
    Model { name: String, error: emulated::ModelError },
    #[error("cannot make the volume, or write a trace: {0}")]
    Make(#[from] std::io::Error),
    #[error("{0}")]
    Volume(#[from] ext4::Error),
    #[error(
        "a stage has a flush zone or a directory of its own only with the journal in the volume"
    )]
    JournalOutside,
    #[error("{0}")]
    FlushZone(#[from] eviction::ZoneError),
    #[error("a workload failed: {0}")]
    Workload(std::io::Error),
    #[error("e2fsck found damage: {0}")]
    Damaged(String),
}
