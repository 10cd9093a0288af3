//! The shingled part of a drive, and the location of its logs.
//!
//! Invariant: a sector of the drive belongs to the logical disk or to one log, and adjacent sectors
//! of a run are adjacent on the drive.

use crate::Model;
use crate::model::TrackLayout;
use std::ops::Range;

/// Location of the logs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ShingledLogs {
    /// One persistent cache of this size at the outermost tracks, as in drives on the market.
    Single { bytes: u64 },
    /// The last surface is not shingled and holds a circular log of this many tracks at every
    /// cylinder. Between the tracks of the two kinds of surface the head has to align itself again.
    Surface { tracks: u32, alignment_us: f64 },
}

/// Cylinders of a neighbourhood: the arm crosses all of them in little more time than one.
const NEIGHBOURHOOD: u32 = 100;

/// Unit in which the single log is rewritten, when all in it is cleaned.
const SEGMENT: u64 = (32 << 20) / crate::SECTOR;

/// One log: sectors of the drive, and their cylinders.
#[derive(Clone, Debug)]
pub(super) struct LogRegion {
    pub sectors: Range<u64>,
    pub cylinder: u32,
}

impl LogRegion {
    /// Size in sectors.
    pub fn size(&self) -> u64 {
        self.sectors.end - self.sectors.start
    }
}

pub(super) struct ShingledLayout {
    /// Runs of the logical disk: first logical sector, first sector of the drive. In ascending
    /// order.
    homes: Vec<(u64, u64)>,
    /// Number of sectors of the logical disk.
    pub sectors: u64,
    pub logs: Vec<LogRegion>,
    /// Indexes of logs by cylinder.
    by_cylinder: Vec<usize>,
    /// Sectors of the logs of each neighbourhood.
    pub neighbourhoods: Vec<u64>,
    /// Greatest distance of a log's sectors from its first one, in cylinders.
    pub log_cylinders: u32,
    pub alignment_ns: u64,
    places: TrackLayout,
}

impl ShingledLayout {
    /// Lays a disk out; `None` if the model has no arm, or too few surfaces, or less space than the
    /// cache.
    pub fn new(model: &Model, logs: ShingledLogs, size: u64) -> Option<ShingledLayout> {
        let mechanics = model.mechanics.as_ref()?;
        let places = TrackLayout::new(mechanics);
        let all = size / crate::SECTOR;
        let mut layout = ShingledLayout {
            homes: Vec::new(),
            sectors: 0,
            logs: Vec::new(),
            by_cylinder: Vec::new(),
            neighbourhoods: Vec::new(),
            log_cylinders: 0,
            alignment_ns: 0,
            places,
        };
        match logs {
            ShingledLogs::Single { bytes } => {
                let cache = bytes / crate::SECTOR;
                for from in (0..cache).step_by(SEGMENT as usize) {
                    let cylinder = layout.places.place(from).cylinder;
                    layout
                        .logs
                        .push(LogRegion { sectors: from..cache.min(from + SEGMENT), cylinder });
                }
                layout.add_home(cache, all.checked_sub(cache)?);
                // A segment is shorter than a band of tracks, and may lie in two.
                layout.log_cylinders = 2 * mechanics.band_tracks.get();
            }
            ShingledLogs::Surface { tracks, alignment_us } => {
                layout.alignment_ns = (alignment_us * 1e3) as u64;
                let surfaces = u64::from(mechanics.surfaces.get());
                let mut sector = 0;
                for zone in &mechanics.zones {
                    let track = u64::from(zone.sectors.get());
                    let mut left = u64::from(zone.cylinders.get());
                    while left > 0 && sector < all {
                        let cylinders = left.min(mechanics.band_tracks.get().into());
                        let shingled = cylinders * (surfaces - 1) * track;
                        layout.add_home(sector, shingled.min(all - sector));
                        let mut log = sector + shingled;
                        let end = (log + cylinders * track).min(all);
                        while log < end && tracks > 0 {
                            let until = end.min(log + u64::from(tracks) * track);
                            let cylinder = layout.places.place(log).cylinder;
                            layout.logs.push(LogRegion { sectors: log..until, cylinder });
                            log = until;
                        }
                        sector += cylinders * surfaces * track;
                        left -= cylinders;
                    }
                }
                layout.log_cylinders = tracks;
            }
        }
        layout.by_cylinder = (0..layout.logs.len()).collect();
        layout.by_cylinder.sort_by_key(|log| layout.logs[*log].cylinder);
        let last = layout.by_cylinder.last().map_or(0, |log| layout.neighbourhood(*log));
        layout.neighbourhoods = vec![0; last + 1];
        for log in 0..layout.logs.len() {
            let of = layout.neighbourhood(log);
            layout.neighbourhoods[of] += layout.logs[log].size();
        }
        (layout.sectors > 0 && !layout.logs.is_empty()).then_some(layout)
    }

    fn add_home(&mut self, at: u64, count: u64) {
        if count > 0 {
            self.homes.push((self.sectors, at));
            self.sectors += count;
        }
    }

    /// The runs on the drive of sectors of the logical disk.
    pub fn homes(&self, range: Range<u64>) -> Vec<(u64, u64)> {
        let mut runs = Vec::new();
        let mut from = range.start;
        let mut index = self.homes.partition_point(|(first, _)| *first <= from).saturating_sub(1);
        while from < range.end {
            let (first, at) = self.homes[index];
            let next = self.homes.get(index + 1).map_or(self.sectors, |(next, _)| *next);
            let until = range.end.min(next);
            runs.push((at + (from - first), until - from));
            from = until;
            index += 1;
        }
        runs
    }
    pub fn neighbourhood(&self, log: usize) -> usize {
        (self.logs[log].cylinder / NEIGHBOURHOOD) as usize
    }
    pub fn logs_of(&self, neighbourhood: usize) -> &[usize] {
        let from = self.by_cylinder.partition_point(|log| self.neighbourhood(*log) < neighbourhood);
        let until =
            self.by_cylinder.partition_point(|log| self.neighbourhood(*log) <= neighbourhood);
        &self.by_cylinder[from..until]
    }
    pub fn cylinder(&self, sector: u64) -> u32 {
        self.places.place(sector).cylinder
    }
    /// Logs, the nearest to the cylinder first.
    pub fn nearest(&self, cylinder: u32) -> impl Iterator<Item = usize> + '_ {
        let of = move |index: usize| self.logs[self.by_cylinder[index]].cylinder;
        let above = self.by_cylinder.partition_point(|log| self.logs[*log].cylinder < cylinder);
        let (mut up, mut down) = (above, above);
        std::iter::from_fn(move || {
            let distance = |index: usize| of(index).abs_diff(cylinder);
            let takes_up =
                up < self.logs.len() && (down == 0 || distance(up) <= distance(down - 1));
            let index = if takes_up {
                up += 1;
                up - 1
            } else {
                down = down.checked_sub(1)?;
                down
            };
            Some(self.by_cylinder[index])
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shipped;

    #[test]
    fn the_logical_disk_and_the_logs_share_the_drive() {
        let (_, text) =
            shipped().find(|(name, _)| *name == "constellation-es3").expect("it is shipped");
        let model = Model::parse(text).expect("a model");
        for logs in [
            ShingledLogs::Single { bytes: 20 << 30 },
            ShingledLogs::Surface { tracks: 6, alignment_us: 100.0 },
        ] {
            let layout = ShingledLayout::new(&model, logs, model.size.get()).expect("a layout");
            let of_logs: u64 =
                layout.logs.iter().map(|log| log.sectors.end - log.sectors.start).sum();
            assert_eq!(of_logs + layout.sectors, model.size.get() / crate::SECTOR, "{logs:?}");
            let runs = layout.homes(0..layout.sectors);
            let mut taken: Vec<(u64, u64)> = runs.clone();
            taken.extend(
                layout
                    .logs
                    .iter()
                    .map(|log| (log.sectors.start, log.sectors.end - log.sectors.start)),
            );
            taken.sort_unstable();
            assert!(taken.windows(2).all(|pair| pair[0].0 + pair[0].1 == pair[1].0), "{logs:?}");
        }
    }
    #[test]
    fn logs_are_found_by_their_distance_from_the_head() {
        let (_, text) =
            shipped().find(|(name, _)| *name == "constellation-es3").expect("it is shipped");
        let model = Model::parse(text).expect("a model");
        for logs in [
            ShingledLogs::Single { bytes: 20 << 30 },
            ShingledLogs::Surface { tracks: 6, alignment_us: 100.0 },
        ] {
            let layout = ShingledLayout::new(&model, logs, model.size.get()).expect("a layout");
            for cylinder in (0..320_000).step_by(7919) {
                let near = layout.nearest(cylinder).take(20);
                let distance = |log: usize| layout.logs[log].cylinder.abs_diff(cylinder);
                let distances: Vec<u32> = near.map(distance).collect();
                let is_single = matches!(logs, ShingledLogs::Single { .. });
                assert!(
                    distances.is_sorted() && (is_single || distances[0] <= 100),
                    "{distances:?}"
                );
                assert_eq!(layout.nearest(cylinder).count(), layout.logs.len());
            }
            for log in &layout.logs {
                let away = |sector| layout.cylinder(sector).abs_diff(log.cylinder);
                let farthest = log.sectors.clone().step_by(500).map(away).max();
                assert!(farthest <= Some(layout.log_cylinders), "{log:?}: {farthest:?}");
            }
        }
    }
}
