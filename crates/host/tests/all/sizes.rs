//! Records of every size in the host journal, in every format: synced bytes are recovered.

use crate::common::*;
use disks::CrashPolicy;
use host::{Destage, Durable, FileFate, HostOptions, RecordFormat, STATES_MAX};
use std::time::Duration;
use store::FileId;

const JOURNAL_BYTES: u64 = 96 << 20;
/// Above it a transaction ends, and the record continues in the next one.
const STATES: usize = STATES_MAX + 72;
/// Number of lengths: every one within a block, and some across the next boundary.
const LENGTHS: usize = 4096 + 40;

fn options(records: RecordFormat) -> HostOptions {
    let (destage, journal_flush) = (Destage::UnderPressure, Duration::from_secs(3600));
    HostOptions { records, destage, journal_flush, ..HostOptions::default() }
}

/// Writes files, syncs them in groups, crashes, recovers, and compares.
fn survive(
    records: RecordFormat,
    (files, together): (usize, usize),
    writes_of: fn(usize) -> Vec<(usize, Vec<u8>)>,
) {
    let stage = Stage::new(1);
    let disk = stage.disk(stage.formatted_with(JOURNAL_BYTES));
    let made: Vec<FileId> = stage.play(&disk, options(records), async move |host, _| {
        let mut made = Vec::new();
        for number in 0..files {
            let file = make(&host, &format!("{number}")).await;
            for (at, bytes) in writes_of(number) {
                host.write(file, at as u64, &bytes, Durable::Soon).await.unwrap();
            }
            made.push(file);
            if made.len() % together == 0 {
                host.sync().await.unwrap();
            }
        }
        host.sync().await.unwrap();
        made
    });
    let disk = stage.disk(stage.crash(&disk, CrashPolicy::LoseAll));
    let report = stage.recovered(&disk, options(records));
    assert_eq!(report.files.len(), files, "{records:?}: all are in the journal alone");
    for (number, file) in made.iter().enumerate() {
        let mut expected = Vec::new();
        for (at, bytes) in writes_of(number) {
            expected.resize(expected.len().max(at + bytes.len()), 0);
            expected[at..at + bytes.len()].copy_from_slice(&bytes);
        }
        assert_eq!(stage.content(*file), expected, "{records:?}, file {number}");
    }
    assert!(report.files.iter().all(|file| file.outcome == FileFate::Replayed));
}

#[test]
fn every_number_of_states_survives_in_every_format() {
    for records in RecordFormat::ALL {
        survive(records, (STATES, 1), |number| {
            (0..=number)
                .map(|state| (state * 22, format!("acknowledged data {state:03}\n").into()))
                .collect()
        });
    }
}

/// Returns one write of a length, from this offset on.
fn at_offset<const AT: usize>(number: usize) -> Vec<(usize, Vec<u8>)> {
    vec![(AT, (0..=number).map(|byte| (byte % 23) as u8).collect())]
}

#[test]
fn every_length_of_data_survives_in_every_format() {
    for records in RecordFormat::ALL {
        for at_every_offset in
            [at_offset::<0>, at_offset::<1>, at_offset::<2048>, at_offset::<4095>]
        {
            survive(records, (LENGTHS, 64), at_every_offset);
        }
    }
}
