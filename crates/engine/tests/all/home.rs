//! A home that is no disk: files of a store for tests, each made durable by itself, below the
//! engine as it is.

use crate::common;

use crate::common::{
    FILE_BLOCKS, Files, Layout, Rig, Script, Setup, run_until, verify, write_byte,
};
use device::Operation;
use engine::{RecordFormat, recover};
use journal::DataMode;
use std::rc::Rc;
use units::Owner;

/// Script whose blocks lie in five files.
const SCRIPT: Script = Script { writers: 8, handles: 10, sync_one_in: 3, seed: 1 };

fn setup(mode: DataMode, records: RecordFormat) -> Setup {
    let mut setup = Setup::new(mode, Layout::Files, 4096);
    setup.options.records = Some(records);
    setup
}

#[test]
fn acknowledged_changes_of_files_survive_every_cut_in_every_mode() {
    for mode in DataMode::ALL {
        for records in [RecordFormat::Blocks, RecordFormat::Packed] {
            let setup = setup(mode, records);
            for cut in 0.. {
                let (rig, history, ended) = run_until(&setup, SCRIPT, Some(cut));
                verify(&setup, cut, rig.crash(cut), &history.borrow())
                    .unwrap_or_else(|why| panic!("{setup:?} {SCRIPT:?} cut {cut}: {why}"));
                if ended {
                    break;
                }
            }
        }
    }
}

/// The files' flushes during a run of `setup`, file by file.
fn flushes(setup: &Setup, homes: &'static [u64]) -> Vec<usize> {
    let rig = Rig::new(setup, 1, setup.images());
    let parts = rig.parts.clone();
    let engine = rig.run(Rig::open(parts)).unwrap();
    rig.disks.iter().for_each(|disk| disk.record());
    rig.run(async move {
        for home in homes {
            let transaction = write_byte(&engine, 1, Files::address(*home).get(), 7).await;
            engine.sync_owner(Owner(1), transaction).await.unwrap();
        }
    });
    let files = &rig.disks[..rig.disks.len() - 1];
    let flushes_of = |file: &disks::MemoryDisk| {
        file.take_log().iter().filter(|logged| logged.operation == Operation::Flush).count()
    };
    files.iter().map(flushes_of).collect()
}

#[test]
fn only_the_files_that_were_written_are_made_durable() {
    for mode in [DataMode::Ordered, DataMode::Writeback] {
        let setup = setup(mode, RecordFormat::Blocks);
        let found = flushes(&setup, &[0, FILE_BLOCKS * 2]);
        assert_eq!(found[..4], [1, 0, 1, 0], "{mode}");
    }
}

#[test]
fn recovery_refuses_records_of_a_file_that_home_does_not_have() {
    let setup = setup(DataMode::Journal, RecordFormat::Packed);
    let rig = Rig::new(&setup, 1, setup.images());
    rig.try_play(async move |engine| {
        for home in [0, FILE_BLOCKS, 2 * FILE_BLOCKS] {
            let transaction = write_byte(&engine, 1, Files::address(home).get(), 7).await;
            engine.commit(transaction).await.unwrap();
        }
    });
    let mut again = Rig::new(&setup, 1, rig.crash(0));
    let files = Files::new(&setup, &again.disks[..again.disks.len() - 1]);
    again.parts.home = Rc::new(files.without(FILE_BLOCKS));
    let parts = again.parts.clone();
    let refused = again.run(async move { recover(&parts, false).await }).unwrap().unwrap_err();
    assert!(refused.to_string().contains("which is no block of home"), "{refused}");
    assert_eq!(again.home_block(0)[0], common::STALE, "nothing is written before");
}
