//! Timing of the medium: platters, flash, or a network volume.

use crate::SECTOR;
use crate::mechanics::{Arm, Travelled};
use crate::model::{Flash, Model, NetworkVolume};
use crate::run::{Direction, Run};
use std::collections::VecDeque;
use std::ops::Range;

pub(crate) enum Medium {
    Platters(Arm),
    Flash(FlashTime),
    Volume(VolumeTime),
}

impl Medium {
    pub fn new(model: &Model) -> Medium {
        match (&model.mechanics, &model.flash, &model.volume) {
            (Some(mechanics), _, _) => Medium::Platters(Arm::new(mechanics)),
            (_, Some(flash), _) => Medium::Flash(FlashTime::new(flash.clone())),
            (_, _, Some(volume)) => Medium::Volume(VolumeTime::new(volume.clone())),
            (None, None, None) => unreachable!("a checked model has one of the three"),
        }
    }
    /// Number of requests that it works on at once.
    pub fn width(&self) -> usize {
        match self {
            Medium::Platters(_) => 1,
            Medium::Flash(flash) => flash.free_ns.len(),
            Medium::Volume(_) => usize::MAX,
        }
    }
    /// Whether the order of requests matters for their time.
    pub fn has_arm(&self) -> bool {
        matches!(self, Medium::Platters(_))
    }
    pub fn travelled(&self) -> Travelled {
        match self {
            Medium::Platters(arm) => arm.travelled(),
            Medium::Flash(_) | Medium::Volume(_) => Travelled::default(),
        }
    }
    /// Cylinder of the arm after its current transfer; 0 without an arm.
    pub fn cylinder(&self) -> u32 {
        match self {
            Medium::Platters(arm) => arm.cylinder(),
            Medium::Flash(_) | Medium::Volume(_) => 0,
        }
    }
    /// Cylinders from the arm to `sector`; 0 without an arm.
    pub fn distance(&self, sector: u64) -> u32 {
        match self {
            Medium::Platters(arm) => arm.distance(sector),
            Medium::Flash(_) | Medium::Volume(_) => 0,
        }
    }
    /// The track on which `sector` lies; `None` without an arm.
    pub fn track(&self, sector: u64) -> Option<Range<u64>> {
        match self {
            Medium::Platters(arm) => Some(arm.track(sector)),
            Medium::Flash(_) | Medium::Volume(_) => None,
        }
    }
    pub fn seek_ns(&self, cylinders: u32) -> u64 {
        match self {
            Medium::Platters(arm) => arm.seek_ns(cylinders),
            Medium::Flash(_) | Medium::Volume(_) => 0,
        }
    }
    pub fn positioning_ns(&self, now: u64, direction: Direction, sector: u64) -> u64 {
        match self {
            Medium::Platters(arm) => arm.positioning_ns(now, direction, sector),
            Medium::Flash(_) | Medium::Volume(_) => 0,
        }
    }
    /// Times when the sectors pass, for a request that begins at `now`.
    pub fn transfer(
        &mut self,
        now: f64,
        direction: Direction,
        sector: u64,
        count: u64,
    ) -> Vec<Run> {
        match self {
            Medium::Platters(arm) => arm.transfer(now, direction, sector, count),
            Medium::Flash(flash) => vec![flash.transfer(now, direction, sector, count)],
            Medium::Volume(volume) => vec![volume.transfer(now, sector, count)],
        }
    }
}

const NS_PER_S: f64 = 1e9;

/// Nanoseconds for `bytes` at `mb_s` times 1,000,000 bytes each second.
pub(crate) fn moving_ns(bytes: u64, mb_s: f64) -> f64 {
    bytes as f64 * 1e3 / mb_s
}

pub(crate) struct FlashTime {
    model: Flash,
    /// Time when each channel has done its work.
    free_ns: Vec<f64>,
    pipe_free_ns: f64,
    /// The last erase blocks written, the newest at the back.
    open: VecDeque<u64>,
}

impl FlashTime {
    fn new(model: Flash) -> FlashTime {
        let free_ns = vec![0.0; model.channels.get() as usize];
        FlashTime { model, free_ns, pipe_free_ns: 0.0, open: VecDeque::new() }
    }

    fn transfer(&mut self, now: f64, direction: Direction, sector: u64, count: u64) -> Run {
        let (latency_us, mb_s) = match direction {
            Direction::Read => (self.model.read_us, self.model.read_mb_s),
            Direction::Write => (self.model.write_us, self.model.write_mb_s),
        };
        let bytes = count * SECTOR;
        let switches = if direction == Direction::Write {
            self.open_blocks(sector * SECTOR, bytes)
        } else {
            0
        };
        let channel =
            self.free_ns.iter_mut().min_by(|a, b| a.total_cmp(b)).expect("at least one channel");
        let latency =
            latency_us.get() * 1e3 + f64::from(switches) * self.model.switch_ms.get() * 1e6;
        let ready = channel.max(now) + latency;
        let start_ns = self.pipe_free_ns.max(ready);
        let run = Run { start_ns, each_ns: moving_ns(SECTOR, mb_s.get()), sector, count };
        *channel = run.end_ns();
        self.pipe_free_ns = run.end_ns();
        run
    }

    /// Opens the erase blocks of a write; returns the number that were not open.
    fn open_blocks(&mut self, at: u64, bytes: u64) -> u32 {
        let size = u64::from(self.model.erase_block);
        if size == 0 {
            return 0;
        }
        let mut switches = 0;
        for block in at / size..=(at + bytes - 1) / size {
            match self.open.iter().position(|open| *open == block) {
                Some(index) => drop(self.open.remove(index)),
                None => switches += 1,
            }
            self.open.push_back(block);
            while self.open.len() > self.model.open_blocks as usize {
                self.open.pop_front();
            }
        }
        switches
    }
}

pub(crate) struct VolumeTime {
    model: NetworkVolume,
    credits: f64,
    /// Time when the next I/O may begin.
    next_ns: f64,
    pipe_free_ns: f64,
}

impl VolumeTime {
    fn new(model: NetworkVolume) -> VolumeTime {
        let credits = model.burst_credits.get();
        VolumeTime { model, credits, next_ns: 0.0, pipe_free_ns: 0.0 }
    }

    fn transfer(&mut self, now: f64, sector: u64, count: u64) -> Run {
        let operations = (count * SECTOR).div_ceil(self.model.io_size.get().into()) as f64;
        let start = self.next_ns.max(now);
        let base = self.model.iops.get();
        let burst = self.model.burst_iops.get().max(base);
        // Credits are earned while less than the base rate is used, and pay for what is above it.
        let earned = (start - self.next_ns) / NS_PER_S * base;
        self.credits = (self.credits + earned).min(self.model.burst_credits.get());
        let price = operations * (1.0 - base / burst);
        let rate = if self.credits >= price { burst } else { base };
        if rate > base {
            self.credits -= price;
        }
        self.next_ns = start + operations / rate * NS_PER_S;
        let each_ns = moving_ns(SECTOR, self.model.mb_s.get());
        let moving = self.pipe_free_ns.max(start);
        self.pipe_free_ns = moving + each_ns * count as f64;
        Run { start_ns: moving + self.model.latency_ms.get() * 1e6, each_ns, sector, count }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shipped;

    fn medium(wanted: &str) -> Medium {
        let (_, text) = shipped().find(|(name, _)| *name == wanted).expect("it is shipped");
        Medium::new(&Model::parse(text).expect("a valid model"))
    }
    /// Seconds until `count` concurrent 4 KiB writes are done.
    fn flood_s(medium: &mut Medium, count: u64, stride: u64) -> f64 {
        let ends = (0..count)
            .map(|number| medium.transfer(0.0, Direction::Write, number * stride, 8)[0].end_ns());
        ends.fold(0.0, f64::max) / NS_PER_S
    }

    #[test]
    fn a_cloud_volume_bursts_until_its_credits_are_spent() {
        let mut volume = medium("cloud-volume");
        assert!((flood_s(&mut volume, 30_000, 8) - 10.0).abs() < 0.1, "3000 each second");
        let Medium::Volume(time) = &mut volume else { panic!("not a volume") };
        time.credits = 0.0;
        let before = time.next_ns / NS_PER_S;
        assert!((flood_s(&mut volume, 3_000, 8) - before - 10.0).abs() < 0.2, "300 each second");
    }
    #[test]
    fn an_sd_card_is_slowed_by_each_erase_block_it_opens() {
        let sequential = flood_s(&mut medium("sd-card"), 100, 8);
        let random = flood_s(&mut medium("sd-card"), 100, 100_000);
        assert!(random > 10.0 * sequential, "{random} s, sequential {sequential} s");
        assert!(random > 3.0, "30 ms each: {random} s");
    }
}
