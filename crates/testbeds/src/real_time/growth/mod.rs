//! Growth of costs with the amount of work: writers, bytes of a volume, files, bytes of a journal.
//!
//! Each series changes one number and keeps all others. Each point is measured several times;
//! medians count. Growth is expressed as a power: 0 does not grow, 1 grows as the work does, above
//! 1 faster than the work.

mod files;
mod journals;
mod memory;
mod sparse;
mod volumes;
mod writers;

use crate::real_time::installed::Programs;
use crate::real_time::rig::{self, RigError, Workspace};
use std::path::PathBuf;
use std::time::Duration;

pub struct GrowthOptions {
    /// Numbers of appending writers; this and the following lists rise. An empty list yields no
    /// series.
    pub writers: Vec<u64>,
    /// Bytes of a volume.
    pub volumes: Vec<u64>,
    pub files: Vec<u64>,
    /// Bytes of a journal.
    pub journals: Vec<u64>,
    /// Duration of the writes.
    pub time: Duration,
    pub runs: u32,
    /// Directory of the images.
    pub directory: PathBuf,
    pub programs: Programs,
}

/// The amount that rises from point to point.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum GrowthWork {
    Writers,
    VolumeBytes,
    Files,
    JournalBytes,
}

/// A quantity measured at each point.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum GrowthQuantity {
    Syncs,
    SyncsOfFastCommit,
    /// Peak memory of the daemon while the writers wrote.
    MemoryOfWriters,
    Mount,
    /// Memory of the daemon after the mount.
    Memory,
    FirstLookup,
    FirstCreate,
    /// Time of a mount after a kill.
    Recovery,
    /// Memory of the daemon before the kill.
    MemoryOfFullLog,
    /// Peak memory of the daemon that recovered.
    MemoryOfRecovery,
}

/// Unit of a quantity.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum GrowthUnit {
    PerSecond,
    Seconds,
    Bytes,
}

impl GrowthQuantity {
    pub fn name(self) -> &'static str {
        match self {
            GrowthQuantity::Syncs => "syncs/s, wasteless",
            GrowthQuantity::SyncsOfFastCommit => "syncs/s, ext4:fast_commit",
            GrowthQuantity::MemoryOfWriters | GrowthQuantity::Memory => "memory",
            GrowthQuantity::Mount => "mount",
            GrowthQuantity::FirstLookup => "first lookup",
            GrowthQuantity::FirstCreate => "first create",
            GrowthQuantity::Recovery => "recovery",
            GrowthQuantity::MemoryOfFullLog => "memory, log full",
            GrowthQuantity::MemoryOfRecovery => "memory of recovery",
        }
    }
    pub fn unit(self) -> GrowthUnit {
        use GrowthQuantity::*;
        match self {
            Syncs | SyncsOfFastCommit => GrowthUnit::PerSecond,
            Mount | FirstLookup | FirstCreate | Recovery => GrowthUnit::Seconds,
            MemoryOfWriters | Memory | MemoryOfFullLog | MemoryOfRecovery => GrowthUnit::Bytes,
        }
    }
}

/// A quantity over all points of its series.
#[derive(Clone, Debug, serde::Serialize)]
pub struct GrowthRow {
    pub quantity: GrowthQuantity,
    pub unit: GrowthUnit,
    /// Medians over the runs; per second, seconds or bytes.
    pub values: Vec<f64>,
    /// Ratio of the last value to the first.
    pub factor: f64,
    /// Power of the work by which the quantity grew from the first point to the last, and over the
    /// last step alone.
    pub power: Option<f64>,
    pub power_of_last_step: Option<f64>,
}

#[derive(Clone, Debug, serde::Serialize)]
pub struct GrowthSeries {
    pub work: GrowthWork,
    pub points: Vec<u64>,
    pub rows: Vec<GrowthRow>,
}

/// Results of one run at one point.
type Sample = Vec<(GrowthQuantity, f64)>;

/// Equipment of the series.
struct Bench<'a> {
    options: &'a GrowthOptions,
    place: &'a Workspace,
    progress: &'a dyn Fn(&str),
}

impl Bench<'_> {
    /// Performs `run` the requested number of times.
    fn repeat(
        &self,
        what: &str,
        mut run: impl FnMut() -> Result<Sample, RigError>,
    ) -> Result<Vec<Sample>, RigError> {
        let all = self.options.runs;
        (0..all)
            .map(|number| {
                (self.progress)(&format!("{what}, run {} of {all}", number + 1));
                run()
            })
            .collect()
    }
}

/// Measures all series. `progress` is called with a description of each step.
pub fn growth(
    options: &GrowthOptions,
    progress: impl Fn(&str),
) -> Result<Vec<GrowthSeries>, RigError> {
    rig::hide_mounts()?;
    let place = Workspace::new(&options.directory)?;
    let bench = Bench { options, place: &place, progress: &progress };
    type Measure = fn(&Bench<'_>) -> Result<Vec<Vec<Sample>>, RigError>;
    let all: [(GrowthWork, &[u64], Measure); 4] = [
        (GrowthWork::Writers, &options.writers, writers::measure),
        (GrowthWork::VolumeBytes, &options.volumes, volumes::measure),
        (GrowthWork::Files, &options.files, files::measure),
        (GrowthWork::JournalBytes, &options.journals, journals::measure),
    ];
    let wanted = all.into_iter().filter(|(_, points, _)| !points.is_empty());
    wanted.map(|(work, points, measure)| Ok(series(work, points, &measure(&bench)?))).collect()
}

/// Builds a series. Quantities missing at a point are left out.
fn series(work: GrowthWork, points: &[u64], samples: &[Vec<Sample>]) -> GrowthSeries {
    let quantities = samples[0].first().into_iter().flatten().map(|(quantity, _)| *quantity);
    let values = |quantity| -> Option<Vec<f64>> {
        let at = |runs: &Vec<Sample>| {
            let found =
                runs.iter().flatten().filter(|(of, _)| *of == quantity).map(|(_, value)| *value);
            let found: Vec<f64> = found.collect();
            (!found.is_empty()).then(|| rig::median(found))
        };
        samples.iter().map(at).collect()
    };
    let rows =
        quantities.filter_map(|quantity| Some(row(quantity, points, values(quantity)?))).collect();
    GrowthSeries { work, points: points.to_vec(), rows }
}

fn row(quantity: GrowthQuantity, points: &[u64], values: Vec<f64>) -> GrowthRow {
    let (first, last) = (0, values.len() - 1);
    GrowthRow {
        quantity,
        unit: quantity.unit(),
        factor: values[last] / values[first],
        power: power(points, &values, first, last),
        power_of_last_step: power(points, &values, last.saturating_sub(1), last),
        values,
    }
}

/// Returns the slope between two points on logarithmic axes.
fn power(points: &[u64], values: &[f64], from: usize, to: usize) -> Option<f64> {
    let power = (values[to] / values[from]).ln() / (points[to] as f64 / points[from] as f64).ln();
    power.is_finite().then_some(power)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_power_is_the_slope_between_two_points() {
        let points = [1, 10, 1000];
        let row = |values: [f64; 3]| row(GrowthQuantity::Mount, &points, values.to_vec());
        let rounded = |power: Option<f64>| (power.unwrap() * 100.0).round() / 100.0;
        let square = row([2.0, 200.0, 2e6]);
        assert_eq!((rounded(square.power), rounded(square.power_of_last_step)), (2.0, 2.0));
        let late = row([1.0, 1.0, 100.0]);
        assert_eq!((rounded(late.power), rounded(late.power_of_last_step)), (0.67, 1.0));
        assert_eq!((rounded(row([3.0; 3]).power), late.factor), (0.0, 100.0));
        assert_eq!(power(&[7], &[1.0], 0, 0), None);
        assert_eq!(power(&points, &[0.0, 1.0, 2.0], 0, 2), None);
    }

    #[test]
    fn rows_hold_medians_of_what_every_point_has() {
        use GrowthQuantity::{Memory, Mount};
        let runs =
            |values: [f64; 3]| values.map(|value| vec![(Mount, value), (Memory, 1.0)]).to_vec();
        let mut samples = [runs([5.0, 1.0, 3.0]), runs([9.0, 6.0, 4.0])];
        let rows = series(GrowthWork::Files, &[10, 100], &samples).rows;
        assert_eq!((rows.len(), &rows[0].values[..], rows[0].factor), (2, &[3.0, 6.0][..], 2.0));
        samples[1].iter_mut().for_each(|sample| sample.truncate(1));
        assert_eq!(series(GrowthWork::Files, &[10, 100], &samples).rows.len(), 1);
    }
}
