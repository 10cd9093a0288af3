//! Choice of the format in which a mount writes its log.

use crate::interface::options::EngineParts;
use commit::LogArea;
use format::jbd2::JournalSuperblock;
use journal::LogKind;
use journal::records::{self, RecordsWanted};

/// The records that a mount writes.
pub(crate) fn records_wanted(parts: &EngineParts, area: &LogArea) -> RecordsWanted {
    let options = &parts.options;
    let is_scattered = options.log == LogKind::Scattered;
    RecordsWanted {
        format: options.record_format(),
        unit: options.log_unit.unwrap_or_else(|| area.physical_sector(&*parts.home)),
        // Others refuse a log that may hold parts of blocks, whether it does or not.
        bytes: options.data.policy(options.threshold).logs_bytes() || options.keep_others_out,
        // Nobody else reads scattered logs anyway.
        transaction_checksum: options.transaction_checksum || is_scattered,
        checksums: options.journal_checksum || is_scattered,
        wide: parts.home.end() > u64::from(u32::MAX),
        gap_bytes: options.gap_max(),
    }
}

/// Whether a mount would write scattered logs in the format of those that `superblock` names.
pub(crate) fn is_written_so(
    superblock: &JournalSuperblock,
    parts: &EngineParts,
    area: &LogArea,
) -> bool {
    superblock.scattered.is_some()
        && records::is_written_so(superblock, records_wanted(parts, area))
}
