//! What opening a volume did.

use engine::RecoveryReport;

/// What opening a volume found and did.
#[derive(Clone, Debug, Default)]
pub struct BlocksReport {
    pub recovery: RecoveryReport,
    /// The superblock was written anew from its copy.
    pub superblock_restored: bool,
    pub warnings: Vec<String>,
}
