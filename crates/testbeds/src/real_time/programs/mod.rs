//! Real programs on file systems side by side: databases, mail, sources, large files. Slower
//! results are shown, too.
//!
//! Each work runs on a volume made for it alone, one contender after the other, so that other load
//! on the machine slows all of them alike. Ratios are taken within each run, and are speeds: above
//! 1 is faster.

mod files;
mod maildir;
mod postgresql;
mod servers;
mod sources;

use crate::real_time::contender::Contender;
use crate::real_time::disk::{Disks, Environment};
use crate::real_time::rig::{self, RigError, Workspace};
use crate::real_time::volume::Volume;
use sources::Sources;
use std::collections::BTreeMap;

/// A group of measurements that share what they prepare.
type Run = fn(&mut Volume<'_>, &Sources, Scale) -> Result<Vec<Measured>, RigError>;

/// Names of works, and the Debian packages that each needs.
pub const WORKS: [(&str, &str); 9] = [
    ("postgresql", "postgresql"),
    ("wal", "postgresql"),
    ("sqlite", "sqlite3"),
    ("redis", "redis-server redis-tools"),
    ("etcd", "etcd-server"),
    ("maildir", ""),
    ("git", "git"),
    ("tree", "tar grep"),
    ("large", ""),
];

fn run_of(work: &str) -> Option<Run> {
    Some(match work {
        "postgresql" => postgresql::database,
        "wal" => postgresql::write_ahead_log,
        "sqlite" => files::sqlite,
        "redis" => servers::redis,
        "etcd" => servers::etcd,
        "maildir" => maildir::deliver,
        "git" => files::git,
        "tree" => files::tree,
        "large" => files::large,
        _ => return None,
    })
}

/// Amount of work: 1 for a table, less for a quick look.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scale(pub f64);

impl Scale {
    pub fn of(self, count: u64) -> u64 {
        ((count as f64 * self.0) as u64).max(1)
    }
    pub fn seconds(self, seconds: f64) -> f64 {
        (seconds * self.0).max(1.0)
    }
}

/// One number of one work.
pub(crate) struct Measured {
    pub name: String,
    pub unit: &'static str,
    pub value: f64,
}

impl Measured {
    pub fn rate(name: impl Into<String>, value: f64) -> Measured {
        Measured { name: name.into(), unit: "1/s", value }
    }
    pub fn seconds(name: impl Into<String>, value: f64) -> Measured {
        Measured { name: name.into(), unit: "s", value }
    }
}

pub struct ProgramsOptions {
    /// Contenders; the first is the reference for the others.
    pub contenders: Vec<Contender>,
    /// Names of [`WORKS`].
    pub works: Vec<String>,
    pub runs: u32,
    /// 1 for a table that is worth keeping.
    pub scale: f64,
    /// Bytes of the image.
    pub image_size: u64,
    pub environment: Environment,
}

/// One number of one contender, over all runs.
#[derive(Clone, Debug, serde::Serialize)]
pub struct ProgramsRow {
    pub work: String,
    pub contender: String,
    /// `1/s`, where more is faster, or `s`.
    pub unit: &'static str,
    /// Median over the runs.
    pub value: f64,
    /// Median of the ratios of speed within each run to the first contender.
    pub ratio: f64,
    #[serde(rename = "turns")]
    pub runs: Vec<f64>,
}

/// Performs all runs. `progress` is called with a description of each.
pub fn programs(
    options: &ProgramsOptions,
    progress: impl Fn(&str),
) -> Result<Vec<ProgramsRow>, RigError> {
    let works = options
        .works
        .iter()
        .map(|name| {
            Ok((name, run_of(name).ok_or_else(|| RigError::new(format!("{name:?} is no work")))?))
        })
        .collect::<Result<Vec<_>, RigError>>()?;
    rig::hide_mounts()?;
    let place = Workspace::new(&options.environment.directory)?;
    progress("making what the programs work on");
    let sources = Sources::new(Scale(options.scale))?;
    let disks = Disks::new(&place, options.environment.model.as_deref(), 1, options.image_size)?;
    let mut table = Table::default();
    for round in 0..options.runs as usize {
        for (name, run) in &works {
            for step in 0..options.contenders.len() {
                // The first contender changes from run to run.
                let contender = &options.contenders[(round + step) % options.contenders.len()];
                progress(&format!("run {} of {}: {name} on {contender}", round + 1, options.runs));
                let disk = disks.fresh(0, &options.environment.programs)?;
                let mut volume = Volume::new(
                    contender,
                    &options.environment.programs.okeanos,
                    disk,
                    place.mount_point(),
                )?;
                let measured = run(&mut volume, &sources, Scale(options.scale))
                    .map_err(|error| RigError::new(format!("{name} on {contender}: {error}")))?;
                volume.take_down()?;
                for one in measured {
                    table.add(contender, one);
                }
            }
        }
    }
    Ok(table.rows(&options.contenders))
}

/// Values by work, in the order in which works were first met, and contender.
#[derive(Default)]
struct Table {
    works: Vec<(String, &'static str)>,
    values: BTreeMap<(String, String), Vec<f64>>,
}

impl Table {
    fn add(&mut self, contender: &Contender, measured: Measured) {
        if self.works.iter().all(|(name, _)| *name != measured.name) {
            self.works.push((measured.name.clone(), measured.unit));
        }
        self.values.entry((measured.name, contender.to_string())).or_default().push(measured.value);
    }

    fn rows(&self, contenders: &[Contender]) -> Vec<ProgramsRow> {
        let values = |work: &str, contender: &Contender| {
            self.values.get(&(work.to_owned(), contender.to_string())).cloned().unwrap_or_default()
        };
        let mut rows = Vec::new();
        for (work, unit) in &self.works {
            let baseline = values(work, &contenders[0]);
            for contender in contenders {
                let runs = values(work, contender);
                let speed_ratio = |(ours, theirs): (&f64, &f64)| match *unit {
                    "s" => theirs / ours.max(1e-9),
                    _ => ours / theirs.max(1e-9),
                };
                rows.push(ProgramsRow {
                    work: work.clone(),
                    contender: contender.to_string(),
                    unit,
                    value: rig::median(runs.clone()),
                    ratio: rig::median(runs.iter().zip(&baseline).map(speed_ratio).collect()),
                    runs,
                });
            }
        }
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_speeds_whatever_the_unit() {
        let (first, second) = (Contender::Ext4("ordered".into()), Contender::Xfs);
        let mut table = Table::default();
        for (contender, seconds, rate) in [(&first, 2.0, 100.0), (&second, 4.0, 50.0)] {
            table.add(contender, Measured::seconds("untar", seconds));
            table.add(contender, Measured::rate("inserts", rate));
        }
        let ratios: Vec<_> = table.rows(&[first, second]).iter().map(|row| row.ratio).collect();
        assert_eq!(ratios, [1.0, 0.5, 1.0, 0.5]);
    }

    #[test]
    fn every_work_can_be_run() {
        assert!(WORKS.iter().all(|(name, _)| run_of(name).is_some()));
        assert!(run_of("compile").is_none());
    }
}
