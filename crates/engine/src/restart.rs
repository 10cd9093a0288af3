//! A restart with scattered logs: what they hold whole stays there, and the engine goes on with it. Else it is a recovery, and
//! all goes home.
//!
//! 1. Blocks of which the log holds parts go home, and so do those that are read before there is an engine.
//! 2. Nothing is kept unless the mount writes the log in the format that it has, and the mapping table has room for it.
//! 3. What a snapshot tells of the log is not read, if all of it fits ([`Recovery::read_told`]). Else all is read.
//! 4. Nothing of the log changes but headers of torn runs ([`journal::plan_kept_log`]). So a crash of a restart is one before it.

use crate::cache::Cache;
use crate::error::EngineError;
use crate::kept::{Gathered, KeptLog};
use crate::limits::HOME_REQUESTS_MAX;
use crate::log_format::is_written_so;
use crate::mapped::table_max;
use crate::mapping::COPY_BYTES;
use crate::options::EngineParts;
use crate::recovery::{Begun, ReadLog, Recovery, recover};
use crate::recovery_report::RecoveryReport;
use device::Buffer;
use journal::{FoundRuns, LogKind, ReplayAction, ReplayedRecord, ToldPiece, plan_kept_log, records};
use runtime::join_window;
use std::pin::Pin;
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
    if let Some(kept) = recovery.keep_as_told(read_early).await? {
        return Ok((recovery.end(), Some(kept)));
    }
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
        self.report.replay = replayed;
        self.end_kept(gathered, read, found, Vec::new()).await.map(Some)
    }

    /// As a snapshot tells, if one counts and all fits. `None`: the log is to be read.
    async fn keep_as_told(&mut self, read_early: &[HomeBlock]) -> Result<Option<KeptLog>, EngineError> {
        if self.superblock.named_snapshot().is_none() || !self.is_sound() {
            return Ok(None);
        }
        match self.keep_told(read_early).await {
            Ok(kept) => Ok(kept),
            Err(why) => {
                // What was written home is what any replay writes there first.
                self.runner.check()?;
                self.report = RecoveryReport {
                    snapshot_refused: Some(why),
                    snapshot_blocks_read: self.report.snapshot_blocks_read,
                    snapshot_nanoseconds: self.report.snapshot_nanoseconds,
                    ..RecoveryReport::default()
                };
                Ok(None)
            }
        }
    }

    /// Why it cannot be kept so, else. `None`: there is nothing to keep.
    async fn keep_told(&mut self, read_early: &[HomeBlock]) -> Result<Option<KeptLog>, String> {
        let told = |error: EngineError| error.to_string();
        let cache = Cache::new(self.parts.options.cache_bytes, self.parts.block_size);
        let most = table_max(&cache) / COPY_BYTES;
        let (snapshot, found) = self.read_told(most).await?;
        let (first, read_from) = (self.superblock.sequence, snapshot.read_from());
        let read = self.read_runs(Some(found.from(read_from))).await.map_err(told)?;
        let end = read.scanned.end;
        if end == first {
            return Ok(None);
        }
        if !end.is_at_or_after(snapshot.end()) {
            return Err(format!("{} is told, and the log ends before {end}", snapshot.end().previous()));
        }
        let count = end.0.wrapping_sub(first.0) as usize;
        let unit = records::of(&self.superblock).block_bytes();
        let mut gathered = Gathered::new(first, count).told_before(read_from);
        let leaves_them = self.parts.options.durable_only;
        let runs = found.first_runs(count);
        for (home, block) in snapshot.blocks() {
            if !read.revokes.hides(*home, block.by) {
                let run = runs[block.by.0.wrapping_sub(first.0) as usize];
                gathered.tell(*home, block, run, unit as u32, leaves_them, read_early.contains(home));
            }
        }
        let add = |mut record: ReplayedRecord| {
            record.stays &= leaves_them;
            gathered.add(&record, read_early);
            None
        };
        self.report.replay = self.replay(&read, add).await.map_err(told)?;
        if gathered.copies() > most {
            return Err("the mapping table has no room for it".to_owned());
        }
        if gathered.some_go_home() {
            self.runner.count_log_in(unit);
            let bases = self.read_bases(&gathered).await.map_err(told)?;
            let take = |record: ReplayedRecord| gathered.goes_home(&record.action).then_some(record.action);
            self.replay_over(bases, &read, take).await.map_err(told)?;
        }
        self.report.snapshot_transactions = u64::from(read_from.0.wrapping_sub(first.0));
        self.report.first_transaction = first.0;
        let pieces = snapshot.pieces().to_vec();
        self.end_kept(gathered, &read, &found, pieces).await.map(Some).map_err(told)
    }

    /// What parts of blocks are put over that a snapshot tells of.
    async fn read_bases(&self, gathered: &Gathered) -> Result<Vec<ReplayAction>, EngineError> {
        let records = records::of(&self.superblock);
        let (records, bytes) = (&records, self.parts.block_size.bytes());
        let reads = gathered.bases().map(|(home, copy)| -> Pin<Box<dyn Future<Output = _> + '_>> {
            Box::pin(async move {
                let place = copy.place();
                let count = records.blocks_of_whole(place.offset.into(), bytes);
                let log = self.runner.read_log(place.at, count).await?;
                let block = copy.read_from(&**records, &log, bytes);
                let block = block.ok_or(EngineError::LogCopyDamaged { at: home })?;
                Ok(ReplayAction::WriteWhole { home, bytes: block.to_vec() })
            })
        });
        join_window(reads, HOME_REQUESTS_MAX).await
    }

    async fn end_kept(
        &mut self,
        gathered: Gathered,
        read: &ReadLog,
        found: &FoundRuns,
        told: Vec<ToldPiece>,
    ) -> Result<KeptLog, EngineError> {
        let (first, end) = (self.superblock.sequence, read.scanned.end);
        let count = end.0.wrapping_sub(first.0) as usize;
        let unit = records::of(&self.superblock).block_bytes();
        self.runner.count_log_in(unit);
        let nothing = Rc::new(Buffer::zeroed(unit));
        let headers = found.headers_from(end).map(|at| (at, nothing.clone())).collect();
        self.runner.run(plan_kept_log(headers)).await?;
        self.report.transactions = count as u64;
        self.report.blocks_kept = gathered.copies() as u64;
        let runs = found.first_runs(count).to_vec();
        Ok(gathered.keep(self.superblock.clone(), runs, &read.revokes, told))
    }

    /// Whether the log is whole, and the mount writes it on as it is.
    fn is_sound(&self) -> bool {
        self.superblock.errno == 0
            && !self.report.gave_up
            && is_written_so(&self.superblock, self.parts, self.area)
    }
}
