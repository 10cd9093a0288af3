//! Checks of journal superblocks.

use super::bytes::{CRC32C, at, checksum};
use super::{Compatible, Incompatible, JournalSuperblock};
use crate::field::be32;
use crate::jbd2::error::{JournalFormatError, wrong_superblock as wrong};
use crate::jbd2::layout::TagFormat;
use crate::packed::{PackedLog, UNIT_MIN};

/// Our limit: a longer log would make arithmetic on log blocks overflow, and is longer than any
/// journal.
pub(super) const LENGTH_MAX: u32 = 1 << 31;
/// Our limit: no gap between transactions is longer than this share of the log.
pub(super) const GAP_SHARE: u32 = 16;

impl JournalSuperblock {
    pub(super) fn check_features(&self) -> Result<(), JournalFormatError> {
        let mut unknown = Vec::new();
        let known = [Compatible::CHECKSUM, Incompatible::KNOWN, 0];
        let found = [self.compatible, self.incompatible, self.read_only_compatible];
        // As in the kernel: an unknown compatible feature may be ignored, others may not.
        for (set, which) in [("incompatible", 1), ("read-only compatible", 2)] {
            let bits = (0..32)
                .map(|bit| 1u32 << bit)
                .filter(|bit| found[which] & !known[which] & bit != 0);
            unknown.extend(bits.map(|bit| format!("{set} {bit:#x}")));
        }
        if !unknown.is_empty() {
            return Err(JournalFormatError::UnknownFeatures(unknown.join(", ")));
        }
        let checksums = [
            self.compatible & Compatible::CHECKSUM != 0,
            self.has_incompatible(Incompatible::CHECKSUM_V2),
            self.has_incompatible(Incompatible::CHECKSUM_V3),
        ];
        if self.has_incompatible(Incompatible::SNAPSHOT)
            && !self.has_incompatible(Incompatible::SCATTERED)
        {
            return Err(wrong("it names a snapshot of logs that it does not have".to_owned()));
        }
        if self.has_incompatible(Incompatible::MOVING)
            && !self.has_incompatible(Incompatible::SCATTERED)
        {
            return Err(wrong("runs move between logs that it does not have".to_owned()));
        }
        let is_packed = self.has_incompatible(Incompatible::PACKED);
        if self.has_incompatible(Incompatible::GAPS)
            && (!is_packed || self.has_incompatible(Incompatible::SCATTERED))
        {
            return Err(wrong(
                "gaps between transactions that are not packed, or are scattered".to_owned(),
            ));
        }
        let is_multiwrite = self.has_incompatible(Incompatible::MULTIWRITE);
        if self.has_incompatible(Incompatible::XXH64) && !is_packed && !is_multiwrite {
            return Err(wrong("checksums of whole transactions that it does not have".to_owned()));
        }
        if checksums.into_iter().filter(|set| *set).count() > 1 {
            return Err(wrong(
                "more than one of the checksum features v1, v2, v3 is set".to_owned(),
            ));
        }
        Ok(())
    }

    pub(super) fn check_checksum(&self, bytes: &[u8]) -> Result<(), JournalFormatError> {
        if self.tag_format() == TagFormat::Plain {
            return Ok(());
        }
        if self.checksum_type != CRC32C {
            return Err(wrong(format!("checksum type {} is not CRC-32C", self.checksum_type)));
        }
        let (found, right) = (be32(bytes, at::CHECKSUM), checksum(bytes));
        if found != right {
            return Err(wrong(format!(
                "its checksum is {found:#010x}, its content gives {right:#010x}"
            )));
        }
        Ok(())
    }

    pub(super) fn check_geometry(
        &self,
        block_size: u32,
        blocks: u64,
    ) -> Result<(), JournalFormatError> {
        if block_size as usize != self.block_size.bytes() {
            let volume = self.block_size.bytes();
            return Err(wrong(format!(
                "its blocks have {block_size} bytes, the volume's {volume}"
            )));
        }
        if u64::from(self.length) > blocks || self.length > LENGTH_MAX {
            return Err(wrong(format!("it claims {} blocks, there are {blocks}", self.length)));
        }
        let (first, end, start) = (self.first, self.log_end(), self.start);
        if first.get() == 0 || u64::from(first.get()) + 2 > u64::from(end.get()) {
            return Err(wrong(format!(
                "the log would lie in blocks {}..{}",
                first.get(),
                end.get()
            )));
        }
        self.check_unit()?;
        let log = self.log_blocks();
        if !self.is_clean() && !log.contains(&start) {
            return Err(wrong(format!("the log's start, {start}, is outside its blocks {log:?}")));
        }
        Ok(())
    }

    pub(super) fn check_unit(&self) -> Result<(), JournalFormatError> {
        let Some(PackedLog { unit, gap_max, .. }) = self.packed else { return Ok(()) };
        if self.has_incompatible(Incompatible::MULTIWRITE) {
            return Err(wrong("its log has multiwrite blocks and packed transactions".to_owned()));
        }
        let block = self.block_size.bytes() as u64;
        if !unit.is_power_of_two() || unit < UNIT_MIN || u64::from(unit) > block {
            return Err(wrong(format!("packed transactions in units of {unit} bytes")));
        }
        if u64::from(self.length) * (block / u64::from(unit)) > u64::from(LENGTH_MAX) {
            return Err(wrong(format!(
                "{} blocks are too many for units of {unit} bytes",
                self.length
            )));
        }
        let has_gaps = self.has_incompatible(Incompatible::GAPS);
        if has_gaps != (gap_max > 0) || gap_max > self.gap_bound(unit) {
            return Err(wrong(format!("gaps of up to {gap_max} units of {unit} bytes")));
        }
        Ok(())
    }
}
