//! Figure 2a: what a sequential reader keeps of its disk's bandwidth beside a writer of small synced updates.

use crate::figure::{Figure, FigureError, Picture, Results, Scale};
use crate::figures::shared::{axis, claim, of_paper, ours, picture, ratio};
use crate::statement::Expected;
use crate::{Claim, Context};
use engine::{DataMode, LogKind};
use stages::{ReadAndSynced, ReaderBeside, Stage, StageOptions};

pub fn figure() -> Figure {
    Figure {
        name: "manylogs-2a",
        title: "A sequential reader beside small synced updates",
        source: "Manylogs (MSST 2016), Figure 2a",
        about: "A reader of 2 GB, read ahead by 128 KiB as Linux 3.4 does, beside a writer that updates 4 KiB (and 512 B) of each of 20 files all over the \
                disk and syncs, 2 to 16 times a second, on one Cheetah of 146 GB: the share of the bandwidth that the reader \
                keeps, and how long a sync takes. The scattered logs have 10 MiB in every 100 MiB.",
        minutes: 5,
        by_chance: true,
        real_time: false,
        run,
    }
}

/// What is logged, and where the log lies.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Line {
    name: &'static str,
    data: DataMode,
    log: LogKind,
}

const fn line(name: &'static str, data: DataMode, log: LogKind) -> Line {
    Line { name, data, log }
}
const LINES: [Line; 5] = [
    line("ordered", DataMode::Ordered, LogKind::Circular),
    line("adaptive", DataMode::Adaptive, LogKind::Circular),
    line("manylogs", DataMode::Adaptive, LogKind::Scattered),
    line("wasteless", DataMode::Wasteless, LogKind::Circular),
    line("wasteless, scattered", DataMode::Wasteless, LogKind::Scattered),
];
const RATES: [u32; 4] = [40, 80, 160, 320];
const UPDATES: [usize; 2] = [4096, 512];

#[derive(Clone, Copy)]
struct Cell {
    line: Line,
    update: usize,
    rate: u32,
}

struct Played {
    cell: Cell,
    found: ReadAndSynced,
}

fn run(context: &Context) -> Result<Results, FigureError> {
    let rates: &[u32] = if context.quick { &[40, 320] } else { &RATES };
    let alone = Cell { line: LINES[0], update: 4096, rate: 0 };
    let mut cells = vec![alone];
    for update in UPDATES {
        for line in LINES {
            cells.extend(rates.iter().map(|&rate| Cell { line, update, rate }));
        }
    }
    let runs = context.play(&cells, |cell| play(cell, context))?;
    let whole = rate_of(&runs[0].found);
    let kept = |played: &Played| rate_of(&played.found) / whole * 100.0;
    let points = |update: usize, line: Line, y: &dyn Fn(&Played) -> f64| {
        let mine = runs[1..].iter().filter(|played| played.cell.update == update && played.cell.line == line);
        mine.map(|played| (f64::from(played.cell.rate), y(played))).collect::<Vec<_>>()
    };
    let mut pictures = Vec::new();
    for update in UPDATES {
        let of =
            |title: &str, label: &str, y: &dyn Fn(&Played) -> f64, papers: &[(&str, [f64; 2])]| -> Picture {
                let mut series: Vec<_> =
                    LINES.iter().map(|line| ours(line.name, points(update, *line, y))).collect();
                let ends = |[low, high]: [f64; 2]| vec![(40.0, low), (320.0, high)];
                if update == 4096 {
                    series.extend(papers.iter().map(|(name, numbers)| of_paper(name, ends(*numbers))));
                }
                let title = format!("{title}, updates of {update} B");
                picture(&title, axis("updates a second", Scale::Linear), axis(label, Scale::Linear), series)
            };
        pictures.push(of("Bandwidth", "bandwidth kept (%)", &kept, &PAPER_KEPT));
        pictures.push(of(
            "Sync",
            "mean time of a sync (ms)",
            &|played| played.found.mean_sync_ms,
            &PAPER_SYNC,
        ));
    }
    let last = |update: usize, name: &str, y: &dyn Fn(&Played) -> f64| {
        let line = *LINES.iter().find(|line| line.name == name).expect("a line of this figure");
        let points = points(update, line, y);
        (points[0].1, points[points.len() - 1].1)
    };
    let sync = |played: &Played| played.found.mean_sync_ms;
    let claims = claims(&|name| last(4096, name, &kept), &|name| last(4096, name, &sync))
        .into_iter()
        .chain(asked(&|name| last(4096, name, &kept), &|name| last(4096, name, &sync)))
        .chain(beyond(&|name| last(512, name, &kept), &|name| last(512, name, &sync)))
        .collect();
    let notes = vec![
        format!("The reader alone reads {:.1} MB/s; the shares are of that.", whole / 1e6),
        "Extents in ext3's place (scattered logs need them), a journal of 512 MiB in 5 GB's, which no run fills. Nothing goes home \
         from the log within a run, in any mode. The drive's write cache is off."
            .to_owned(),
        "The paper's basic elevator is taken for Linux's noop: the drive has one request at a time, of at most 512 KiB, in the order in \
         which they came. Neighbours that wait are not merged here. A drive with 32 requests to choose from by shortest positioning \
         would prefer the reader, whose next read is always the nearest."
            .to_owned(),
        "Two windows of 128 KiB are under way, as Linux 3.4 reads ahead. Where the reader's file lies is the allocator's choice."
            .to_owned(),
    ];
    Ok(Results { pictures, claims, notes })
}

const PAPER_KEPT: [(&str, [f64; 2]); 3] =
    [("ordered", [57.0, 5.0]), ("adaptive", [85.0, 17.0]), ("manylogs", [97.0, 51.0])];
const PAPER_SYNC: [(&str, [f64; 2]); 3] =
    [("ordered", [209.0, 919.0]), ("adaptive", [58.0, 100.0]), ("manylogs", [35.0, 40.0])];

fn play(cell: &Cell, context: &Context) -> Result<Played, FigureError> {
    let Line { name, data, log } = cell.line;
    let mut options = StageOptions { seed: context.seed, ..StageOptions::of_manylogs(data, log) };
    let (read_span, seconds) = if context.quick { (256 << 20, 4) } else { (2 << 30, 30) };
    if context.quick {
        options.home.options.size = Some(8 << 30);
        options.journal_size = 64 << 20;
    }
    if let Some(prefix) = context.trace_prefix(&format!("{name}-{}-{}", cell.update, cell.rate)) {
        options.trace_to(&prefix);
    }
    let stage = Stage::build(&options)?;
    let scene = ReaderBeside {
        updates_per_second: cell.rate,
        update: cell.update,
        read_span,
        seconds,
        seed: context.seed,
    };
    let found = scene.play(&stage).map_err(stages::StageError::from)?;
    Ok(Played { cell: *cell, found })
}

/// Bytes a second.
fn rate_of(found: &ReadAndSynced) -> f64 {
    found.bytes_read as f64 / found.seconds.max(1e-9)
}

/// Of the lowest and of the highest rate.
type Ends<'a> = &'a dyn Fn(&str) -> (f64, f64);

fn claims(kept: Ends, sync: Ends) -> Vec<Claim> {
    let mut claims = Vec::new();
    // Each mode's numbers of the paper, at 40 and at 320 updates a second.
    let [(_, ordered), (_, adaptive), (_, manylogs)] = PAPER_KEPT;
    let papers = [("manylogs", manylogs), ("adaptive", adaptive)];
    for (name, paper) in papers {
        let (mine, base) = (kept(name), kept("ordered"));
        for (at, rate, pair) in [(0, 40, (mine.0, base.0)), (1, 320, (mine.1, base.1))] {
            claims.push(ratio(
                &format!("bandwidth kept by {name} over that kept by ordered, at {rate} updates a second"),
                &format!("{:.1} ({} / {} %)", paper[at] / ordered[at], paper[at], ordered[at]),
                Expected::Number(paper[at] / ordered[at]),
                pair,
            ));
        }
    }
    let [(_, ordered), (_, adaptive), (_, manylogs)] = PAPER_SYNC;
    for (name, paper) in [("ordered", ordered), ("adaptive", adaptive)] {
        let (mine, base) = (sync(name), sync("manylogs"));
        for (at, rate, pair) in [(0, 40, (mine.0, base.0)), (1, 320, (mine.1, base.1))] {
            claims.push(ratio(
                &format!("the sync of {name} over that of manylogs, at {rate} updates a second"),
                &format!("{:.1} ({} / {} ms)", paper[at] / manylogs[at], paper[at], manylogs[at]),
                Expected::Number(paper[at] / manylogs[at]),
                pair,
            ));
        }
    }
    claims
}

/// What we ask of ourselves, at the lowest and the highest rate.
fn asked(kept: Ends, sync: Ends) -> Vec<Claim> {
    let (manylogs, ordered, slow) = (kept("manylogs"), kept("ordered"), sync("manylogs"));
    let of = |rate: u32, (least, most): (f64, f64), (manylogs, ordered): (f64, f64)| {
        claim(
            &format!("at {rate} updates a second manylogs keeps at least {least} % of the bandwidth, ordered at most {most} %"),
            "ours",
            format!("{manylogs:.0} and {ordered:.0} %"),
            manylogs >= least && ordered <= most,
        )
        .of_ours()
    };
    vec![
        of(40, (90.0, 65.0), (manylogs.0, ordered.0)),
        of(320, (40.0, 10.0), (manylogs.1, ordered.1)),
        claim(
            "a sync of manylogs takes less than 60 ms at both rates",
            "ours",
            format!("{:.0} and {:.0} ms", slow.0, slow.1),
            slow.0.max(slow.1) < 60.0,
        )
        .of_ours(),
    ]
}

/// Ours alone: no paper has the two together.
fn beyond(kept: Ends, sync: Ends) -> Vec<Claim> {
    let (both, manylogs, wasteless) = (kept("wasteless, scattered"), kept("manylogs"), kept("wasteless"));
    vec![
        claim(
            "of updates of 512 B, at 320 a second, scattered wasteless keeps at least what manylogs and wasteless keep",
            "ours",
            format!("{:.0} against {:.0} and {:.0} %", both.1, manylogs.1, wasteless.1),
            both.1 >= manylogs.1 && both.1 >= wasteless.1,
        )
        .of_ours(),
        claim(
            "and its sync takes no longer than theirs",
            "ours",
            format!(
                "{:.1} against {:.1} and {:.1} ms",
                sync("wasteless, scattered").1,
                sync("manylogs").1,
                sync("wasteless").1
            ),
            sync("wasteless, scattered").1 <= sync("manylogs").1
                && sync("wasteless, scattered").1 <= sync("wasteless").1,
        )
        .of_ours(),
    ]
}
