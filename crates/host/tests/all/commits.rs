//! Concurrent writers that share the commits of the journal: what each answer promises when the
//! host loses power.

use crate::common::*;
use disks::{Atomicity, CrashPolicy, Latency, MemoryDisk};
use host::Durable;
use runtime::race;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;
use store::FileId;

const WRITERS: usize = 6;
const ROUNDS: u8 = 6;

/// Number of acknowledged writes of each file, which is also the byte that was written last.
type Answered = Rc<RefCell<[u8; WRITERS]>>;

/// Runs writers that wait for each write. Returns the journal writes.
fn play(
    stage: &Stage,
    disk: &MemoryDisk,
    cut: Option<u64>,
) -> ([FileId; WRITERS], Answered, std::ops::Range<u64>) {
    let (world, power) = (stage.world(), disk.clone());
    let (answered, log, begin) = (Answered::default(), disk.clone(), Rc::new(Cell::new(0)));
    let (noted, first) = (answered.clone(), begin.clone());
    let files = stage.play(disk, under_pressure(), async move |host, _| {
        let mut files = [FileId(0); WRITERS];
        for (number, file) in files.iter_mut().enumerate() {
            *file = make(&host, &format!("file{number}")).await;
        }
        log.set_latency(Latency {
            least: Duration::from_micros(100),
            spread: Duration::from_micros(900),
        });
        first.set(log.changes());
        if let Some(cut) = cut {
            log.cut_at(cut);
        }
        let writers = files.map(|file| {
            let (host, noted, clock) = (host.clone(), noted.clone(), world.clone());
            runtime::spawn_with_result(&*world, async move {
                for round in 1..=ROUNDS {
                    sleep(&*clock, Duration::from_micros(file.0 * 37)).await;
                    host.write(file, 0, &[round], Durable::Now).await?;
                    noted.borrow_mut()[files.iter().position(|one| *one == file).unwrap()] = round;
                }
                Ok::<(), host::HostError>(())
            })
        });
        let all = async {
            for writer in writers {
                let _ = writer.await;
            }
        };
        race(Box::pin(all), power.power_lost()).await;
        files
    });
    (files, answered, begin.get()..disk.changes())
}

#[test]
fn concurrent_acknowledged_writes_survive_every_journal_cut() {
    let (stage, disk) = Stage::formatted_disk(11);
    let (_, answered, writes) = play(&stage, &disk, None);
    assert_eq!(*answered.borrow(), [ROUNDS; WRITERS]);
    assert!(writes.end - writes.start > u64::from(ROUNDS) * 2, "{writes:?}: not one for all");
    // Power cuts amid the rounds; files whose last write was not answered, and is lost, or there.
    let (mut amid, mut unanswered) = (0, [0; 2]);
    for cut in writes {
        let random = |seed| CrashPolicy::Random { seed, atomicity: Atomicity::Unit(512) };
        for policy in [CrashPolicy::LoseAll, CrashPolicy::KeepAll, random(cut), random(cut + 1000)]
        {
            let (stage, disk) = Stage::formatted_disk(11);
            let (files, answered, _) = play(&stage, &disk, Some(cut));
            let disk = stage.disk(stage.crash(&disk, policy));
            stage.recovered(&disk, under_pressure());
            amid += u32::from(answered.borrow().iter().any(|round| (1..ROUNDS).contains(round)));
            for (file, answered) in files.iter().zip(*answered.borrow()) {
                let found = stage.content(*file).first().copied().unwrap_or(0);
                if answered < ROUNDS {
                    unanswered[usize::from(found > answered)] += 1;
                }
                assert!(
                    found == answered || found == answered + 1,
                    "write {cut}, {policy:?}: {file:?} is {found}, and {answered} was answered"
                );
            }
        }
    }
    assert!(amid > 30, "{amid} power cuts amid the rounds");
    assert!(unanswered.iter().all(|count| *count > 50), "{unanswered:?} unanswered writes");
}

/// The log reuses the space that its tail has passed.
#[test]
fn a_log_wraps_under_concurrent_writers() {
    let (stage, disk) = Stage::formatted_disk(12);
    let log = disk.clone();
    let files = stage.play(&disk, under_pressure(), async move |host, stage| {
        log.set_latency(Latency {
            least: Duration::from_micros(100),
            spread: Duration::from_micros(900),
        });
        let mut writers = Vec::new();
        for number in 0..WRITERS {
            let (file, host) = (make(&host, &format!("file{number}")).await, host.clone());
            writers.push(runtime::spawn_with_result(&stage.world, async move {
                for round in 0..40u8 {
                    host.write(file, 0, &vec![round; 256 << 10], Durable::Now).await.unwrap();
                }
                file
            }));
        }
        let mut files = Vec::new();
        for writer in writers {
            files.push(writer.await.unwrap());
        }
        let statistics = host.statistics();
        assert!(statistics.log_bytes_written > 3 * JOURNAL_BYTES, "{statistics:?}");
        host.close().await.unwrap();
        files
    });
    for file in files {
        assert_eq!(stage.content(file), vec![39; 256 << 10]);
    }
}

/// Writers could otherwise fall into two groups, each of which waits for the other's commit besides
/// its own.
#[test]
fn writers_that_one_commit_answers_share_the_next_one() {
    const REVOLUTION: Duration = Duration::from_millis(4);
    let (stage, disk) = Stage::formatted_disk(13);
    let log = disk.clone();
    stage.play(&disk, under_pressure(), async move |host, stage| {
        let world = stage.world();
        let mut files = Vec::new();
        for number in 0..WRITERS {
            files.push(make(&host, &format!("file{number}")).await);
        }
        log.set_latency(Latency { least: REVOLUTION, spread: Duration::ZERO });
        let (begun, before) = (world.now(), host.statistics().commits);
        let writers = files.into_iter().map(|file| {
            let (host, clock) = (host.clone(), world.clone());
            runtime::spawn_with_result(&*world, async move {
                for round in 0..20u8 {
                    // Each writer takes another time between two writes.
                    sleep(&*clock, Duration::from_micros(file.0 * 50)).await;
                    host.write(file, 0, &[round], Durable::Now).await.unwrap();
                }
            })
        });
        for writer in writers.collect::<Vec<_>>() {
            writer.await.unwrap();
        }
        let (commits, time) = (host.statistics().commits - before, world.now().since(begun));
        assert!(
            commits < 25 && time < 30 * REVOLUTION,
            "{commits} commits for 20 rounds, {time:?}"
        );
    });
}
