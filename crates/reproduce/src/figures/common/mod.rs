//! Common parts of figures.

pub mod result_cache;

use crate::{Axis, Context, FigureError, Picture, Scale, Series};
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
    context.overrides.apply("okeanos", &mut options);
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
/// Returns the least step of an order from the largest to the smallest: at least 1 if it holds.
pub fn least_step(descending: &[f64]) -> f64 {
    descending.windows(2).map(|pair| pair[0] / pair[1]).fold(f64::INFINITY, f64::min)
}
pub fn least(values: impl IntoIterator<Item = f64>) -> f64 {
    values.into_iter().fold(f64::INFINITY, f64::min)
}
pub fn most(values: impl IntoIterator<Item = f64>) -> f64 {
    values.into_iter().fold(f64::NEG_INFINITY, f64::max)
}

/// Costs of the paper's machines that none of our figures has.
pub const NO_KERNEL: &str = "Virtual time passes on the disks alone: system calls, copies and the kernel's own waits cost \
nothing. Rates that a processor or the kernel limited in the paper are higher here, and ratios to modes that the disk \
limits are larger.";
