//! Figures 2a and 2b: the share of disk bandwidth that a sequential process keeps beside a writer
//! of small synced updates.

use super::scene::{
    ADAPTIVE, Bar, Bars, Cell, DATA, LINES, Line, MANYLOGS, ORDERED, Setting, line, notes, play,
    stated,
};
use crate::figures::common::most;
use crate::number::short;
use crate::{Claim, Context, Figure, FigureError, Results};
use engine::{DataMode, LogKind};
use testbeds::{HomeOrder, SequentialFile, SmallWriters, Updates};

pub const FIGURE_2A: Figure = Figure {
    name: "manylogs-2a",
    title: "A sequential reader beside small synced updates",
    source: "Manylogs (MSST 2016), Figure 2a",
    about: "A reader of 2 GB, read ahead by 128 KiB as Linux 3.4 does, beside a writer that updates 4 KiB (and 512 B) of each of 20 files all over the \
            disk and syncs, 2 to 16 times a second, on one Cheetah of 146 GB: the share of the bandwidth that the reader \
            keeps, and how long a sync takes. The scattered logs have 10 MiB in every 100 MiB.",
    minutes: 5,
    by_chance: true,
    real_time: false,
    run: run_2a,
};

pub const FIGURE_2B: Figure = Figure {
    name: "manylogs-2b",
    title: "A sequential writer beside small synced updates",
    source: "Manylogs (MSST 2016), Figure 2b",
    about: "As manylogs-2a, with a process that writes its 2 GB in order, again and again, and waits for nothing but memory.",
    minutes: 2,
    by_chance: true,
    real_time: false,
    run: run_2b,
};

const WASTELESS: Line = line("wasteless", DataMode::Wasteless, LogKind::Circular);
const BOTH: Line = line("wasteless, scattered", DataMode::Wasteless, LogKind::Scattered);
/// Ordered where sync(2) leaves committed metadata in the log alone; and the orders in which its
/// data may be written home then.
pub const BY_FILE: Line =
    Line { home_with_sync: false, name: "ordered, metadata stays in the log", ..ORDERED };
const BY_PLACE: Line = line("ordered, sorted by place", DataMode::Ordered, LogKind::Circular);
const IN_TURN: Line = Line {
    order: HomeOrder::ByFileInTurn,
    ..line("ordered, each file waited for", DataMode::Ordered, LogKind::Circular)
};

/// Updates a second.
const RATES: [u32; 4] = [40, 80, 160, 320];
const UPDATES: [usize; 2] = [4096, 512];

pub fn rates(context: &Context) -> &'static [u32] {
    if context.quick { &[40, 320] } else { &RATES }
}

/// Returns cells of updates of a given size, at each rate and times `drives`.
pub fn cells(
    part: usize,
    lines: &[Line],
    rates: &[u32],
    (bytes, drives): (usize, u32),
) -> Vec<Cell> {
    let of = |line: Line, rate: u32| {
        let small = updates(line, rate * drives, bytes);
        Cell { part, line, x: f64::from(rate), small }
    };
    lines.iter().flat_map(|line| rates.iter().map(move |rate| of(*line, *rate))).collect()
}

/// Returns the updates of a line.
pub fn updates(line: Line, per_second: u32, bytes: usize) -> SmallWriters {
    let Line { order, home_with_sync, .. } = line;
    SmallWriters::Updates(Updates { per_second, bytes, order, home_with_sync })
}

/// Returns the paper's four modes, with updates alone.
pub fn of_paper(
    context: &Context,
    large: fn(u64) -> SequentialFile,
    rates: &[u32],
) -> Result<Bars, FigureError> {
    play(context, Setting::new(context, large), cells(0, &LINES, rates, (4096, 1)))
}

fn run_2a(context: &Context) -> Result<Results, FigureError> {
    let lines =
        [ORDERED, BY_FILE, BY_PLACE, IN_TURN, LINES[1], ADAPTIVE, MANYLOGS, WASTELESS, BOTH];
    let small_lines = [ORDERED, ADAPTIVE, MANYLOGS, WASTELESS, BOTH];
    let mut all = cells(0, &lines, rates(context), (UPDATES[0], 1));
    all.extend(cells(1, &small_lines, rates(context), (UPDATES[1], 1)));
    let queued = [ORDERED, ADAPTIVE, MANYLOGS].map(|line| Line { queued: true, ..line });
    all.extend(cells(2, &queued, rates(context), (UPDATES[0], 1)));
    let bars = play(context, Setting::new(context, SequentialFile::reader), all)?;
    let x = "updates a second";
    let papers = |numbers: [(&str, [f64; 2]); 3]| {
        numbers.map(|(name, ends)| stated(name, (40.0, 320.0), ends)).to_vec()
    };
    let mut pictures = bars.pictures(
        0,
        &lines,
        ("updates of 4096 B", x),
        [papers(PAPER_KEPT), papers(PAPER_WAITS)],
    );
    pictures.extend(bars.pictures(1, &small_lines, ("updates of 512 B", x), [vec![], vec![]]));
    let papers = [papers(PAPER_KEPT), papers(PAPER_WAITS)];
    pictures.extend(bars.pictures(2, &queued, ("4096 B, drive with a queue", x), papers));
    let mut claims = of_paper_2a(&bars);
    claims.extend(bars.same_order(0, "manylogs-2a/order"));
    claims.extend(asked(&bars));
    claims.extend(beyond(&bars));
    let mut notes = notes(bars.alone);
    notes.push(
        "The last pictures have no elevator: the drive gets all requests as they come. The paper does not say whether its host used the drive's queue. No \
         statement is judged there."
            .into(),
    );
    notes.push(
        "What ordered's sync writes was chosen twice after a run that failed. Sorted by place, as the engine writes it, ordered kept 78 % at 40 \
         updates a second; file by file and all at once, as Linux 3.4's sync(2) starts dirty files, it kept 68. That sync goes on: when the journal has \
         committed, it writes the dirty blocks of the device (__sync_blockdev), and these are what ext3 just committed: the 20 files' inodes. So it is \
         played for ext3's own modes, ordered and data journaling. The others are the paper's own, which checkpoint lazily. Each choice is drawn beside it."
            .into(),
    );
    Ok(Results { pictures, claims, notes })
}

const PAPER_KEPT: [(&str, [f64; 2]); 3] =
    [("ordered", [57.0, 5.0]), ("adaptive", [85.0, 17.0]), ("manylogs", [97.0, 51.0])];
const PAPER_WAITS: [(&str, [f64; 2]); 3] =
    [("ordered", [209.0, 919.0]), ("adaptive", [58.0, 100.0]), ("manylogs", [35.0, 40.0])];

const KEPT: fn(&Bar) -> f64 = |bar| bar.kept;
const WAIT: fn(&Bar) -> f64 = |bar| bar.wait_ms;

/// Compares each mode with the paper's numbers, at 40 and at 320 updates a second.
fn of_paper_2a(bars: &Bars) -> Vec<Claim> {
    let mut claims = Vec::new();
    let over = |line: Line, y: fn(&Bar) -> f64, base: Line| {
        let (mine, base) = (bars.ends(0, line, y), bars.ends(0, base, y));
        [mine.0 / base.0, mine.1 / base.1]
    };
    let mut add = |id: String, [low, high]: [f64; 2], other: Option<[f64; 2]>| {
        for (rate, at, value) in [(40, 0, low), (320, 1, high)] {
            let claim = Claim::of(&format!("manylogs-2a/{id}-{rate}"), value);
            claims.push(match other {
                Some(other) => claim.with_other_choice(in_log(other[at])),
                None => claim,
            });
        }
    };
    for line in [MANYLOGS, ADAPTIVE] {
        let (kept, stays) = (over(line, KEPT, ORDERED), over(line, KEPT, BY_FILE));
        add(format!("kept-{}", line.name), kept, Some(stays));
    }
    let stays = over(BY_FILE, WAIT, MANYLOGS);
    add("sync-ordered".into(), over(ORDERED, WAIT, MANYLOGS), Some(stays));
    add("sync-adaptive".into(), over(ADAPTIVE, WAIT, MANYLOGS), None);
    claims
}

/// Describes a result of the other choice.
pub fn in_log(result: f64) -> String {
    format!("{} where metadata stays in the log", short(result))
}

/// Checks our own bounds, at the lowest and the highest rate.
fn asked(bars: &Bars) -> Vec<Claim> {
    let (manylogs, ordered) = (bars.ends(0, MANYLOGS, KEPT), bars.ends(0, ORDERED, KEPT));
    let stays = bars.ends(0, BY_FILE, KEPT);
    let of = |rate: u32, (least, most): (f64, f64), [manylogs, ordered, stays]: [f64; 3]| {
        Claim::of(&format!("manylogs-2a/asked-{rate}"), (manylogs / least).min(most / ordered))
            .shown(format!("{manylogs:.0} and {ordered:.0} %"))
            .with_other_choice(in_log(stays))
    };
    let waits = bars.of(0, MANYLOGS).into_iter().map(|bar| bar.wait_ms);
    vec![
        of(40, (90.0, 65.0), [manylogs.0, ordered.0, stays.0]),
        of(320, (40.0, 10.0), [manylogs.1, ordered.1, stays.1]),
        Claim::of("manylogs-2a/sync-below-60", most(waits)),
    ]
}

/// Compares combinations that no paper has.
fn beyond(bars: &Bars) -> Vec<Claim> {
    let of = |y: fn(&Bar) -> f64| [BOTH, MANYLOGS, WASTELESS].map(|line| bars.ends(1, line, y).1);
    let [both, manylogs, wasteless] = of(KEPT);
    let kept = Claim::of("manylogs-2a/both-kept", both / manylogs.max(wasteless))
        .shown(format!("{both:.0} against {manylogs:.0} and {wasteless:.0} %"));
    let [both, manylogs, wasteless] = of(WAIT);
    let waits = Claim::of("manylogs-2a/both-wait", manylogs.min(wasteless) / both)
        .shown(format!("{both:.1} against {manylogs:.1} and {wasteless:.1} ms"));
    vec![kept, waits]
}

fn run_2b(context: &Context) -> Result<Results, FigureError> {
    let bars = of_paper(context, SequentialFile::writer, rates(context))?;
    let pictures =
        bars.pictures(0, &LINES, ("beside a writer", "updates a second"), [vec![], vec![]]);
    let mut claims = bars.same_order(0, "manylogs-2b/order");
    let reader = Setting::new(context, SequentialFile::reader);
    let beside_reader = play(context, reader, cells(0, &[DATA], rates(context), (4096, 1)))?;
    let kept = |bars: &Bars| bars.of(0, DATA).into_iter().map(|bar| bar.kept);
    let ratios: Vec<f64> =
        kept(&bars).zip(kept(&beside_reader)).map(|(writer, reader)| writer / reader).collect();
    claims.push(Claim::of_each("manylogs-2b/data-beside-writer", &ratios));
    let mut notes = notes(bars.alone);
    notes.push(
        "What is written waits in memory, of which half may be dirty (128 MiB), and is written home from there or with the commit that a sync asks for. The \
         writer's bytes count when they are durable. The paper has 8 GB of memory, and does not say how much of it may be dirty."
            .into(),
    );
    Ok(Results { pictures, claims, notes })
}
