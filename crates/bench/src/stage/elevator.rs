//! What kernels put before drives without command queueing: one request at a time, sorted, none of them long.

use device::{Buffer, DeviceError, Disk, Durability, Geometry, LocalFuture, Operation, World};
use runtime::Sender;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::Future;
use std::ops::Range;
use std::rc::Rc;

/// Reads one after another that may go before a write that waits: two batches of 16, as with Linux's deadline scheduler.
const READS_AT_MOST: u32 = 32;

/// Requests wait here, so the drive has only one to choose from. Reads go before writes; of each kind the next one upwards
/// goes first, and after the highest the lowest.
#[derive(Clone)]
pub(super) struct Elevator(Rc<State>);

struct State {
    world: Rc<dyn World>,
    drive: Rc<dyn Disk>,
    /// Bytes of a request.
    longest: u64,
    is_busy: Cell<bool>,
    /// Where the last request ended.
    position: Cell<u64>,
    arrivals: Cell<u64>,
    reads_in_a_row: Cell<u32>,
    reads: RefCell<Waiting>,
    writes: RefCell<Waiting>,
}

/// By first byte and arrival.
type Waiting = BTreeMap<(u64, u64), Sender<()>>;

impl Elevator {
    /// `longest`: bytes, a multiple of the drive's sector.
    pub fn new(world: Rc<dyn World>, drive: Rc<dyn Disk>, longest: u64) -> Elevator {
        assert!(longest > 0 && longest.is_multiple_of(drive.geometry().logical_sector.into()));
        Elevator(Rc::new(State {
            world,
            drive,
            longest,
            is_busy: Cell::new(false),
            position: Cell::new(0),
            arrivals: Cell::new(0),
            reads_in_a_row: Cell::new(0),
            reads: RefCell::default(),
            writes: RefCell::default(),
        }))
    }

    /// A future of the drive begins when it is polled: here, when it is its turn.
    async fn turn<T>(self, operation: Operation, place: Range<u64>, request: LocalFuture<T>) -> T {
        let state = &self.0;
        if state.is_busy.replace(true) {
            let (sender, receiver) = runtime::oneshot();
            state.arrivals.set(state.arrivals.get() + 1);
            let waiting = match operation {
                Operation::Read | Operation::Flush => &state.reads,
                Operation::Write | Operation::Discard => &state.writes,
            };
            waiting.borrow_mut().insert((place.start, state.arrivals.get()), sender);
            receiver.await;
        }
        let result = request.await;
        state.position.set(place.end);
        match self.next() {
            Some(next) => next.send(()),
            None => state.is_busy.set(false),
        }
        result
    }

    fn next(&self) -> Option<Sender<()>> {
        let State { position, reads_in_a_row, reads, writes, .. } = &*self.0;
        let (mut reads, mut writes) = (reads.borrow_mut(), writes.borrow_mut());
        let has_waited = !writes.is_empty() && reads_in_a_row.get() >= READS_AT_MOST;
        let is_write = reads.is_empty() || has_waited;
        reads_in_a_row.set(if is_write { 0 } else { reads_in_a_row.get() + 1 });
        let waiting = if is_write { &mut writes } else { &mut reads };
        let ahead = waiting.range((position.get(), 0)..).next().map(|(key, _)| *key);
        match ahead {
            Some(key) => waiting.remove(&key),
            None => waiting.pop_first().map(|(_, sender)| sender),
        }
    }

    /// Ends even if nobody waits for it.
    fn begin<T: 'static>(&self, work: impl Future<Output = T> + 'static) -> LocalFuture<T> {
        let world = self.0.world.clone();
        Box::pin(async move { runtime::complete_anyway(&*world, work).await })
    }

    /// Where the requests of a long one lie.
    fn places(&self, at: u64, length: u64) -> impl Iterator<Item = Range<u64>> + use<> {
        let (end, longest) = (at + length, self.0.longest);
        (at..end).step_by(longest as usize).map(move |start| start..end.min(start + longest))
    }
}

/// The first `length` bytes of all, taken off.
fn take(parts: &mut Vec<Rc<Buffer>>, mut length: usize) -> Vec<Rc<Buffer>> {
    let mut taken = Vec::new();
    while length > 0 {
        let part = parts.remove(0);
        if part.len() > length {
            taken.push(Rc::new(Buffer::copy_of(&part[..length])));
            parts.insert(0, Rc::new(Buffer::copy_of(&part[length..])));
            break;
        }
        length -= part.len();
        taken.push(part);
    }
    taken
}

impl Disk for Elevator {
    fn name(&self) -> &str {
        self.0.drive.name()
    }
    fn geometry(&self) -> Geometry {
        self.0.drive.geometry()
    }
    fn read(&self, at: u64, length: usize) -> LocalFuture<Result<Buffer, DeviceError>> {
        let request = |place: Range<u64>| {
            let read = self.0.drive.read(place.start, (place.end - place.start) as usize);
            Box::pin(self.clone().turn(Operation::Read, place, read))
                as LocalFuture<Result<Buffer, DeviceError>>
        };
        let reads = self.places(at, length as u64).map(request).collect();
        self.begin(async move {
            let mut whole = Buffer::zeroed(length);
            let mut rest = &mut whole[..];
            for read in runtime::join_all(reads).await {
                let read = read?;
                rest[..read.len()].copy_from_slice(&read);
                rest = &mut rest[read.len()..];
            }
            Ok(whole)
        })
    }
    fn write(
        &self,
        at: u64,
        mut parts: Vec<Rc<Buffer>>,
        durability: Durability,
    ) -> LocalFuture<Result<(), DeviceError>> {
        let length = parts.iter().map(|part| part.len() as u64).sum();
        let request = |place: Range<u64>| {
            let parts = take(&mut parts, (place.end - place.start) as usize);
            let write = self.0.drive.write(place.start, parts, durability);
            Box::pin(self.clone().turn(Operation::Write, place, write)) as LocalFuture<_>
        };
        let writes = self.places(at, length).map(request).collect();
        self.begin(async move { runtime::join_all(writes).await.into_iter().collect() })
    }
    fn flush(&self) -> LocalFuture<Result<(), DeviceError>> {
        let here = self.0.position.get();
        self.begin(self.clone().turn(Operation::Flush, here..here, self.0.drive.flush()))
    }
    fn discard(&self, at: u64, length: u64) -> LocalFuture<Result<(), DeviceError>> {
        let discard = self.0.drive.discard(at, length);
        self.begin(self.clone().turn(Operation::Discard, at..at + length, discard))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use disks::MemoryDisk;
    use runtime::{SplitMix, VirtualWorld};
    use std::time::Duration;

    const LONGEST: u64 = 512 << 10;
    const SIZE: u64 = 64 << 20;

    type Seen = Rc<RefCell<Vec<(Operation, Range<u64>)>>>;

    /// Takes a millisecond for everything and writes it down; never has two requests.
    struct Watched {
        world: VirtualWorld,
        disk: MemoryDisk,
        is_busy: Rc<Cell<bool>>,
        seen: Seen,
    }
    impl Watched {
        fn watch<T: 'static>(
            &self,
            operation: Operation,
            place: Range<u64>,
            request: LocalFuture<T>,
        ) -> LocalFuture<T> {
            let (world, is_busy, seen) = (self.world.clone(), self.is_busy.clone(), self.seen.clone());
            Box::pin(async move {
                assert!(!is_busy.replace(true), "two at once");
                assert!(place.end - place.start <= LONGEST, "{place:?}");
                seen.borrow_mut().push((operation, place));
                world.sleep_until(world.now().plus(Duration::from_millis(1))).await;
                let result = request.await;
                is_busy.set(false);
                result
            })
        }
    }
    impl Disk for Watched {
        fn name(&self) -> &str {
            self.disk.name()
        }
        fn geometry(&self) -> Geometry {
            self.disk.geometry()
        }
        fn read(&self, at: u64, length: usize) -> LocalFuture<Result<Buffer, DeviceError>> {
            self.watch(Operation::Read, at..at + length as u64, self.disk.read(at, length))
        }
        fn write(
            &self,
            at: u64,
            parts: Vec<Rc<Buffer>>,
            durability: Durability,
        ) -> LocalFuture<Result<(), DeviceError>> {
            let length: u64 = parts.iter().map(|part| part.len() as u64).sum();
            self.watch(Operation::Write, at..at + length, self.disk.write(at, parts, durability))
        }
        fn flush(&self) -> LocalFuture<Result<(), DeviceError>> {
            self.watch(Operation::Flush, 0..0, self.disk.flush())
        }
        fn discard(&self, at: u64, length: u64) -> LocalFuture<Result<(), DeviceError>> {
            self.watch(Operation::Discard, at..at + length, self.disk.discard(at, length))
        }
    }

    fn elevator(world: &VirtualWorld) -> (Elevator, Seen) {
        let disk = MemoryDisk::new(Rc::new(world.clone()), SIZE);
        let seen = Seen::default();
        let watched = Watched { world: world.clone(), disk, is_busy: Rc::default(), seen: seen.clone() };
        (Elevator::new(Rc::new(world.clone()), Rc::new(watched), LONGEST), seen)
    }

    #[test]
    fn the_drive_has_one_request_at_a_time_none_is_long_and_the_content_is_right() {
        let world = VirtualWorld::new(1);
        let (disk, seen) = elevator(&world);
        world.run(async move {
            let dice = SplitMix::new(7);
            let mut expected = vec![0u8; SIZE as usize];
            for round in 0..4 {
                // Writes that do not overlap, in parts of any size, all at once; then all is read at once.
                let mut requests: Vec<LocalFuture<Result<(), DeviceError>>> = Vec::new();
                for slot in (0..SIZE).step_by(4 << 20) {
                    let at = slot + dice.next() % 1024 * 512;
                    let mut end = at;
                    let parts = (0..1 + dice.next() % 5).map(|_| {
                        let length = (1 + dice.next() % 1024) * 512;
                        let bytes: Vec<u8> =
                            (0..length).map(|it| (it / 512 + slot / 512 + round) as u8).collect();
                        expected[end as usize..(end + length) as usize].copy_from_slice(&bytes);
                        end += length;
                        Rc::new(Buffer::copy_of(&bytes))
                    });
                    let parts = parts.collect();
                    requests.push(disk.write(at, parts, Durability::Cached));
                }
                requests.push(disk.flush());
                runtime::join_all(requests).await.into_iter().for_each(|it| it.expect("a request"));
                let reads = (0..SIZE).step_by(4 << 20).map(|at| disk.read(at, 4 << 20)).collect();
                let read: Vec<u8> = runtime::join_all(reads)
                    .await
                    .iter()
                    .flat_map(|it| it.as_ref().unwrap().to_vec())
                    .collect();
                assert!(read == expected, "round {round}");
            }
        });
        assert!(seen.borrow().iter().any(|(_, place)| place.end - place.start == LONGEST));
    }

    #[test]
    fn reads_go_first_and_both_go_upwards_from_where_the_drive_is() {
        let world = VirtualWorld::new(1);
        let (disk, seen) = elevator(&world);
        world.run(async move {
            let mut requests: Vec<LocalFuture<()>> = Vec::new();
            for at in [8 << 20, 1 << 20, 16 << 20, 9 << 20] {
                let write = disk.write(at, vec![Rc::new(Buffer::zeroed(512))], Durability::Cached);
                requests.push(Box::pin(async move { write.await.expect("a write") }));
            }
            for at in [20 << 20, 4 << 20, 12 << 20] {
                let read = disk.read(at, 512);
                requests.push(Box::pin(async move { assert_eq!(read.await.expect("a read").len(), 512) }));
            }
            runtime::join_all(requests).await;
        });
        let mebibytes = |(operation, place): &(Operation, Range<u64>)| (*operation, place.start >> 20);
        let seen: Vec<_> = seen.borrow().iter().map(mebibytes).collect();
        let (read, write) = (Operation::Read, Operation::Write);
        // The first found the drive idle.
        let expected = [(write, 8), (read, 12), (read, 20), (read, 4), (write, 9), (write, 16), (write, 1)];
        assert_eq!(seen, expected);
    }

    #[test]
    fn many_reads_do_not_keep_a_write_waiting_for_ever() {
        let world = VirtualWorld::new(1);
        let (disk, seen) = elevator(&world);
        world.run(async move {
            let reads = (0..100).map(|number| disk.read(number << 12, 512));
            let reads = reads.map(|read| Box::pin(async move { read.await.map(drop) }) as LocalFuture<_>);
            let write = disk.write(0, vec![Rc::new(Buffer::zeroed(512))], Durability::Cached);
            runtime::join_all(reads.chain([write]).collect()).await;
        });
        let place = seen.borrow().iter().position(|(operation, _)| *operation == Operation::Write);
        assert_eq!(place, Some(READS_AT_MOST as usize + 1));
    }
}
