//! A restart with scattered logs: what they hold whole stays there, and the engine goes on with it. Else it is a recovery, and
//! all goes home.
//!
//! 1. Blocks of which the log holds parts go home, and so do those that are read before there is an engine.
//! 2. Nothing is kept unless the mount writes the log in the format that it has, and the mapping table has room for it.
//! 3. Nothing of the log changes but headers of torn runs ([`journal::plan_kept_log`]). So a crash of a restart is one before it.

use crate::cache::Cache;
use crate::error::EngineError;
use crate::kept::{Gathered, KeptLog};
use crate::log_format::is_written_so;
use crate::mapped::table_max;
use crate::mapping::COPY_BYTES;
use crate::options::EngineParts;
use crate::recovery::{Begun, ReadLog, Recovery, recover};
use crate::recovery_report::RecoveryReport;
use device::Buffer;
use journal::{LogKind, ReplayedRecord, plan_kept_log, records};
use std::rc::Rc;
use units::HomeBlock;

/// As [`recover`], but for what stays in the log. `read_early`: blocks that are read at home before there is an engine.
pub async fn restart(
    parts: &EngineParts,
    read_early: &[HomeBlock],
) -> Result<(RecoveryReport, Option<KeptLog>), EngineError> {
    if !may_keep(parts) {
        return Ok((recover(parts, false).await?, None));
    }
    let mut recovery = match Recovery::begin(parts, false).await? {
        Begun::Clean(report) => return Ok((*report, None)),
        Begun::Live(recovery) => recovery,
    };
    let read = recovery.read_log().await?;
    let kept = recovery.keep(&read, read_early).await?;
    if kept.is_none() {
        recovery.bring_home(&read).await?;
    }
    Ok((recovery.end(), kept))
}

fn may_keep(parts: &EngineParts) -> bool {
    let options = &parts.options;
    options.log == LogKind::Scattered && !options.read_only && !options.find_log && !options.until_damage
}

impl Recovery<'_> {
    async fn keep(
        &mut self,
        read: &ReadLog,
        read_early: &[HomeBlock],
    ) -> Result<Option<KeptLog>, EngineError> {
        let (first, end) = (read.scanned.first, read.scanned.end);
        let count = end.0.wrapping_sub(first.0) as usize;
        let Some(found) = read.found.as_ref().filter(|_| count > 0 && self.is_sound()) else {
            return Ok(None);
        };
        let mut gathered = Gathered::new(first, count);
        let leaves_them = self.parts.options.durable_only;
        let add = |mut record: ReplayedRecord| {
            record.stays &= leaves_them;
            gathered.add(&record, read_early);
            None
        };
        let replayed = self.replay(read, add).await?;
        let cache = Cache::new(self.parts.options.cache_bytes, self.parts.block_size);
        if gathered.copies() * COPY_BYTES > table_max(&cache) {
            return Ok(None);
        }
        if gathered.some_go_home() {
            self.replay(read, |record| gathered.goes_home(&record.action).then_some(record.action)).await?;
        }
        let unit = records::of(&self.superblock).block_bytes();
        self.runner.count_log_in(unit);
        let nothing = Rc::new(Buffer::zeroed(unit));
        let headers = found.headers_from(end).map(|at| (at, nothing.clone())).collect();
        self.runner.run(plan_kept_log(headers)).await?;
        self.report.replay = replayed;
        self.report.transactions = count as u64;
        self.report.blocks_kept = gathered.copies() as u64;
        Ok(Some(gathered.keep(self.superblock.clone(), found.first_runs(count).to_vec())))
    }

    /// Whether the log is whole, and the mount writes it on as it is.
    fn is_sound(&self) -> bool {
        self.superblock.errno == 0
            && !self.report.gave_up
            && is_written_so(&self.superblock, self.parts, self.area)
    }
}
