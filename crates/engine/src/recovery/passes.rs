//! Recovery: reads the log for `journal::recover`, and writes home what it says. Three passes, then
//! the log is marked empty. A crash at any point is harmless: the log stays until everything is
//! home, and replaying it again gives the same.

use crate::interface::error::EngineError;
use crate::interface::limits::HOME_REQUESTS_MAX;
use crate::interface::options::EngineParts;
use crate::recovery::log_reader::{LogReader, READ_BYTES};
use crate::recovery::report::{PassReport, RecoveryReport};
use commit::Home;
use commit::HomeClaims;
use commit::LogArea;
use commit::PlanExecutor;
use commit::{ERRNO_DAMAGED, image_of};
use device::{Buffer, DeviceError, Disk};
use format::jbd2::JournalSuperblock;
use format::run_table::TABLE_PAGE;
use journal::records;
use journal::{
    BlockKind, Bounds, FindRuns, FoundRuns, HomeBounds, LogRing, Logs, Pass, ReadSnapshot,
    ReadTable, ReplayAction, ReplayImage, ReplayImages, ReplayPass, ReplayedRecord, RevokePass,
    RevokeTable, ScanPass, Scanned, SnapshotContents, SnapshotRefused, SuperblockImage,
    plan_announcement, plan_empty_log, plan_flush_on_open, plan_run_headers,
};
use runtime::join_window;
use std::iter::Peekable;
use std::pin::Pin;
use std::rc::Rc;
use units::{HomeBlock, Instant, LogBlock, TransactionId};

/// Bytes of one read while searching run headers, which may be far apart.
const FIND_BYTES: usize = 64 << 10;
/// EIO, ENODATA, EILSEQ: how Linux reports a part of a medium that cannot be read (`blk_errors` in
/// block/blk-core.c).
const MEDIUM_ERRORS: [i32; 3] = [5, 61, 84];

fn is_of_medium(error: &DeviceError) -> bool {
    matches!(error, DeviceError::Failed { code, .. } if MEDIUM_ERRORS.contains(code))
}

/// Blocks held in memory before they are written home.
pub(crate) const IMAGES_MAX: usize = 8192;

/// Replays the log of `parts` and marks it empty; with `dry_run` only reports what would be done. A
/// clean log is left as it is.
pub async fn recover(parts: &EngineParts, dry_run: bool) -> Result<RecoveryReport, EngineError> {
    match Recovery::begin(parts, dry_run).await? {
        RecoveryStart::Clean(report) => Ok(*report),
        RecoveryStart::Live(mut recovery) => {
            let read = recovery.read_log().await?;
            recovery.replay_home(&read).await?;
            Ok(recovery.end())
        }
    }
}

/// Clears the error that the superblock of an empty journal records, durably: the caller has noted
/// it elsewhere.
///
/// # Errors
/// [`EngineError::NeedsRecovery`] where the log is not empty.
pub async fn clear_recorded_error(parts: &EngineParts) -> Result<(), EngineError> {
    let Some(area) = &parts.log else { return Ok(()) };
    let mut superblock = parts.read_superblock(area).await?;
    if !superblock.is_clean() {
        return Err(EngineError::NeedsRecovery);
    }
    superblock.errno = 0;
    let executor = executor_over_found(parts);
    executor.count_log_in(superblock.log_block_bytes());
    let at = superblock_at(area, &superblock);
    let image = image_of(&superblock);
    Ok(executor.run(plan_announcement(SuperblockImage { at, image })).await?)
}

/// The place of the superblock, in blocks of a log that has this one.
pub(super) fn superblock_at(area: &LogArea, superblock: &JournalSuperblock) -> LogBlock {
    LogBlock(area.superblock.get() * superblock.log_blocks_per_block())
}

/// Makes durable what earlier processes left in the caches of the disks: what they wrote is what a
/// new engine finds, and a sync has nothing to write of it. For volumes that are not recovered,
/// before anything is written to them; a recovery does it by itself.
pub async fn flush_found(parts: &EngineParts) -> Result<(), EngineError> {
    Ok(executor_over_found(parts).run(plan_flush_on_open()).await?)
}

/// Returns a executor over disks of which it is unknown what earlier runs left in their caches.
fn executor_over_found(parts: &EngineParts) -> PlanExecutor {
    let durability = Rc::new(parts.durability().with_dirty_caches());
    PlanExecutor::new(parts.disks(), HomeClaims::default(), durability)
}

pub(crate) enum RecoveryStart<'a> {
    /// The log is clean: nothing to do.
    Clean(Box<RecoveryReport>),
    Live(Box<Recovery<'a>>),
}

pub(crate) struct Recovery<'a> {
    pub parts: &'a EngineParts,
    pub area: &'a LogArea,
    pub superblock: JournalSuperblock,
    pub report: RecoveryReport,
    pub(crate) reader: LogReader<'a>,
    pub executor: PlanExecutor,
    begun: Instant,
}

/// Result of the first two passes.
pub(crate) struct ReadLog {
    pub scanned: Scanned,
    pub revokes: RevokeTable,
    /// Runs of scattered logs.
    pub found: Option<FoundRuns>,
}

impl<'a> Recovery<'a> {
    pub async fn begin(
        parts: &'a EngineParts,
        dry_run: bool,
    ) -> Result<RecoveryStart<'a>, EngineError> {
        let begun = parts.world.now();
        let mut report = RecoveryReport { dry_run, ..RecoveryReport::default() };
        let Some(area) = &parts.log else {
            report.clean = true;
            return Ok(RecoveryStart::Clean(report.into()));
        };
        area.check_apart()?;
        // Home is flushed in any case.
        let executor = executor_over_found(parts);
        if !dry_run {
            // Also where the log is empty: that may be in a cache alone.
            executor.run(plan_flush_on_open()).await?;
        }
        let mut superblock = parts.read_superblock(area).await?;
        report.recorded_error = superblock.errno;
        if superblock.is_forgotten() {
            if !parts.options.find_log {
                return Err(EngineError::LogForgotten);
            }
            superblock = superblock.remembered().ok_or(EngineError::LogNotFound)?;
        } else if superblock.is_clean() {
            report.clean = true;
            return Ok(RecoveryStart::Clean(report.into()));
        } else if let Some(copy) = superblock.disputed() {
            if !parts.options.find_log {
                return Err(EngineError::LogDisputed {
                    said: superblock.sequence,
                    copy: copy.sequence,
                });
            }
            superblock = copy;
        }
        let reader = LogReader::new(parts, area, &superblock);
        executor.count_log_in(superblock.log_block_bytes());
        Ok(RecoveryStart::Live(Box::new(Recovery {
            parts,
            area,
            superblock,
            report,
            reader,
            executor,
            begun,
        })))
    }

    pub fn end(self) -> RecoveryReport {
        let nanoseconds = self.parts.world.now().since(self.begun).as_nanos() as u64;
        RecoveryReport { nanoseconds, ..self.report }
    }

    /// Runs the first two passes.
    pub async fn read_log(&mut self) -> Result<ReadLog, EngineError> {
        if self.superblock.scattered.is_none() {
            return self.read_runs(None).await;
        }
        if let Some(found) = self.ask_table().await? {
            match self.read_runs(Some(found)).await {
                // If anything is wrong with the table, the logs are searched.
                Err(EngineError::Recover(error)) => {
                    self.report.table_refused = Some(error.to_string())
                }
                read => return read,
            }
        }
        let found = self.find_runs().await?;
        self.read_runs(Some(found)).await
    }

    /// Reads the snapshot, which may record at most `most` blocks, and finds all runs. If anything
    /// is wrong with it, the log is read instead.
    pub async fn read_snapshot(
        &mut self,
        most: usize,
    ) -> Result<(SnapshotContents, FoundRuns), String> {
        let begun = self.parts.world.now();
        let logs = self
            .area
            .logs(self.superblock.log_blocks_per_block())
            .map_err(|error| error.to_string())?;
        let logs = Rc::new(logs);
        let snapshot = self.read_pieces(logs.clone(), most).await?;
        self.report.snapshot_nanoseconds = self.parts.world.now().since(begun).as_nanos() as u64;
        let found = match self.ask_table().await.map_err(|error| error.to_string())? {
            Some(found) => found,
            None => self.find_behind(&snapshot, logs).await.map_err(|error| error.to_string())?,
        };
        snapshot.check_found(found.runs()).map_err(|refused| refused.to_string())?;
        Ok((snapshot, found))
    }

    async fn read_pieces(
        &mut self,
        logs: Rc<Logs>,
        most: usize,
    ) -> Result<SnapshotContents, String> {
        let refused = |refused: SnapshotRefused| refused.to_string();
        let mut pieces = ReadSnapshot::new(&self.superblock, logs, most).map_err(refused)?;
        self.reader.follow(Rc::new(LogRing::of(&self.superblock)), READ_BYTES);
        while let Some(at) = pieces.wants() {
            let block = self.reader.read(at).await.map_err(|error| error.to_string())?;
            self.report.snapshot_blocks_read += 1;
            pieces.give(block).map_err(refused)?;
        }
        pieces.finish(&self.bounds()).map_err(refused)
    }

    /// Finds runs that no snapshot records: they lie in few logs.
    async fn find_behind(
        &mut self,
        snapshot: &SnapshotContents,
        logs: Rc<Logs>,
    ) -> Result<FoundRuns, EngineError> {
        let find = FindRuns::behind(&self.superblock, logs.clone(), snapshot);
        // Most have none: as far as is looked ahead is read with one request.
        let ahead = find.look_ahead() as usize * self.superblock.log_block_bytes();
        let bytes = (ahead + self.parts.block_size.bytes()).clamp(FIND_BYTES, READ_BYTES);
        self.search(find, logs, bytes).await
    }

    /// Reads the runs; `found` in scattered logs.
    pub async fn read_runs(&mut self, found: Option<FoundRuns>) -> Result<ReadLog, EngineError> {
        let scan = match &found {
            Some(found) => {
                // They may lie all over the disk, and nothing else needs the cache's memory yet.
                let ahead = self.parts.options.cache_bytes / 2;
                self.reader.follow(found.walk(), (ahead as usize).max(READ_BYTES));
                ScanPass::over_runs(records::of(&self.superblock), found)
            }
            None => ScanPass::new(&self.superblock)?,
        };
        let mut scan = scan.until_damage(self.parts.options.until_damage);
        self.report.scan = self.scan(&mut scan).await?;
        let scanned = scan.finish();
        self.report.first_transaction = scanned.first.0;
        self.report.gave_up = scanned.gave_up;

        let mut revoke = RevokePass::new(&scanned).within(self.bounds());
        self.report.revoke = self.feed(&mut revoke).await?;
        let missing =
            found.as_ref().and_then(|found| found.missing_header(&self.superblock, scanned.end));
        if let Some(header) = missing.filter(|_| !self.report.dry_run) {
            self.executor.run(plan_run_headers(vec![header])).await?;
        }
        Ok(ReadLog { scanned, revokes: revoke.finish(), found })
    }

    /// Writes home what the log holds, and says in the superblock that nothing is left to do.
    pub async fn replay_home(&mut self, read: &ReadLog) -> Result<(), EngineError> {
        self.report.replay = self.replay(read, |record| Some(record.action)).await?;
        self.report.transactions = self.report.replay.counts.transactions;
        match self.report.dry_run {
            true => Ok(()),
            false => self.empty_log(read.scanned.next).await,
        }
    }

    /// Runs the third pass. Writes home what `take` leaves of the records.
    pub async fn replay(
        &mut self,
        read: &ReadLog,
        take: impl FnMut(ReplayedRecord) -> Option<ReplayAction>,
    ) -> Result<PassReport, EngineError> {
        self.replay_while(read, take, || true).await
    }

    /// Replays as [`Recovery::replay`] does, as long as `goes_on`.
    pub async fn replay_while(
        &mut self,
        read: &ReadLog,
        mut take: impl FnMut(ReplayedRecord) -> Option<ReplayAction>,
        goes_on: impl Fn() -> bool,
    ) -> Result<PassReport, EngineError> {
        let mut replay = ReplayPass::new(&read.scanned, read.revokes.clone(), self.bounds());
        let begun = self.parts.world.now();
        let mut images = ReplayImages::new(self.parts.block_size);
        while let Some(at) = replay.wants().filter(|_| goes_on()) {
            replay.give(self.reader.read(at).await?)?;
            replay
                .take_records()
                .into_iter()
                .filter_map(&mut take)
                .for_each(|action| images.apply(action));
            if images.len() >= IMAGES_MAX {
                self.write_images(images.take()).await?;
            }
        }
        self.write_images(images.take()).await?;
        let time = self.parts.world.now().since(begun).as_nanos() as u64;
        Ok(PassReport { nanoseconds: time, counts: replay.counts() })
    }

    /// Finds the transactions of scattered logs; the scan then reads them in their order.
    async fn find_runs(&mut self) -> Result<FoundRuns, EngineError> {
        let logs = Rc::new(self.area.logs(self.superblock.log_blocks_per_block())?);
        let find = FindRuns::new(&self.superblock, logs.clone());
        self.search(find, logs, FIND_BYTES).await
    }

    /// Searches the logs with requests of `bytes` bytes.
    async fn search(
        &mut self,
        mut find: FindRuns,
        logs: Rc<Logs>,
        bytes: usize,
    ) -> Result<FoundRuns, EngineError> {
        let begun = self.parts.world.now();
        self.reader.follow(logs, bytes);
        while let Some(at) = find.wants() {
            match self.reader.read(at).await {
                Ok(block) => find.give(block),
                Err(error) => {
                    self.check_medium(error).await?;
                    find.pass_over();
                }
            }
        }
        let found = find.finish(self.parts.options.until_damage)?;
        self.report.logs_read = found.logs_read;
        self.report.run_headers_read = found.blocks_read;
        self.report.find_nanoseconds = self.parts.world.now().since(begun).as_nanos() as u64;
        Ok(found)
    }

    /// Reads the table of runs, if there is one and it fits. Otherwise the logs are searched.
    async fn ask_table(&mut self) -> Result<Option<FoundRuns>, EngineError> {
        let options = &self.parts.options;
        let Some(memory) = options.run_table.as_ref().filter(|_| !options.until_damage) else {
            return Ok(None);
        };
        let begun = self.parts.world.now();
        let logs = Rc::new(self.area.logs(self.superblock.log_blocks_per_block())?);
        let table =
            read_table(&*memory.0, &self.superblock, logs, &mut self.report.table_pages_read).await;
        self.report.table_nanoseconds = self.parts.world.now().since(begun).as_nanos() as u64;
        match table {
            Ok(found) => Ok(Some(found)),
            Err(why) => {
                self.report.table_refused = Some(why);
                Ok(None)
            }
        }
    }

    /// Returns the error of a read if the medium is to blame for it, as an error otherwise: of a
    /// disk that is gone or ends too early no part may be skipped.
    pub async fn check_medium(&self, error: EngineError) -> Result<EngineError, EngineError> {
        let is_of_medium = matches!(&error, EngineError::Device(error) if is_of_medium(error));
        match is_of_medium && self.parts.read_superblock(self.area).await.is_ok() {
            true => Ok(error),
            false => Err(error),
        }
    }

    async fn scan(&mut self, scan: &mut ScanPass) -> Result<PassReport, EngineError> {
        let begun = self.parts.world.now();
        let mut seemed_over = None;
        while let Some(at) = scan.wants() {
            match self.reader.read(at).await {
                Ok(block) => scan.give(block)?,
                Err(error) => {
                    let error = self.check_medium(error).await?;
                    if !scan.pass_over()? {
                        return Err(error);
                    }
                }
            }
            if scan.looks_ahead() && seemed_over.is_none() {
                seemed_over = Some(self.parts.world.now());
            }
        }
        let now = self.parts.world.now();
        self.report.look_ahead_nanoseconds =
            seemed_over.map_or(0, |at| now.since(at).as_nanos() as u64);
        Ok(PassReport { nanoseconds: now.since(begun).as_nanos() as u64, counts: scan.counts() })
    }

    /// The byte of the log's disk at which this log block begins, and what it holds.
    pub async fn read_log_block(&mut self, at: LogBlock) -> Result<(u64, &[u8]), EngineError> {
        let byte = u64::from(at.get()) * self.superblock.log_block_bytes() as u64;
        let (place, _) = self.area.locate_byte(byte, self.parts.block_size)?;
        Ok((place, self.reader.read(at).await?))
    }

    async fn feed(&mut self, pass: &mut impl Pass) -> Result<PassReport, EngineError> {
        let begun = self.parts.world.now();
        while let Some(at) = pass.wants() {
            pass.give(self.reader.read(at).await?)?;
        }
        let nanoseconds = self.parts.world.now().since(begun).as_nanos() as u64;
        Ok(PassReport { nanoseconds, counts: pass.counts() })
    }

    fn bounds(&self) -> InHome {
        let extents = self.area.extents.iter().filter(|_| !self.area.is_separate());
        let mut forbidden: Vec<_> = extents
            .map(|extent| extent.disk_block..extent.disk_block + u64::from(extent.count))
            .collect();
        forbidden.sort_by_key(|range| range.start);
        let home = self.parts.home.clone();
        InHome { bounds: HomeBounds { blocks: home.end(), forbidden }, home }
    }

    /// Writes images (sorted by address) home, neighbours together, several runs at once, after
    /// reading what no record gave. No two hold one block, so their order does not matter; when
    /// this returns all are written.
    ///
    /// Of a block that was left out, later parts are left out, too.
    pub async fn write_images(&mut self, mut images: Vec<ReplayImage>) -> Result<(), EngineError> {
        let skipped = &mut self.report.skipped_blocks;
        if !skipped.is_empty() && !units::fault!("skipped-block-in-parts") {
            images.retain(|image| {
                let found = skipped.binary_search(&image.home.get()).ok();
                let is_whole = image.missing.is_empty();
                if let Some(at) = found.filter(|_| is_whole) {
                    skipped.remove(at);
                }
                is_whole || found.is_none()
            });
        }
        let most = READ_BYTES >> self.parts.block_size.shift();
        let this = &*self;
        let runs = RunsOfNeighbours { images: images.into_iter().peekable(), most };
        let writes = runs.map(|run| -> Pin<Box<dyn Future<Output = _> + '_>> {
            Box::pin(async move { this.write_run(run).await })
        });
        let written = join_window(writes, HOME_REQUESTS_MAX).await?;
        for run in written {
            self.report.home_blocks_written += run.written;
            self.report.home_blocks_read += run.read;
            self.report.skipped_blocks.extend(run.skipped.iter().map(|block| block.get()));
        }
        self.report.skipped_blocks.sort_unstable();
        self.report.skipped_blocks.dedup();
        Ok(())
    }

    async fn write_run(&self, mut run: Vec<ReplayImage>) -> Result<WrittenRun, EngineError> {
        let size = self.parts.block_size.bytes();
        let mut done = WrittenRun::default();
        if run.iter().any(|image| !image.missing.is_empty()) {
            let bases = self.read_bases(&run, &mut done.skipped).await?;
            for (image, base) in run.iter_mut().zip(bases.chunks_exact(size)) {
                done.read += u64::from(!image.missing.is_empty());
                image.fill_from(base);
            }
            run.retain(|image| !done.skipped.contains(&image.home));
        }
        done.written = run.len() as u64;
        if self.report.dry_run {
            return Ok(done);
        }
        // Where one was left out the others are no neighbours.
        let mut run = run.into_iter().peekable();
        while let Some(first) = run.next() {
            let (begun, mut contents) = (first.home, vec![Rc::new(first.content)]);
            while let Some(next) =
                run.next_if(|image| image.home == begun.plus(contents.len() as u64))
            {
                contents.push(Rc::new(next.content));
            }
            let kinds = vec![BlockKind::HomeData; contents.len()];
            self.executor.write_home(begun, &kinds, contents).await?;
        }
        Ok(done)
    }

    /// Reads the home content of a run of neighbours. Blocks that need nothing of it may get zeros:
    /// home may be unreadable there. An unreadable block that is needed is an error, or `skipped`.
    async fn read_bases(
        &self,
        run: &[ReplayImage],
        skipped: &mut Vec<HomeBlock>,
    ) -> Result<Buffer, EngineError> {
        let (home, size) = (&self.parts.home, self.parts.block_size.bytes());
        let together = home.read(run[0].home, run.len()).await;
        if together.is_ok() || units::fault!("replay-reads-neighbours") {
            return Ok(together?);
        }
        let mut bases = Buffer::zeroed(run.len() * size);
        for (image, base) in run.iter().zip(bases.chunks_exact_mut(size)) {
            if image.missing.is_empty() {
                continue;
            }
            match self.read_base(image.home).await? {
                Some(read) => base.copy_from_slice(&read),
                None => skipped.push(image.home),
            }
        }
        Ok(bases)
    }

    /// Reads a block of home; `None` if it is to be left out as unreadable. A disk that is gone, be
    /// it for a moment, has no such blocks: the log would be emptied, and nothing be at home.
    async fn read_base(&self, at: HomeBlock) -> Result<Option<Buffer>, EngineError> {
        let home = &self.parts.home;
        let why = match home.read(at, 1).await {
            Ok(read) => return Ok(Some(read)),
            Err(error) => error,
        };
        if !self.parts.options.skip_unreadable {
            return Err(EngineError::BaseUnreadable { at, why });
        }
        if units::fault!("absent-home-skipped") {
            return Ok(None);
        }
        if !is_of_medium(&why) || !self.home_answers().await {
            return Err(why.into());
        }
        match home.read(at, 1).await {
            Ok(read) => Ok(Some(read)),
            Err(again) if is_of_medium(&again) => Ok(None),
            Err(again) => Err(again.into()),
        }
    }

    /// Returns whether any of three blocks of home can be read.
    async fn home_answers(&self) -> bool {
        let home = &self.parts.home;
        for at in [1, home.end() / 2, home.end().saturating_sub(1)].map(HomeBlock) {
            if home.contains(at, 1) && home.read(at, 1).await.is_ok() {
                return true;
            }
        }
        false
    }

    /// Empties the log: everything is home, except what was left out. The write that empties the
    /// log records that, since afterwards nothing else would: the volume is marked later, and the
    /// power may fail before. Nor can it be marked earlier: the log may hold parts of its
    /// superblock, which the next recovery would merge with the mark.
    async fn empty_log(&self, next: TransactionId) -> Result<(), EngineError> {
        let mut superblock = self.superblock.clone();
        superblock.set_clean(next.previous());
        records::clear(&mut superblock, self.parts.options.journal_checksum);
        let marks = !units::fault!("given-up-unmarked") && !units::fault!("given-up-marked-late");
        if self.report.is_incomplete() && marks {
            superblock.errno = ERRNO_DAMAGED;
        }
        // In the blocks of the log that was read: an empty one is of no format yet.
        let at = superblock_at(self.area, &self.superblock);
        let mut plan = plan_empty_log(Some(SuperblockImage { at, image: image_of(&superblock) }));
        if units::fault!("recovery-no-flush") {
            plan.steps.remove(0);
        }
        Ok(self.executor.run(plan).await?)
    }
}

async fn read_table(
    memory: &dyn Disk,
    superblock: &JournalSuperblock,
    logs: Rc<Logs>,
    pages_read: &mut u64,
) -> Result<FoundRuns, String> {
    let mut table = ReadTable::new(superblock, logs).map_err(|refused| refused.to_string())?;
    while let Some(page) = table.wants() {
        let bytes = memory
            .read(page * TABLE_PAGE as u64, TABLE_PAGE)
            .await
            .map_err(|error| error.to_string())?;
        *pages_read += 1;
        table.give(&bytes).map_err(|refused| refused.to_string())?;
    }
    table.finish().map_err(|refused| refused.to_string())
}

/// Outcome of writing a run of neighbours.
#[derive(Default)]
struct WrittenRun {
    /// Blocks written, and blocks read before that.
    written: u64,
    read: u64,
    /// Blocks of which home could not be read.
    skipped: Vec<HomeBlock>,
}

/// Cuts images into runs of neighbours, of `most` at most.
struct RunsOfNeighbours {
    images: Peekable<std::vec::IntoIter<ReplayImage>>,
    most: usize,
}

impl Iterator for RunsOfNeighbours {
    type Item = Vec<ReplayImage>;

    fn next(&mut self) -> Option<Vec<ReplayImage>> {
        let mut run = vec![self.images.next()?];
        while run.len() < self.most {
            let end = run[0].home.plus(run.len() as u64);
            match self.images.next_if(|image| image.home == end) {
                Some(image) => run.push(image),
                None => break,
            }
        }
        Some(run)
    }
}

/// No record may name what home does not have, nor overwrite the journal itself, where it lies
/// inside home.
struct InHome {
    bounds: HomeBounds,
    home: Rc<dyn Home>,
}

impl Bounds for InHome {
    fn refuses(&self, home: HomeBlock) -> Option<&'static str> {
        let is_there = || self.home.contains(home, 1);
        self.bounds.refuses(home).or_else(|| (!is_there()).then_some("which is no block of home"))
    }
}
