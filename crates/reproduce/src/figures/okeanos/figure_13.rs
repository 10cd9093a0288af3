//! Figure 13: recovery after a power cut, by pass.

use crate::error::FigureError;
use crate::figure::{Figure, Results, Scale, Series};
use crate::figures::common::{FIVE_MODES, axis, ours, picture, rig};
use crate::{Claim, Context};
use engine::{DataMode, RecoveryReport};
use std::time::Duration;
use testbeds::Stage;
use workloads::{Files, PeriodicOptions, SyncKind, periodic, periodic_byte, periodic_file};

pub fn figure() -> Figure {
    Figure {
        name: "13",
        title: "Recovery after a power cut, by pass",
        source: "Okeanos (TOS 2013), Figure 13",
        about: "100 threads append 8 B to a file each, O_SYNC, 100 times as fast as they can; a second later the power of both \
                Cheetahs is cut; then recovery, timed by pass, and all that was written is read back.",
        minutes: 1,
        by_chance: false,
        real_time: false,
        run,
    }
}

const SIZE: usize = 8;
/// Idle time, in which drives write their caches out, and too short for write-back of old blocks.
const REST: Duration = Duration::from_secs(1);

type Nanoseconds = fn(&RecoveryReport) -> u64;

fn run(context: &Context) -> Result<Results, FigureError> {
    let (threads, writes) = if context.quick { (10, 10) } else { (100, 100) };
    let play_one = |data: &DataMode| play(*data, context, threads, writes);
    let reports = context.play(&FIVE_MODES, play_one)?;

    let ms = |nanoseconds: u64| nanoseconds as f64 / 1e6;
    let passes: [(&str, Nanoseconds); 5] = [
        ("scan", scan_of),
        ("look ahead", |report| report.look_ahead_nanoseconds),
        ("revoke", |report| report.revoke.nanoseconds),
        ("replay", |report| report.replay.nanoseconds),
        ("total", |report| report.nanoseconds),
    ];
    let bars = |(pass, of): (&str, Nanoseconds)| -> Series {
        let points = reports.iter().enumerate().map(|(at, report)| (at as f64, ms(of(report))));
        ours(pass, points.collect())
    };
    let report = |data| {
        let at = FIVE_MODES.iter().position(|mode| *mode == data).expect("all modes are played");
        &reports[at]
    };
    let scan = |data| scan_of(report(data)) as f64;
    let replay = |data| report(data).replay.nanoseconds as f64;
    let total = |data| report(data).nanoseconds as f64;
    let (data, wasteless, selective) =
        (DataMode::Journal, DataMode::Wasteless, DataMode::Selective);
    let ordered = DataMode::Ordered;
    let claims = vec![
        Claim::of("13/scan-wasteless", scan(data) / scan(wasteless)),
        Claim::of("13/scan-selective", scan(data) / scan(selective)),
        Claim::of("13/all-wasteless", total(wasteless) / total(data)),
        Claim::of("13/all-selective", total(selective) / total(data)),
        Claim::of("13/data-over-ordered", total(data) / total(ordered)),
        Claim::of("13/replay-over-ordered", replay(wasteless) / replay(ordered)),
        Claim::of("13/replay-over-data", replay(wasteless) / replay(data)),
    ];
    let x = axis("mode", Scale::Names(FIVE_MODES.map(|data| data.name().to_string()).into()));
    let title = format!("{threads} threads, {writes} writes each");
    let pictures =
        vec![picture(&title, x, axis("recovery (ms)", Scale::Linear), passes.map(bars).into())];
    let notes = vec![
        "Where the log ends, our recovery looks ahead for what would prove that the log is damaged there; ext3 did not. How far, \
         the journal superblock records, which is updated before a longer transaction is written (docs/ON_DISK.md): here 2.5 MiB \
         or a little more, and not half of the log as before. It is shown apart from the scan, and is in the total."
            .into(),
        "Our revoke pass reads nothing when the scan has found no revoke blocks.".into(),
    ];
    Ok(Results { pictures, claims, notes })
}

/// Returns the time of the log's scan.
fn scan_of(report: &RecoveryReport) -> u64 {
    report.scan.nanoseconds - report.look_ahead_nanoseconds
}

fn play(
    data: DataMode,
    context: &Context,
    streams: u32,
    writes: u64,
) -> Result<RecoveryReport, FigureError> {
    let mut stage = Stage::build(&rig(context, data))?;
    let rest = context.overrides.time("13", "REST", REST);
    let options = PeriodicOptions {
        streams,
        size: SIZE,
        period: Duration::ZERO,
        time: Duration::MAX,
        count: writes,
        sync: SyncKind::OSync,
    };
    stage.run(move |files| async move {
        periodic(&files, options).await?;
        files.sleep_until(files.now().plus(rest)).await;
        Ok::<(), std::io::Error>(())
    })?;
    let report = stage.crash_and_recover()?;
    let right = stage.run(move |files| async move { read_back(&files, streams, writes).await })?;
    match right {
        true => Ok(report),
        false => Err(FigureError::Other(format!(
            "{data}: something acknowledged is gone after the power cut"
        ))),
    }
}

async fn read_back<F: Files>(files: &F, streams: u32, writes: u64) -> std::io::Result<bool> {
    for stream in 0..streams {
        let file = files.open(&periodic_file(stream), SyncKind::None).await?;
        let mut bytes = vec![0; SIZE * writes as usize + 1];
        let length = files.read_at(&file, 0, &mut bytes).await?;
        let right = (0..writes).zip(bytes.chunks(SIZE)).all(|(number, append)| {
            append.iter().all(|byte| *byte == periodic_byte(stream, number))
        });
        files.close(file).await;
        if length != SIZE * writes as usize || !right {
            return Ok(false);
        }
    }
    Ok(true)
}
