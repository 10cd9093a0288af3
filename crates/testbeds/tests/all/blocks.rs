//! Tests of block requests on one drive, with and without logs in front of it.

use emulated::Shingles;
use emulated::replay::Recorded;
use runtime::SplitMix;
use std::time::Duration;
use testbeds::{BlockLayer, BlockRun, BlocksServed};

/// Plays small writes all over the disk beside reads in one place, 50 a second.
fn play(layer: BlockLayer) -> BlocksServed {
    let rng = SplitMix::new(5);
    let request = |number: u32| {
        let is_write = number % 2 == 0;
        let span: u64 = if is_write { 800 << 30 } else { 1 << 30 };
        let at = (rng.next() % (span >> 12)) << 12;
        Recorded {
            is_write,
            at,
            length: 8192,
            time: Duration::from_millis(20) * number,
            measured: None,
        }
    };
    let requests = (0..500).map(request).collect();
    let changes = Vec::new();
    let run = BlockRun { model: "constellation-es3", changes, layer, requests, checkpoint: true };
    run.play(5).unwrap()
}

fn mean(served: &BlocksServed) -> f64 {
    served.latency_ms.iter().sum::<f64>() / served.latency_ms.len() as f64
}

#[test]
fn scattered_logs_answer_sooner_and_all_can_be_written_back() {
    let plain = play(BlockLayer::Nothing);
    let logged = play(BlockLayer::Scattered { logged: 32 << 10 });
    assert_eq!((plain.latency_ms.len(), logged.latency_ms.len()), (500, 500));
    assert!(mean(&logged) < mean(&plain), "{} and {}", mean(&logged), mean(&plain));
    assert!(plain.checkpoint.is_none() && logged.table_bytes > 0);
    let home = logged.checkpoint.unwrap();
    assert!(home.took > Duration::from_millis(250) && home.reduced.is_some(), "{home:?}");
}

#[test]
fn a_shingled_drive_is_cleaned_band_by_band() {
    let single = play(BlockLayer::Shingled(Shingles::single_log()));
    let scattered = play(BlockLayer::Shingled(Shingles::scattered_logs()));
    assert!(mean(&scattered) < mean(&single), "{} and {}", mean(&scattered), mean(&single));
    // Nearly each of the 250 writes lies in a separate band.
    for served in [single, scattered] {
        assert!(
            served.checkpoint.unwrap().took > Duration::from_secs(60),
            "{:?}",
            served.checkpoint
        );
    }
}
