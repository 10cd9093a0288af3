//! Disks that ignore flushes, alone or with evictions in their place. They are small caches over
//! the memory disks, with the profile that a fingerprint of such a disk finds.

use crate::case::Case;
use crate::setup::Disks;
use device::{Buffer, Disk, Durability, World};
use disks::{CrashPolicy, LineReplacement, Lying, MemoryDisk};
use eviction::fingerprint::{Fingerprint, FingerprintOptions, Grid, fingerprint};
use eviction::{CoercedDisk, EvictionWorkload, FlushZone, Pattern, Profile};
use runtime::VirtualWorld;
use std::fmt;
use std::ops::ControlFlow;
use std::rc::Rc;

/// Behaviour of the disks of a case on a flush, and its remedy.
#[derive(Clone, Debug, PartialEq)]
pub struct LyingDisk {
    pub replacement: LineReplacement,
    /// The evictions of `barrier=coerce`; without them flushes are trusted.
    pub profile: Option<Profile>,
}

/// Lines of 4096 bytes in each disk's cache: it holds several transactions of the scripts.
const LINES: usize = 32;
const SECTOR: u32 = 512;
/// Default trials of a profile.
pub const TRIALS: u32 = 50;

impl LyingDisk {
    /// Returns a disk whose flushes are trusted.
    pub fn trusted(replacement: LineReplacement) -> LyingDisk {
        LyingDisk { replacement, profile: None }
    }
    /// Returns a disk with the profile that `trials` trials find.
    pub fn coerced(replacement: LineReplacement, trials: u32) -> LyingDisk {
        LyingDisk { replacement, profile: Some(profile(replacement, trials)) }
    }

    /// Returns how each of its disks lies.
    pub fn lying(&self, seed: u64) -> Lying {
        Lying { lines: LINES, replacement: self.replacement, seed }
    }
    /// Whether losses are expected and counted: random replacement may keep any line.
    pub(crate) fn may_lose(&self) -> bool {
        self.profile.is_some() && self.replacement == LineReplacement::Random
    }
    fn workload(&self) -> Option<EvictionWorkload> {
        self.profile.as_ref().map(|profile| profile.workload)
    }
    /// Returns the bytes at the end of each disk that belong to no volume.
    pub fn zone_size(&self) -> u64 {
        self.workload()
            .map_or(0, |workload| FlushZone::size(&workload, SECTOR).next_multiple_of(4096))
    }
    /// Returns the number of changes of the disk per flush.
    pub(crate) fn writes_a_flush(&self) -> u64 {
        self.workload().map_or(1, |workload| 1 + u64::from(workload.writes))
    }
    /// Returns the disk as the volume is to see it.
    pub fn coerce(&self, world: &VirtualWorld, disk: &MemoryDisk) -> Rc<dyn Disk> {
        let drive = Rc::new(disk.clone());
        let Some(workload) = self.workload() else { return drive };
        let end = disk.geometry().size;
        let extent = end - self.zone_size()..end;
        let zone = FlushZone::new(workload, &[extent], SECTOR).expect("room was made for it");
        Rc::new(CoercedDisk::new(Rc::new(world.clone()), drive, zone))
    }
}

/// Formats it as on the command line.
impl fmt::Display for LyingDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let replacement = match self.replacement {
            LineReplacement::LeastRecentlyUsed => "lru",
            LineReplacement::Random => "random",
        };
        write!(f, "--lying {replacement}")?;
        match &self.profile {
            Some(profile) if profile.trials == TRIALS => write!(f, " --barrier coerce"),
            Some(profile) => write!(f, " --barrier coerce --trials {}", profile.trials),
            None => Ok(()),
        }
    }
}

/// Returns fresh disks with space for flush zones.
pub(crate) fn with_zones(case: &Case, fresh: &Disks) -> Disks {
    let mut disks = fresh.clone();
    let room = case.lying_disk.as_ref().map_or(0, LyingDisk::zone_size);
    for image in [Some(&mut disks.home), disks.journal.as_mut()].into_iter().flatten() {
        image.grow(room);
    }
    disks
}

/// Bytes of the disk that is fingerprinted.
const PROBED: u64 = 64 << 20;

fn probed(world: &VirtualWorld, replacement: LineReplacement) -> Rc<dyn Disk> {
    let disk = MemoryDisk::new(Rc::new(world.clone()), PROBED);
    disk.lie(LyingDisk::trusted(replacement).lying(1));
    Rc::new(disk)
}

/// Returns the fingerprint of such a disk: the cheapest workload that evicted in all of `trials`.
pub fn profile(replacement: LineReplacement, trials: u32) -> Profile {
    let world = VirtualWorld::new(1);
    let disk = probed(&world, replacement);
    let kib = |sizes: [u64; 7]| sizes.map(|size| size << 10).to_vec();
    let patterns = vec![Pattern::Sequential, Pattern::Random];
    let grid =
        Grid { patterns, writes: vec![1, 4, 16], bytes: kib([32, 64, 128, 256, 512, 1024, 2048]) };
    // Such a disk answers a write when the line it evicts is on the medium: it is never busy, and
    // pauses change nothing.
    let options = FingerprintOptions {
        trials,
        at_once: false,
        ..FingerprintOptions::adaptive(grid, 0..PROBED)
    };
    let of_run: Rc<dyn World> = Rc::new(world.clone());
    let found = world.run(async move {
        let mut state = Fingerprint::default();
        let mut watch =
            |_: &Fingerprint, _: eviction::fingerprint::ProbeProgress| ControlFlow::Continue(());
        fingerprint(&of_run, &disk, &options, &mut state, &mut watch)
            .await
            .expect("a disk that answers");
        state.profile("memory disk that lies", PROBED)
    });
    world.end();
    found.expect("the largest workload is many times the cache")
}

/// Returns how many of the given number of single sectors were lost, each written, flushed by an
/// eviction and then cut off at once. The profile's bound refers to this.
pub fn lost_targets(replacement: LineReplacement, profile: &Profile, targets: u64) -> u64 {
    let lying_disk = LyingDisk { replacement, profile: Some(profile.clone()) };
    let world = VirtualWorld::new(1);
    let drive = MemoryDisk::new(Rc::new(world.clone()), PROBED);
    drive.lie(lying_disk.lying(1));
    let disk = lying_disk.coerce(&world, &drive);
    let lost = world.run(async move {
        let mut lost = 0;
        for target in 0..targets {
            let place = target * 4096 % (PROBED / 2);
            let content = (target + 1).to_le_bytes().repeat(SECTOR as usize / 8);
            let sector = vec![Rc::new(Buffer::copy_of(&content))];
            disk.write(place, sector, Durability::Durable).await.expect("a disk that answers");
            let mut bytes = [0; SECTOR as usize];
            drive.crash(CrashPolicy::LoseAll).read(place, &mut bytes);
            lost += u64::from(bytes != *content);
        }
        lost
    });
    world.end();
    lost
}
