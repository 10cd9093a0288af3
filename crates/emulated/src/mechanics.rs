//! Arm and platter: the time when each sector of a request passes under the head.
//!
//! Positioning takes the seek or the head switch, whichever is longer, and after a move for a write
//! the settling. The platter rotates during this. Then the first sector is awaited. This repeats
//! for each track of the request.

use crate::model::{Mechanics, PhysicalSector, SeekCurve, TrackLayout};
use crate::run::{Direction, Run};
use std::ops::Range;

const NS_PER_MS: f64 = 1e6;

/// Position of the arm and rotation of the platter. Times are nanoseconds of the world.
pub(crate) struct Arm {
    layout: TrackLayout,
    seek: SeekCurve,
    revolution_ns: f64,
    head_switch_ns: f64,
    write_settle_ns: f64,
    zero_latency_writes: bool,
    phase: f64,
    last_surface: u32,
    /// Time between the last surface and the others.
    alignment_ns: f64,
    cylinder: u32,
    surface: u32,
    travelled: Travelled,
}

/// Distance that transfers have moved the arm.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct Travelled {
    pub seeks: u64,
    pub cylinders: u64,
}

impl Arm {
    pub fn new(model: &Mechanics) -> Arm {
        Arm {
            layout: TrackLayout::new(model),
            seek: model.seek_ms.clone(),
            revolution_ns: 60_000.0 * NS_PER_MS / model.rpm.get(),
            head_switch_ns: model.head_switch_ms.get() * NS_PER_MS,
            write_settle_ns: model.write_settle_ms.get() * NS_PER_MS,
            zero_latency_writes: model.zero_latency_writes,
            phase: model.phase.get(),
            last_surface: model.surfaces.get() - 1,
            alignment_ns: 0.0,
            cylinder: 0,
            surface: 0,
            travelled: Travelled::default(),
        }
    }

    /// Sets the time that the head needs between the last surface, whose tracks have another width,
    /// and the others.
    pub fn align_last_surface(&mut self, nanoseconds: f64) {
        self.alignment_ns = nanoseconds;
    }
    pub fn seek_ns(&self, cylinders: u32) -> u64 {
        (self.seek.time_ms(cylinders) * NS_PER_MS) as u64
    }
    /// Cylinder of the arm after its current transfer.
    pub fn cylinder(&self) -> u32 {
        self.cylinder
    }

    pub fn travelled(&self) -> Travelled {
        self.travelled
    }
    /// Cylinders from the arm to `sector`.
    pub fn distance(&self, sector: u64) -> u32 {
        self.cylinder.abs_diff(self.layout.place(sector).cylinder)
    }
    /// The track on which `sector` lies.
    pub fn track(&self, sector: u64) -> Range<u64> {
        let place = self.layout.place(sector);
        let start = sector - u64::from(place.index);
        start..start + u64::from(place.track_sectors)
    }

    /// Time until the head is over `sector`, if it starts at `now`: the drive's criterion of
    /// choice.
    pub fn positioning_ns(&self, now: u64, direction: Direction, sector: u64) -> u64 {
        let place = self.layout.place(sector);
        let arrival = now as f64 + self.move_ns(direction, &place);
        (arrival + self.wait_ns(arrival, place.angle) - now as f64) as u64
    }

    /// Moves the head over `count` sectors: one or two runs for each track, in the order of time.
    pub fn transfer(
        &mut self,
        now: f64,
        direction: Direction,
        sector: u64,
        count: u64,
    ) -> Vec<Run> {
        let mut runs = Vec::new();
        let (mut time, mut sector, end) = (now, sector, sector + count);
        while sector < end {
            let place = self.layout.place(sector);
            let length = u64::from(place.track_sectors - place.index).min(end - sector);
            time += self.move_ns(direction, &place);
            let distance = self.cylinder.abs_diff(place.cylinder);
            self.travelled.seeks += u64::from(distance > 0);
            self.travelled.cylinders += u64::from(distance);
            (self.cylinder, self.surface) = (place.cylinder, place.surface);
            let each = self.revolution_ns / f64::from(place.track_sectors);
            let wait = self.wait_ns(time, place.angle);
            let late = self.revolution_ns - wait;
            let missed = (late / each).ceil() as u64;
            // The head settled among the sectors: a zero-latency drive writes those ahead first.
            if self.zero_latency_writes
                && direction == Direction::Write
                && 0 < missed
                && missed < length
            {
                let start_ns = time + missed as f64 * each - late;
                runs.push(Run {
                    start_ns,
                    each_ns: each,
                    sector: sector + missed,
                    count: length - missed,
                });
                runs.push(Run { start_ns: time + wait, each_ns: each, sector, count: missed });
                time += wait + missed as f64 * each;
            } else {
                runs.push(Run { start_ns: time + wait, each_ns: each, sector, count: length });
                time += wait + length as f64 * each;
            }
            sector += length;
        }
        runs
    }

    /// Notes that the head has followed its track to `sector` by itself.
    pub fn stand_over(&mut self, sector: u64) {
        let place = self.layout.place(sector);
        (self.cylinder, self.surface) = (place.cylinder, place.surface);
    }

    fn move_ns(&self, direction: Direction, to: &PhysicalSector) -> f64 {
        let distance = self.cylinder.abs_diff(to.cylinder);
        let switch = if self.surface == to.surface { 0.0 } else { self.head_switch_ns };
        let settle =
            if distance > 0 && direction == Direction::Write { self.write_settle_ns } else { 0.0 };
        let is_last = |surface: u32| surface == self.last_surface;
        let align =
            if is_last(self.surface) == is_last(to.surface) { 0.0 } else { self.alignment_ns };
        (self.seek.time_ms(distance) * NS_PER_MS).max(switch) + settle + align
    }

    /// Time from `time` until the platter is at `angle`.
    fn wait_ns(&self, time: f64, angle: f64) -> f64 {
        let turned = (time / self.revolution_ns + self.phase).fract();
        let wait = (angle - turned).rem_euclid(1.0);
        // A sector that begins right now must not be missed because skews or nanoseconds were
        // rounded.
        if wait > 1.0 - 1e-6 { 0.0 } else { wait * self.revolution_ns }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Model, SECTOR, shipped};

    fn mechanics() -> Mechanics {
        let (_, text) = shipped().next().expect("a model");
        Model::parse(text).expect("a valid model").mechanics.expect("a turning disk")
    }
    /// Rate in 1,000,000 bytes each second over 100 MB from `sector` on.
    fn sequential_mb_s(sector: u64) -> f64 {
        let count = 100_000_000 / SECTOR;
        let runs = Arm::new(&mechanics()).transfer(0.0, Direction::Read, sector, count);
        let last = runs.last().expect("a run");
        (count * SECTOR) as f64 / (last.end_ns() - runs[0].start_ns) * 1e3
    }

    #[test]
    fn sequential_rates_of_the_cheetah_are_the_measured_ones() {
        let (outer, inner) = (sequential_mb_s(0), sequential_mb_s(286_000_000));
        assert!((outer / 134.7 - 1.0).abs() < 0.015, "{outer} MB/s, 134.7 expected");
        assert!((inner / 80.8 - 1.0).abs() < 0.015, "{inner} MB/s, 80.8 expected");
    }
    #[test]
    fn the_way_of_the_arm_is_counted() {
        let mut arm = Arm::new(&mechanics());
        let cylinder = |arm: &Arm, sector| u64::from(arm.layout.place(sector).cylinder);
        for sector in [0, 200_000_000, 200_000_000, 100_000_000] {
            arm.transfer(0.0, Direction::Read, sector, 1);
        }
        let (far, middle) = (cylinder(&arm, 200_000_000), cylinder(&arm, 100_000_000));
        assert_eq!(arm.travelled(), Travelled { seeks: 2, cylinders: far + far - middle });
    }
    #[test]
    fn the_head_aligns_between_the_last_surface_and_the_others() {
        let move_ns = |alignment, from, surface| {
            let mut arm = Arm { surface: from, ..Arm::new(&mechanics()) };
            arm.align_last_surface(alignment);
            arm.move_ns(Direction::Read, &PhysicalSector { surface, ..arm.layout.place(0) })
        };
        let moves = |from, to| move_ns(100_000.0, from, to) - move_ns(0.0, from, to);
        assert_eq!(
            [moves(0, 3), moves(3, 1), moves(0, 1), moves(3, 3)],
            [100_000.0, 100_000.0, 0.0, 0.0]
        );
    }
    #[test]
    fn a_zero_latency_write_of_a_track_never_waits() {
        let mut model = mechanics();
        model.zero_latency_writes = true;
        for now in (0..4_000_000).step_by(37_003) {
            let runs = Arm::new(&model).transfer(f64::from(now), Direction::Write, 0, 1200);
            assert_eq!(runs.iter().map(|run| run.count).sum::<u64>(), 1200);
            let revolutions =
                (runs.last().expect("a run").end_ns() - f64::from(now)) / (60e9 / 15020.0);
            assert!(
                (1.0..1.001).contains(&revolutions),
                "{revolutions} revolutions from {now} ns on"
            );
        }
    }
}
