//! Scattered logs: what a log near the head holds moves far away in idle time, and nothing of it is
//! lost at any cut.

use crate::common::{Layout, Rig, Setup};
use device::Operation;
use disks::{Fault, Image};
use engine::{CheckpointTimes, Credits, DurableMemory, Engine, LogKind, RecoveryReport};
use format::run_table::TABLE_BYTES;
use journal::DataMode;
use journal::records::RecordFormat;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;
use units::{BlockRange, HomeBlock, LogBlock};

const LOGS: u64 = 6;
const LOG_BLOCKS: u32 = 64;
/// Home blocks in front of the logs.
const BLOCKS: u64 = 256;
/// Blocks of a transaction.
const TOGETHER: u64 = 9;
/// Transactions that fill a log to more than 80 %.
const FILLS_A_LOG: u64 = 5 * TOGETHER;
pub const FILLS_THREE_LOGS: u64 = 3 * FILLS_A_LOG;

fn setup(records: RecordFormat, fua: bool) -> Setup {
    let mut setup = Setup::new(DataMode::Journal, Layout::Internal, 4096);
    setup.forced_unit_access = fua;
    setup.home_blocks = BLOCKS + LOGS * u64::from(LOG_BLOCKS);
    let options = &mut setup.options;
    (options.log, options.records) = (LogKind::Scattered, Some(records));
    options.checkpoint = CheckpointTimes::Manual;
    options.log_unit = (records == RecordFormat::Packed).then_some(4096);
    setup
}

pub fn all() -> [Setup; 4] {
    let kinds = [RecordFormat::Blocks, RecordFormat::Packed];
    let [blocks, packed] = kinds.map(|records| [true, false].map(|fua| setup(records, fua)));
    [blocks, packed].concat().try_into().expect("four")
}

/// Returns the images of `setup`; where disks have no FUA, with memory for a table of the runs.
pub fn images(setup: &Setup) -> Vec<Image> {
    let table = (!setup.forced_unit_access).then(|| Image::new(TABLE_BYTES));
    setup.images().into_iter().chain(table).collect()
}

pub fn rig(setup: &Setup, images: Vec<Image>) -> Rig {
    let mut rig = Rig::new(setup, 1, images);
    let home = |log| HomeBlock(BLOCKS + log * u64::from(LOG_BLOCKS));
    rig.scatter(LogBlock(setup.log_blocks), LOG_BLOCKS, (0..LOGS).map(home).collect());
    rig.parts.options.run_table = rig.disks.get(1).map(|disk| DurableMemory(Rc::new(disk.clone())));
    rig
}

/// Returns the content of `block` in `version`: no zeros, so that packed records log it whole.
fn content(block: u64, version: u8) -> Vec<u8> {
    (0..4096u64)
        .map(|at| 1 | (at.wrapping_mul(31) ^ (block * 7)) as u8 ^ version.wrapping_mul(16))
        .collect()
}

/// Acknowledged version of each block, and the one that was begun last.
pub type Versions = Rc<RefCell<BTreeMap<u64, (u8, u8)>>>;

pub async fn log_all(
    engine: &Rc<Engine>,
    blocks: std::ops::Range<u64>,
    version: u8,
    seen: &Versions,
) {
    log_parts(engine, blocks, TOGETHER, version, seen).await;
}

pub async fn log_parts(
    engine: &Rc<Engine>,
    blocks: std::ops::Range<u64>,
    together: u64,
    version: u8,
    seen: &Versions,
) {
    for first in blocks.step_by(together as usize) {
        let mut handle = engine.start(Credits(together as u32)).await.unwrap();
        for block in first..first + together {
            seen.borrow_mut().entry(block).or_default().1 = version;
            let made = handle.create(HomeBlock(block));
            let whole = BlockRange::new(0, 4096);
            handle.change(&made, whole, |bytes| bytes.copy_from_slice(&content(block, version)));
        }
        let transaction = handle.stop();
        if engine.commit(transaction).await.is_err() {
            return;
        }
        (first..first + together)
            .for_each(|block| seen.borrow_mut().entry(block).or_default().0 = version);
    }
}

pub async fn rest(engine: &Engine) {
    let world = engine.world().clone();
    world.sleep_until(world.now().plus(Duration::from_millis(60))).await;
}

/// Looks every `pause`. What does not come within three times what all swaps take never comes.
async fn wait_until(engine: &Engine, pause: Duration, mut is_there: impl FnMut() -> bool) {
    let world = engine.world().clone();
    let give_up = world.now().plus(Duration::from_millis(180));
    while !is_there() {
        assert!(world.now() < give_up, "it never comes: {:?}", engine.statistics());
        world.sleep_until(world.now().plus(pause)).await;
    }
}

async fn read(engine: &Engine, block: u64) -> Vec<u8> {
    engine.read_data(HomeBlock(block), 1).await.unwrap()[0].to_vec()
}

#[test]
fn swaps_in_idle_time_empty_logs_near_the_head_and_reads_follow() {
    for mut setup in all() {
        // Little memory: most blocks are known to the table alone.
        setup.options.cache_bytes = 1 << 20;
        let rig = rig(&setup, images(&setup));
        rig.play(async move |engine| {
            let seen = Versions::default();
            log_all(&engine, 0..FILLS_THREE_LOGS, 1, &seen).await;
            let before = engine.statistics();
            assert_eq!(before.swaps, 0, "it was not idle");
            rest(&engine).await;
            let statistics = engine.statistics();
            assert_eq!(statistics.swaps, 3, "{statistics:?}");
            assert_eq!(
                (statistics.log.free_blocks, statistics.home_bytes()),
                (before.log.free_blocks, 0)
            );
            assert!(statistics.log_written["swapped"].blocks >= FILLS_THREE_LOGS, "{statistics:?}");
            // Their room is used again, and what is swapped once stays.
            log_all(&engine, FILLS_THREE_LOGS..FILLS_THREE_LOGS + FILLS_A_LOG, 2, &seen).await;
            for block in 0..FILLS_THREE_LOGS {
                assert_eq!(read(&engine, block).await, content(block, 1), "{block}");
            }
            assert_eq!(engine.statistics().home_bytes(), 0);
            engine.shutdown().await.unwrap();
        });
        assert!((0..FILLS_THREE_LOGS).all(|block| rig.home_block(block)[..] == content(block, 1)));
    }
}

#[test]
fn nothing_is_swapped_below_the_share_or_if_nobody_wants_it() {
    for swap_above in [None, Some(100), Some(95)] {
        let mut setup = setup(RecordFormat::Blocks, true);
        setup.options.swap_above = swap_above;
        let rig = rig(&setup, images(&setup));
        rig.play(async move |engine| {
            log_all(&engine, 0..FILLS_THREE_LOGS, 1, &Versions::default()).await;
            rest(&engine).await;
            assert_eq!(engine.statistics().swaps, 0, "{swap_above:?}");
            engine.shutdown().await.unwrap();
        });
    }
}

/// Cuts a script at every change, and recovers from what may be left: what was acknowledged is
/// there. Returns the result of the run that was not cut.
fn survives_every_cut<T: 'static>(
    setup: &Setup,
    script: impl AsyncFn(&Rc<Engine>, &Versions) -> T + Copy + 'static,
) -> T {
    // Before it, all is as in other tests.
    let mut cut = 15;
    loop {
        let first = rig(setup, images(setup));
        let seen = Versions::default();
        let written = seen.clone();
        first.cut_at(cut);
        let ended = first.try_play(async move |engine| script(&engine, &written).await);
        for tear in cut * 4..cut * 4 + 3 {
            let again = rig(setup, first.crash(tear));
            let what = format!("{setup:?} cut {cut} tear {tear}");
            let parts = again.parts.clone();
            let recovered = again.run(async move { engine::recover(&parts, false).await });
            recovered.unwrap().unwrap_or_else(|why| panic!("{what}: {why}"));
            is_as_acknowledged(&again, &seen, &what);
        }
        match ended {
            Some(result) => return result,
            None => cut += 1,
        }
    }
}

/// Cuts during the swap, and while the emptied logs are filled again: what was acknowledged is
/// there, and each block is whole.
#[test]
fn what_was_acknowledged_survives_every_cut_of_a_swap_and_of_what_follows() {
    for setup in all() {
        survives_every_cut(&setup, async |engine, seen| {
            log_all(engine, 0..FILLS_THREE_LOGS, 1, seen).await;
            rest(engine).await;
            log_all(engine, 64..64 + FILLS_THREE_LOGS, 2, seen).await;
            rest(engine).await;
            assert!(engine.statistics().swaps > 3);
        });
    }
}

/// A request that comes while runs are copied does not wait for the rest, and the swap is given up.
#[test]
fn a_swap_is_given_up_when_a_request_comes() {
    let setup = setup(RecordFormat::Blocks, true);
    let rig = rig(&setup, images(&setup));
    rig.play(async move |engine| {
        let seen = Versions::default();
        log_all(&engine, 0..FILLS_THREE_LOGS, 1, &seen).await;
        let free = engine.statistics().log.free_blocks;
        let copied = |engine: &Engine| engine.statistics().log_written["swapped"].blocks;
        wait_until(&engine, Duration::from_micros(10), || copied(&engine) > 0).await;
        log_all(&engine, FILLS_THREE_LOGS..FILLS_THREE_LOGS + TOGETHER, 1, &seen).await;
        assert_eq!(engine.statistics().swaps, 0);
        assert!(engine.statistics().log.free_blocks + 16 > free, "there is as much room as before");
        for block in 0..FILLS_THREE_LOGS {
            assert_eq!(read(&engine, block).await, content(block, 1), "{block}");
        }
        engine.shutdown().await.unwrap();
    });
}

/// A commit that goes to a log of which recovery knows nothing waits for the announcement that is
/// in flight, and no longer.
#[test]
fn a_commit_gets_by_while_a_swap_is_announced() {
    let setup = setup(RecordFormat::Blocks, true);
    let rig = rig(&setup, images(&setup));
    rig.play(async move |engine| {
        let world = engine.world().clone();
        let seen = Versions::default();
        log_all(&engine, 0..FILLS_THREE_LOGS, 1, &seen).await;
        let announced =
            |engine: &Engine| engine.statistics().log_written["journal_superblock"].blocks;
        let before = announced(&engine);
        wait_until(&engine, Duration::from_micros(1), || announced(&engine) > before).await;
        let late = world.now().plus(Duration::from_millis(10));
        let next = FILLS_THREE_LOGS..FILLS_THREE_LOGS + TOGETHER;
        let ended = runtime::race(log_all(&engine, next, 1, &seen), world.sleep_until(late)).await;
        assert!(matches!(ended, runtime::Either::Left(())), "the commit waits for ever");
        engine.shutdown().await.unwrap();
    });
}

#[test]
fn a_log_that_cannot_be_read_stays_where_it_is() {
    let setup = setup(RecordFormat::Blocks, true);
    let rig = rig(&setup, images(&setup));
    let disk = rig.disks[0].clone();
    rig.try_play(async move |engine| {
        log_all(&engine, 0..FILLS_THREE_LOGS, 1, &Versions::default()).await;
        // The last one: the journal behind it was read last.
        let log = (BLOCKS + (LOGS - 1) * u64::from(LOG_BLOCKS)) * 4096
            ..(BLOCKS + LOGS * u64::from(LOG_BLOCKS)) * 4096;
        disk.inject(Fault { range: log, ..Fault::forever(Operation::Read) });
        rest(&engine).await;
        assert_eq!(engine.statistics().swaps, 2, "the others");
        log_all(&engine, FILLS_THREE_LOGS..FILLS_THREE_LOGS + TOGETHER, 1, &Versions::default())
            .await;
        engine.shutdown().await.unwrap();
    })
    .unwrap();
}

/// The bound on memory is a promise: what a swap has read and is about to write counts, too.
#[test]
fn copies_of_a_swap_count_as_memory_and_take_little_of_it() {
    for mut setup in all() {
        setup.options.cache_bytes = 1 << 20;
        let rig = rig(&setup, images(&setup));
        rig.play(async move |engine| {
            log_all(&engine, 0..FILLS_THREE_LOGS, 1, &Versions::default()).await;
            let mut most = 0;
            wait_until(&engine, Duration::from_micros(10), || {
                most = most.max(engine.statistics().cache.bytes);
                engine.statistics().swaps >= 3
            })
            .await;
            let is_stable = engine.statistics().cache;
            let copies = most - is_stable.bytes;
            assert!(
                copies > 0 && copies <= is_stable.limit_bytes / 16,
                "{copies} bytes: {is_stable:?}"
            );
            engine.shutdown().await.unwrap();
        });
    }
}

/// The arm goes where scattered log `log` lies.
async fn go_to(engine: &Engine, log: u64) {
    read(engine, BLOCKS + log * u64::from(LOG_BLOCKS)).await;
}

/// A little in each log but the first, the farthest oldest, and then the first log full.
async fn fill_the_first_beside_cold_ones(engine: &Rc<Engine>, version: u8, seen: &Versions) {
    for log in (1..LOGS).rev() {
        go_to(engine, log).await;
        log_parts(engine, 200 + log..201 + log, 1, version, seen).await;
    }
    go_to(engine, 0).await;
    log_all(engine, 0..FILLS_A_LOG, version, seen).await;
}

/// Every log holds something, so what moves lies behind what was there.
#[test]
fn a_swap_behind_older_runs_of_a_cold_log_survives_every_cut() {
    for setup in all() {
        let swaps = survives_every_cut(&setup, async |engine, seen| {
            fill_the_first_beside_cold_ones(engine, 1, seen).await;
            rest(engine).await;
            let swaps = engine.statistics().swaps;
            log_all(engine, 0..FILLS_A_LOG, 2, seen).await;
            swaps
        });
        assert!(swaps > 0, "{setup:?}: nothing was swapped");
    }
}

/// Checks the versions as a mount reads them.
pub async fn are_as_acknowledged(
    engine: &Engine,
    seen: &Versions,
    what: &str,
    report: &RecoveryReport,
) {
    let seen = seen.borrow().clone();
    for (block, (acknowledged, begun)) in seen {
        let found = read(engine, block).await;
        let fits =
            (acknowledged..=begun).any(|version| version > 0 && found == content(block, version));
        assert!(fits || acknowledged == 0, "{what}: {block} of version {acknowledged}: {report:?}");
    }
}

fn is_as_acknowledged(rig: &Rig, seen: &Versions, what: &str) {
    for (block, (acknowledged, begun)) in &*seen.borrow() {
        let found = rig.home_block(*block);
        let fits = (*acknowledged..=*begun)
            .any(|version| version > 0 && found[..] == content(*block, version));
        assert!(fits || *acknowledged == 0, "{what}: {block} of version {acknowledged}");
    }
}
