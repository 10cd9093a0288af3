//! Measures a restart on a modelled disk: 100 GB of logs in groups of 100 MB. The table has
//! everything that may be in them, and as much follows the last snapshot as is ever possible.
#![cfg(test)]

use crate::layout::{Layout, Sizes};
use crate::logs::Log;
use crate::open_list::REGION_LOGS;
use crate::policy::{CheckpointPolicy, NearHome, Settings};
use crate::restart::{RestartReport, format};
use crate::snapshot::{SnapshotHeader, payload};
use crate::table::{Mapped, MappingTable};
use crate::{BLOCK, ScatteredDisk};
use device::{Buffer, Disk, Durability, World};
use emulated::{CacheMode, DriveOptions, EmulatedDisk, Model, shipped};
use runtime::VirtualWorld;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

const MODEL: &str = "cheetah-15k5-300";
/// A third of the disk: 100 GB of its 300.
const SIZES: Sizes = Sizes { log: 35 << 20, group: 100 << 20 };
const LOGS_BYTES: u64 = 100_000_000_000;
const MOST: Duration = Duration::from_secs(10);
/// Bytes of a write that is logged.
const WRITE: usize = 256 << 10;

fn settings() -> Settings {
    Settings {
        logged_write_size: WRITE as u64,
        near_home: NearHome::IsLogged,
        checkpoint: CheckpointPolicy::Manual,
        swap_above: 100,
        ..Settings::default()
    }
}

fn cheetah(world: &Rc<dyn World>) -> Rc<dyn Disk> {
    let (_, text) = shipped().find(|(name, _)| *name == MODEL).expect("a model that is shipped");
    let options = DriveOptions { cache: CacheMode::Off, ..DriveOptions::default() };
    Rc::new(EmulatedDisk::new(world.clone(), Model::parse(text).expect("a model"), options))
}

/// Writes a snapshot that has `entries` blocks in logs, distributed evenly over all logs.
async fn know(disk: &Rc<dyn Disk>, layout: &Layout, entries: u64) {
    let each = entries.div_ceil(layout.logs.into());
    let logs = vec![Log { fill: each as u32, tag: 7, ..Log::default() }; layout.logs as usize];
    let mut table = MappingTable::default();
    for entry in 0..entries {
        let place = layout.log_begin((entry / each) as u32) + entry % each;
        let home = entry * (layout.homes() / entries);
        table.insert(home, Mapped { place, mask: 0xff, clean: false });
    }
    let (entries, payload) = payload(layout, &table, &logs, &BTreeSet::new());
    drop(table);
    let checksum = crc32c::crc32c(&payload);
    let header =
        SnapshotHeader { number: 2, sequence: 0, entries, checksum, regions: BTreeSet::new() };
    let at = layout.snapshot_place(2) * BLOCK as u64;
    for (piece, number) in payload.chunks(1 << 20).zip(0..) {
        let at = at + BLOCK as u64 + (number << 20);
        disk.write(at, vec![Rc::new(Buffer::copy_of(piece))], Durability::Cached)
            .await
            .expect("a write");
    }
    let header = Rc::new(Buffer::copy_of(&header.serialize(layout.nonce())));
    disk.write(at, vec![header], Durability::Durable).await.expect("a write");
}

/// Records in as many logs, and of as many bytes, as no snapshot ever misses.
async fn log_what_no_snapshot_knows(logs: &ScatteredDisk) {
    let (layout, settings) = (logs.layout(), settings());
    let regions = settings.scan_regions as u32 - 1;
    let write = async |log: u32, length: usize| {
        // Home in front of the log: the arm is there, and so is the record. What is read was never
        // logged.
        let each = layout.place_of(0).1;
        let at = ((u64::from(log) + 1) * each - 64) * BLOCK as u64;
        logs.read(at - BLOCK as u64, 512).await.expect("a read");
        let bytes = Rc::new(Buffer::copy_of(&vec![1; length]));
        logs.write(at, vec![bytes], Durability::Durable).await.expect("a write");
    };
    for region in 0..regions {
        // Spread over the whole disk.
        let first = u64::from(region) * u64::from(layout.logs / REGION_LOGS) / u64::from(regions);
        for log in 0..REGION_LOGS {
            write(first as u32 * REGION_LOGS + log, BLOCK).await;
        }
    }
    let few = u64::from(regions * REGION_LOGS) * 2 * BLOCK as u64;
    // One follows the other at once.
    let each = (WRITE + (2 + layout.gap() as usize) * BLOCK) as u64;
    for _ in 0..(settings.scan_bytes - few) / each {
        write(0, WRITE).await;
    }
    assert!(logs.statistics().snapshots == 0, "a snapshot knows them: {:?}", logs.statistics());
}

fn restart_with(entries: u64) -> RestartReport {
    let world = VirtualWorld::new(1);
    let in_world: Rc<dyn World> = Rc::new(world.clone());
    let report = world.run(async move {
        let disk = cheetah(&in_world);
        let layout = format(&in_world, &disk, None, SIZES).await.expect("logs");
        assert!(u64::from(layout.logs) * SIZES.log >= LOGS_BYTES, "{} logs", layout.logs);
        if entries > 0 {
            know(&disk, &layout, entries).await;
        }
        let open = || ScatteredDisk::open(in_world.clone(), disk.clone(), None, settings());
        let (logs, _) = open().await.expect("an open disk");
        log_what_no_snapshot_knows(&logs).await;
        drop(logs);
        open().await.expect("an open disk again").1
    });
    world.end();
    println!("{entries} blocks in the snapshot: {report:?}");
    report
}

/// One part in this many of a full table is simulated.
const PART: u64 = 4;

/// The snapshot's part grows with the table: an empty one and a part give the time of a full one.
#[test]
fn a_restart_with_100_gb_of_logs_takes_at_most_ten_seconds() {
    let logs = LOGS_BYTES / BLOCK as u64;
    let few = logs / PART;
    let [none, some] = [0, few].map(restart_with);
    assert!(none.logs_read >= 63 * 16 && none.records > 1000, "{none:?}");
    assert!(some.entries > few, "{some:?}");
    let full = none.took + (some.took - none.took) * PART as u32;
    println!("with every block of 100 GB of logs in the table: {:.2} s", full.as_secs_f64());
    assert!(full <= MOST, "{full:?}");
}
