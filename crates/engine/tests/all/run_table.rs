//! The table of runs (`mtl=`): a restart reads it instead of searching the logs, and believes
//! nothing that does not fit.

use crate::restart::{
    BLOCKS, LOG_BLOCKS, content, live, log_home, put, put_all, read, restart, rig, setup,
    with_memory,
};
use disks::{CrashPolicy, Image, Latency};
use engine::{DataMode, RecordFormat, RecoveryReport};
use format::run_table::{TABLE_BYTES, TABLE_PAGE};
use std::time::Duration;
use units::HomeBlock;

/// Checks that the next life finds all in `version`, and by which way.
fn finds(
    setup: &crate::common::Setup,
    images: &[Image],
    version: u8,
    check: impl Fn(&RecoveryReport) + 'static,
) -> Vec<Image> {
    live(setup, images.to_vec(), async move |report, engine| {
        check(&report);
        for block in 0..BLOCKS {
            assert_eq!(read(&engine, block).await, content(block, version), "{block}: {report:?}");
        }
    })
}

fn is_read_from_table(report: &RecoveryReport) {
    assert!(report.table_refused.is_none() && report.table_pages_read > 0, "{report:?}");
    assert!(
        (report.logs_read, report.run_headers_read) == (0, 0) && report.blocks_kept > 0,
        "{report:?}"
    );
}
fn is_searched(report: &RecoveryReport) {
    assert!(
        report.table_refused.is_some() && report.logs_read > 0 && report.blocks_kept > 0,
        "{report:?}"
    );
}

#[test]
fn a_table_of_an_earlier_mount_is_refused() {
    let setup = setup(DataMode::Journal, RecordFormat::Blocks);
    let first =
        live(&setup, with_memory(setup.images()), async |_, engine| put_all(&engine, 1).await);
    let second = live(&setup, first.clone(), async |_, engine| put_all(&engine, 2).await);
    finds(&setup, &[second[0].clone(), first[1].clone()], 2, is_searched);
    finds(&setup, &second, 2, is_read_from_table);
}

#[test]
fn a_mount_without_the_table_makes_it_count_for_nothing() {
    let setup = setup(DataMode::Journal, RecordFormat::Blocks);
    let with =
        live(&setup, with_memory(setup.images()), async |_, engine| put_all(&engine, 1).await);
    let table = with[1].clone();
    let without = live(&setup, vec![with[0].clone()], async |report, engine| {
        assert!(report.table_refused.is_none() && report.logs_read > 0, "{report:?}");
        put(&engine, 0, 2).await;
        put_all(&engine, 2).await;
    });
    finds(&setup, &[without[0].clone(), table], 2, is_searched);
}

/// The moved runs lie elsewhere, whatever the table recorded before.
#[test]
fn a_table_counts_for_nothing_once_runs_have_moved() {
    let mut setup = setup(DataMode::Journal, RecordFormat::Blocks);
    setup.options.swap_above = Some(1);
    let images = live(&setup, with_memory(setup.images()), async |_, engine| {
        put_all(&engine, 1).await;
        let world = engine.world().clone();
        while engine.statistics().swaps == 0 {
            world.sleep_until(world.now().plus(Duration::from_millis(10))).await;
        }
    });
    finds(&setup, &images, 1, is_searched);
}

/// The swap's writes to the table are not durable yet, so a power cut may leave what was
/// recorded before.
#[test]
fn what_is_acknowledged_while_the_table_is_made_to_count_for_nothing_survives() {
    let mut setup = setup(DataMode::Journal, RecordFormat::Blocks);
    setup.options.swap_above = Some(1);
    let rig = rig(&setup, with_memory(setup.images()));
    let (parts, table) = (rig.parts.clone(), rig.disks[1].clone());
    let lived = rig.run(async move {
        let (_, engine) = restart(parts).await;
        put_all(&engine, 1).await;
        let (world, writes) = (engine.world().clone(), table.statistics().writes);
        table.set_latency(Latency { least: Duration::from_millis(5), spread: Duration::ZERO });
        while table.statistics().writes == writes {
            world.sleep_until(world.now().plus(Duration::from_micros(1))).await;
        }
        assert_eq!(
            engine.statistics().log_written.get("swapped").map_or(0, |swapped| swapped.blocks),
            0
        );
        put(&engine, 0, 2).await;
    });
    assert!(lived.is_some(), "no power was cut before");
    let images = rig.disks.iter().map(|disk| disk.crash(CrashPolicy::LoseAll)).collect();
    live(&setup, images, async move |report, engine| {
        for block in 0..BLOCKS {
            let version = if block == 0 { 2 } else { 1 };
            assert_eq!(read(&engine, block).await, content(block, version), "{block}: {report:?}");
        }
        is_searched(&report);
    });
}

/// The table is still right until the mount has written anything, or has searched without it.
#[test]
fn a_mount_that_writes_nothing_leaves_the_table_as_it_is() {
    let setup = setup(DataMode::Journal, RecordFormat::Blocks);
    let images =
        live(&setup, with_memory(setup.images()), async |_, engine| put_all(&engine, 1).await);
    let images = finds(&setup, &images, 1, is_read_from_table);
    let without = finds(&setup, &images[..1], 1, |report| assert!(report.logs_read > 0));
    finds(&setup, &[without[0].clone(), images[1].clone()], 1, is_searched);
}

/// The power cut has torn its header, so a life without the table does not find it. What that life
/// has shown must not change in the next one.
#[test]
fn a_run_that_a_search_did_not_find_stays_away() {
    let setup = setup(DataMode::Journal, RecordFormat::Blocks);
    let images = with_torn_header(&setup);
    let without = finds(&setup, &images[..1], 1, |report| assert!(report.logs_read > 0));
    finds(&setup, &[without[0].clone(), images[1].clone()], 1, is_searched);
}

/// The power cut has torn its header. What is written home of it, and what comes behind it, must
/// not depend on the table.
#[test]
fn a_run_that_only_the_table_recorded_is_found_without_it() {
    let setup = setup(DataMode::Journal, RecordFormat::Blocks);
    let images = with_torn_header(&setup);
    let reads = |uses_table: bool| {
        async move |report: RecoveryReport, engine: std::rc::Rc<engine::Engine>| {
            assert_eq!(report.table_pages_read > 0, uses_table, "{report:?}");
            assert_eq!(read(&engine, 0).await, content(0, 2), "{report:?}");
        }
    };
    let images = live(&setup, images, reads(true));
    live(&setup, images[..1].to_vec(), reads(false));
}

/// The disk and the table after a life whose last run, a second version of the first block, has a
/// header in the table alone.
fn with_torn_header(setup: &crate::common::Setup) -> Vec<Image> {
    let mut images = live(setup, with_memory(setup.images()), async |_, engine| {
        put_all(&engine, 1).await;
        put(&engine, 0, 2).await;
    });
    let header = header_of_latest_run(setup, &images[1]);
    images[0].fill(header.get() << setup.block_size.shift(), 1 << setup.block_size.shift(), 0);
    images
}

/// Returns the location of the header of the latest run.
fn header_of_latest_run(setup: &crate::common::Setup, table: &Image) -> HomeBlock {
    let word = |at: u64| {
        let mut bytes = [0; 4];
        table.read(at, &mut bytes);
        u64::from(u32::from_be_bytes(bytes))
    };
    let latest = format::run_table::LATEST_PAGES.map(|page| page * TABLE_PAGE as u64);
    let at = latest.max_by_key(|page| word(page + 8)).map(|page| word(page + 4)).unwrap();
    let behind = at - u64::from(setup.log_blocks);
    log_home(behind / u64::from(LOG_BLOCKS)).plus(behind % u64::from(LOG_BLOCKS))
}

#[test]
fn a_table_of_another_volume_is_refused() {
    let setup = setup(DataMode::Journal, RecordFormat::Blocks);
    let own =
        live(&setup, with_memory(setup.images()), async |_, engine| put_all(&engine, 1).await);
    let other = live(&setup, with_memory(setup.images()), async |_, engine| {
        for version in 1..=3 {
            put_all(&engine, version).await;
        }
    });
    for table in [other[1].clone(), Image::new(TABLE_BYTES)] {
        finds(&setup, &[own[0].clone(), table], 1, is_searched);
    }
    let mut garbage = Image::new(TABLE_BYTES);
    garbage.fill(0, TABLE_BYTES, 0xa5);
    finds(&setup, &[own[0].clone(), garbage], 1, is_searched);
}

/// Loses or garbles each sector that holds anything: what it recorded is found all the same.
#[test]
fn no_damage_of_the_table_loses_anything() {
    let setup = setup(DataMode::Journal, RecordFormat::Packed);
    let images =
        live(&setup, with_memory(setup.images()), async |_, engine| put_all(&engine, 1).await);
    let mut searched = 0;
    for sector in (0..6 * TABLE_PAGE).step_by(512) {
        let mut bytes = vec![0; 512];
        images[1].read(sector as u64, &mut bytes);
        for damage in [vec![0; 512], bytes.iter().map(|byte| !byte).collect()] {
            if damage == bytes {
                continue;
            }
            let mut table = images[1].clone();
            table.write(sector as u64, &damage);
            let refused = std::rc::Rc::new(std::cell::Cell::new(false));
            let seen = refused.clone();
            finds(&setup, &[images[0].clone(), table], 1, move |report| {
                seen.set(report.table_refused.is_some());
            });
            searched += u32::from(refused.get());
        }
    }
    assert!(searched > 10, "only {searched} damages were noticed");
}
