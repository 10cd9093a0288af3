//! A short journal: overwritten files are relogged, and the store gets nothing of them. No crash of
//! the host loses anything promised by that.

use crate::common::*;
use disks::{Atomicity, CrashPolicy, MemoryDisk};
use host::{Durable, FileFate, Host, HostError};
use runtime::{SplitMix, race, spawn_with_result};
use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;
use store::{Cut, CutKind, FileId, Moment, Network};

const BLOCK: usize = 200_000;
const BLOCKS: usize = 6;
/// Half of a journal of 16 MiB, and more.
const ROUNDS: u8 = 50;
/// First round in which the journal is short.
const SHORT_FROM: u8 = 35;

/// The states that a file had since it was promised.
#[derive(Default)]
struct Model {
    states: Vec<[u8; BLOCKS]>,
    promised: usize,
}

impl Model {
    fn change(&mut self, block: usize, byte: u8) {
        let mut state = self.states.last().copied().unwrap_or_default();
        state[block] = byte;
        self.states.push(state);
    }
    fn promise(&mut self) {
        self.promised = self.states.len().saturating_sub(1);
    }
    fn has(&self, content: &[u8]) -> bool {
        let is = |state: &[u8; BLOCKS]| {
            let wanted = |at: usize| state[at / BLOCK];
            content.iter().enumerate().all(|(at, byte)| *byte == wanted(at))
                && state[content.len().div_ceil(BLOCK)..].iter().all(|byte| *byte == 0)
        };
        self.states[self.promised..].iter().any(is)
            || (self.states.is_empty() && content.is_empty())
    }
}

type Shared = Rc<RefCell<Model>>;

/// Overwrites blocks one after another, far more than half of the journal, and syncs none until the
/// end. Sixteen bytes of another file are synced all the time, so that the journal commits in
/// between.
async fn write_over(
    host: Rc<Host>,
    stage: Stage,
    files: [FileId; 2],
    model: Shared,
    is_short_soon: impl Fn(),
) -> Result<(), HostError> {
    let (beside, world) = (host.clone(), stage.world());
    let done = Rc::new(Cell::new(false));
    let until = done.clone();
    let syncs = spawn_with_result(&*stage.world(), async move {
        while !until.get() {
            host_write(&beside, files[1], 0, &[1; 16], Durable::Now).await?;
            sleep(&*world, Duration::from_micros(200)).await;
        }
        Ok::<(), HostError>(())
    });
    for round in 1..=ROUNDS {
        if round == SHORT_FROM {
            is_short_soon();
        }
        let block = round as usize % BLOCKS;
        model.borrow_mut().change(block, round);
        host_write(&host, files[0], block * BLOCK, &[round; BLOCK], Durable::Soon).await?;
        // What one transaction has twice is in the log once.
        if round % 3 == 0 {
            host.sync_file(files[0]).await?;
            model.borrow_mut().promise();
        }
    }
    // Leaves time for the journal's own tasks.
    sleep(&*stage.world(), Duration::from_millis(30)).await;
    host.sync_file(files[0]).await?;
    model.borrow_mut().promise();
    done.set(true);
    syncs.await.expect("it ends")
}

async fn host_write(
    host: &Rc<Host>,
    file: FileId,
    at: usize,
    bytes: &[u8],
    durable: Durable,
) -> Result<(), HostError> {
    host.write(file, at as u64, bytes, durable).await.map(drop)
}

#[derive(Clone, Copy, Debug)]
enum CutAt {
    Message(Cut),
    JournalWrite(u64),
}

struct Run {
    stage: Stage,
    disk: MemoryDisk,
    files: [FileId; 2],
    model: Shared,
    messages: Range<u64>,
    journal_writes: Range<u64>,
    /// Relogged bytes as the host reported them at the end, unless it was cut.
    logged_anew: Option<u64>,
}

/// Runs the script; `network` is a store that holds everything back, or one that sends content
/// unasked.
fn run(seed: u64, network: Network, cut: Option<CutAt>) -> Run {
    let stage = Stage::with(seed, network);
    let disk = stage.disk(stage.formatted());
    let (host, files) = stage.play(&disk, under_pressure(), async move |host, _| {
        let files = [make(&host, "a").await, make(&host, "b").await];
        // It has its whole length at the store, so that no write outgrows it.
        let change =
            store::AttributeChange { size: Some((BLOCKS * BLOCK) as u64), ..Default::default() };
        host.set_attributes(files[0], change).await.unwrap();
        (host, files)
    });
    let model = Shared::default();
    model.borrow_mut().states.push([0; BLOCKS]);
    match cut {
        Some(CutAt::Message(cut)) => stage.cluster.cut_at(cut),
        Some(CutAt::JournalWrite(at)) => disk.cut_at(at),
        None => {}
    }
    let begin = Rc::new(Cell::default());
    let (noted, cluster, power) = (begin.clone(), stage.cluster.clone(), disk.clone());
    let note = move || noted.set((cluster.messages(), power.changes()));
    let played = write_over(host.clone(), stage.clone(), files, model.clone(), note);
    let (cluster, power) = (stage.cluster.clone(), disk.clone());
    let finished = stage.world.run(async move {
        let dies = race(cluster.until_client_cut(), power.power_lost());
        match race(Box::pin(played), dies).await {
            runtime::Either::Left(result) => result.is_ok(),
            runtime::Either::Right(_) => false,
        }
    });
    let logged_anew = finished.then(|| {
        let statistics = host.statistics();
        assert!(statistics.destaged_bytes <= 16, "of the other file: {statistics:?}");
        statistics.logged_anew_bytes
    });
    let (message, write) = begin.get();
    let (messages, journal_writes) =
        (message + 1..stage.cluster.messages() + 1, write..disk.changes());
    Run { stage, disk, files, model, messages, journal_writes, logged_anew }
}

impl Run {
    fn recover(self, policy: CrashPolicy, what: &str) {
        let Run { stage, disk, files, model, .. } = self;
        let disk = stage.disk(stage.crash(&disk, policy));
        stage.cluster.cancel_cut();
        let report = stage.recovered(&disk, under_pressure());
        let is_aside = |outcome: &FileFate| matches!(outcome, FileFate::SetAside { .. });
        assert!(!report.files.iter().any(|file| is_aside(&file.outcome)), "{what}: {report:?}");
        assert!(
            model.borrow().has(&stage.content(files[0])),
            "{what}: no state since the promised one"
        );
        stage.world.end();
    }
}

/// A Ceph client may send all of a file to the servers at once if it holds more than this.
fn networks() -> [Network; 2] {
    [Network::default(), Network { buffer_bytes: 300_000, ..Network::default() }]
}

#[test]
fn overwritten_bytes_are_relogged_and_not_destaged() {
    let all = run(1, Network::default(), None);
    assert!(
        all.logged_anew.is_some_and(|bytes| bytes >= (BLOCKS * BLOCK) as u64),
        "{:?}",
        all.logged_anew
    );
    let content = all.stage.content(all.files[0]);
    assert!(content.iter().all(|byte| *byte == 0), "the store has what it had before");
    all.recover(CrashPolicy::LoseAll, "at the end");
}

#[test]
fn promises_survive_a_crash_at_every_write_while_relogging() {
    for network in networks() {
        let writes = run(2, network, None).journal_writes;
        assert!(writes.end - writes.start > 20, "{writes:?}");
        for write in writes {
            let random = CrashPolicy::Random { seed: write, atomicity: Atomicity::Unit(512) };
            let policy = [CrashPolicy::LoseAll, CrashPolicy::KeepAll, random][write as usize % 3];
            let what = format!("{network:?}, journal write {write}, {policy:?}");
            run(2, network, Some(CutAt::JournalWrite(write))).recover(policy, &what);
        }
    }
}

/// Cuts the host, a server, or the network, which comes back after the lease.
#[test]
fn promises_survive_a_cut_at_every_message_while_relogging() {
    for network in networks() {
        let messages = run(3, network, None).messages;
        assert!(messages.end - messages.start > 10, "{messages:?}");
        for message in messages {
            let moment = [Moment::Request, Moment::Answer][message as usize % 2];
            for kind in [CutKind::Client, CutKind::Server, CutKind::Network] {
                let cut = Cut { kind, message, moment };
                let what = format!("{network:?}, {cut:?}");
                let cut = run(3, network, Some(CutAt::Message(cut)));
                assert_eq!(
                    cut.logged_anew.is_some(),
                    kind != CutKind::Client,
                    "{what}: whether it goes on"
                );
                cut.recover(CrashPolicy::LoseAll, &what);
            }
        }
    }
}

/// Hot and growing files at once, so that the log is short of space, too. The power fails at a
/// random write of the journal.
#[test]
fn random_writers_in_a_short_journal_lose_nothing_promised() {
    let (mut all_anew, mut cuts) = (0, 0);
    for seed in 0..12 {
        let (stage, disk) = Stage::formatted_disk(seed);
        let (inner, random) = (stage.clone(), SplitMix::new(seed));
        let models: Rc<[Shared; 3]> = Rc::default();
        models.iter().for_each(|model| model.borrow_mut().states.push([0; BLOCKS]));
        let (power, shared) = (disk.clone(), models.clone());
        let (files, anew) = stage.play(&disk, under_pressure(), async move |host, _| {
            let files = [make(&host, "a").await, make(&host, "b").await, make(&host, "c").await];
            power.cut_at(power.changes() + 20 + random.next() % 150);
            let writers = [0, 1, 2].map(|number| {
                let (host, world, models, random) = (
                    host.clone(),
                    inner.world(),
                    shared.clone(),
                    SplitMix::new(seed * 3 + number as u64 + 1),
                );
                spawn_with_result(&*inner.world(), async move {
                    for round in 1..=60u8 {
                        // The third file grows, and overwrites little.
                        let block = if number == 2 {
                            round as usize / 10 % BLOCKS
                        } else {
                            random.next() as usize % BLOCKS
                        };
                        models[number].borrow_mut().change(block, round);
                        let durable =
                            if random.next() % 4 == 0 { Durable::Now } else { Durable::Soon };
                        host_write(&host, files[number], block * BLOCK, &[round; BLOCK], durable)
                            .await?;
                        if durable == Durable::Now {
                            models[number].borrow_mut().promise();
                        }
                        sleep(&*world, Duration::from_micros(random.next() % 900)).await;
                    }
                    Ok::<(), HostError>(())
                })
            });
            let all = async {
                for writer in writers {
                    let _ = writer.await;
                }
            };
            race(Box::pin(all), power.power_lost()).await;
            (files, host.statistics().logged_anew_bytes)
        });
        all_anew += anew;
        cuts += u32::from(disk.is_off());
        let policy = CrashPolicy::Random { seed, atomicity: Atomicity::Unit(512) };
        let disk = stage.disk(stage.crash(&disk, policy));
        let report = stage.recovered(&disk, under_pressure());
        let is_aside = |outcome: &FileFate| matches!(outcome, FileFate::SetAside { .. });
        assert!(
            !report.files.iter().any(|file| is_aside(&file.outcome)),
            "seed {seed}: {report:?}"
        );
        for (file, model) in files.iter().zip(&*models) {
            assert!(
                model.borrow().has(&stage.content(*file)),
                "seed {seed}, {anew} logged anew: {file:?}"
            );
        }
        stage.world.end();
    }
    assert!(all_anew > 0, "nothing was logged anew");
    assert!(cuts > 4, "{cuts} power cuts");
}

#[test]
fn a_peer_reads_the_latest_bytes_of_a_relogged_file() {
    let mut anew = 0;
    for wait in 0..12 {
        let (stage, disk) = Stage::formatted_disk(20 + wait);
        anew += stage.play(&disk, under_pressure(), async move |host, inner| {
            let file = make(&host, "a").await;
            for round in 1..=50 {
                host_write(&host, file, 0, &[round; BLOCK], Durable::Now).await.unwrap();
            }
            sleep(&*inner.world(), Duration::from_micros(100 * wait)).await;
            assert_eq!(peer_reads(&*inner.peer(), file).await, [50; BLOCK], "after {wait}");
            host.close().await.unwrap();
            assert_eq!(host.statistics().dirty_in_journal, 0, "after {wait}");
            host.statistics().logged_anew_bytes
        });
        stage.world.end();
    }
    assert!(anew > 0, "nothing was logged anew");
}
