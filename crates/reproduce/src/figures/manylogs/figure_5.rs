//! Figure 5: the reader beside databases' commit logs.

use super::scene::{Bar, Bars, Cell, LINES, Line, MANYLOGS, O_DUR, Setting, notes, play};
use crate::figures::common::least;
use crate::{Claim, Context, Figure, FigureError, Results};
use std::sync::Arc;
use std::time::Duration;
use testbeds::{LogReplayWriters, SequentialFile, SmallWriters};
use workloads::{LogRecord, LogTrace};

pub const FIGURE_5: Figure = Figure {
    name: "manylogs-5",
    title: "A sequential reader beside databases' commit logs",
    source: "Manylogs (MSST 2016), Figure 5",
    about: "A reader of 3 GB beside one to four replays of a commit log that was recorded on PostgreSQL, flushed every 33 ms and every millisecond: the share \
            of the bandwidth that the reader keeps, and how long a flush takes.",
    minutes: 3,
    by_chance: true,
    real_time: false,
    run,
};

const TRACE: &str = "postgres-tpcb";
const PERIODS_MS: [u64; 2] = [33, 1];

/// Lines: the paper opens the log with O_DUR; without it manylogs decides by size alone.
fn lines() -> Vec<Line> {
    [&LINES[..], &[O_DUR]].concat()
}

pub fn databases(context: &Context) -> &'static [u32] {
    if context.quick { &[1, 4] } else { &[1, 2, 3, 4] }
}

pub fn bars(context: &Context, databases: &[u32]) -> Result<Bars, FigureError> {
    let trace = LogTrace::open(TRACE).map_err(|error| FigureError::Other(error.to_string()))?;
    let mut cells = Vec::new();
    for (part, period) in PERIODS_MS.into_iter().enumerate() {
        let flushed = Arc::new(flushed_every(&trace, Duration::from_millis(period)));
        for line in lines() {
            cells.extend(databases.iter().map(|&instances| {
                let small =
                    SmallWriters::Logs(LogReplayWriters { trace: flushed.clone(), instances });
                Cell { part, line, x: f64::from(instances), small }
            }));
        }
    }
    let one = Setting::new(context, SequentialFile::reader);
    let span = if context.quick { one.large.span } else { 3 << 30 };
    play(context, Setting { large: SequentialFile::reader(span), ..one }, cells)
}

fn run(context: &Context) -> Result<Results, FigureError> {
    let bars = bars(context, databases(context))?;
    let (mut pictures, mut claims) = (Vec::new(), Vec::new());
    for (part, period) in PERIODS_MS.into_iter().enumerate() {
        let title = format!("flushed every {period} ms");
        pictures.extend(bars.pictures(part, &lines(), (&title, "databases"), [vec![], vec![]]));
        claims.extend(bars.same_order_with(part, &format!("manylogs-5/{period}ms"), O_DUR));
        claims.push(durability_alone(&bars, part, period));
    }
    let [slow, fast] = [0, 1].map(|part| bars.ends(part, O_DUR, |bar| bar.kept).0);
    for (period, kept) in [(33, slow), (1, fast)] {
        // A share is always below 1: its direction would say nothing.
        claims.push(Claim::of(&format!("manylogs-5/lost-{period}"), (100.0 - kept) / kept));
    }
    claims.push(Claim::of("manylogs-5/similar", fast / slow));
    let [slow, fast] = [0, 1].map(|part| bars.ends(part, O_DUR, |bar| bar.wait_ms).1);
    claims.push(Claim::of("manylogs-5/four-slower", fast / slow));
    let mut notes = notes(bars.alone);
    notes.push(
        "In MongoDB's place stands the recorded log of a PostgreSQL (docs/TRACES.md) with some 90 commits a second, each synced; here a flush comes at the end of each period \
         in which something was written, as MongoDB's flushing thread does. The load begins after a checkpoint, so that many writes of its first half minute carry whole pages and are \
         larger than 32 KiB. The time is that of a flush, without the wait for the period's end. The paper's log is opened O_DUR, which here durable_only \
         says of its name; in the line without it the mode alone decides, and what is larger than 32 KiB is written home. The log's file is there in full before."
            .into(),
    );
    Ok(Results { pictures, claims, notes })
}

/// Claims the gain of O_DUR for manylogs, by the number of databases.
fn durability_alone(bars: &Bars, part: usize, period: u64) -> Claim {
    let [without, with] = [MANYLOGS, O_DUR].map(|line| bars.of(part, line));
    let pairs = || without.iter().zip(&with);
    let gain = |(without, with): (&Bar, &Bar)| {
        (with.kept / without.kept).min(without.wait_ms / with.wait_ms)
    };
    let pairs_in_words: Vec<_> = pairs()
        .map(|(without, with)| {
            let (kept, wait) = ((with.kept, without.kept), (with.wait_ms, without.wait_ms));
            format!("{:.0} for {:.0} %, {:.0} for {:.0} ms", kept.0, kept.1, wait.0, wait.1)
        })
        .collect();
    Claim::of(&format!("manylogs-5/{period}ms-o-dur"), least(pairs().map(gain)))
        .shown(pairs_in_words.join("; "))
}

/// Makes the same writes durable together at the end of each period.
fn flushed_every(trace: &LogTrace, period: Duration) -> LogTrace {
    let mut records: Vec<LogRecord> = Vec::new();
    let flush_after = |at: Duration| {
        let periods = at.as_nanos() / period.as_nanos() + 1;
        Duration::from_nanos((periods * period.as_nanos()) as u64)
    };
    for record in trace.records.iter().filter(|record| record.size > 0) {
        if let Some(last) =
            records.last().map(|last| flush_after(last.at)).filter(|flush| *flush <= record.at)
        {
            records.push(LogRecord { at: last, offset: record.offset, size: 0, sync: true });
        }
        records.push(LogRecord { sync: false, ..*record });
    }
    LogTrace { name: trace.name.clone(), records }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_period_with_writes_ends_with_one_flush() {
        let record =
            |us, size, sync| LogRecord { at: Duration::from_micros(us), offset: 0, size, sync };
        let records = vec![
            record(100, 5, true),
            record(900, 6, true),
            record(1000, 7, true),
            record(9000, 8, true),
        ];
        let trace = LogTrace { name: "made".into(), records };
        let flushed = flushed_every(&trace, Duration::from_millis(1));
        let found: Vec<_> =
            flushed.records.iter().map(|it| (it.at.as_micros(), it.size, it.sync)).collect();
        assert_eq!(
            found,
            [
                (100, 5, false),
                (900, 6, false),
                (1000, 0, true),
                (1000, 7, false),
                (2000, 0, true),
                (9000, 8, false)
            ]
        );
    }
}
