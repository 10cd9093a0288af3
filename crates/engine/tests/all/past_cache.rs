//! Runs of blocks written home past the cache, and callers that meet them in flight.

use crate::common::{Layout, Rig, Setup, file_update, overwrite};
use device::{Buffer, Operation};
use disks::{Fault, Latency};
use engine::{Base, Credits, Engine, FileRun, FileUpdate};
use journal::DataMode;
use std::rc::Rc;
use std::time::Duration;
use units::{HomeBlock, Owner, TransactionId};

const OWNER: Owner = Owner(1);
const FIRST: u64 = 64;
const BLOCKS: u64 = 16;

fn setup() -> Setup {
    let mut setup = Setup::new(DataMode::Ordered, Layout::Separate, 4096);
    // Nothing happens by itself.
    setup.options.commit = Duration::from_secs(3600);
    setup.options.writeback = Duration::from_secs(3600);
    setup.options.expire = Duration::from_secs(3600);
    setup
}

fn rig(setup: &Setup, seed: u64) -> Rig {
    let rig = Rig::new(setup, seed, setup.images());
    let slow = Latency { least: Duration::from_micros(100), spread: Duration::from_millis(2) };
    rig.disks.iter().for_each(|disk| disk.set_latency(slow));
    rig
}

/// `in_place`: no commit waits for it.
async fn write_run(engine: &Rc<Engine>, byte: u8, in_place: bool) -> TransactionId {
    let mut handle = engine.start(Credits(1)).await.unwrap();
    let bytes = vec![byte; (BLOCKS as usize) << 12];
    assert!(
        handle.file_run_past_cache(&run_of(&bytes, None, in_place)).unwrap(),
        "the cache has to take it"
    );
    handle.stop()
}

fn run_of<'a>(bytes: &'a [u8], memory: Option<&'a Rc<Buffer>>, in_place: bool) -> FileRun<'a> {
    FileRun {
        owner: OWNER,
        home: HomeBlock(FIRST),
        bytes,
        memory,
        request: 1 << 16,
        sequential: true,
        in_place,
    }
}

async fn read(engine: &Rc<Engine>) -> Vec<u8> {
    let buffers = engine.read_data_past_cache(HomeBlock(FIRST), BLOCKS as u32).await.unwrap();
    buffers.iter().flat_map(|buffer| buffer.to_vec()).collect()
}

/// Returns what is left of the run if the power fails now, and only durable data survives.
fn left(rig: &Rig) -> Vec<u8> {
    let mut bytes = vec![0; (BLOCKS as usize) << 12];
    rig.crash(0)[0].read(FIRST << 12, &mut bytes);
    bytes
}

#[test]
fn a_commit_waits_for_new_blocks_in_flight() {
    for seed in 1..20 {
        let rig = rig(&setup(), seed);
        rig.play(async |engine| {
            let transaction = write_run(&engine, 7, false).await;
            engine.commit(transaction).await.unwrap();
        });
        assert!(left(&rig).iter().all(|byte| *byte == 7), "seed {seed}");
    }
}

#[test]
fn a_sync_waits_for_the_overwrites_of_its_owner() {
    let mut in_place_alone = 0;
    for seed in 1..20 {
        for in_place in [false, true] {
            let rig = rig(&setup(), seed);
            in_place_alone += rig.play(async move |engine| {
                let transaction = write_run(&engine, 7, true).await;
                if in_place && engine.sync_in_place(OWNER).await.unwrap() {
                    return 1;
                }
                engine.sync_owner(OWNER, transaction).await.unwrap();
                0
            });
            assert!(left(&rig).iter().all(|byte| *byte == 7), "seed {seed}");
        }
    }
    assert_eq!(in_place_alone, 19, "syncs in place that needed no other");
}

#[test]
fn a_reader_of_blocks_in_flight_gets_what_was_written() {
    for seed in 1..20 {
        rig(&setup(), seed).play(async |engine| {
            write_run(&engine, 7, true).await;
            assert!(read(&engine).await.iter().all(|byte| *byte == 7));
            write_run(&engine, 8, true).await;
            let cached = engine.read_data(HomeBlock(FIRST + 3), 1).await.unwrap();
            assert!(cached[0].iter().all(|byte| *byte == 8));
        });
    }
}

/// No commit waits for the large write, and this one takes the newer block along.
#[test]
fn a_write_to_a_block_in_flight_comes_after_it() {
    for seed in 1..20 {
        let rig = rig(&setup(), seed);
        rig.play(async |engine| {
            write_run(&engine, 7, true).await;
            let mut handle = engine.start(Credits(1)).await.unwrap();
            let newer =
                FileUpdate { owner: OWNER, base: Base::Home, ..file_update(FIRST, 0, &[8; 4096]) };
            handle.write_file_data(newer).await.unwrap();
            engine.commit(handle.stop()).await.unwrap();
            engine.world().sleep_until(engine.world().now().plus(Duration::from_millis(100))).await;
        });
        // All that was written is left.
        let mut bytes = [0; 2 * 4096];
        rig.crash(1)[0].read(FIRST << 12, &mut bytes);
        assert_eq!([bytes[0], bytes[4095], bytes[4096]], [8, 8, 7], "seed {seed}");
    }
}

#[test]
fn overwrites_that_nobody_syncs_are_flushed_a_second_later() {
    let rig = rig(&setup(), 1);
    rig.play(async |engine| {
        write_run(&engine, 7, true).await;
        engine.world().sleep_until(engine.world().now().plus(Duration::from_secs(2))).await;
    });
    assert!(left(&rig).iter().all(|byte| *byte == 7));
}

/// A caller that knows their address reads and writes them past the engine.
#[test]
fn blocks_written_back_on_request_are_durable() {
    for seed in 1..20 {
        let rig = rig(&setup(), seed);
        rig.play(async |engine| {
            write_run(&engine, 7, true).await;
            engine
                .write_back_range(&[(HomeBlock(FIRST), 1), (HomeBlock(FIRST + 4), BLOCKS - 4)])
                .await
                .unwrap();
        });
        assert!(left(&rig).iter().all(|byte| *byte == 7), "seed {seed}");
    }
}

#[test]
fn what_could_not_be_written_is_read_as_it_was_written() {
    let rig = rig(&setup(), 1);
    let disk = rig.disks[0].clone();
    rig.play(async move |engine| {
        disk.inject(Fault::forever(Operation::Write));
        write_run(&engine, 6, false).await;
        let transaction = write_run(&engine, 7, false).await;
        assert!(engine.sync_owner(OWNER, transaction).await.is_err());
        assert!(read(&engine).await.iter().all(|byte| *byte == 7));
    });
}

#[test]
fn blocks_that_the_cache_needs_go_through_it() {
    rig(&setup(), 1).play(async |engine| {
        overwrite(&engine, OWNER.0, FIRST + 5, 6).await;
        let mut handle = engine.start(Credits(1)).await.unwrap();
        let bytes = vec![7; (BLOCKS as usize) << 12];
        assert!(!handle.file_run_past_cache(&run_of(&bytes, None, true)).unwrap());
        let transaction = handle.stop();
        engine.sync_owner(OWNER, transaction).await.unwrap();
        // Once it is home it is needed no more.
        write_run(&engine, 8, true).await;
        assert!(read(&engine).await.iter().all(|byte| *byte == 8));
    });
}

#[test]
fn memory_much_longer_than_its_run_is_not_kept() {
    rig(&setup(), 1).play(async |engine| {
        const LENGTH: usize = (BLOCKS as usize) << 12;
        for (held, is_kept) in [(LENGTH + (8 << 10), true), (4 * LENGTH, false)] {
            let memory = Rc::new(Buffer::to_fill(held).part(0..LENGTH));
            let mut handle = engine.start(Credits(1)).await.unwrap();
            assert!(handle.file_run_past_cache(&run_of(&memory, Some(&memory), true)).unwrap());
            assert_eq!(Rc::strong_count(&memory) > 1, is_kept, "{held} bytes");
            let transaction = handle.stop();
            engine.sync_owner(OWNER, transaction).await.unwrap();
            assert_eq!(read(&engine).await, memory[..]);
        }
    });
}
