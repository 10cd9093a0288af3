//! The server in virtual time: a test double of the driver hands it requests, over a disk in memory
//! that loses power.

use device::{LocalFuture, Operation, World};
use disks::{CrashPolicy, Effect, Fault, MemoryDisk};
use runtime::sync::Event;
use runtime::{Sender, SplitMix, VirtualWorld, oneshot};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::rc::Rc;
use std::time::Duration;
use ublk::abi::{
    Descriptor, OPERATION_DISCARD, OPERATION_FLUSH, OPERATION_READ, OPERATION_WRITE,
    OPERATION_WRITE_ZEROES, REQUEST_FUA,
};
use ublk::{ExportedDisk, Queue, Server};

const SIZE: u64 = 1 << 20;
const SECTOR: usize = 512;
const EIO: i32 = 5;
const EOPNOTSUPP: i32 = 95;

/// A request of the block layer, with its data, and where its answer goes.
struct Request {
    descriptor: Descriptor,
    data: Vec<u8>,
    answer: Sender<(i32, Vec<u8>)>,
}

/// A test double of the driver.
struct Driver {
    waiting: RefCell<VecDeque<Request>>,
    slots: RefCell<Vec<Option<Request>>>,
    changed: Event,
    has_ended: Cell<bool>,
    /// Slots that the server has given to the driver at least once.
    given: Cell<usize>,
}

impl Driver {
    fn new(depth: usize) -> Rc<Driver> {
        let slots = RefCell::new((0..depth).map(|_| None).collect());
        let (waiting, changed) = Default::default();
        let (has_ended, given) = Default::default();
        Rc::new(Driver { waiting, slots, changed, has_ended, given })
    }

    async fn ask(
        &self,
        operation: u32,
        sector: u64,
        sectors: u32,
        data: Vec<u8>,
    ) -> (i32, Vec<u8>) {
        let (answer, answered) = oneshot();
        let descriptor = Descriptor {
            operation_and_flags: operation,
            sectors,
            first_sector: sector,
            address: 0,
        };
        self.waiting.borrow_mut().push_back(Request { descriptor, data, answer });
        self.changed.notify();
        answered.await.expect("the driver lives")
    }
    async fn write(&self, flags: u32, sector: u64, data: Vec<u8>) -> i32 {
        let sectors = (data.len() / SECTOR) as u32;
        self.ask(OPERATION_WRITE | flags, sector, sectors, data).await.0
    }
    async fn read(&self, sector: u64, sectors: u32) -> (i32, Vec<u8>) {
        self.ask(OPERATION_READ, sector, sectors, vec![0; sectors as usize * SECTOR]).await
    }
    async fn flush(&self) -> i32 {
        self.ask(OPERATION_FLUSH, 0, 0, Vec::new()).await.0
    }
}

/// The queue that a server holds.
struct Slots(Rc<Driver>);

impl Queue for Slots {
    fn depth(&self) -> u16 {
        self.0.slots.borrow().len() as u16
    }
    fn next(&self, slot: u16, result: Option<i32>) -> LocalFuture<io::Result<Descriptor>> {
        let driver = self.0.clone();
        let before = driver.slots.borrow_mut()[usize::from(slot)].take();
        assert_eq!(before.is_some(), result.is_some(), "each request has one answer");
        driver.given.set(driver.given.get() + usize::from(result.is_none()));
        if let (Some(request), Some(result)) = (before, result) {
            request.answer.send((result, request.data));
        }
        Box::pin(async move {
            let next = || match driver.has_ended.get() {
                true => Some(None),
                false => driver.waiting.borrow_mut().pop_front().map(Some),
            };
            let request = driver.changed.until(next).await;
            let request = request.ok_or(io::Error::from_raw_os_error(19))?;
            let descriptor = request.descriptor;
            driver.slots.borrow_mut()[usize::from(slot)] = Some(request);
            Ok(descriptor)
        })
    }
    fn copy_from_request(&self, slot: u16, bytes: &mut [u8]) -> io::Result<()> {
        let slots = self.0.slots.borrow();
        bytes.copy_from_slice(&slots[usize::from(slot)].as_ref().expect("a request").data);
        Ok(())
    }
    fn copy_to_request(&self, slot: u16, bytes: &[u8]) -> io::Result<()> {
        let mut slots = self.0.slots.borrow_mut();
        slots[usize::from(slot)].as_mut().expect("a request").data.copy_from_slice(bytes);
        Ok(())
    }
}

struct Rig {
    world: VirtualWorld,
    disk: MemoryDisk,
    driver: Rc<Driver>,
    server: Server,
    queue: std::rc::Weak<Slots>,
}

fn rig(seed: u64, depth: usize) -> Rig {
    let world = VirtualWorld::new(seed);
    let shared: Rc<dyn World> = Rc::new(world.clone());
    let disk = MemoryDisk::new(shared.clone(), SIZE);
    let driver = Driver::new(depth);
    let queue = Rc::new(Slots(driver.clone()));
    let export = ExportedDisk {
        disk: Rc::new(disk.clone()),
        read_only: false,
        volatile_cache: true,
        rotational: false,
    };
    let weak = Rc::downgrade(&queue);
    let server = Server::start(&shared, queue, &export);
    Rig { world, disk, driver, server, queue: weak }
}

/// Each client has sectors of its own, so that it knows what they hold.
async fn client(
    driver: Rc<Driver>,
    random: Rc<SplitMix>,
    sectors: std::ops::Range<u64>,
) -> Promised {
    let mut holds: BTreeMap<u64, u8> = sectors.clone().map(|sector| (sector, 0)).collect();
    let mut volatile: BTreeMap<u64, u8> = BTreeMap::new();
    let mut promised: BTreeMap<u64, u8> = BTreeMap::new();
    for step in 0..60u8 {
        let first = sectors.start + random.below(sectors.end - sectors.start);
        let count = 1 + random.below((sectors.end - first).min(8));
        let touched = first..first + count;
        let byte = step + 1;
        match random.below(6) {
            0 | 1 => {
                let data = vec![byte; count as usize * SECTOR];
                assert_eq!(driver.write(0, first, data.clone()).await, data.len() as i32);
                volatile.extend(touched.clone().map(|sector| (sector, byte)));
                holds.extend(touched.map(|sector| (sector, byte)));
            }
            2 => {
                let data = vec![byte; count as usize * SECTOR];
                let written = driver.write(REQUEST_FUA, first, data.clone()).await;
                assert_eq!(written, data.len() as i32);
                volatile.retain(|sector, _| !touched.contains(sector));
                promised.extend(touched.clone().map(|sector| (sector, byte)));
                holds.extend(touched.map(|sector| (sector, byte)));
            }
            3 => {
                let zeroes = OPERATION_WRITE_ZEROES | REQUEST_FUA;
                assert_eq!(driver.ask(zeroes, first, count as u32, Vec::new()).await.0, 0);
                // Its flush covers what this client wrote before.
                promised.append(&mut volatile);
                promised.extend(touched.clone().map(|sector| (sector, 0)));
                holds.extend(touched.map(|sector| (sector, 0)));
            }
            4 => {
                assert_eq!(driver.flush().await, 0);
                promised.append(&mut volatile);
            }
            _ => {
                let (result, data) = driver.read(first, count as u32).await;
                assert_eq!(result, data.len() as i32);
                for (sector, read) in touched.zip(data.chunks(SECTOR)) {
                    assert!(read.iter().all(|found| *found == holds[&sector]), "sector {sector}");
                }
            }
        }
    }
    Promised { promised, volatile }
}

/// Sectors that a client may rely on after a power cut, and those written since.
struct Promised {
    promised: BTreeMap<u64, u8>,
    volatile: BTreeMap<u64, u8>,
}

#[test]
fn flushed_and_durable_writes_survive_a_power_cut() {
    for seed in 0..20 {
        let Rig { world, disk, driver, .. } = rig(seed, 4);
        let random = Rc::new(SplitMix::new(seed));
        let image = world.clone().run(async move {
            let clients = (0..8).map(|number| {
                let (driver, random) = (driver.clone(), random.clone());
                let sectors = number * 32..number * 32 + 32;
                runtime::spawn_with_result(&world, client(driver, random, sectors))
            });
            let clients: Vec<_> = clients.collect();
            let mut all = Vec::new();
            for client in clients {
                all.push(client.await.expect("a client"));
            }
            let image = disk.crash(CrashPolicy::LoseAll);
            driver.has_ended.set(true);
            driver.changed.notify();
            (image, all)
        });
        let (image, all) = image;
        for Promised { promised, volatile } in all {
            for (sector, byte) in
                promised.iter().filter(|(sector, _)| !volatile.contains_key(sector))
            {
                let found = image.copy(sector * SECTOR as u64, SECTOR);
                assert!(found.iter().all(|it| it == byte), "seed {seed}, sector {sector}");
            }
        }
    }
}

#[test]
fn errors_of_the_disk_are_those_of_the_block_layer() {
    let Rig { world, disk, driver, .. } = rig(1, 2);
    world.run(async move {
        let fail = |operation, code| {
            disk.inject(Fault { effect: Effect::Fail(code), ..Fault::once(operation) })
        };
        fail(Operation::Write, 28);
        assert_eq!(driver.write(0, 0, vec![1; SECTOR]).await, -28);
        fail(Operation::Write, 122);
        assert_eq!(driver.write(0, 0, vec![1; SECTOR]).await, -28);
        fail(Operation::Write, 30);
        assert_eq!(driver.write(0, 0, vec![1; SECTOR]).await, -EIO);
        fail(Operation::Read, 28);
        assert_eq!(driver.read(0, 1).await.0, -EIO);
        fail(Operation::Flush, 28);
        assert_eq!(driver.flush().await, -EIO);
        assert_eq!(driver.ask(OPERATION_DISCARD, 8, 8, Vec::new()).await.0, 0);
        assert_eq!(driver.ask(4, 8, 8, Vec::new()).await.0, -EOPNOTSUPP);
        assert_eq!(driver.read(SIZE / SECTOR as u64, 1).await.0, -EIO);
        assert_eq!(driver.flush().await, 0);
    });
}

/// The driver goes by the rights of who gives it a slot, and the daemon soon has few.
#[test]
fn a_server_gives_all_slots_to_the_driver_as_it_starts() {
    assert_eq!(rig(1, 128).driver.given.get(), 128);
}

/// The driver sends such requests to the next daemon, or fails them.
#[test]
fn a_stopped_server_carries_out_what_it_began_and_answers_nothing() {
    let Rig { world, disk, driver, server, queue } = rig(3, 2);
    let own = world.clone();
    world.run(async move {
        assert_eq!(driver.write(0, 0, vec![1; SECTOR]).await, SECTOR as i32);
        let answered = Rc::new(Cell::new(0));
        for sector in 1..5 {
            let (driver, answered) = (driver.clone(), answered.clone());
            own.spawn(Box::pin(async move {
                driver.write(0, sector, vec![2; SECTOR]).await;
                answered.set(answered.get() + 1);
            }));
        }
        // Two slots: two writes are in flight then, and two wait.
        for _ in 0..8 {
            runtime::yield_now().await;
        }
        server.stop();
        own.sleep_until(own.now().plus(Duration::from_secs(1))).await;
        let image = disk.image();
        let written = (1..5).filter(|sector| image.copy(sector * 512, SECTOR)[0] == 2).count();
        assert_eq!((answered.get(), written), (0, 2));
        assert!(queue.upgrade().is_none(), "the device's files are closed");
    });
}
