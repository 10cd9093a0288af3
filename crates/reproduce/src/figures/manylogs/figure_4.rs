//! Figure 4: the reader beside instances of Filebench.

use super::scene::{Bars, Cell, LINES, Setting, notes, play};
use crate::{Context, Figure, FigureError, Results};
use testbeds::{FilebenchWriters, SequentialFile, SmallWriters};
use workloads::Personality;

pub const FIGURE_4: Figure = Figure {
    name: "manylogs-4",
    title: "A sequential reader beside file servers and mail servers",
    source: "Manylogs (MSST 2016), Figure 4",
    about: "The reader of manylogs-2a beside 2, 4 and 8 instances of Filebench's fileserver and varmail, each with a directory of its own and 20 operations \
            a second. Varmail's time is that of an fsync, fileserver's that of a write, which is O_SYNC.",
    minutes: 4,
    by_chance: true,
    real_time: false,
    run,
};

/// Files of each instance.
const FILES: u64 = 100;
const INSTANCES: [u32; 3] = [2, 4, 8];
pub const KINDS: [(Personality, &str); 2] =
    [(Personality::Fileserver, "fileserver"), (Personality::Varmail, "varmail")];

pub fn instances(context: &Context) -> &'static [u32] {
    if context.quick { &[2, 8] } else { &INSTANCES }
}

pub fn bars(context: &Context, instances: &[u32]) -> Result<Bars, FigureError> {
    let mut cells = Vec::new();
    for (part, (personality, _)) in KINDS.iter().enumerate() {
        for line in LINES {
            cells.extend(instances.iter().map(|&instances| {
                let writers = FilebenchWriters {
                    personality: *personality,
                    instances,
                    per_second: 20,
                    files: context.overrides.whole("manylogs-4", "FILES", FILES),
                };
                Cell {
                    part,
                    line,
                    x: f64::from(instances),
                    small: SmallWriters::Filebench(writers),
                }
            }));
        }
    }
    play(context, Setting::new(context, SequentialFile::reader), cells)
}

fn run(context: &Context) -> Result<Results, FigureError> {
    let bars = bars(context, instances(context))?;
    let (mut pictures, mut claims) = (Vec::new(), Vec::new());
    for (part, (_, name)) in KINDS.iter().enumerate() {
        pictures.extend(bars.pictures(part, &LINES, (name, "instances"), [vec![], vec![]]));
        claims.extend(bars.same_order(part, &format!("manylogs-4/{name}")));
    }
    let mut notes = notes(bars.alone);
    notes.push(
        "The paper limits \"I/Os\" to 20 a second; here these are operations as Filebench counts them, opening and closing too, of all threads of an instance together. \
         Fileserver calls no fsync; since the paper states how long its writes take on the disk, they are O_SYNC here. Ordered's \
         data is written home sorted by place, because each fsync has little of it."
            .into(),
    );
    notes.push("Of fileserver's 10,000 files and varmail's 1,000 an instance has 100: emulated disks keep what is written in memory.".into());
    Ok(Results { pictures, claims, notes })
}
