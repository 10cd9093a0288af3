//! Recovers a crash image, reads everything back, and compares it with the histories of the
//! writers.

use crate::bytes_read::BytesRead;
use crate::case::{Case, CaseReport};
use crate::crash::{Snapshot, State};
use crate::earlier_life;
use crate::lives::{self, CutState};
use crate::lying_disk::LyingDisk;
use crate::memory_disks::MemoryDisks;
use crate::model::{CrashGuarantee, Found, FoundEntry, History};
use crate::run_table::spoiled;
use crate::setup::{Disks, check};
use crate::stalls;
use crate::writer::{ATTRIBUTE, Progress, directory_of};
use disks::{Atomicity, CrashPolicy};
use engine::{DataMode, RecoveryReport};
use ext4::{Error, FileType, Inode, Volume};
use runtime::{Either, SplitMix, VirtualWorld, race};
use std::collections::VecDeque;
use std::ops::Range;
use std::rc::Rc;
use units::InodeNumber;
use units::Refusal;

/// Fault of an image.
pub struct Violation {
    pub why: String,
    /// Whether a partially applied write is the only fault.
    pub torn: bool,
}
impl From<String> for Violation {
    fn from(why: String) -> Violation {
        Violation { why, torn: false }
    }
}

/// Recoveries of which the outcome is kept.
const KNOWN: usize = 32;

/// Additional work on an image.
#[derive(Clone, Copy, Default)]
pub struct ExtraChecks {
    pub sampled: bool,
    /// The life that follows its recovery.
    pub life: Option<u64>,
}

/// Recovers the image and judges it. When sampled, e2fsck checks the result, and the image is
/// recovered once more with two crashes during recovery. Where the daemon was killed, the power is
/// cut while the next one recovers.
pub fn judge(
    case: &Case,
    snapshot: Snapshot,
    histories: &[History],
    extra: ExtraChecks,
    known: &mut Recoveries,
    report: &mut CaseReport,
) -> Result<(), Violation> {
    let ExtraChecks { sampled, life } = extra;
    let Snapshot { state, progress, cut, .. } = snapshot;
    let mut cuts = Vec::new();
    let mut disks = match state {
        State::Cut(disks) => disks,
        State::Killed(memory) => {
            crash_recovery(case, |world| memory.go_on(world, case), cut, &mut cuts)?
        }
    };
    let mut judge_now = |disks: &Disks, cuts: &[String], life: Option<u64>| {
        report.recoveries_cut += u64::from(!cuts.is_empty());
        let extra = ExtraChecks { sampled, life };
        judge_once(case, disks, &progress, histories, extra, known, report).map_err(
            |Violation { why, torn }| {
                let after = if cuts.is_empty() {
                    String::new()
                } else {
                    format!("after {}: ", cuts.join(", "))
                };
                Violation { why: format!("{after}{why}"), torn }
            },
        )
    };
    judge_now(&disks, &cuts, life)?;
    if sampled {
        for time in 0..2 {
            let memory = |world: &VirtualWorld| MemoryDisks::of(world, &disks, case);
            disks = crash_recovery(case, memory, cut * 2 + time, &mut cuts)?;
        }
        judge_now(&disks, &cuts, None)?;
    }
    Ok(())
}

/// A recovery, and what it found.
struct Recovered {
    found: Vec<Found>,
    report: RecoveryReport,
    read: BytesRead,
}

/// The last recoveries of a case without a later life. Most images of a cut differ from those of
/// the cut before in no byte that a recovery and a mount read.
#[derive(Default)]
pub struct Recoveries(VecDeque<Rc<Recovered>>);

impl Recoveries {
    fn of(&self, disks: &Disks) -> Option<Rc<Recovered>> {
        self.0.iter().find(|recovered| recovered.read.are_of(disks)).cloned()
    }
    fn add(&mut self, recovered: Rc<Recovered>) {
        self.0.truncate(KNOWN - 1);
        self.0.push_front(recovered);
    }
}

fn judge_once(
    case: &Case,
    disks: &Disks,
    progress: &[Progress],
    histories: &[History],
    extra: ExtraChecks,
    known: &mut Recoveries,
    report: &mut CaseReport,
) -> Result<(), Violation> {
    let later = extra.life.map(|life| case.later_life(life));
    let is_plain = later.is_none() && !extra.sampled;
    let recovered = if is_plain { known.of(disks) } else { None };
    let (recovered, left, memory) = match recovered {
        Some(recovered) => (recovered, None, None),
        None => {
            let (recovered, left, memory) =
                recover(case, disks, progress.len(), histories.len(), later.as_ref())?;
            let recovered = Rc::new(recovered);
            if later.is_none() {
                known.add(recovered.clone());
            }
            report.recoveries += 1;
            (recovered, left, Some(memory))
        }
    };
    note(&recovered.report, report);
    for (writer, (found, history)) in recovered.found.iter().zip(histories).enumerate() {
        let Progress { started, acknowledged, data_acknowledged, .. } = progress[writer];
        match history.judge(found, acknowledged, data_acknowledged, started, guarantee(case)) {
            Ok(judged) => {
                report.writes += judged.writes;
                report.split += u64::from(judged.split);
            }
            Err(verdict) => {
                report.writes += verdict.writes;
                let torn = verdict.torn.is_some();
                return Err(Violation { why: format!("writer {writer}: {verdict}"), torn });
            }
        }
    }
    report.images += 1;
    if let Some(memory) = memory.filter(|_| extra.sampled) {
        report.checked += 1;
        check(&memory.images()).map_err(|said| format!("e2fsck after recovery: {said}"))?;
    }
    match later.zip(left) {
        Some((later, left)) => lives::judge(&later, left, &recovered.found, report),
        None => Ok(()),
    }
}

/// Recovers the disks, reads everything back, and goes on with the later life, if any.
fn recover(
    case: &Case,
    disks: &Disks,
    salt: usize,
    writers: usize,
    later: Option<&Case>,
) -> Result<(Recovered, Option<CutState>, MemoryDisks), String> {
    let world = VirtualWorld::new(case.seed ^ salt as u64);
    let memory = MemoryDisks::of(&world, disks, case);
    BytesRead::record(&memory);
    let (found, report, left) = world.run({
        let (world, memory) = (world.clone(), memory.clone());
        let (case, later) = (case.clone(), later.cloned());
        async move {
            let options = later.as_ref().unwrap_or(&case);
            let volume =
                memory.open(&world, options).await.map_err(|error| format!("recovery: {error}"))?;
            let recovery = volume.open_report().recovery;
            if case.has_earlier_files() {
                earlier_life::check(&volume).await?;
            }
            let found = read_back(&volume, 0..writers).await.map_err(read_error)?;
            let mut left = None;
            if let Some(later) = &later {
                let lived = lives::go_on(&volume, &world, &memory, later, writers).await;
                left = lived.map_err(|error| format!("the life after it: {error}"))?;
            }
            volume.close().await.map_err(|error| format!("closing what was recovered: {error}"))?;
            Ok::<_, String>((found, recovery, left))
        }
    })?;
    stalls::note(&world);
    world.end();
    memory.stop_watching();
    let read = BytesRead::of(disks, &memory);
    Ok((Recovered { found, report, read }, left, memory))
}

fn note(recovery: &RecoveryReport, report: &mut CaseReport) {
    report.kept += u64::from(recovery.blocks_kept > 0);
    report.not_by_table += u64::from(recovery.table_refused.is_some());
    // Also a snapshot that records nothing before the oldest part of a block.
    let is_believed = recovery.snapshot_blocks_read > 0 && recovery.snapshot_refused.is_none();
    report.by_snapshot += u64::from(is_believed);
    report.not_by_snapshot += u64::from(recovery.snapshot_refused.is_some());
    report.by_table += u64::from(recovery.table_pages_read > 0 && recovery.table_refused.is_none());
}

/// Returns the message of recovered content that cannot be read, and so is lost.
pub fn read_error(error: Error) -> String {
    match error.refusal() {
        Some(Refusal::NotFound) => {
            "lost: a writer's directory, synced before its script began".to_owned()
        }
        _ => format!("what was recovered cannot be read: {error}"),
    }
}

pub fn guarantee(case: &Case) -> CrashGuarantee {
    match case.mode {
        DataMode::Journal | DataMode::Wasteless => CrashGuarantee::Version,
        DataMode::Ordered | DataMode::Selective | DataMode::Adaptive if case.order_overwrites() => {
            CrashGuarantee::Data
        }
        DataMode::Ordered | DataMode::Selective | DataMode::Adaptive => CrashGuarantee::Reachable,
        DataMode::Writeback => CrashGuarantee::Synced,
    }
}

/// Cuts the power at some write of a recovery, and records it in `cuts`. The table of runs may be
/// lost with it.
fn crash_recovery(
    case: &Case,
    disks: impl FnOnce(&VirtualWorld) -> MemoryDisks,
    time: u64,
    cuts: &mut Vec<String>,
) -> Result<Disks, String> {
    let seed = case.seed.wrapping_mul(31).wrapping_add(time);
    let rng = SplitMix::new(seed);
    let world = VirtualWorld::new(seed);
    let memory = disks(&world);
    memory
        .home
        .cut_at(rng.next() % 12 * case.lying_disk.as_ref().map_or(1, LyingDisk::writes_a_flush));
    let opened = world.run({
        let (world, memory, case) = (world.clone(), memory.clone(), case.clone());
        async move { race(memory.open(&world, &case), memory.home.power_lost()).await }
    });
    stalls::note(&world);
    world.end();
    if let Either::Left(Err(error)) = opened {
        return Err(format!("recovery before its own crash: {error}"));
    }
    let disks = memory.crash(CrashPolicy::Random { seed, atomicity: Atomicity::Unit(512) });
    let (said, disks) = spoiled("a power cut while recovering".to_owned(), disks, None, rng.next());
    cuts.push(said);
    Ok(disks)
}

/// Returns everything in the writers' directories, and in the directories there.
pub async fn read_back(volume: &Rc<Volume>, writers: Range<usize>) -> Result<Vec<Found>, Error> {
    let root = volume.inode(InodeNumber(2)).await?;
    let mut all = Vec::new();
    for writer in writers {
        let mut found = Found::new();
        let top = volume.lookup(&root, directory_of(writer).as_bytes()).await?;
        let mut directories = vec![(String::new(), top)];
        while let Some((path, directory)) = directories.pop() {
            for (name, inode, file_type) in entries(volume, &directory).await? {
                let name = format!("{path}{name}");
                let entry = read_entry(volume, &inode, file_type).await?;
                if matches!(entry, FoundEntry::Directory) {
                    directories.push((format!("{name}/"), inode));
                }
                found.insert(name, entry);
            }
        }
        all.push(found);
    }
    Ok(all)
}

async fn entries(
    volume: &Rc<Volume>,
    directory: &Rc<Inode>,
) -> Result<Vec<(String, Rc<Inode>, FileType)>, Error> {
    let mut all = Vec::new();
    let mut cookie = 0;
    loop {
        let entries = volume.readdir(directory, cookie, 64).await?;
        let Some(last) = entries.last() else { return Ok(all) };
        cookie = last.cookie;
        for entry in entries.into_iter().filter(|entry| entry.name != b"." && entry.name != b"..") {
            let name = String::from_utf8_lossy(&entry.name).into_owned();
            all.push((name, volume.inode(entry.inode).await?, entry.file_type));
        }
    }
}

async fn read_entry(
    volume: &Rc<Volume>,
    inode: &Rc<Inode>,
    kind: FileType,
) -> Result<FoundEntry, Error> {
    Ok(match kind {
        FileType::Directory => FoundEntry::Directory,
        FileType::Symlink => FoundEntry::Symlink { target: volume.readlink(inode).await? },
        _ => {
            let attributes = volume.getattr(inode);
            let content = volume.read(inode, 0, attributes.size as usize).await?.to_vec();
            let attribute = match volume.get_xattr(inode, ATTRIBUTE).await {
                Err(Error::Refused(Refusal::NoAttribute)) => Vec::new(),
                value => value?,
            };
            FoundEntry::File { inode: inode.number, links: attributes.links, content, attribute }
        }
    })
}
