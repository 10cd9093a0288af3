//! Figure 2b with other memory than that of its rig.

use super::figure_2::updates;
use super::scene::{ADAPTIVE, DATA, LINES, Line, MANYLOGS, ORDERED, Setting, notes};
use crate::figures::common::{axis, least, least_step, most, ours, picture};
use crate::{Claim, Context, Figure, FigureError, Results, Scale};
use testbeds::{Interference, SequentialFile, SharedDisk, SmallWriters, Stage, StageOptions};

pub const FIGURE: Figure = Figure {
    name: "manylogs-2b-memory",
    title: "A sequential writer beside small synced updates, by memory",
    source: "ours, after Manylogs (MSST 2016), Figure 2b",
    about: "manylogs-2b at 40 updates a second with 128 MiB to 8 GiB of memory, of which half may be dirty; manylogs-2b has 256 MiB, and the paper's \
            host had 8 GB. Data journaling also beside a reader.",
    minutes: 2,
    by_chance: false,
    real_time: false,
    run,
};

/// Bytes of memory.
const MEMORIES: [u64; 5] = [128 << 20, 256 << 20, 1 << 30, 4 << 30, 8 << 30];
/// Updates a second.
const RATE: u32 = 40;
const MIB: f64 = (1 << 20) as f64;

struct Cell {
    large: fn(u64) -> SequentialFile,
    /// Line; `None`: the large file alone.
    line: Option<Line>,
    memory: u64,
}

fn play(context: &Context, cell: &Cell) -> Result<SharedDisk, FigureError> {
    let Setting { large, seconds, .. } = Setting::new(context, cell.large);
    let Line { data, log, .. } = cell.line.unwrap_or(ORDERED);
    let mut options = StageOptions { seed: context.seed, ..StageOptions::of_manylogs(data, log) };
    if context.quick {
        options.home.options.size = Some(8 << 30);
        options.journal_size = 64 << 20;
    }
    context.overrides.apply("manylogs", &mut options);
    let of_figure = |name, chosen| context.overrides.whole("manylogs-2b-memory", name, chosen);
    options.engine.cache_bytes = of_figure("MEMORIES", cell.memory);
    let rate = of_figure("RATE", RATE.into()) as u32;
    let small = cell.line.map_or(SmallWriters::None, |line| updates(line, rate, 4096));
    let stage = Stage::build(&options)?;
    Ok(Interference { large, small, seconds, seed: context.seed }.play(&stage)?)
}

fn run(context: &Context) -> Result<Results, FigureError> {
    let memories = if context.quick { &MEMORIES[..2] } else { &MEMORIES[..] };
    let mut cells = Vec::new();
    for &memory in memories {
        let writer = SequentialFile::writer as fn(u64) -> SequentialFile;
        cells.push(Cell { large: writer, line: None, memory });
        cells.extend(LINES.map(|line| Cell { large: writer, line: Some(line), memory }));
        for line in [None, Some(DATA)] {
            cells.push(Cell { large: SequentialFile::reader, line, memory });
        }
    }
    let played = context.play(&cells, |cell| play(context, cell))?;
    let of_memory: Vec<&[SharedDisk]> = played.chunks(LINES.len() + 3).collect();
    let at = |line: Line| 1 + LINES.iter().position(|one| *one == line).expect("it is played");
    let kept = |disks: &[SharedDisk], line: Line| {
        disks[at(line)].bytes_a_second / disks[0].bytes_a_second * 100.0
    };
    let order = [MANYLOGS, ADAPTIVE, ORDERED];
    let kept_step = |disks: &[SharedDisk]| least_step(&order.map(|line| kept(disks, line)));
    let wait_step =
        |disks: &[SharedDisk]| least_step(&order.map(|line| 1.0 / disks[at(line)].mean_wait_ms));
    let beside_writer = |disks: &[SharedDisk]| {
        let [alone, data] = [LINES.len() + 1, LINES.len() + 2].map(|at| disks[at].bytes_a_second);
        kept(disks, DATA) / (data / alone * 100.0)
    };
    let claims = vec![
        Claim::of("manylogs-2b-memory/order-kept", least(of_memory.iter().copied().map(kept_step))),
        Claim::of("manylogs-2b-memory/order-wait", least(of_memory.iter().copied().map(wait_step))),
        Claim::of(
            "manylogs-2b-memory/data-beside-writer",
            most(of_memory.iter().copied().map(beside_writer)),
        ),
    ];
    let line = |line: Line, y: &dyn Fn(&[SharedDisk]) -> f64| {
        let points = memories.iter().zip(&of_memory);
        ours(line.name, points.map(|(memory, disks)| (*memory as f64 / MIB, y(disks))).collect())
    };
    let x = || axis("memory (MiB)", Scale::Logarithmic);
    let pictures = vec![
        picture(
            "Bandwidth, by memory",
            x(),
            axis("bandwidth kept (%)", Scale::Linear),
            LINES.map(|of| line(of, &|disks| kept(disks, of))).into(),
        ),
        picture(
            "Waiting, by memory",
            x(),
            axis("mean time of a small durable write (ms)", Scale::Linear),
            LINES.map(|of| line(of, &|disks| disks[at(of)].mean_wait_ms)).into(),
        ),
    ];
    let mut notes = notes(of_memory[0][0].bytes_a_second);
    notes.push(
        "The writer's bytes count when they are durable, and half of the memory may be dirty. From 4 GiB on that half holds the whole file of 2 GB, so what no \
         sync has written by the end of the run is dirty still, and is not counted."
            .into(),
    );
    Ok(Results { pictures, claims, notes })
}
