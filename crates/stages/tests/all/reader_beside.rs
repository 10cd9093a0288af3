//! What scattered logs are for: a sequential reader and a writer that syncs share a disk with an arm.

use engine::{DataMode, LogKind};
use stages::{ReadAndSynced, ReaderBeside, Stage, StageOptions};

fn play(data: DataMode, log: LogKind, updates_per_second: u32) -> ReadAndSynced {
    let mut options = StageOptions { seed: 3, ..StageOptions::of_manylogs(data, log) };
    options.home.options.size = Some(16 << 30);
    options.journal_size = 64 << 20;
    let stage = Stage::build(&options).unwrap();
    let scene = ReaderBeside { updates_per_second, update: 4096, read_span: 1 << 30, seconds: 6, seed: 3 };
    let found = scene.play(&stage).unwrap();
    println!("{data} {} {updates_per_second}: {found:?}", log.name());
    stage.close_and_check().unwrap();
    found
}

#[test]
fn a_reader_keeps_more_beside_scattered_logs_and_syncs_take_less() {
    let alone = play(DataMode::Ordered, LogKind::Circular, 0).bytes_read;
    for rate in [40, 320] {
        let ordered = play(DataMode::Ordered, LogKind::Circular, rate);
        let adaptive = play(DataMode::Adaptive, LogKind::Circular, rate);
        let manylogs = play(DataMode::Adaptive, LogKind::Scattered, rate);
        for (worse, better) in [(&ordered, &adaptive), (&adaptive, &manylogs)] {
            assert!(worse.bytes_read < better.bytes_read, "at {rate} of {alone}: {worse:?}, {better:?}");
            assert!(worse.mean_sync_ms > better.mean_sync_ms, "at {rate}: {worse:?}, {better:?}");
        }
        assert!(manylogs.bytes_read <= alone);
    }
}
