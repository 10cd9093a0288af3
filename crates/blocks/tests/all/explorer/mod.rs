//! Power cuts at every kind of point, in all modes, over several runs of one volume. What a flush
//! or a durable write promised is there, blocks are old or new, and nothing old comes back.
//!
//! Repeat one case: `SEED=17 cargo test -p blocks --test all explorer -- --nocapture`.

mod case;
mod model;

use crate::common::{Images, Life, make, open};
use blocks::{BlockVolume, Persistence};
use case::Case;
use device::{Buffer, Disk, Durability, World};
use disks::CrashPolicy;
use model::{Change, Model, SECTOR, What};
use runtime::{SplitMix, VirtualWorld, join_all};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

type Shared = Rc<RefCell<Model>>;

/// Returns the bytes of a sector of the write `id`. Odd ones are full of it, with a CRC-32C of
/// themselves at the end, so that no CRC distinguishes writes. Even ones differ in few bytes from
/// one another, so that a difference is logged.
fn sector_of(id: u64) -> [u8; SECTOR as usize] {
    let mut sector = [0; SECTOR as usize];
    if id.is_multiple_of(2) {
        sector[..8].copy_from_slice(&id.to_le_bytes());
        return sector;
    }
    let (body, own) = sector.split_at_mut(SECTOR as usize - 4);
    body.chunks_mut(8).for_each(|field| field.copy_from_slice(&id.to_le_bytes()[..field.len()]));
    own.copy_from_slice(&crc32c::crc32c(body).to_le_bytes());
    sector
}

fn content(id: u64, sectors: u64) -> Vec<Rc<Buffer>> {
    let mut buffer = Buffer::zeroed((sectors * SECTOR) as usize);
    let sector = sector_of(id);
    buffer.chunks_exact_mut(SECTOR as usize).for_each(|part| part.copy_from_slice(&sector));
    vec![Rc::new(buffer)]
}

/// Returns the write of each sector. A sector of two writes matches no write.
fn ids(bytes: &[u8]) -> Vec<u64> {
    let id = |sector: &[u8]| {
        let id = u64::from_le_bytes(sector[..8].try_into().unwrap());
        if sector == sector_of(id) { id } else { u64::MAX }
    };
    bytes.chunks_exact(SECTOR as usize).map(id).collect()
}

#[test]
fn a_crc_is_blind_to_which_write_a_sector_is_of() {
    let [before, one, other] = [1, 3, 5].map(sector_of);
    assert_ne!(one, other);
    let sum = |sector: &[u8]| crc32c::crc32c_append(crc32c::crc32c(&before), sector);
    assert_eq!(sum(&one), sum(&other));
}

struct Client {
    world: VirtualWorld,
    volume: BlockVolume,
    model: Shared,
    case: Case,
    random: SplitMix,
}

impl Client {
    fn range(&self) -> std::ops::Range<u64> {
        let (sectors, block) = (self.volume.geometry().size / SECTOR, self.case.block_sectors());
        let places = self.case.places(sectors);
        let from = places[(self.random.next() % places.len() as u64) as usize];
        let from = if !self.random.next().is_multiple_of(4) { from / block * block } else { from };
        let length = match self.random.next() % 8 {
            0 | 1 => 1 + self.random.next() % 7,
            2..=5 => block * (1 + self.random.next() % 4),
            6 => 1 + self.random.next() % 160,
            _ => block * (1 + self.random.next() % 64),
        };
        from..(from + length).min(sectors)
    }

    /// Issues random requests, one after the other.
    async fn run(self) {
        for _ in 0..80 {
            let range = self.range();
            match self.random.next() % 40 {
                0..=24 => self.write(range).await,
                25..=30 => {
                    let since = self.model.borrow_mut().flush_begins();
                    self.volume.flush().await.expect("a flush");
                    self.model.borrow_mut().flushed(since);
                }
                31..=34 => self.read(range).await,
                35 | 36 => self.discard(range).await,
                37 if self.random.next().is_multiple_of(4) => {
                    self.volume.drain().await.expect("a drain")
                }
                _ => {
                    let pause = Duration::from_micros(self.random.next() % 12_000);
                    self.world.sleep_until(self.world.now().plus(pause)).await;
                }
            }
        }
    }

    async fn write(&self, range: std::ops::Range<u64>) {
        let zeros = self.random.next().is_multiple_of(12);
        let what = if zeros { |_| What::Written(0) } else { What::Written };
        let begun: Option<Change> = self.model.borrow_mut().begin(range.clone(), what);
        let Some(change) = begun else { return };
        let What::Written(id) = change.what else { unreachable!() };
        let durability = match self.random.next() % 4 {
            0 => Durability::Durable,
            _ => Durability::Cached,
        };
        let sectors = range.end - range.start;
        let bytes = if id == 0 {
            vec![Rc::new(Buffer::zeroed((sectors * SECTOR) as usize))]
        } else {
            content(id, sectors)
        };
        self.volume.write(range.start * SECTOR, bytes, durability).await.expect("a write");
        let is_durable =
            durability == Durability::Durable || self.case.persistence == Persistence::WriteThrough;
        self.model.borrow_mut().acknowledged(change, is_durable);
    }

    async fn read(&self, range: std::ops::Range<u64>) {
        if self.model.borrow().is_busy(&range) {
            return;
        }
        let newest: Vec<_> = range.clone().map(|it| self.model.borrow().newest(it)).collect();
        let length = ((range.end - range.start) * SECTOR) as usize;
        let read = self.volume.read(range.start * SECTOR, length).await.expect("a read");
        for ((sector, id), before) in range.zip(ids(&read)).zip(newest) {
            let model = self.model.borrow();
            // Another client may have changed it since.
            if model.newest(sector) == before && !model.is_busy(&(sector..sector + 1)) {
                let same = model.check_read(sector, id);
                assert!(same.is_ok(), "{:?}: {same:?}", self.case);
            }
        }
    }

    async fn discard(&self, range: std::ops::Range<u64>) {
        let block = self.case.block_sectors();
        let whole = range.start / block * block..range.end / block * block;
        if whole.is_empty() {
            return;
        }
        let begun = self.model.borrow_mut().begin(whole.clone(), |_| What::Discarded);
        let Some(change) = begun else { return };
        let length = (whole.end - whole.start) * SECTOR;
        self.volume.discard(whole.start * SECTOR, length).await.expect("a discard");
        self.model.borrow_mut().acknowledged(change, false);
    }
}

/// Reads all sectors.
async fn read_all(volume: &BlockVolume) -> Vec<u64> {
    let size = volume.geometry().size;
    let mut found = Vec::new();
    for at in (0..size).step_by(1 << 20) {
        let length = (size - at).min(1 << 20) as usize;
        found.extend(ids(&volume.read(at, length).await.expect("a read")));
    }
    found
}

/// Runs clients until the power is cut. Returns the disks' contents then.
fn live(case: &Case, random: &SplitMix, images: &Images, model: &Shared, cut: bool) -> Images {
    let life = Life::new(random.next(), images);
    if case.hides_forced_unit_access {
        life.disks.iter().for_each(|disk| disk.hide_forced_unit_access());
    }
    if cut {
        life.disks[0].cut_at(random.next() % case.changes);
    }
    let parts = life.parts(&case.options, case.persistence);
    let seeds: Vec<u64> = (0..case.clients).map(|_| random.next()).collect();
    let (world, shared, of_case) = (life.world.clone(), model.clone(), case.clone());
    let script = async move {
        let volume = open(parts).await;
        let client = |seed| -> device::LocalFuture<()> {
            let client = Client {
                world: world.clone(),
                volume: volume.clone(),
                model: shared.clone(),
                case: of_case.clone(),
                random: SplitMix::new(seed),
            };
            Box::pin(client.run())
        };
        join_all(seeds.into_iter().map(client).collect()).await;
        if of_case.closes {
            let since = shared.borrow_mut().flush_begins();
            volume.close().await.expect("a close");
            shared.borrow_mut().flushed(since);
        }
    };
    life.run(case.crash(random.next()), script).1
}

fn check(case: &Case, random: &SplitMix, images: Images, model: &Shared, context: &str) -> Images {
    let mut images = images;
    // The power may fail in recovery, too.
    for _ in 0..random.next() % 3 {
        let life = Life::new(random.next(), &images);
        life.disks[0].cut_at(random.next() % 4);
        let parts = life.parts(&case.options, case.persistence);
        let opening = async move { drop(open(parts).await) };
        images = life.run(case.crash(random.next()), opening).1;
    }
    let life = Life::new(random.next(), &images);
    let parts = life.parts(&case.options, case.persistence);
    let atomic = Rc::new(Cell::new(None));
    let (said, of_case) = (atomic.clone(), case.clone());
    let (found, left) = life.run(CrashPolicy::LoseAll, async move {
        let volume = open(parts).await;
        said.set(Some(of_case.atomic(volume.atomic_bytes() / SECTOR)));
        read_all(&volume).await
    });
    let found = found.expect("no cut");
    let atomic = atomic.get().expect("the volume was opened");
    let checked = model.borrow().check_crashed(&found, atomic);
    checked.unwrap_or_else(|error| panic!("{context}: {error}"));
    model.borrow_mut().settle(&found);
    left
}

fn explore(case: Case) {
    let random = SplitMix::new(!case.seed);
    let mut images = make(&case.making).expect("a volume");
    let model = Shared::default();
    for number in 0..case.lives {
        let context = format!("life {number} of {case:?}");
        let cut = number + 1 < case.lives;
        let left = live(&case, &random, &images, &model, cut);
        images = check(&case, &random, left, &model, &context);
    }
    // After a recovery without an engine, the exported disk is at its offset at home.
    let life = Life::new(random.next(), &images);
    let parts = life.parts(&case.options, case.persistence);
    let (data_at, images) = life.play(async move {
        let volume = open(parts).await;
        volume.close().await.expect("a close");
        volume.layout().data_offset()
    });
    if case.making.groups.is_none() {
        let mut home = vec![0; (images[0].size() - data_at - (1 << 20)) as usize];
        images[0].read(data_at, &mut home);
        let checked = model.borrow().check_crashed(&ids(&home), case.atomic(0));
        checked.unwrap_or_else(|error| panic!("drained {case:?}: {error}"));
    }
}

#[test]
fn what_was_promised_survives_every_power_cut() {
    let seeds = match std::env::var("SEED") {
        Ok(seed) => seed.parse().map(|seed: u64| seed..seed + 1).expect("a number"),
        Err(_) => 0..std::env::var("CASES").map_or(144, |cases| cases.parse().expect("a number")),
    };
    for seed in seeds {
        println!("SEED={seed}");
        explore(Case::new(seed));
    }
}

#[test]
fn every_combination_of_choices_is_explored() {
    let cases: Vec<Case> = (0..72).map(Case::new).collect();
    let combinations: std::collections::BTreeSet<_> = cases.iter().map(Case::combination).collect();
    assert_eq!(combinations.len(), case::COMBINATIONS, "{combinations:?}");
}
