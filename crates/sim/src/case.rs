//! One case: writers run their scripts on a volume; at every write, flush and discard the disk is asked what a
//! power cut would leave; each such image is recovered and judged.

use crate::model::{Found, History, Promise, directory_name, file_name};
use crate::script::{Action, Place, Script, ScriptSize, make_scripts, pattern};
use crate::setup::{Disks, Setup, check};
use device::{Disk, World};
use disks::{Atomicity, CrashPolicy, Image, MemoryDisk};
use engine::{BarrierKind, DataMode, EngineOptions, WriteThreshold};
use ext4::{Caller, Error, FileType, Inode, OpenParts, Volume, VolumeOptions, WriteFlags};
use runtime::{Either, SplitMix, VirtualWorld, race};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;
use units::{InodeNumber, TransactionId};

/// Everything that decides a run: the same case is the same run.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    pub setup: Setup,
    pub mode: DataMode,
    pub barrier: BarrierKind,
    pub seed: u64,
    pub writers: usize,
    pub size: ScriptSize,
    /// Of this many images one is given to e2fsck and one is crashed again while it recovers.
    pub sample: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Report {
    /// Writes, flushes and discards of the run, each a place to cut.
    pub cuts: u64,
    pub images: u64,
    pub recoveries_cut: u64,
    pub checked: u64,
}

impl Report {
    pub fn add(&mut self, other: Report) {
        self.cuts += other.cuts;
        self.images += other.images;
        self.recoveries_cut += other.recoveries_cut;
        self.checked += other.checked;
    }
}

#[derive(Debug)]
pub struct Failure {
    pub case: Case,
    pub cut: u64,
    pub policy: Option<CrashPolicy>,
    pub why: String,
}
impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Case { setup, mode, seed, writers, size, .. } = &self.case;
        writeln!(f, "{}", self.why)?;
        write!(
            f,
            "replay: okeanos sim --mode {} --setup {} --seed {seed} --writers {writers} --steps {} --cut {} ({:?})",
            mode.name(),
            setup.name,
            size.steps,
            self.cut,
            self.policy
        )
    }
}

/// How far one writer has come, in actions.
#[derive(Clone, Copy, Default)]
struct Progress {
    /// Actions begun.
    started: usize,
    /// Actions up to and including the last acknowledged sync.
    acknowledged: usize,
}

struct Snapshot {
    cut: u64,
    policy: CrashPolicy,
    disks: Disks,
    progress: Vec<Progress>,
}

/// Runs the case on a copy of `fresh` and judges every image. `only_cut` looks at one place alone.
pub fn run(case: Case, fresh: &Disks, only_cut: Option<u64>) -> Result<Report, Box<Failure>> {
    let scripts = make_scripts(case.seed, case.writers, case.size);
    let (snapshots, cuts) = record(case, fresh, &scripts, only_cut)?;
    let histories: Vec<History> =
        scripts.iter().enumerate().map(|(writer, script)| History::of(writer, script)).collect();
    let mut report = Report { cuts, ..Report::default() };
    for (index, snapshot) in snapshots.into_iter().enumerate() {
        let sampled = only_cut.is_some() || (index as u64).is_multiple_of(case.sample);
        let (cut, policy) = (snapshot.cut, snapshot.policy);
        judge(case, snapshot, &histories, sampled, &mut report).map_err(|why| Failure {
            case,
            cut,
            policy: Some(policy),
            why,
        })?;
    }
    Ok(report)
}

/// Runs the scripts to their end, and collects what power cuts on the way would have left.
fn record(
    case: Case,
    fresh: &Disks,
    scripts: &[Script],
    only_cut: Option<u64>,
) -> Result<(Vec<Snapshot>, u64), Box<Failure>> {
    let world = VirtualWorld::new(case.seed);
    let disks = MemoryDisks::of(&world, fresh);
    let progress: Rc<RefCell<Vec<Progress>>> = Rc::new(RefCell::new(vec![Progress::default(); case.writers]));
    let snapshots = Rc::new(RefCell::new(Vec::new()));
    let cuts = Rc::new(Cell::new(0));
    let scripts = scripts.to_vec();
    let outcome = world.run({
        let (world, disks, snapshots, progress, cuts) =
            (world.clone(), disks.clone(), snapshots.clone(), progress.clone(), cuts.clone());
        async move {
            let volume = disks.open(&world, case).await?;
            let directories = make_directories(&volume, scripts.len()).await?;
            disks.watch(case.seed, only_cut, snapshots, progress.clone(), cuts);
            let world: Rc<dyn World> = Rc::new(world);
            let writers =
                scripts.into_iter().zip(directories).enumerate().map(|(writer, (script, directory))| {
                    let (volume, progress) = (volume.clone(), progress.clone());
                    runtime::spawn_with_result(&*world, async move {
                        run_script(&volume, &directory, writer, &script, &progress).await
                    })
                });
            for writer in writers.collect::<Vec<_>>() {
                writer.await.expect("a writer that ends")?;
            }
            volume.close().await
        }
    });
    world.end();
    if let Err(error) = outcome {
        return Err(Box::new(Failure {
            case,
            cut: cuts.get(),
            policy: None,
            why: format!("without any crash: {error}"),
        }));
    }
    Ok((snapshots.take(), cuts.get()))
}

async fn make_directories(volume: &Rc<Volume>, count: usize) -> Result<Vec<Rc<Inode>>, Error> {
    let root = volume.inode(InodeNumber(2)).await?;
    let mut directories = Vec::new();
    for writer in 0..count {
        let name = format!("writer-{writer}");
        directories.push(volume.mkdir(&root, name.as_bytes(), &Caller::ROOT, 0o755).await?.value);
    }
    volume.sync().await?;
    Ok(directories)
}

async fn run_script(
    volume: &Rc<Volume>,
    directory: &Rc<Inode>,
    writer: usize,
    script: &Script,
    progress: &RefCell<Vec<Progress>>,
) -> Result<(), Error> {
    // The transaction that holds everything up to and including each action.
    let mut transactions = vec![directory.last_change.get()];
    for (index, step) in script.iter().enumerate() {
        progress.borrow_mut()[writer].started = index + 1;
        let acted = act(volume, directory, writer, index, &step.action).await?;
        let (inode, transaction) = match acted {
            Some(Acted { inode, transaction }) => (inode, transaction),
            None => (directory.clone(), transactions[index]),
        };
        transactions.push(transaction);
        if step.sync {
            // A sync promises the latest change of its inode, and with it all transactions before.
            let promised = inode.last_change.get();
            volume.fsync(&inode, false).await?;
            let durable = transactions.iter().rposition(|transaction| promised.is_at_or_after(*transaction));
            let acknowledged = &mut progress.borrow_mut()[writer].acknowledged;
            *acknowledged = durable.unwrap_or(0).max(*acknowledged);
        }
    }
    Ok(())
}

/// What an action changed.
struct Acted {
    inode: Rc<Inode>,
    transaction: TransactionId,
}

/// Carries one action out; `None` if there was nothing to do, which is when the model does nothing either.
async fn act(
    volume: &Rc<Volume>,
    directory: &Rc<Inode>,
    writer: usize,
    index: usize,
    action: &Action,
) -> Result<Option<Acted>, Error> {
    let caller = Caller::ROOT;
    let named = |result: Result<TransactionId, Error>| match result {
        Ok(transaction) => Ok(Some(Acted { inode: directory.clone(), transaction })),
        Err(Error::Refused(ENOENT | EEXIST)) => Ok(None),
        Err(error) => Err(error),
    };
    match action {
        Action::Create { file } => {
            let made = volume.mknod(directory, file_name(*file).as_bytes(), &caller, 0o100644, 0).await;
            named(made.map(|made| made.transaction))
        }
        Action::Write { file, place, length } => {
            let Some(inode) = look(volume, directory, &file_name(*file)).await? else { return Ok(None) };
            let (offset, append) = match place {
                Place::End => (0, true),
                Place::At(at) => (*at, false),
            };
            let flags = WriteFlags { append, ..WriteFlags::default() };
            let bytes = pattern(writer, index, *length);
            let written = volume.write(&inode, &caller, offset, &bytes, flags).await?;
            assert_eq!(written.count, *length, "a short write on a volume with room");
            Ok(Some(Acted { inode, transaction: written.transaction }))
        }
        Action::Truncate { file, size } => {
            let Some(inode) = look(volume, directory, &file_name(*file)).await? else { return Ok(None) };
            let transaction = volume.truncate(&inode, *size).await?;
            Ok(Some(Acted { inode, transaction }))
        }
        Action::Rename { from, to } if from == to => Ok(None),
        Action::Rename { from, to } => {
            let (from, to) = (file_name(*from), file_name(*to));
            let (from, to) = ((directory, from.as_bytes()), (directory, to.as_bytes()));
            let moved = volume.rename(from, to, &caller, ext4::RenameMode::Replace).await;
            named(moved.map(|moved| moved.transaction))
        }
        Action::Unlink { file } => {
            let removed = volume.unlink(directory, file_name(*file).as_bytes()).await;
            named(removed.map(|removed| removed.transaction))
        }
        Action::MakeDirectory { number } => {
            let name = directory_name(*number);
            let made = volume.mkdir(directory, name.as_bytes(), &caller, 0o755).await;
            named(made.map(|made| made.transaction))
        }
    }
}

const ENOENT: i32 = 2;
const EEXIST: i32 = 17;

async fn look(volume: &Rc<Volume>, directory: &Rc<Inode>, name: &str) -> Result<Option<Rc<Inode>>, Error> {
    match volume.lookup(directory, name.as_bytes()).await {
        Ok(inode) => Ok(Some(inode)),
        Err(Error::Refused(ENOENT)) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Recovers one image, twice over when sampled, and holds what is there against the histories.
fn judge(
    case: Case,
    snapshot: Snapshot,
    histories: &[History],
    sampled: bool,
    report: &mut Report,
) -> Result<(), String> {
    let mut disks = snapshot.disks;
    if sampled {
        report.recoveries_cut += 1;
        disks = crash_recovery(case, &disks, snapshot.cut)?;
    }
    let world = VirtualWorld::new(case.seed ^ snapshot.cut);
    let memory = MemoryDisks::of(&world, &disks);
    let found = world
        .run({
            let (world, memory, writers) = (world.clone(), memory.clone(), histories.len());
            async move {
                let volume = memory.open(&world, case).await?;
                let found = read_back(&volume, writers).await?;
                volume.close().await?;
                Ok::<_, Error>(found)
            }
        })
        .map_err(|error| format!("recovery: {error}"))?;
    world.end();
    for (writer, (found, history)) in found.iter().zip(histories).enumerate() {
        let Progress { started, acknowledged } = snapshot.progress[writer];
        history
            .judge(found, acknowledged, started, promise(case.mode))
            .map_err(|verdict| format!("writer {writer}: {verdict}"))?;
    }
    report.images += 1;
    if sampled {
        report.checked += 1;
        check(&memory.images()).map_err(|said| format!("e2fsck after recovery: {said}"))?;
    }
    Ok(())
}

fn promise(mode: DataMode) -> Promise {
    match mode {
        DataMode::Journal | DataMode::Wasteless => Promise::Version,
        DataMode::Ordered | DataMode::Selective => Promise::Data,
        DataMode::Writeback => Promise::Synced,
    }
}

/// Cuts the power again at some write of the recovery.
fn crash_recovery(case: Case, disks: &Disks, cut: u64) -> Result<Disks, String> {
    let seed = case.seed.wrapping_mul(31).wrapping_add(cut);
    let dice = SplitMix::new(seed);
    let world = VirtualWorld::new(seed);
    let memory = MemoryDisks::of(&world, disks);
    memory.home.cut_at(dice.next() % 12);
    let opened = world.run({
        let (world, memory) = (world.clone(), memory.clone());
        async move { race(memory.open(&world, case), memory.home.power_lost()).await }
    });
    world.end();
    if let Either::Left(Err(error)) = opened {
        return Err(format!("recovery before its own crash: {error}"));
    }
    Ok(memory.crash(CrashPolicy::Random { seed, atomicity: Atomicity::Unit(512) }))
}

async fn read_back(volume: &Rc<Volume>, writers: usize) -> Result<Vec<Found>, Error> {
    let root = volume.inode(InodeNumber(2)).await?;
    let mut all = Vec::new();
    for writer in 0..writers {
        let directory = volume.lookup(&root, format!("writer-{writer}").as_bytes()).await?;
        let mut found = Found::new();
        let mut cookie = 0;
        loop {
            let entries = volume.readdir(&directory, cookie, 64).await?;
            let Some(last) = entries.last() else { break };
            cookie = last.cookie;
            for entry in entries {
                let name = String::from_utf8_lossy(&entry.name).into_owned();
                if name == "." || name == ".." {
                    continue;
                }
                let content = if entry.file_type == FileType::Directory {
                    None
                } else {
                    let inode = volume.inode(entry.inode).await?;
                    let size = volume.getattr(&inode).size;
                    Some(volume.read(&inode, 0, size as usize).await?.to_vec())
                };
                found.insert(name, content);
            }
        }
        all.push(found);
    }
    Ok(all)
}

/// The disks of one run.
#[derive(Clone)]
struct MemoryDisks {
    home: MemoryDisk,
    journal: Option<MemoryDisk>,
}

impl MemoryDisks {
    fn of(world: &VirtualWorld, disks: &Disks) -> MemoryDisks {
        let make = |image: &Image| MemoryDisk::from_image(Rc::new(world.clone()), image.clone());
        MemoryDisks { home: make(&disks.home), journal: disks.journal.as_ref().map(make) }
    }

    async fn open(&self, world: &VirtualWorld, case: Case) -> Result<Rc<Volume>, Error> {
        let journal = self.journal.clone().map(|disk| Rc::new(disk) as Rc<dyn Disk>);
        let engine = EngineOptions {
            data: case.mode,
            threshold: WriteThreshold(4096),
            barrier: case.barrier,
            // Short, so that a script of milliseconds meets timed commits, write-back and moving tails.
            commit: Duration::from_millis(3),
            writeback: Duration::from_millis(2),
            expire: Duration::from_millis(5),
            ..EngineOptions::default()
        };
        let options = VolumeOptions { engine, ..VolumeOptions::default() };
        Volume::open(OpenParts {
            world: Rc::new(world.clone()),
            home: Rc::new(self.home.clone()),
            journal,
            options,
        })
        .await
    }

    fn images(&self) -> Disks {
        Disks { home: self.home.image(), journal: self.journal.as_ref().map(MemoryDisk::image) }
    }
    fn crash(&self, policy: CrashPolicy) -> Disks {
        Disks { home: self.home.crash(policy), journal: self.journal.as_ref().map(|disk| disk.crash(policy)) }
    }

    /// From now on takes crash images whenever something starts on either disk.
    fn watch(
        &self,
        seed: u64,
        only_cut: Option<u64>,
        snapshots: Rc<RefCell<Vec<Snapshot>>>,
        progress: Rc<RefCell<Vec<Progress>>>,
        cuts: Rc<Cell<u64>>,
    ) {
        for disk in [Some(&self.home), self.journal.as_ref()].into_iter().flatten() {
            let (disks, snapshots, progress, cuts) =
                (self.clone(), snapshots.clone(), progress.clone(), cuts.clone());
            disk.on_change(move |_, _, _| {
                let cut = cuts.get();
                cuts.set(cut + 1);
                if only_cut.is_some_and(|only| only != cut) {
                    return;
                }
                let seed = seed.wrapping_mul(0x9e37_79b9).wrapping_add(cut);
                let torn = CrashPolicy::Random { seed, atomicity: Atomicity::Unit(512) };
                for policy in [CrashPolicy::LoseAll, torn] {
                    let snapshot = Snapshot {
                        cut,
                        policy,
                        disks: disks.crash(policy),
                        progress: progress.borrow().clone(),
                    };
                    snapshots.borrow_mut().push(snapshot);
                }
            });
        }
    }
}
