//! A restart with scattered logs: what they hold whole stays there, and the engine goes on with it.
//! Else it is a recovery, and everything is written home.
//!
//! 1. Blocks of which the log holds parts stay in memory until they are home, as before the power
//!    cut. If they are too many for that they are written home. So do those that are read before
//!    there is an engine.
//! 2. Nothing is kept unless the mount writes the log in the format that it has, and the mapping
//!    table has room for it.
//! 3. The part of the log that a snapshot covers is not read, if all of it fits
//!    ([`Recovery::read_snapshot`]). Else all is read.
//! 4. Nothing of the log changes but headers of torn runs, and of copies that an interrupted swap
//!    has left ([`journal::plan_retained_log`]). So a crash of a restart is one before it.
//! 5. A table of runs that was not read counts for nothing from then on: it may record a run that
//!    the restart did not find.

use crate::cache::block_cache::Cache;
use crate::cache::mapped::table_max;
use crate::cache::mapping::{COPY_BYTES, LogCopy};
use crate::interface::error::EngineError;
use crate::interface::limits::HOME_REQUESTS_MAX;
use crate::interface::options::EngineParts;
use crate::log::log_format::is_written_so;
use crate::recovery::log_reader::READ_BYTES;
use crate::recovery::passes::{
    IMAGES_MAX, ReadLog, Recovery, RecoveryStart, recover, superblock_at,
};
use crate::recovery::report::{RecoveryReport, RestartForecast};
use crate::recovery::retained_log::{RECORDS_AT_ONCE, ReplayRecords, RetainedLog};
use commit::image_of;
use device::Buffer;
use journal::{
    FindCopies, FoundRuns, LogKind, ReplayImage, ReplayImages, ReplayedRecord, SnapshotPiece,
    SuperblockImage, plan_announcement, plan_retained_log, records,
};
use runtime::{WalkPace, join_window};
use std::cell::Cell;
use std::pin::Pin;
use std::rc::Rc;
use units::{HomeBlock, LogBlock};

/// Recovers as [`recover`] does, but leaves in scattered logs what they hold whole. `read_early`:
/// blocks that are read at home before there is an engine.
pub async fn restart(
    parts: &EngineParts,
    read_early: &[HomeBlock],
) -> Result<(RecoveryReport, Option<RetainedLog>), EngineError> {
    if !may_keep(parts) {
        return Ok((recover(parts, false).await?, None));
    }
    let mut recovery = match Recovery::begin(parts, false).await? {
        RecoveryStart::Clean(report) => return Ok((*report, None)),
        RecoveryStart::Live(recovery) => recovery,
    };
    if let Some(kept) = recovery.retain_by_snapshot(read_early).await? {
        return Ok((recovery.end(), Some(kept)));
    }
    let read = recovery.read_log().await?;
    let kept = recovery.keep(&read, read_early).await?;
    if kept.is_none() {
        recovery.replay_home(&read).await?;
    }
    Ok((recovery.end(), kept))
}

/// Returns what a restart would read of scattered logs that are not empty. Writes nothing.
pub async fn forecast_restart(parts: &EngineParts) -> Result<Option<RestartForecast>, EngineError> {
    let mut recovery = match Recovery::begin(parts, true).await? {
        RecoveryStart::Live(recovery) if recovery.superblock.scattered.is_some() => recovery,
        _ => return Ok(None),
    };
    let (snapshot, found) = match recovery.read_snapshot(blocks_max(parts)).await {
        Ok(snapshot) => snapshot,
        Err(why) => {
            return Ok(Some(RestartForecast { refused: Some(why), ..RestartForecast::default() }));
        }
    };
    let runs = found.from(snapshot.read_from());
    let runs = runs.first_runs(runs.count());
    Ok(Some(RestartForecast {
        refused: None,
        pieces: snapshot.pieces().len() as u64,
        snapshot_blocks: recovery.report.snapshot_blocks_read,
        blocks_covered: snapshot.blocks().len() as u64,
        end: snapshot.end().0,
        logs: found.logs_read,
        run_headers: found.blocks_read,
        read_from: snapshot.read_from().0,
        transactions: runs.len() as u64,
        run_blocks: runs.iter().map(|run| u64::from(run.count)).sum(),
    }))
}

/// Returns the maximum number of blocks in the mapping table.
fn blocks_max(parts: &EngineParts) -> usize {
    table_max(&Cache::new(parts.options.cache_bytes, parts.block_size)) / COPY_BYTES
}

/// Returns the maximum number of partial blocks that memory holds: as many as may wait there to be
/// written home.
fn parts_max(parts: &EngineParts) -> usize {
    Cache::new(parts.options.cache_bytes, parts.block_size).limit() / 2
}

fn may_keep(parts: &EngineParts) -> bool {
    let options = &parts.options;
    options.log == LogKind::Scattered
        && !options.read_only
        && !options.find_log
        && !options.until_damage
        // Nothing would record which blocks were left out.
        && !options.skip_unreadable
}

impl Recovery<'_> {
    async fn keep(
        &mut self,
        read: &ReadLog,
        read_early: &[HomeBlock],
    ) -> Result<Option<RetainedLog>, EngineError> {
        let (first, end) = (read.scanned.first, read.scanned.end);
        let count = end.0.wrapping_sub(first.0) as usize;
        let Some(found) = read.found.as_ref().filter(|found| count > 0 && self.can_keep(found))
        else {
            return Ok(None);
        };
        let Some(mut gathered) = ReplayRecords::new(first, count, blocks_max(self.parts)) else {
            return Ok(None);
        };
        let parts = self.gather(&mut gathered, read, read_early).await?;
        if gathered.is_too_much() {
            return Ok(None);
        }
        let parts = self.settle_parts(&gathered, parts, read, read_early).await?;
        self.end_kept(gathered, parts, read, found, Vec::new()).await.map(Some)
    }

    /// Gathers what was read, as far as memory has room for it, and merges what there is of blocks
    /// in part. `None`: there is no memory for that.
    async fn gather(
        &mut self,
        gathered: &mut ReplayRecords,
        read: &ReadLog,
        read_early: &[HomeBlock],
    ) -> Result<Option<ReplayImages>, EngineError> {
        let leaves_them = self.parts.options.durable_only;
        let most = parts_max(self.parts);
        let mut parts = Some(ReplayImages::new(self.parts.block_size));
        let is_full = Cell::new(false);
        let add = |mut record: ReplayedRecord| {
            if is_full.get() {
                return None;
            }
            record.durable_only &= leaves_them;
            let is_copy = gathered.add(&record, read_early);
            if let Some(images) = &mut parts {
                match is_copy {
                    true => images.forget(record.action.home()),
                    false => images.apply(record.action),
                }
            }
            parts.take_if(|images| images.len() > most);
            is_full.set(gathered.is_too_much());
            None
        };
        self.report.replay = self.replay_while(read, add, || !is_full.get()).await?;
        Ok(parts)
    }

    /// Returns the blocks in part that memory is to hold, sorted. Blocks that are read early, or
    /// are too many for memory, are written home.
    async fn settle_parts(
        &mut self,
        gathered: &ReplayRecords,
        parts: Option<ReplayImages>,
        read: &ReadLog,
        read_early: &[HomeBlock],
    ) -> Result<Vec<ReplayImage>, EngineError> {
        if !gathered.has_parts() {
            return Ok(Vec::new());
        }
        let Some(mut parts) = parts else {
            // What was read gives its own.
            let older = gathered.bases().filter(|(_, copy)| read.scanned.first.is_after(copy.by));
            for bases in older.collect::<Vec<_>>().chunks(IMAGES_MAX) {
                let bases = self.read_copies(bases.to_vec()).await?.into_iter();
                let whole = |(home, content)| ReplayImage { home, content, missing: Vec::new() };
                self.write_images(bases.map(whole).collect()).await?;
            }
            let take = |record: ReplayedRecord| {
                gathered.is_in_part(&record.action).then_some(record.action)
            };
            self.replay(read, take).await?;
            return Ok(Vec::new());
        };
        let (mut parts, mut whole) = (parts.take(), Vec::new());
        for (home, base) in self.read_copies(gathered.bases().collect()).await? {
            match parts.binary_search_by_key(&home, |part| part.home) {
                Ok(at) => parts[at].fill_from(&base),
                Err(_) => whole.push(ReplayImage { home, content: base, missing: Vec::new() }),
            }
        }
        parts.append(&mut whole);
        parts.sort_by_key(|part| part.home);
        let (early, parts) = parts.into_iter().partition(|part| read_early.contains(&part.home));
        self.write_images(early).await?;
        Ok(parts)
    }

    /// Retains the log by its snapshot, if one counts and all fits. `None`: the log is to be read.
    async fn retain_by_snapshot(
        &mut self,
        read_early: &[HomeBlock],
    ) -> Result<Option<RetainedLog>, EngineError> {
        if self.superblock.named_snapshot().is_none() || !self.is_sound() {
            return Ok(None);
        }
        match self.retain_covered(read_early).await {
            Ok(kept) => Ok(kept),
            Err(why) => {
                // What was written home is what any replay writes there first.
                self.executor.check()?;
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

    /// Otherwise returns the reason why it cannot be retained. `None`: there is nothing to keep.
    async fn retain_covered(
        &mut self,
        read_early: &[HomeBlock],
    ) -> Result<Option<RetainedLog>, String> {
        let text = |error: EngineError| error.to_string();
        let most = blocks_max(self.parts);
        let (snapshot, found) = self.read_snapshot(most).await?;
        if !self.can_keep(&found) {
            return Err("a block of the logs cannot be read".to_owned());
        }
        let (first, read_from) = (self.superblock.sequence, snapshot.read_from());
        let read = self.read_runs(Some(found.from(read_from))).await.map_err(text)?;
        let end = read.scanned.end;
        if end == first {
            return Ok(None);
        }
        if !end.is_at_or_after(snapshot.end()) {
            return Err(format!(
                "{} is covered, and the log ends before {end}",
                snapshot.end().previous()
            ));
        }
        let count = end.0.wrapping_sub(first.0) as usize;
        let unit = self.superblock.log_block_bytes();
        let no_room = || "the mapping table has no room for it".to_owned();
        let mut gathered = ReplayRecords::new(first, count, most).ok_or_else(no_room)?;
        let leaves_them = self.parts.options.durable_only;
        let runs = found.first_runs(count);
        let mut pace = WalkPace::new(RECORDS_AT_ONCE);
        for (home, block) in snapshot.blocks() {
            pace.visited(1).await;
            if units::fault!("snapshot-revoke-ignored") || !read.revokes.hides(*home, block.by) {
                let run = runs[block.by.0.wrapping_sub(first.0) as usize];
                gathered.add_covered(
                    *home,
                    block,
                    run,
                    unit as u32,
                    leaves_them,
                    read_early.contains(home),
                );
            }
        }
        let parts = self.gather(&mut gathered, &read, read_early).await.map_err(text)?;
        if gathered.is_too_much() {
            return Err(no_room());
        }
        let parts = self.settle_parts(&gathered, parts, &read, read_early).await.map_err(text)?;
        self.report.snapshot_transactions = u64::from(read_from.0.wrapping_sub(first.0));
        self.report.first_transaction = first.0;
        let pieces = snapshot.pieces().to_vec();
        self.end_kept(gathered, parts, &read, &found, pieces).await.map(Some).map_err(text)
    }

    /// Blocks that the log holds whole.
    async fn read_copies(
        &self,
        copies: Vec<(HomeBlock, LogCopy)>,
    ) -> Result<Vec<(HomeBlock, Buffer)>, EngineError> {
        let records = records::of(&self.superblock);
        let (records, bytes) = (&records, self.parts.block_size.bytes());
        let reads =
            copies.into_iter().map(|(home, copy)| -> Pin<Box<dyn Future<Output = _> + '_>> {
                Box::pin(async move {
                    let place = copy.place();
                    let count = records.blocks_of_whole(place.offset.into(), bytes);
                    let log = self.executor.read_log(place.at, count).await?;
                    let block = copy.read_from(&**records, &log, bytes);
                    Ok((home, block.ok_or(EngineError::LogCopyDamaged { at: home })?))
                })
            });
        join_window(reads, HOME_REQUESTS_MAX).await
    }

    async fn end_kept(
        &mut self,
        gathered: ReplayRecords,
        parts: Vec<ReplayImage>,
        read: &ReadLog,
        found: &FoundRuns,
        pieces: Vec<SnapshotPiece>,
    ) -> Result<RetainedLog, EngineError> {
        let (first, end) = (self.superblock.sequence, read.scanned.end);
        let count = end.0.wrapping_sub(first.0) as usize;
        let unit = self.superblock.log_block_bytes();
        let nothing = Rc::new(Buffer::zeroed(unit));
        let copies = self.find_copies().await?;
        let headers = found.headers_from(end).chain(copies).map(|at| (at, nothing.clone()));
        let headers = headers.collect();
        self.executor.run(plan_retained_log(headers)).await?;
        if !found.are_of_table() && !units::fault!("table-mark-kept-by-search") {
            self.forget_table().await?;
        }
        self.report.transactions = count as u64;
        self.report.blocks_in_part = parts.len() as u64;
        self.report.blocks_kept = (gathered.copies() + parts.len()) as u64;
        let runs = found.first_runs(count).to_vec();
        Ok(gathered.keep(self.superblock.clone(), runs, parts, &read.revokes, pieces).await)
    }

    /// Makes the table of runs that the superblock names count for nothing, durably.
    async fn forget_table(&mut self) -> Result<(), EngineError> {
        let Some(scattered) = &mut self.superblock.scattered else { return Ok(()) };
        if std::mem::take(&mut scattered.table_mark) == 0 {
            return Ok(());
        }
        let at = superblock_at(self.area, &self.superblock);
        let image = image_of(&self.superblock);
        Ok(self.executor.run(plan_announcement(SuperblockImage { at, image })).await?)
    }

    /// Returns where the headers are of copies that an interrupted swap has left.
    async fn find_copies(&mut self) -> Result<Vec<LogBlock>, EngineError> {
        let logs = self.area.logs(self.superblock.log_blocks_per_block())?;
        let Some(mut find) = FindCopies::new(&self.superblock, &logs) else {
            return Ok(Vec::new());
        };
        self.reader.follow(Rc::new(logs), READ_BYTES);
        while let Some(at) = find.wants() {
            match self.reader.read(at).await {
                Ok(block) => find.give(block),
                Err(error) => {
                    self.check_medium(error).await?;
                    find.pass_over();
                }
            }
        }
        Ok(find.finish())
    }

    /// Whether the logs can go on with what was found in them. What could not be read may be
    /// readable again, and hold the header of a torn run.
    fn can_keep(&self, found: &FoundRuns) -> bool {
        self.is_sound() && (!found.has_unread() || units::fault!("unread-header-kept"))
    }

    /// Whether the log is whole, and the mount writes it on as it is.
    fn is_sound(&self) -> bool {
        self.superblock.errno == 0
            && !self.report.gave_up
            && is_written_so(&self.superblock, self.parts, self.area)
    }
}
