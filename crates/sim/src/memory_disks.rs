//! The disks of one run, and the volume on them.

use crate::case::Case;
use crate::choices::{Intervals, LongSectors};
use crate::setup::Disks;
use disks::{CrashPolicy, Fault, Image, Latency, Logged, MemoryDisk};
use engine::{DurableMemory, EngineOptions, LogKind};
use ext4::{Error, OpenParts, Volume, VolumeOptions};
use runtime::VirtualWorld;
use std::rc::Rc;
use std::time::Duration;

/// Latency that lets write-back come between the lock of a commit and the last of its writes.
const SCATTERED_LATENCY: Latency =
    Latency { least: Duration::from_micros(5), spread: Duration::from_micros(300) };

/// Physical sector, in bytes, that one of two unequal disks reports. Both tear at 512 nonetheless.
const LONG_SECTOR: u32 = 4096;

#[derive(Clone)]
pub struct MemoryDisks {
    pub home: MemoryDisk,
    pub journal: Option<MemoryDisk>,
    /// The table of runs.
    pub table: Option<MemoryDisk>,
}

impl MemoryDisks {
    pub fn of(world: &VirtualWorld, disks: &Disks, case: &Case) -> MemoryDisks {
        let memory = |image: &Image| MemoryDisk::from_image(Rc::new(world.clone()), image.clone());
        let make = |image: &Image| {
            let disk = memory(image);
            case.lying_disk.iter().for_each(|lying_disk| disk.lie(lying_disk.lying(case.seed)));
            disk
        };
        let table = disks.table.as_ref().map(memory);
        MemoryDisks { home: make(&disks.home), journal: disks.journal.as_ref().map(make), table }
            .like(case)
    }

    /// Returns the same disks in the same state, caches included, without requests in flight.
    pub fn fork(&self) -> MemoryDisks {
        self.fork_in(&VirtualWorld::new(0))
    }
    /// Returns the disks in another world, for the next daemon.
    pub fn go_on(&self, world: &VirtualWorld, case: &Case) -> MemoryDisks {
        self.fork_in(world).like(case)
    }
    fn fork_in(&self, world: &VirtualWorld) -> MemoryDisks {
        let fork = |disk: &MemoryDisk| disk.fork(Rc::new(world.clone()));
        MemoryDisks {
            home: fork(&self.home),
            journal: self.journal.as_ref().map(fork),
            table: self.table.as_ref().map(fork),
        }
    }

    fn like(self, case: &Case) -> MemoryDisks {
        for disk in [Some(&self.home), self.journal.as_ref()].into_iter().flatten() {
            if !case.has_forced_unit_access() {
                disk.hide_forced_unit_access();
            }
            if case.is_scattered() {
                disk.set_latency(SCATTERED_LATENCY);
            }
        }
        let long = match case.long_sectors() {
            None => None,
            Some(LongSectors::Home) => Some(&self.home),
            Some(LongSectors::Journal) => self.journal.as_ref(),
        };
        long.into_iter().for_each(|disk| disk.set_physical_sector(LONG_SECTOR));
        self
    }

    pub async fn open(&self, world: &VirtualWorld, case: &Case) -> Result<Rc<Volume>, Error> {
        Volume::open(self.parts(world, case)).await
    }
    pub fn parts(&self, world: &VirtualWorld, case: &Case) -> OpenParts {
        let trusted = |disk: &MemoryDisk| match &case.lying_disk {
            Some(lying_disk) => lying_disk.coerce(world, disk),
            None => Rc::new(disk.clone()),
        };
        let Intervals { commit, writeback, expire } = case.intervals();
        let (records, log_unit) = case.records();
        let engine = EngineOptions {
            data: case.mode,
            threshold: case.threshold(),
            barrier: case.barrier,
            commit,
            writeback,
            expire,
            cache_bytes: case.cache_bytes,
            transaction_checksum: case.has_transaction_checksum(),
            records: Some(records),
            log: if case.setup.logs.is_some() { LogKind::Scattered } else { LogKind::Circular },
            order_overwrites: case.order_overwrites(),
            past_cache_from: case.past_cache_from(),
            commits_in_flight: case.commits_in_flight(),
            records_at_once: case.records_at_once(),
            log_unit,
            log_gap: case.log_gap(),
            durable_only: case.durable_only().is_some(),
            // Any utilization: scripts leave the disk alone for a moment only.
            swap_above: Some(1),
            snapshot_after: case.snapshot_after(),
            snapshot_items: case.snapshot_items(),
            checkpoint: case.checkpoint(),
            run_table: self.table.clone().map(|table| DurableMemory(Rc::new(table))),
            ..EngineOptions::default()
        };
        let durable_only = case.durable_only();
        let options = VolumeOptions { engine, durable_only, ..VolumeOptions::default() };
        OpenParts {
            world: Rc::new(world.clone()),
            home: trusted(&self.home),
            journal: self.journal.as_ref().map(trusted),
            options,
        }
    }

    pub fn all(&self) -> impl Iterator<Item = &MemoryDisk> {
        [Some(&self.home), self.journal.as_ref(), self.table.as_ref()].into_iter().flatten()
    }
    pub fn inject(&self, fault: &Fault) {
        self.all().for_each(|disk| disk.inject(fault.clone()));
    }
    pub fn images(&self) -> Disks {
        self.crash_by(MemoryDisk::image)
    }
    pub fn crash(&self, policy: CrashPolicy) -> Disks {
        self.crash_by(|disk| disk.crash(policy))
    }
    pub fn crash_by(&self, mut image: impl FnMut(&MemoryDisk) -> Image) -> Disks {
        Disks {
            home: image(&self.home),
            journal: self.journal.as_ref().map(&mut image),
            table: self.table.as_ref().map(&mut image),
        }
    }
    /// Calls `hook` when a write, flush or discard starts on any disk.
    pub fn on_change(&self, hook: impl Fn(&MemoryDisk, &Logged) + Clone + 'static) {
        for disk in self.all() {
            let hook = hook.clone();
            disk.on_change(move |disk, _, logged| hook(disk, logged));
        }
    }
    /// Removes the hooks, which hold the disks, so this must be called.
    pub fn stop_watching(&self) {
        self.all().for_each(MemoryDisk::stop_watching);
    }
}
