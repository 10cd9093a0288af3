//! The report of opening a volume.

use engine::RecoveryReport;

/// Findings and actions of opening a volume.
#[derive(Clone, Debug, Default)]
pub struct BlocksReport {
    pub recovery: RecoveryReport,
    /// Whether the superblock was restored from its copy.
    pub superblock_restored: bool,
    pub warnings: Vec<String>,
}
