//! Measures how long a volume with many scattered logs takes to open after a power cut, in virtual
//! time on a modelled Cheetah of 300 GB.
//!
//! The logs are filled with blocks through the volume, up to PERCENT. Then come small transactions,
//! each in another log, as the arm wanders. Then the power is cut. All blocks are zeros, so the
//! emulated disk holds little.
//!
//! `restart_time [VOLUME_GB LOG_MIB GROUP_MIB PERCENT]`, 105 10 100 60 by default: 10 GB of logs in
//! 1,000 groups.

use engine::{CheckpointTimes, DataMode, LogKind};
use ext4::{Caller, Inode, RangeMode, Volume, WriteFlags};
use runtime::SplitMix;
use std::rc::Rc;
use testbeds::{LogSizes, Stage, StageOptions};
use units::{FileBlock, InodeNumber};

const BLOCK: u64 = 4096;
const FILE: u64 = 1 << 30;
/// Bytes of a write while logs are filled, and bytes between two syncs.
const WRITE: u64 = 64 << 10;
const TOGETHER: u64 = 16;
/// Blocks of small transactions at the end.
const SMALL: u64 = 2_000;
const SMALL_BLOCKS: u64 = 20;
/// A block of a table takes 32 bytes of memory, and the table an eighth of the cache.
const CACHE_OF_A_BLOCK: u64 = 8 * 32;

fn main() {
    let words: Vec<u64> =
        std::env::args().skip(1).map(|word| word.parse().expect("a number")).collect();
    let [volume_gb, log_mib, group_mib, percent] = words.try_into().unwrap_or([105, 10, 100, 60]);
    let mut options = StageOptions::of_manylogs(DataMode::Journal, LogKind::Scattered);
    options.home.model = "cheetah-15k5-300".into();
    options.home.options.size = Some(((volume_gb * 1_000_000_000) >> 20) << 20);
    options.logs = Some(LogSizes { log: log_mib << 20, group: group_mib << 20 });
    options.journal_size = 1 << 30;
    options.engine.checkpoint = CheckpointTimes::Manual;
    let groups = options.home.options.size.unwrap_or(0) / (group_mib << 20);
    let log_blocks = groups * (log_mib << 20) / BLOCK;
    let blocks = log_blocks * percent / 100;
    options.engine.cache_bytes = (blocks * CACHE_OF_A_BLOCK).max(256 << 20) + (64 << 20);
    println!(
        "{groups} groups, {:.1} GB of logs, {blocks} blocks to log",
        (log_blocks * BLOCK) as f64 / 1e9
    );
    let mut stage = Stage::build(&options).expect("a volume");
    let volume = stage.volume().clone();
    stage.world().clone().run(async move { fill(&volume, blocks).await });
    println!("{:?}", stage.statistics().log);
    let filled = std::time::Instant::now();
    let report = stage.crash_and_recover().expect("a recovery");
    println!("{report:#?}");
    println!(
        "{:.2} s; {:.1} s of real time",
        report.nanoseconds as f64 / 1e9,
        filled.elapsed().as_secs_f64()
    );
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    status.lines().filter(|line| line.starts_with("VmHWM")).for_each(|line| println!("{line}"));
}

async fn fill(volume: &Rc<Volume>, blocks: u64) {
    let bytes = blocks * BLOCK;
    let mut files = Vec::new();
    for number in 0..bytes.div_ceil(FILE) + 1 {
        files.push(mapped_file(volume, &format!("tenant-{number}")).await);
    }
    volume.sync().await.expect("a sync");
    volume.engine().checkpoint().await.expect("a checkpoint");
    let zeros = vec![0; WRITE as usize];
    let each = FILE / WRITE;
    let writes = bytes / WRITE;
    for number in 0..writes {
        // Each place once, neighbours far apart.
        let place = (number % each * 4097) % each * WRITE;
        let file = &files[(number / each) as usize];
        volume
            .write(file, &Caller::ROOT, place, &zeros, WriteFlags::default())
            .await
            .expect("a write");
        if (number + 1) % TOGETHER == 0 {
            volume.sync().await.expect("a sync");
        }
        if number % 65536 == 0 {
            let statistics = volume.engine().statistics();
            eprintln!("{number} of {writes}: {:?}, {:?}", statistics.log, statistics.cache);
        }
    }
    let rng = SplitMix::new(5);
    for _ in 0..SMALL {
        let of = &files[rng.below(files.len() as u64) as usize];
        volume.read(of, rng.below(FILE / BLOCK) * BLOCK, BLOCK as usize).await.expect("a read");
        for _ in 0..SMALL_BLOCKS {
            let file = &files[rng.below(files.len() as u64) as usize];
            let at = rng.below(FILE / BLOCK) * BLOCK;
            volume
                .write(file, &Caller::ROOT, at, &zeros[..BLOCK as usize], WriteFlags::default())
                .await
                .expect("a write");
        }
        volume.sync().await.expect("a sync");
    }
}

/// A file in a directory of its own, whose blocks count as written.
async fn mapped_file(volume: &Rc<Volume>, directory: &str) -> Rc<Inode> {
    let root = volume.inode(InodeNumber(2)).await.expect("the root");
    let directory = volume
        .mkdir(&root, directory.as_bytes(), &Caller::ROOT, 0o755)
        .await
        .expect("a directory")
        .value;
    let file =
        volume.mknod(&directory, b"file", &Caller::ROOT, 0o100_644, 0).await.expect("a file").value;
    volume
        .fallocate(&file, &Caller::ROOT, RangeMode::Allocate, false, 0, FILE)
        .await
        .expect("room");
    let (blocks, mut at) = ((FILE / BLOCK) as u32, 0);
    while at < blocks {
        let mut handle = volume.engine().start(volume.credits_map(&file)).await.expect("a handle");
        let marked = volume.mark_written(&mut handle, &file, FileBlock(at), blocks - at).await;
        handle.stop();
        at += marked.expect("extents").max(1);
    }
    file
}
