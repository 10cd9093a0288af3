//! Common parts of figures 2 to 5: modes side by side, and in each a large file and small durable
//! writes on the same disk.

use crate::figures::common::result_cache::ResultCache;
use crate::figures::common::{axis, least, least_step, of_paper, ours, picture};
use crate::number::short;
use crate::{Claim, Context, FigureError, Picture, Scale, Series};
use engine::{DataMode, LogKind};
use testbeds::{
    HomeOrder, Interference, LogReplayWriters, SequentialFile, SharedDisk, SmallWriters, Stage,
    StageOptions,
};

/// The logged data, the log's location, and the order in which the rest is written home.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Line {
    pub name: &'static str,
    pub data: DataMode,
    pub log: LogKind,
    pub order: HomeOrder,
    /// Whether committed blocks are written home before a sync returns, as sync(2) does with ext3's
    /// own modes.
    pub home_with_sync: bool,
    /// Whether the drive gets all requests as they come, and chooses.
    pub queued: bool,
    /// Whether databases' logs need durability alone: the paper's O_DUR.
    pub durable_only: bool,
}

pub const fn line(name: &'static str, data: DataMode, log: LogKind) -> Line {
    Line {
        name,
        data,
        log,
        order: HomeOrder::ByPlace,
        home_with_sync: false,
        queued: false,
        durable_only: false,
    }
}

/// Ordered, as sync(2) of the paper's Linux 3.4 wrote: file by file, then what the journal
/// committed.
pub const ORDERED: Line = Line {
    order: HomeOrder::ByFile,
    home_with_sync: true,
    ..line("ordered", DataMode::Ordered, LogKind::Circular)
};
pub const DATA: Line =
    Line { home_with_sync: true, ..line("journal", DataMode::Journal, LogKind::Circular) };
pub const ADAPTIVE: Line = line("adaptive", DataMode::Adaptive, LogKind::Circular);
pub const MANYLOGS: Line = line("manylogs", DataMode::Adaptive, LogKind::Scattered);
pub const O_DUR: Line = Line { name: "manylogs O_DUR", durable_only: true, ..MANYLOGS };
/// The paper's four lines.
pub const LINES: [Line; 4] = [ORDERED, DATA, ADAPTIVE, MANYLOGS];

/// One run: a line, and the workload beside the large file.
#[derive(Clone)]
pub struct Cell {
    /// Index of its picture.
    pub part: usize,
    pub line: Line,
    pub x: f64,
    pub small: SmallWriters,
}

/// The large file, and the disks that it lies on.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Setting {
    pub large: SequentialFile,
    pub drives: u32,
    pub seconds: u64,
}

impl Setting {
    /// Returns the paper's file of 2 GB and half a minute, on one disk.
    pub fn new(context: &Context, large: fn(u64) -> SequentialFile) -> Setting {
        let (span, seconds) = if context.quick { (1 << 30, 2) } else { (2 << 30, 30) };
        Setting { large: large(span), drives: 1, seconds }
    }
}

/// Results of a cell.
#[derive(Clone, Copy)]
pub struct Bar {
    pub part: usize,
    pub line: Line,
    pub x: f64,
    /// Percent of the large file's bandwidth alone.
    pub kept: f64,
    pub wait_ms: f64,
}

pub struct Bars {
    /// Bytes per second of the large file alone.
    pub alone: f64,
    pub bars: Vec<Bar>,
}

pub fn play(context: &Context, setting: Setting, cells: Vec<Cell>) -> Result<Bars, FigureError> {
    // Table II has the ends of the figures.
    static ALL: ResultCache<(Setting, Line, SmallWriters), SharedDisk> = ResultCache::new();
    let alone = Cell { part: 0, line: ORDERED, x: 0.0, small: SmallWriters::None };
    let cells: Vec<Cell> = std::iter::once(alone).chain(cells).collect();
    let found = context.play(&cells, |cell| {
        let (key, Setting { large, seconds, .. }) =
            ((setting, cell.line, cell.small.clone()), setting);
        ALL.once(context, &key, || {
            let stage = Stage::build(&rig(context, setting, cell))?;
            Ok(Interference { large, small: cell.small.clone(), seconds, seed: context.seed }
                .play(&stage)?)
        })
    })?;
    let alone = found[0].bytes_a_second;
    let bar = |(cell, found): (&Cell, &testbeds::SharedDisk)| {
        let Cell { part, line, x, .. } = *cell;
        Bar {
            part,
            line,
            x,
            kept: found.bytes_a_second / alone * 100.0,
            wait_ms: found.mean_wait_ms,
        }
    };
    Ok(Bars { alone, bars: cells.iter().zip(&found).skip(1).map(bar).collect() })
}

fn rig(context: &Context, setting: Setting, cell: &Cell) -> StageOptions {
    let Line { name, data, log, .. } = cell.line;
    let mut options = StageOptions { seed: context.seed, ..StageOptions::of_manylogs(data, log) };
    options.home.drives = setting.drives;
    if cell.line.queued {
        options.home.elevator = None;
    }
    options.durable_only = cell.line.durable_only.then(LogReplayWriters::durable_only);
    if context.quick {
        options.home.options.size = Some((8 << 30) / u64::from(setting.drives));
        options.journal_size = 64 << 20;
    }
    context.overrides.apply("manylogs", &mut options);
    if let Some(prefix) = context.trace_prefix(&format!("{name}-{}-{}", cell.part, cell.x)) {
        options.trace_to(&prefix);
    }
    options
}

impl Bars {
    pub fn of(&self, part: usize, line: Line) -> Vec<Bar> {
        self.bars.iter().filter(|bar| bar.part == part && bar.line == line).copied().collect()
    }
    /// Returns y at the lowest and the highest x.
    pub fn ends(&self, part: usize, line: Line, y: fn(&Bar) -> f64) -> (f64, f64) {
        let bars = self.of(part, line);
        (y(&bars[0]), y(&bars[bars.len() - 1]))
    }

    /// Draws the bandwidth kept, and the waits for small writes. `papers`: the paper's points of
    /// the two.
    pub fn pictures(
        &self,
        part: usize,
        lines: &[Line],
        (title, x): (&str, &str),
        papers: [Vec<Series>; 2],
    ) -> Vec<Picture> {
        let [kept, waits] = papers;
        let of = |what: &str, label: &str, y: fn(&Bar) -> f64, papers: Vec<Series>| {
            let points =
                |line: &Line| self.of(part, *line).iter().map(|bar| (bar.x, y(bar))).collect();
            let mut series: Vec<Series> =
                lines.iter().map(|line| ours(line.name, points(line))).collect();
            series.extend(papers);
            picture(
                &format!("{what}, {title}"),
                axis(x, Scale::Linear),
                axis(label, Scale::Linear),
                series,
            )
        };
        vec![
            of("Bandwidth", "bandwidth kept (%)", |bar| bar.kept, kept),
            of("Waiting", "mean time of a small durable write (ms)", |bar| bar.wait_ms, waits),
        ]
    }

    /// Claims the paper's order of most of its bars: manylogs is best, then adaptive, then ordered.
    /// `id` begins the identifiers of both statements.
    pub fn same_order(&self, part: usize, id: &str) -> Vec<Claim> {
        self.same_order_with(part, id, MANYLOGS)
    }
    /// Claims that order, where `best` stands for the paper's manylogs.
    pub fn same_order_with(&self, part: usize, id: &str, best: Line) -> Vec<Claim> {
        let lines = [ORDERED, ADAPTIVE, best].map(|line| self.of(part, line));
        let one = |what: &str, better: fn(&Bar) -> f64| {
            let step = |at: usize| {
                let [ordered, adaptive, best] = [0, 1, 2].map(|of| better(&lines[of][at]));
                least_step(&[best, adaptive, ordered])
            };
            let steps: Vec<f64> = (0..lines[0].len()).map(step).collect();
            let count = steps.iter().filter(|step| **step > 1.0).count();
            let least = least(steps.iter().copied());
            Claim::of(&format!("{id}-{what}"), least).shown(format!(
                "{count} of {}, at least {}",
                steps.len(),
                short(least)
            ))
        };
        vec![one("kept", |bar| bar.kept), one("wait", |bar| 1.0 / bar.wait_ms)]
    }
}

/// Returns the two points that the paper's text states.
pub fn stated(name: &str, (low, high): (f64, f64), [first, last]: [f64; 2]) -> Series {
    of_paper(name, vec![(low, first), (high, last)])
}

/// Returns the notes common to all these figures.
pub fn notes(alone: f64) -> Vec<String> {
    vec![
        format!("The large file's process alone moves {:.1} MB/s; the shares are of that.", alone / 1e6),
        "Extents in ext3's place (scattered logs need them), a journal of 512 MiB in 5 GB's, which no run fills but data journaling's of a \
         writer. Nothing is written back from the log within a run unless the log or memory is full. The drive's write cache is off."
            .into(),
        "The paper's basic elevator is taken for Linux's noop: the drive has one request at a time, of at most 512 KiB, in the order in \
         which they came. Neighbours that wait are not merged here. A drive with 32 requests to choose from by shortest positioning \
         would prefer the reader, whose next read is always the nearest."
            .into(),
        "Two windows of a reader are in flight, of 128 KiB each, as Linux 3.4 reads ahead. Where files lie is the allocator's choice.".into(),
    ]
}
