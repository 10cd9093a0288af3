//! Power cuts at every kind of point: append, swap, checkpoint, snapshot, open list, restart. What
//! was acknowledged survives, blocks are whole, and nothing old comes back, over several runs of
//! one disk.
//!
//! Repeat one case: `SEED=17 cargo test -p scattered --test all explorer -- --nocapture`.

mod model;

use device::{Buffer, Disk, Durability, World};
use disks::{Atomicity, CrashPolicy, Image, Latency, MemoryDisk};
use model::{Model, SECTOR, What};
use runtime::{Either, SplitMix, VirtualWorld, join_all, race};
use scattered::{CheckpointPolicy, NearHome, ScatteredDisk, Settings, Sizes};
use std::cell::{OnceCell, RefCell};
use std::rc::Rc;
use std::time::Duration;

const SIZES: Sizes = Sizes { log: 64 << 10, group: 256 << 10 };

/// Parameters of a case, by its seed.
#[derive(Clone, Copy, Debug)]
struct Case {
    seed: u64,
    size: u64,
    atomicity: Atomicity,
    table_elsewhere: bool,
    settings: Settings,
    /// Whether all writes are logged: then every block is atomic on any disk.
    only_logged: bool,
    lives: u64,
    clients: u64,
    /// Changes after which the power fails, at most.
    changes: u64,
}

impl Case {
    fn new(seed: u64) -> Case {
        let random = SplitMix::new(seed);
        let one_of = |count: u64| random.next() % count;
        let only_logged = one_of(4) == 0;
        let checkpoint = match one_of(3) {
            0 => CheckpointPolicy::Manual,
            1 => CheckpointPolicy::Idle(Duration::from_millis(15)),
            _ => CheckpointPolicy::Periodic(Duration::from_millis(40)),
        };
        let near_home =
            if only_logged || seed % 3 == 0 { NearHome::IsLogged } else { NearHome::WrittenHome };
        let settings = Settings {
            near_home,
            logged_write_size: [8 << 10, 32 << 10, 256 << 10][one_of(3) as usize],
            checkpoint,
            swap_above: [40, 80, 100][one_of(3) as usize],
            swap_idle: Duration::from_millis(10),
            scan_bytes: [64 << 10, 256 << 10, 1 << 30][one_of(3) as usize],
            scan_regions: if only_logged { 64 } else { [1, 2, 64][one_of(3) as usize] },
            checkpoint_memory: [16 << 10, 1 << 20][one_of(2) as usize],
        };
        // Behind the last group lies a tail of any length, up to a group.
        let tail = seed * 4096 % SIZES.group;
        let whole =
            if only_logged { 64 << 20 } else { [2 << 20, 6 << 20, 24 << 20][one_of(3) as usize] };
        Case {
            seed,
            size: whole + tail,
            atomicity: Atomicity::Unit([512, 4096][one_of(2) as usize]),
            table_elsewhere: one_of(4) == 0,
            settings,
            only_logged,
            lives: 2 + one_of(4),
            clients: [3, 12][one_of(2) as usize],
            changes: [20, 120, 500][one_of(3) as usize],
        }
    }
}

/// Disks, from life to life.
struct Images {
    main: Image,
    table: Option<Image>,
}

/// World, disk, and the disk of the table.
type Parts = (Rc<dyn World>, Rc<dyn Disk>, Option<Rc<dyn Disk>>);

struct Life {
    world: VirtualWorld,
    main: MemoryDisk,
    table: Option<MemoryDisk>,
}

impl Life {
    fn new(seed: u64, images: &Images) -> Life {
        let world = VirtualWorld::new(seed);
        let disk = |image: &Image| {
            let disk = MemoryDisk::from_image(Rc::new(world.clone()), image.clone());
            disk.set_latency(Latency {
                least: Duration::from_micros(20),
                spread: Duration::from_micros(400),
            });
            disk
        };
        let (main, table) = (disk(&images.main), images.table.as_ref().map(disk));
        Life { world, main, table }
    }
    fn parts(&self) -> Parts {
        let table = self.table.clone().map(|table| Rc::new(table) as Rc<dyn Disk>);
        (Rc::new(self.world.clone()), Rc::new(self.main.clone()), table)
    }
    fn open(&self, settings: Settings) -> impl Future<Output = ScatteredDisk> + 'static + use<> {
        let (world, main, table) = self.parts();
        async move { ScatteredDisk::open(world, main, table, settings).await.expect("an open disk").0 }
    }
    /// Runs until `script` ends or the power does, then says what is left.
    fn run<T: 'static>(
        &self,
        case: &Case,
        seed: u64,
        script: impl Future<Output = T> + 'static,
    ) -> (Option<T>, Images) {
        let (main, table) = (self.main.clone(), self.table.clone());
        let power = main.clone();
        let ended = self.world.run(async move {
            match race(script, power.power_lost()).await {
                Either::Left(value) => Some(value),
                Either::Right(()) => None,
            }
        });
        let policy = CrashPolicy::Random { seed, atomicity: case.atomicity };
        let images =
            Images { main: main.crash(policy), table: table.map(|table| table.crash(policy)) };
        self.world.end();
        (ended, images)
    }
}

fn ids(bytes: &[u8]) -> Vec<u64> {
    bytes
        .chunks_exact(SECTOR as usize)
        .map(|sector| u64::from_le_bytes(sector[..8].try_into().unwrap()))
        .collect()
}
/// Each sector ends with a CRC-32C of itself, as nodes of an extent tree do. So any CRC-32C is
/// blind to which write it is of, and a record may not rely on one.
fn content(id: u64, sectors: u64) -> Vec<Rc<Buffer>> {
    let mut buffer = Buffer::zeroed((sectors * SECTOR) as usize);
    for sector in buffer.chunks_exact_mut(SECTOR as usize) {
        let (body, own) = sector.split_at_mut(SECTOR as usize - 4);
        body.chunks_mut(8)
            .for_each(|field| field.copy_from_slice(&id.to_le_bytes()[..field.len()]));
        own.copy_from_slice(&crc32c::crc32c(body).to_le_bytes());
    }
    vec![Rc::new(buffer)]
}

#[test]
fn a_crc_is_blind_to_which_write_a_sector_is_of() {
    let [before, one, other] = [1, 2, 3].map(|id| content(id, 1).remove(0));
    assert_ne!(one[..], other[..]);
    let sum = |sector: &[u8]| crc32c::crc32c_append(crc32c::crc32c(&before), sector);
    assert_eq!(sum(&one), sum(&other));
}

type Shared = Rc<RefCell<Model>>;

/// Random requests, one after the other.
async fn client(world: VirtualWorld, disk: ScatteredDisk, model: Shared, case: Case, seed: u64) {
    let random = SplitMix::new(seed);
    let sectors = disk.geometry().size / SECTOR;
    // Few places, so that blocks are written again and again; some at the borders of groups, and
    // one at the end of the disk.
    let places: Vec<u64> = (0..24)
        .map(|n| match n {
            23 => sectors - 8,
            n if n % 6 == 0 => 384 * (n / 6 + 1) - 9,
            _ => random.next() % sectors,
        })
        .collect();
    for _ in 0..60 {
        let from = places[(random.next() % 24) as usize].min(sectors - 1);
        let from = if random.next() % 4 != 0 { from / 8 * 8 } else { from };
        let most = if case.only_logged {
            case.settings.logged_write_size.min(40 << 10) / SECTOR
        } else {
            160
        };
        let length = match random.next() % 6 {
            0 => 1 + random.next() % 7,
            1..=3 => 8 * (1 + random.next() % 4),
            _ => 1 + random.next() % most,
        };
        let length = length.min(sectors - from).min(most);
        match random.next() % 40 {
            0..=24 => {
                let Some(change) = model.borrow_mut().begin(from..from + length, false) else {
                    continue;
                };
                let What::Written(id) = change.what else { unreachable!() };
                let durability =
                    if random.next() % 3 == 0 { Durability::Durable } else { Durability::Cached };
                disk.write(from * SECTOR, content(id, length), durability).await.expect("a write");
                model.borrow_mut().answered(change, durability == Durability::Durable);
            }
            25..=29 => {
                let since = model.borrow_mut().flush_begins();
                disk.flush().await.expect("a flush");
                model.borrow_mut().flushed(since);
            }
            30..=33 => {
                if model.borrow().is_busy(&(from..from + length)) {
                    continue;
                }
                let before = model.borrow().clone();
                let read =
                    disk.read(from * SECTOR, (length * SECTOR) as usize).await.expect("a read");
                for (sector, id) in (from..).zip(ids(&read)) {
                    let same = before
                        .check_read(sector, id)
                        .or_else(|_| model.borrow().check_read(sector, id));
                    let overtaken = model.borrow().is_busy(&(sector..sector + 1));
                    // Several came and went while it read: it may have any of them.
                    let between = before.last(sector) < id && id < model.borrow().last(sector);
                    assert!(same.is_ok() || overtaken || between, "{case:?}: {same:?}");
                }
            }
            34 if !case.only_logged => {
                let Some(change) = model
                    .borrow_mut()
                    .begin(from / 8 * 8..(from / 8 + 3).min(sectors / 8) * 8, true)
                else {
                    continue;
                };
                let (at, blocks) = (from / 8 * 8, (from / 8 + 3).min(sectors / 8) - from / 8);
                disk.discard(at * SECTOR, blocks * 8 * SECTOR).await.expect("a trim");
                model.borrow_mut().answered(change, false);
            }
            35 => drop(disk.checkpoint().await.expect("a checkpoint")),
            36 => disk.snapshot().await.expect("a snapshot"),
            37 => drop(disk.swap().await.expect("a swap")),
            _ => {
                let pause = Duration::from_micros(random.next() % 40_000);
                world.sleep_until(world.now().plus(pause)).await;
            }
        }
    }
}

/// Reads all sectors.
async fn read_all(disk: &ScatteredDisk) -> Vec<u64> {
    let size = disk.geometry().size;
    let mut found = Vec::new();
    for at in (0..size).step_by(1 << 20) {
        found.extend(ids(&disk.read(at, (size - at).min(1 << 20) as usize).await.expect("a read")));
    }
    found
}

/// Says how many logs were swapped.
fn explore(case: Case) -> u64 {
    let random = SplitMix::new(!case.seed);
    let mut images = Images {
        main: Image::new(case.size),
        table: case.table_elsewhere.then(|| Image::new(4 << 20)),
    };
    let life = Life::new(random.next(), &images);
    let (world, main, table) = life.parts();
    let format = async move {
        ScatteredDisk::format(&world, &main, table.as_ref(), SIZES).await.expect("logs")
    };
    images = life.run(&case, random.next(), format).1;
    let model = Shared::default();
    let mut swaps = 0;
    for number in 0..case.lives {
        let context = format!("life {number} of {case:?}");
        let life = Life::new(random.next(), &images);
        if number + 1 < case.lives {
            life.main.cut_at(random.next() % case.changes);
        }
        let seeds: Vec<u64> = (0..case.clients).map(|_| random.next()).collect();
        let (open, world) = (life.open(case.settings), life.world.clone());
        let (shared, opened) = (model.clone(), Rc::new(OnceCell::new()));
        let kept = opened.clone();
        let script = async move {
            let disk = open.await;
            let disk = kept.get_or_init(|| disk);
            let clients: Vec<device::LocalFuture<()>> = seeds
                .into_iter()
                .map(|seed| {
                    Box::pin(client(world.clone(), disk.clone(), shared.clone(), case, seed)) as _
                })
                .collect();
            join_all(clients).await;
            disk.statistics()
        };
        let (ended, left) = life.run(&case, random.next(), script);
        swaps += opened.get().map_or(0, |disk| disk.statistics().swaps);
        if let Some(statistics) = ended {
            assert!(
                !case.only_logged || statistics.bypassed_writes == 0,
                "{context}: {statistics:?}"
            );
        }
        images = left;
        // The power may fail in restarts, too.
        for _ in 0..random.next() % 3 {
            let life = Life::new(random.next(), &images);
            life.main.cut_at(random.next() % 3);
            let open = life.open(case.settings);
            images = life.run(&case, random.next(), async move { drop(open.await) }).1;
        }
        let life = Life::new(random.next(), &images);
        let open = life.open(Settings { checkpoint: CheckpointPolicy::Manual, ..case.settings });
        let (found, left) = life.run(&case, random.next(), async move {
            let disk = open.await;
            read_all(&disk).await
        });
        let found = found.expect("no cut");
        let whole = case.only_logged || case.atomicity == Atomicity::Unit(4096);
        model
            .borrow()
            .check_crashed(0, &found, whole)
            .unwrap_or_else(|error| panic!("{context}: {error}"));
        model.borrow_mut().settle(0, &found);
        images = left;
    }
    // At the end all is home: without logs the content is the same.
    let life = Life::new(random.next(), &images);
    let (open, model) = (life.open(case.settings), model.clone());
    life.run(&case, 0, async move {
        let disk = open.await;
        disk.checkpoint().await.expect("a checkpoint");
        assert_eq!(disk.statistics().table_entries, 0);
        let found = read_all(&disk).await;
        model
            .borrow()
            .check_crashed(0, &found, true)
            .unwrap_or_else(|error| panic!("checkpointed {case:?}: {error}"));
    });
    swaps
}

#[test]
fn what_was_answered_survives_every_power_cut_and_nothing_old_comes_back() {
    let seeds = match std::env::var("SEED") {
        Ok(seed) => seed.parse().map(|seed: u64| seed..seed + 1).expect("a number"),
        Err(_) => 0..std::env::var("CASES").map_or(60, |cases| cases.parse().expect("a number")),
    };
    let (cases, mut swaps) = (seeds.end - seeds.start, 0);
    for seed in seeds {
        println!("SEED={seed}");
        swaps += explore(Case::new(seed));
    }
    println!("{swaps} logs were swapped in {cases} cases");
    assert!(cases == 1 || swaps > cases, "hardly a log was swapped: {swaps} in {cases} cases");
}
