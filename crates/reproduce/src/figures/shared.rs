//! Common parts of figures.

use crate::number::short;
use crate::statement::Expected;
use crate::{Axis, Claim, Context, FigureError, Origin, Picture, Scale, Series, Verdict};
use emulated::EmulatedDisk;
use engine::DataMode;
use runtime::VirtualWorld;
use std::rc::Rc;
use testbeds::StageOptions;

/// The paper's four modes, from the slowest to the fastest in its figure 10a.
pub const FOUR_MODES: [DataMode; 4] =
    [DataMode::Ordered, DataMode::Selective, DataMode::Journal, DataMode::Wasteless];

/// Modes in the order of the paper's figure 7.
pub const FIVE_MODES: [DataMode; 5] = [
    DataMode::Ordered,
    DataMode::Writeback,
    DataMode::Journal,
    DataMode::Wasteless,
    DataMode::Selective,
];

/// Returns the paper's rig; in quick runs with the first 2 GiB of the disk and a small journal.
pub fn rig(context: &Context, mode: DataMode) -> StageOptions {
    let mut options = StageOptions { seed: context.seed, ..StageOptions::of_paper(mode) };
    if context.quick {
        options.home.options.size = Some(2 << 30);
        options.journal_size = 16 << 20;
    }
    if let Some(varied) = context.varied {
        varied.apply(&mut options);
    }
    if let Some(prefix) = context.trace_prefix(mode.name()) {
        options.trace_to(&prefix);
    }
    options
}

/// Returns the rig's drive without a file system, of the model's own size.
pub fn drive_alone(context: &Context, world: &VirtualWorld) -> Result<EmulatedDisk, FigureError> {
    // The mode does not affect the drive.
    let model = rig(context, DataMode::Ordered).home.find_model()?;
    Ok(EmulatedDisk::new(Rc::new(world.clone()), model, emulated::DriveOptions::default()))
}

pub fn axis(label: &str, scale: Scale) -> Axis {
    Axis { label: label.to_string(), scale }
}
pub fn ours(name: &str, points: Vec<(f64, f64)>) -> Series {
    Series { name: name.to_string(), of_paper: false, points, spread: Vec::new() }
}
pub fn of_paper(name: &str, points: Vec<(f64, f64)>) -> Series {
    Series { name: name.to_string(), of_paper: true, points, spread: Vec::new() }
}
pub fn picture(title: &str, x: Axis, y: Axis, series: Vec<Series>) -> Picture {
    Picture { title: title.to_string(), x, y, series }
}
/// Builds a claim that is either true or false.
pub fn claim(says: &str, paper: &str, ours: String, holds: bool) -> Claim {
    let verdict = if holds { Verdict::Agrees } else { Verdict::Differs };
    let (says, paper, chosen) = (says.to_string(), paper.to_string(), String::new());
    Claim { says, paper, ours, verdict, origin: Origin::Paper, chosen, otherwise: Vec::new() }
}
/// Returns a claim on the ratio of `a` to `b`: `paper` in its words, `expected` as a number.
pub fn ratio(says: &str, paper: &str, expected: Expected, (a, b): (f64, f64)) -> Claim {
    let ratio = a / b;
    let verdict = expected.judge(ratio);
    Claim { verdict, ..claim(says, paper, short(ratio), true) }
}
/// Returns a claim of our own: whether `a` is at least `bound` times `b`.
pub fn at_least(says: &str, (a, b): (f64, f64), bound: f64) -> Claim {
    claim(says, "not asked", short(a / b), a / b >= bound).of_ours()
}

/// The host's clock, for statements that failed without its ticks.
pub const WITH_TICKS: &str = "the paper's host commits at ticks of 4 ms";

/// Costs of the paper's machines that none of our figures has.
pub const NO_KERNEL: &str = "Virtual time passes on the disks alone: system calls, copies and the kernel's own waits cost \
nothing. Rates that a processor or the kernel limited in the paper are higher here, and ratios to modes that the disk \
limits are larger.";
