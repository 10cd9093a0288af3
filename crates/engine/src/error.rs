use device::DeviceError;

#[derive(Clone, Debug, thiserror::Error)]
pub enum EngineError {
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// An earlier write or flush failed. Nothing is written any more, and every sync reports it.
    #[error("the journal was aborted and the volume is read-only: {cause}")]
    Aborted { cause: String },
    #[error("the volume is mounted read-only")]
    ReadOnly,
    #[error("{at} lies outside the volume of {blocks} blocks")]
    OutOfRange { at: units::HomeBlock, blocks: u64 },
}
