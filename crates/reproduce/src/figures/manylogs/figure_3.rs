//! Figure 3: figure 2a on a RAID-0.

use super::figure_2::{BY_FILE, cells, in_log, rates};
use super::scene::{Bars, LINES, MANYLOGS, ORDERED, Setting, notes, play, stated};
use crate::{Claim, Context, Figure, FigureError, Results};
use testbeds::SequentialFile;

pub const FIGURE_3: Figure = Figure {
    name: "manylogs-3",
    title: "A sequential reader beside small synced updates, on a RAID-0",
    source: "Manylogs (MSST 2016), Figure 3",
    about: "manylogs-2a on four Cheetahs with chunks of 64 KiB, with four times the updates and, as Linux's md does, two stripes read ahead. The \
            scattered logs have 10 MiB in every 100 MiB of the whole, so 2.5 in every 25 of each disk.",
    minutes: 5,
    by_chance: true,
    real_time: false,
    run,
};

const DRIVES: u32 = 4;
const CHUNK: u64 = 64 << 10;

fn setting(context: &Context) -> Setting {
    let one = Setting::new(context, SequentialFile::reader);
    Setting { large: one.large.over(DRIVES, CHUNK), drives: DRIVES, ..one }
}

pub fn bars(context: &Context, rates: &[u32]) -> Result<Bars, FigureError> {
    play(context, setting(context), cells(0, &LINES, rates, (4096, DRIVES)))
}

fn run(context: &Context) -> Result<Results, FigureError> {
    let bars = bars(context, rates(context))?;
    let lines = [ORDERED, BY_FILE];
    let single = play(
        context,
        Setting::new(context, SequentialFile::reader),
        cells(0, &lines, &[40], (4096, 1)),
    )?;
    let stays = play(context, setting(context), cells(0, &[BY_FILE], &[40], (4096, DRIVES)))?;
    let papers = [("ordered", 30.0), ("manylogs", 92.0)]
        .map(|(name, kept)| stated(name, (40.0, 40.0), [kept, kept]))
        .to_vec();
    let pictures =
        bars.pictures(0, &LINES, ("four disks", "updates a second and disk"), [papers, vec![]]);
    let (manylogs, _) = bars.ends(0, MANYLOGS, |bar| bar.kept);
    let (ordered, _) = bars.ends(0, ORDERED, |bar| bar.kept);
    let [of_one, stays_on_one] = lines.map(|line| single.ends(0, line, |bar| bar.kept).0);
    let (stays, _) = stays.ends(0, BY_FILE, |bar| bar.kept);
    let mut claims = vec![
        Claim::of("manylogs-3/kept-manylogs", manylogs / ordered)
            .with_other_choice(in_log(manylogs / stays)),
        Claim::of("manylogs-3/ordered-four-over-one", ordered / of_one)
            .with_other_choice(in_log(stays / stays_on_one)),
        Claim::of("manylogs-3/four-keep-90", manylogs),
    ];
    claims.extend(bars.same_order(0, "manylogs-3/order"));
    Ok(Results { pictures, claims, notes: notes(bars.alone) })
}
