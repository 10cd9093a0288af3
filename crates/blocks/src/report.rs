//! The report of opening a volume.

use engine::RecoveryReport;

/// Findings and actions of opening a volume.
#[derive(Clone, Debug, Default)]
pub struct BlocksReport {
    pub recovery: RecoveryReport,
    /// Names of the disks of which the superblock was restored from its copy.
    pub superblocks_restored: Vec<String>,
    pub warnings: Vec<String>,
}
