//! Linux's scheduling of drives without command queueing: one request at a time, sorted, of bounded
//! length; batches of reads alternate with batches of writes.

use device::{Buffer, DeviceError, Disk, Durability, Geometry, LocalFuture, Operation, World};
use runtime::Sender;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::Future;
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;
use units::Instant;

/// Parameters of a host's scheduler.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct HostScheduler {
    /// Longest request, in bytes.
    pub longest: u64,
    /// Time of a batch of reads when writes wait, as long as there are any…
    pub read_batch: Duration,
    /// …and time for which the drive is kept idle for another read.
    pub read_wait: Duration,
    /// Time of a batch of writes when reads wait, and their number at most.
    pub write_batch: Duration,
    pub writes_most: u32,
    /// First come, first served: no sorting, no batches.
    pub in_order: bool,
}

impl HostScheduler {
    /// Linux's default up to 2.6.17 (Documentation/block/as-iosched.txt: `read_batch_expire`,
    /// `antic_expire`, `write_batch_expire`; how many writes it sends adjusts itself to that time).
    pub const ANTICIPATORY: HostScheduler = HostScheduler {
        longest: LONGEST_REQUEST,
        read_batch: Duration::from_millis(500),
        read_wait: Duration::from_millis(6),
        write_batch: Duration::from_millis(125),
        writes_most: u32::MAX,
        in_order: false,
    };
    /// Linux's default from 2.6.18 on (`slice_sync`, `slice_idle`, `slice_async`, and
    /// `slice_async_rq`, which gives 16 at the usual priority). All readers share one slice here.
    pub const COMPLETE_FAIR_QUEUEING: HostScheduler = HostScheduler {
        longest: LONGEST_REQUEST,
        read_batch: Duration::from_millis(100),
        read_wait: Duration::from_millis(8),
        write_batch: Duration::from_millis(40),
        writes_most: 16,
        in_order: false,
    };
    /// Linux's `noop`, its basic elevator.
    pub const NOOP: HostScheduler = HostScheduler {
        longest: LONGEST_REQUEST,
        read_batch: Duration::ZERO,
        read_wait: Duration::ZERO,
        write_batch: Duration::ZERO,
        writes_most: 0,
        in_order: true,
    };
}

/// Bytes that Linux 2.6.13 and 2.6.23 sent to a SATA drive in one request. libata had 128 segments,
/// of a page each unless pages are adjacent. Later the block layer's limit was 1,024 sectors.
const LONGEST_REQUEST: u64 = 512 << 10;

/// Queue in front of a drive, which gets one request at a time: the next one upwards of the current
/// batch's kind, and after the highest the lowest. With [`HostScheduler::in_order`] the one that
/// came first.
#[derive(Clone)]
pub struct Elevator(Rc<State>);

struct State {
    world: Rc<dyn World>,
    drive: Rc<dyn Disk>,
    scheduler: HostScheduler,
    drive_is: Cell<DriveIs>,
    /// End of the last request.
    position: Cell<u64>,
    arrivals: Cell<u64>,
    batch: Cell<Batch>,
    reads: RefCell<Waiting>,
    writes: RefCell<Waiting>,
}

#[derive(Clone, Copy, PartialEq)]
enum DriveIs {
    Free,
    Busy,
    /// Idle though writes wait, for a read that may follow; until this arrival.
    KeptForReads(u64),
}

/// The current batch: its kind, its start, and the number of requests served.
#[derive(Clone, Copy)]
struct Batch {
    of_writes: bool,
    since: Instant,
    served: u32,
}

/// Waiting requests by first byte (0 where requests are served in order) and arrival.
type Waiting = BTreeMap<(u64, u64), Sender<()>>;

impl Elevator {
    pub fn new(world: Rc<dyn World>, drive: Rc<dyn Disk>, scheduler: HostScheduler) -> Elevator {
        let longest = scheduler.longest;
        assert!(longest > 0 && longest % u64::from(drive.geometry().logical_sector) == 0);
        Elevator(Rc::new(State {
            batch: Cell::new(Batch { of_writes: false, since: world.now(), served: 0 }),
            world,
            drive,
            scheduler,
            drive_is: Cell::new(DriveIs::Free),
            position: Cell::new(0),
            arrivals: Cell::new(0),
            reads: RefCell::default(),
            writes: RefCell::default(),
        }))
    }

    /// Waits until the drive is free for `request`, whose future begins when it is polled, and
    /// performs it.
    async fn queue<T>(self, operation: Operation, place: Range<u64>, request: LocalFuture<T>) -> T {
        let state = &self.0;
        let is_write = matches!(operation, Operation::Write | Operation::Discard);
        let goes_at_once = match state.drive_is.get() {
            DriveIs::Free => true,
            DriveIs::Busy => false,
            DriveIs::KeptForReads(_) => !is_write,
        };
        state.arrivals.set(state.arrivals.get() + 1);
        if goes_at_once {
            state.drive_is.set(DriveIs::Busy);
            self.serves(is_write);
        } else {
            let (sender, receiver) = runtime::oneshot();
            let waiting = if is_write { &state.writes } else { &state.reads };
            let start = if state.scheduler.in_order { 0 } else { place.start };
            waiting.borrow_mut().insert((start, state.arrivals.get()), sender);
            receiver.await;
        }
        let result = request.await;
        state.position.set(place.end);
        self.go_on();
        result
    }

    /// Starts the next request after one has completed.
    fn go_on(&self) {
        let state = &self.0;
        if state.scheduler.in_order {
            let first = |waiting: &RefCell<Waiting>| {
                waiting.borrow().first_key_value().map(|(key, _)| *key)
            };
            return match (first(&state.reads), first(&state.writes)) {
                (None, None) => state.drive_is.set(DriveIs::Free),
                (read, write) => {
                    self.serve(read.is_none() || write.is_some_and(|write| Some(write) < read))
                }
            };
        }
        let (has_reads, has_writes) =
            (!state.reads.borrow().is_empty(), !state.writes.borrow().is_empty());
        let (batch, scheduler) = (state.batch.get(), &state.scheduler);
        let time = state.world.now().since(batch.since);
        let goes_on = match batch.of_writes {
            true => time < scheduler.write_batch && batch.served < scheduler.writes_most,
            false => time < scheduler.read_batch,
        };
        let is_write = match (has_reads, has_writes) {
            (false, false) => return state.drive_is.set(DriveIs::Free),
            (false, true) if !batch.of_writes && goes_on => return self.keep_for_reads(),
            (false, true) => true,
            (true, false) => false,
            (true, true) => batch.of_writes == goes_on,
        };
        self.serve(is_write);
    }
    fn serve(&self, is_write: bool) {
        let State { position, reads, writes, drive_is, .. } = &*self.0;
        drive_is.set(DriveIs::Busy);
        self.serves(is_write);
        let mut waiting = if is_write { writes.borrow_mut() } else { reads.borrow_mut() };
        let ahead = waiting.range((position.get(), 0)..).next().map(|(key, _)| *key);
        let next = match ahead {
            Some(key) => waiting.remove(&key),
            None => waiting.pop_first().map(|(_, sender)| sender),
        };
        next.expect("one waits").send(());
    }
    fn serves(&self, is_write: bool) {
        let batch = self.0.batch.get();
        let batch = match batch.of_writes == is_write {
            true => Batch { served: batch.served + 1, ..batch },
            false => Batch { of_writes: is_write, since: self.0.world.now(), served: 1 },
        };
        self.0.batch.set(batch);
    }
    /// Keeps the drive idle for a moment after a read: its reader often reads on nearby.
    fn keep_for_reads(&self) {
        let state = &self.0;
        let kept = DriveIs::KeptForReads(state.arrivals.get());
        state.drive_is.set(kept);
        let this = self.clone();
        let until = state.world.now().plus(state.scheduler.read_wait);
        state.world.spawn(Box::pin(async move {
            this.0.world.sleep_until(until).await;
            // A read has arrived, and may have started another wait.
            if this.0.drive_is.get() == kept {
                this.serve(true);
            }
        }));
    }

    /// Starts work that ends even if its future is dropped.
    fn begin<T: 'static>(&self, work: impl Future<Output = T> + 'static) -> LocalFuture<T> {
        let world = self.0.world.clone();
        Box::pin(async move { runtime::spawn_after_first_step(&*world, work).await })
    }

    /// The parts of a long request.
    fn places(&self, at: u64, length: u64) -> impl Iterator<Item = Range<u64>> + use<> {
        let (end, longest) = (at + length, self.0.scheduler.longest);
        (at..end).step_by(longest as usize).map(move |start| start..end.min(start + longest))
    }
}

/// Takes the first `length` bytes off the parts.
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
    fn physical_sector(&self) -> u32 {
        self.0.drive.physical_sector()
    }
    fn read(&self, at: u64, length: usize) -> LocalFuture<Result<Buffer, DeviceError>> {
        let request = |place: Range<u64>| {
            let read = self.0.drive.read(place.start, (place.end - place.start) as usize);
            Box::pin(self.clone().queue(Operation::Read, place, read))
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
            Box::pin(self.clone().queue(Operation::Write, place, write)) as LocalFuture<_>
        };
        let writes = self.places(at, length).map(request).collect();
        self.begin(async move { runtime::join_all(writes).await.into_iter().collect() })
    }
    fn flush(&self) -> LocalFuture<Result<(), DeviceError>> {
        let here = self.0.position.get();
        self.begin(self.clone().queue(Operation::Flush, here..here, self.0.drive.flush()))
    }
    fn discard(&self, at: u64, length: u64) -> LocalFuture<Result<(), DeviceError>> {
        let discard = self.0.drive.discard(at, length);
        self.begin(self.clone().queue(Operation::Discard, at..at + length, discard))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryDisk;
    use crate::watched::{Watch, Watched};
    use runtime::{SplitMix, VirtualWorld};

    const LONGEST: u64 = 512 << 10;
    const SIZE: u64 = 64 << 20;

    type Seen = Rc<RefCell<Vec<(Operation, Range<u64>)>>>;

    /// A disk that takes a millisecond for everything, records it, and never has two requests.
    struct OneAtATime {
        world: VirtualWorld,
        is_busy: Rc<Cell<bool>>,
        seen: Seen,
    }
    impl Watch for OneAtATime {
        fn watch<T: 'static>(
            &self,
            operation: Operation,
            place: Range<u64>,
            request: LocalFuture<T>,
        ) -> LocalFuture<T> {
            let (world, is_busy, seen) =
                (self.world.clone(), self.is_busy.clone(), self.seen.clone());
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
    fn elevator(world: &VirtualWorld) -> (Elevator, Seen) {
        elevator_of(world, HostScheduler::COMPLETE_FAIR_QUEUEING)
    }
    fn elevator_of(world: &VirtualWorld, scheduler: HostScheduler) -> (Elevator, Seen) {
        let disk = MemoryDisk::new(Rc::new(world.clone()), SIZE);
        let seen = Seen::default();
        let watch = OneAtATime { world: world.clone(), is_busy: Rc::default(), seen: seen.clone() };
        let watched = Watched { disk: Rc::new(disk), watch };
        (Elevator::new(Rc::new(world.clone()), Rc::new(watched), scheduler), seen)
    }

    #[test]
    fn the_drive_has_one_short_request_at_a_time_and_the_right_content() {
        let world = VirtualWorld::new(1);
        let (disk, seen) = elevator(&world);
        world.run(async move {
            let random = SplitMix::new(7);
            let mut expected = vec![0u8; SIZE as usize];
            for round in 0..4 {
                // Writes that do not overlap, in parts of any size, all at once; then everything is
                // read at once.
                let mut requests: Vec<LocalFuture<Result<(), DeviceError>>> = Vec::new();
                for slot in (0..SIZE).step_by(4 << 20) {
                    let at = slot + random.next() % 1024 * 512;
                    let mut end = at;
                    let parts = (0..1 + random.next() % 5).map(|_| {
                        let length = (1 + random.next() % 1024) * 512;
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

    fn write(disk: &Elevator, at: u64) -> LocalFuture<()> {
        let write = disk.write(at, vec![Rc::new(Buffer::zeroed(512))], Durability::Cached);
        Box::pin(async move { write.await.expect("a write") })
    }
    fn read(disk: &Elevator, at: u64) -> LocalFuture<()> {
        let read = disk.read(at, 512);
        Box::pin(async move { assert_eq!(read.await.expect("a read").len(), 512) })
    }

    #[test]
    fn each_kind_goes_upwards_from_where_the_drive_is() {
        let world = VirtualWorld::new(1);
        let (disk, seen) = elevator(&world);
        world.run(async move {
            let reads = [8, 20, 4, 12].map(|at| read(&disk, at << 20));
            let writes = [8, 1, 16, 9].map(|at| write(&disk, at << 20));
            runtime::join_all(reads.into_iter().chain(writes).collect()).await;
        });
        let mebibytes =
            |(operation, place): &(Operation, Range<u64>)| (*operation, place.start >> 20);
        let seen: Vec<_> = seen.borrow().iter().map(mebibytes).collect();
        let (read, write) = (Operation::Read, Operation::Write);
        // The first found the drive idle.
        let expected = [
            (read, 8),
            (read, 12),
            (read, 20),
            (read, 4),
            (write, 8),
            (write, 9),
            (write, 16),
            (write, 1),
        ];
        assert_eq!(seen, expected);
    }

    #[test]
    fn without_sorting_what_came_first_is_served_first() {
        let world = VirtualWorld::new(1);
        let (disk, seen) = elevator_of(&world, HostScheduler::NOOP);
        let places =
            [(true, 8), (false, 20), (true, 1), (true, 16), (false, 4), (false, 12), (true, 2)];
        world.run(async move {
            let request = |(is_write, number): (bool, u64)| -> LocalFuture<()> {
                let at = number << 12;
                if is_write { write(&disk, at) } else { read(&disk, at) }
            };
            runtime::join_all(places.map(request).into_iter().collect()).await;
        });
        let seen: Vec<_> =
            seen.borrow().iter().map(|(kind, place)| (*kind, place.start >> 12)).collect();
        let kind = |is_write| if is_write { Operation::Write } else { Operation::Read };
        assert_eq!(seen, places.map(|(is_write, number)| (kind(is_write), number)));
    }
    #[test]
    fn reads_and_writes_alternate_by_time_and_number() {
        let world = VirtualWorld::new(1);
        let (disk, seen) = elevator(&world);
        world.run(async move {
            let reads = (0..150).map(|number| read(&disk, number << 12));
            let writes = (0..40).map(|number| write(&disk, number << 12));
            runtime::join_all(reads.chain(writes).collect()).await;
        });
        // A millisecond each, and a little time of the memory disk: 100 ms have 97 reads.
        let seen = seen.borrow();
        let batches = seen.chunk_by(|one, other| one.0 == other.0).map(<[_]>::len);
        assert_eq!(batches.collect::<Vec<_>>(), [97, 16, 53, 24]);
    }

    #[test]
    fn writes_wait_a_moment_for_the_next_read_of_one_who_reads_on() {
        let world = VirtualWorld::new(1);
        let (disk, seen) = elevator(&world);
        let of_run = world.clone();
        world.run(async move {
            let reader = async {
                for number in 0..50 {
                    read(&disk, number << 12).await;
                }
            };
            let all: Vec<LocalFuture<()>> =
                (0..20).map(|number| write(&disk, number << 12)).collect();
            let mut both: Vec<std::pin::Pin<Box<dyn Future<Output = ()> + '_>>> =
                vec![Box::pin(reader)];
            both.extend(all.into_iter().map(|write| write as _));
            runtime::join_all(both).await;
            let milliseconds = of_run.now().0 / 1_000_000;
            assert!((50 + 8 + 20..83).contains(&milliseconds), "{milliseconds} ms, 8 of them idle");
        });
        let first = seen.borrow().iter().position(|(operation, _)| *operation == Operation::Write);
        assert_eq!(first, Some(50));
    }
}
