//! The paper's eight variants: ordered and data journaling, each with the cache off, with two ways
//! to evict, and unsafe.

use crate::figures::common::{axis, of_paper, ours, picture};
use crate::{Context, FigureError, Picture, Scale, Series};
use engine::DataMode;
use eviction::{CoercionStatistics, EvictionWorkload, Pattern};
use testbeds::{Caching, Stage, StageOptions};

/// "128 pseudo-random writes, each of size 12 KB" (section V.A): 170 ms on the paper's drive.
pub const COSTLY: EvictionWorkload =
    EvictionWorkload { pattern: Pattern::Random, writes: 128, bytes: 128 * (12 << 10) };
/// One write, the paper's Table IV for this drive: 50 ms there.
pub const EFFICIENT: EvictionWorkload =
    EvictionWorkload { pattern: Pattern::Sequential, writes: 1, bytes: 2_380_000 };

pub const MODES: [DataMode; 2] = [DataMode::Ordered, DataMode::Journal];
/// Caching variants in the order of the bars.
pub const CACHINGS: [Caching; 4] =
    [Caching::Off, Caching::Discreet(COSTLY), Caching::Discreet(EFFICIENT), Caching::Unsafe];
pub const OFF: usize = 0;
pub const WITH_COSTLY: usize = 1;
pub const WITH_EFFICIENT: usize = 2;
pub const UNSAFE: usize = 3;

pub fn caching_name(caching: Caching) -> &'static str {
    match caching {
        Caching::Off => "no cache",
        Caching::Unsafe => "unsafe",
        Caching::Discreet(COSTLY) => "discreet, 128 writes",
        Caching::Discreet(_) => "discreet, 1 write",
    }
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Variant {
    pub data: DataMode,
    pub caching: Caching,
    /// Whether each point of the paper's plan has an eviction of its own.
    pub paper_plan: bool,
}

/// Returns all variants: ordered journaling first, then data journaling.
pub fn all() -> Vec<Variant> {
    let of = |data| CACHINGS.map(|caching| Variant { data, caching, paper_plan: false });
    MODES.into_iter().flat_map(of).collect()
}

/// Returns the discreet ones of [`all`], in its order, with the paper's plan.
pub fn with_paper_plan() -> Vec<Variant> {
    let discreet =
        all().into_iter().filter(|variant| matches!(variant.caching, Caching::Discreet(_)));
    discreet.map(|variant| Variant { paper_plan: true, ..variant }).collect()
}

/// Returns bars of [`with_paper_plan`], beside those of [`bars`].
pub fn paper_plan_bars(values: &[f64]) -> Vec<Series> {
    let of = |(data, values): (DataMode, &[f64])| {
        let points = [WITH_COSTLY, WITH_EFFICIENT]
            .into_iter()
            .zip(values)
            .map(|(at, value)| (at as f64, *value));
        ours(&format!("{}, the paper's plan", data.name()), points.collect())
    };
    MODES.into_iter().zip(values.chunks(2)).map(of).collect()
}

impl Variant {
    pub fn name(&self) -> String {
        let plan = if self.paper_plan { ", the paper's plan" } else { "" };
        format!("{}, {}{plan}", self.data.name(), caching_name(self.caching))
    }

    /// Returns the paper's rig; in quick runs with the first GiB of the disk and a small journal.
    pub fn stage(
        &self,
        context: &Context,
        change: impl FnOnce(&mut StageOptions),
    ) -> Result<Stage, FigureError> {
        let mut options = StageOptions {
            seed: context.seed,
            ..StageOptions::of_discreet(self.data, self.caching)
        };
        if context.quick {
            options.home.options.size = Some(1 << 30);
            options.journal_size = 16 << 20;
        }
        context.overrides.apply("discreet", &mut options);
        options.separate_barriers = self.paper_plan;
        if self.paper_plan {
            // After the data, the log, the commit block and the checkpoint; data journaling has no
            // first. A transaction checksum saves one: `change` says whether there is one.
            options.evictions_a_sync = if self.data == DataMode::Ordered { 4 } else { 3 };
        }
        change(&mut options);
        Ok(Stage::build(&options)?)
    }
}

/// Returns bars. `values`: by mode and caching, in the order of [`all`]. `paper`: its numbers, if
/// any.
pub fn bars(title: &str, label: &str, values: &[f64], paper: Option<[[f64; 4]; 2]>) -> Picture {
    let names = Scale::Names(CACHINGS.map(|caching| caching_name(caching).to_string()).into());
    let numbered = |values: &[f64]| -> Vec<(f64, f64)> {
        let known = values.iter().enumerate().filter(|(_, value)| value.is_finite());
        known.map(|(at, value)| (at as f64, *value)).collect()
    };
    let mut series = Vec::new();
    for (at, data) in MODES.into_iter().enumerate() {
        series.push(ours(data.name(), numbered(&values[at * CACHINGS.len()..][..CACHINGS.len()])));
        if let Some(paper) = paper {
            series.push(of_paper(data.name(), numbered(&paper[at])));
        }
    }
    picture(title, axis("cache", names), axis(label, Scale::Linear), series)
}

/// Describes the durations of evictions, for the notes.
pub fn costs<'a>(played: impl Iterator<Item = (&'a Variant, CoercionStatistics)>) -> String {
    let (mut costly, mut efficient) = ((0, 0), (0, 0));
    for (variant, CoercionStatistics { evictions, nanoseconds, .. }) in played {
        let sum =
            if variant.caching == Caching::Discreet(COSTLY) { &mut costly } else { &mut efficient };
        *sum = (sum.0 + evictions, sum.1 + nanoseconds);
    }
    let ms = |(count, nanoseconds): (u64, u64)| nanoseconds as f64 / 1e6 / count.max(1) as f64;
    format!(
        "An eviction took here {:.0} ms by 128 random writes of 12 KiB (the paper's drive: 170 ms) and {:.0} ms by one write \
         of 2.38 MB (50 ms), on average of {} and {}.",
        ms(costly),
        ms(efficient),
        costly.0,
        efficient.0
    )
}

/// Note on the host of all variants.
pub const RIG: &str = "The host does as the paper's did: it sorts what waits and gives the drive one request at a time, of at most 512 KiB. Reads and \
writes take turns as with Linux's default scheduler: the anticipatory one up to 2.6.17 (Table V, figure 5: reads 500 ms, writes 125), then CFQ \
(reads 100 ms, writes 40 ms or 16 of them); for the next read it waits 6 or 8 ms. An eviction hands over all its writes at once. libata had no command queueing before Linux 2.6.18, and 128 segments of a page; later the block layer's \
limit was 1,024 sectors. Whether 2.6.23 (figures 6 to 8) queued commands in the paper's machine depends on the controller, which the \
paper does not name.";
/// Note on our plan and the paper's.
pub const PLANS: &str = "The paper evicts four times for a transaction of ordered journaling and three times for one of data \
journaling, one of which is for the checkpoint; its varmail has a transaction checksum that saves one. Ours evicts twice before \
the reply in both (the bars and lines called the paper's plan evict at each of the paper's points, three or four times for each sync, one less with a checksum): ordered mode sends data and log out together, so that they share an eviction, and the commit block has \
its own. With a transaction checksum (varmail) ordered mode evicts for the data and for the log, data journaling once. Checkpoints ride with \
commits.";
/// Note on the location of the files.
pub const PLACE: &str = "All variants have their files in one directory, whose place on the disk the seed decides, as ext3 \
spreads directories: with it changes how long the arm moves between files and journal.";
