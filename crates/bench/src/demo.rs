//! The demonstration: in each mode many writers, a crash, a recovery, and the proof that nothing acknowledged
//! is lost.
use crate::rig::RigError;
use std::path::PathBuf;
pub struct DemoOptions {
    pub modes: Vec<String>,
    pub directory: PathBuf,
    pub program: PathBuf,
}
#[derive(Clone, Debug, serde::Serialize)]
pub struct DemoRow {
    pub mode: String,
}
pub fn demo(_options: &DemoOptions, _progress: impl Fn(&str)) -> Result<Vec<DemoRow>, RigError> {
    Ok(Vec::new())
}
