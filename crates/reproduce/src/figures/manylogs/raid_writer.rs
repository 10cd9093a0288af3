//! Figure 3b: figure 2b on a RAID-0.

use super::figure_2::cells;
use super::scene::{Bars, DATA, LINES, Line, MANYLOGS, ORDERED, Setting, notes, play};
use crate::{Claim, Context, Figure, FigureError, Results};
use testbeds::SequentialFile;

pub const FIGURE_3B: Figure = Figure {
    name: "manylogs-3b",
    title: "A sequential writer beside small synced updates, on a RAID-0",
    source: "Manylogs (MSST 2016), Figure 3b",
    about: "manylogs-2b on four Cheetahs with chunks of 64 KiB, with four times the updates. With the fewest updates also on one drive, and data \
            journaling beside a reader.",
    minutes: 5,
    by_chance: true,
    real_time: false,
    run,
};

const DRIVES: u32 = 4;
const CHUNK: u64 = 64 << 10;
/// Updates a second and disk.
const RATES: [u32; 4] = [40, 80, 160, 320];

fn setting(context: &Context, large: fn(u64) -> SequentialFile, drives: u32) -> Setting {
    let one = Setting::new(context, large);
    match drives {
        1 => one,
        _ => Setting { large: one.large.over(drives, CHUNK), drives, ..one },
    }
}

fn run(context: &Context) -> Result<Results, FigureError> {
    let rates: &[u32] = if context.quick { &[40, 320] } else { &RATES };
    let with = |large, drives, lines: &[Line], rates: &[u32]| {
        play(context, setting(context, large, drives), cells(0, lines, rates, (4096, drives)))
    };
    let bars = with(SequentialFile::writer, DRIVES, &LINES, rates)?;
    let single = with(SequentialFile::writer, 1, &[ORDERED, MANYLOGS], &rates[..1])?;
    let beside_reader = with(SequentialFile::reader, DRIVES, &[DATA], &rates[..1])?;
    let title = ("four disks, beside a writer", "updates a second and disk");
    let pictures = bars.pictures(0, &LINES, title, [vec![], vec![]]);
    let kept = |bars: &Bars, line: Line| bars.ends(0, line, |bar| bar.kept).0;
    let four_over_one = |line| kept(&bars, line) / kept(&single, line);
    let mut claims = bars.same_order(0, "manylogs-3b/order");
    claims.extend([
        Claim::of("manylogs-3b/ordered-four-over-one", four_over_one(ORDERED)),
        Claim::of("manylogs-3b/manylogs-four-over-one", four_over_one(MANYLOGS)),
        Claim::of("manylogs-3b/data-beside-writer", kept(&bars, DATA) / kept(&beside_reader, DATA)),
    ]);
    let mut notes = notes(bars.alone);
    notes.push(
        "The writer's bytes wait in memory, of which half may be dirty, and count when they are durable.".into(),
    );
    Ok(Results { pictures, claims, notes })
}
