//! The path of one operation of the host through the drive.

use super::cache::Admission;
use super::content::{Order, Piece};
use super::places::Queued;
use super::{EmulatedDisk, Way, Writer};
use crate::SECTOR;
use crate::model::{CacheModel, ReadHit, WriteHit};
use crate::run::Direction;
use device::{Buffer, DeviceError, Disk, Durability, Geometry, LocalFuture, Operation};
use std::future::Future;
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

impl EmulatedDisk {
    async fn read_now(self, sectors: Range<u64>) -> Result<Buffer, DeviceError> {
        self.arrive().await;
        let after_write = !self.0.is_reading.replace(true);
        self.0.after_write.set(after_write);
        let continues = self.0.last_read_end.replace(sectors.end) == sectors.start;
        self.0.read_continues.set(continues);
        let is_streamed = continues && self.is_reading_ahead();
        let hit = ReadHit { after_write, is_streamed };
        let bytes = (sectors.end - sectors.start) * SECTOR;
        self.count(|statistics| {
            statistics.reads += 1;
            statistics.bytes_read += bytes;
        });
        loop {
            // Content that the read-ahead has read by now counts as cached.
            let coming = self.read_ahead_has(&sectors);
            if self.0.cache.borrow_mut().answers(&sectors) {
                self.count(|statistics| statistics.read_hits += 1);
                self.forget_read(&sectors);
                self.read_on(&sectors);
                self.sleep(self.read_hit_time(bytes, hit)).await;
                break;
            }
            match coming.filter(|at| at.0 > self.now()) {
                Some(at) => {
                    let is_whole = self.begins_in_cache(&sectors);
                    self.0.world.sleep_until(at).await;
                    self.hang_if_off().await;
                    // A read longer than a segment was sent to the host as it was read.
                    if is_whole && self.read_ahead_passed(&sectors) {
                        self.count(|statistics| statistics.read_hits += 1);
                        self.sleep(self.read_hit_time(0, hit)).await;
                        break;
                    }
                }
                None => {
                    let queued = Queued::at(Direction::Read, sectors.clone());
                    let sent = self.through_medium(queued, &[], true).await;
                    if sent > self.0.world.now() {
                        self.0.world.sleep_until(sent).await;
                        self.hang_if_off().await;
                    }
                    break;
                }
            }
        }
        self.content_of(sectors)
    }

    /// The newest bytes, from cache and medium.
    fn content_of(&self, sectors: Range<u64>) -> Result<Buffer, DeviceError> {
        let (at, length) = (sectors.start * SECTOR, (sectors.end - sectors.start) * SECTOR);
        let cache = self.0.cache.borrow();
        for sector in self.0.unreadable.borrow().range(sectors.clone()) {
            if cache.contents(*sector..sector + 1).next().is_none() {
                let disk = self.0.model.name.clone();
                return Err(DeviceError::Failed {
                    disk,
                    operation: Operation::Read,
                    at,
                    length,
                    code: libc::EIO,
                });
            }
        }
        let mut buffer = self.0.image.borrow().copy(at, length as usize);
        for piece in cache.contents(sectors.clone()) {
            let start = ((piece.sectors.start - sectors.start) * SECTOR) as usize;
            buffer[start..start + piece.bytes().len()].copy_from_slice(piece.bytes());
        }
        Ok(buffer)
    }

    async fn write_now(
        self,
        sectors: Range<u64>,
        parts: Vec<Rc<Buffer>>,
        durability: Durability,
    ) -> Result<(), DeviceError> {
        self.arrive().await;
        let after_read = self.0.is_reading.replace(false);
        let bytes = (sectors.end - sectors.start) * SECTOR;
        self.count(|statistics| {
            statistics.writes += 1;
            statistics.bytes_written += bytes;
        });
        let continues = self.0.last_write_end.replace(sectors.end) == sectors.start;
        let is_appended = continues && !after_read;
        let by_distance = self.0.model.interface.overheads.distant_write_ms.is_some();
        let cylinders =
            if by_distance { self.0.medium.borrow().distance(sectors.start) } else { 0 };
        let hit = WriteHit { after_read, is_appended, cylinders };
        let asks_for_cache = durability == Durability::Cached || self.0.lies.ignores_flush;
        let cache = self.0.model.cache.as_ref().filter(|_| asks_for_cache && self.0.caching.get());
        let goes_around = |cache: &CacheModel| {
            let is_long = cache.bypass_above.is_some_and(|above| bytes > above.get().into());
            is_long
                || (continues && cache.sequential_bypass)
                || cache
                    .bypass_by_chance
                    .is_some_and(|some| some.takes(bytes, || self.0.world.random()))
        };
        match cache {
            Some(cache) if goes_around(cache) => match cache.stream_buffer {
                // One half is filled while the other is sent.
                Some(buffer) => {
                    let most = buffer.get() / 2;
                    self.write_behind(cache, Way::StreamBuffer, most, sectors, &parts).await;
                    self.sleep(self.write_hit_time(hit)).await;
                }
                None => {
                    let queued = Queued::at(Direction::Write, sectors);
                    self.through_medium(queued, &parts, false).await;
                }
            },
            Some(cache)
                if (bytes <= cache.segment_size.get().into() || !cache.one_segment_per_write)
                    && !(cache.merges_through && self.rests(&sectors).next().is_some()) =>
            {
                let most = cache.segment_size.get();
                self.write_behind(cache, Way::Segments, most, sectors, &parts).await;
                self.sleep(self.write_hit_time(hit)).await;
            }
            // It goes through one segment to the medium, and (its end) stays there.
            _ => {
                let queued = Queued::at(Direction::Write, sectors);
                self.through_medium(queued, &parts, cache.is_some()).await;
            }
        }
        Ok(())
    }

    /// Writes in parts of at most `most` bytes, each of which may have to wait for space.
    async fn write_behind(
        &self,
        cache: &CacheModel,
        way: Way,
        most: u32,
        sectors: Range<u64>,
        parts: &[Rc<Buffer>],
    ) {
        let pieces = Piece::of(parts, sectors.start, self.next_order());
        let most = u64::from(most) / SECTOR;
        for start in sectors.clone().step_by(most as usize) {
            let part = start..sectors.end.min(start + most);
            let pieces: Vec<Piece> =
                pieces.iter().filter_map(|piece| piece.within(&part)).collect();
            if !self.0.writers.borrow().is_empty() || !self.try_insert(cache, way, &part, &pieces) {
                let (done, receiver) = runtime::oneshot();
                self.0.writers.borrow_mut().push_back(Writer {
                    sectors: part.clone(),
                    pieces,
                    way,
                    done,
                });
                self.pump();
                receiver.await;
                self.hang_if_off().await;
            }
            self.pump();
            self.sleep(self.bus_time((part.end - part.start) * SECTOR)).await;
        }
        self.count(|statistics| statistics.cached_writes += 1);
    }
    fn try_insert(
        &self,
        model: &CacheModel,
        way: Way,
        sectors: &Range<u64>,
        pieces: &[Piece],
    ) -> bool {
        let chance = || self.0.world.random();
        let mut cache = self.0.cache.borrow_mut();
        if way == Way::StreamBuffer {
            let has_space = cache.has_stream_space(model, sectors);
            if has_space {
                cache.insert_stream(sectors.clone(), pieces.to_vec());
            }
            return has_space;
        }
        let admission = cache.admit(model, sectors, chance);
        if admission == Admission::Now {
            cache.insert(model, sectors.clone(), pieces.to_vec(), chance);
        }
        self.0
            .wants_dirty_since
            .set((admission == Admission::AfterDestage).then_some(self.0.orders.get()));
        admission == Admission::Now
    }
    /// Admits cached writes that have waited for space.
    pub(super) fn admit_writers(&self) {
        let (Some(model), mut writers) = (&self.0.model.cache, self.0.writers.borrow_mut()) else {
            return;
        };
        while let Some(first) = writers.front() {
            if !self.try_insert(model, first.way, &first.sectors, &first.pieces) {
                break;
            }
            writers.pop_front().expect("looked at just now").done.send(());
        }
    }

    async fn flush_now(self) -> Result<(), DeviceError> {
        self.arrive().await;
        self.count(|statistics| statistics.flushes += 1);
        let state = &self.0;
        if !state.lies.ignores_flush {
            let (done, receiver) = runtime::oneshot();
            state.flushes.borrow_mut().push_back((state.orders.get(), done));
            self.answer_flushes();
            self.pump();
            receiver.await;
            self.hang_if_off().await;
            let more_us = state.model.flash.as_ref().map_or(0.0, |flash| flash.flush_us.get());
            self.sleep(Duration::from_nanos((more_us * 1e3) as u64)).await;
        }
        self.sleep(self.hit_time()).await;
        Ok(())
    }
    pub(super) fn answer_flushes(&self) {
        let oldest = self.0.cache.borrow().oldest().unwrap_or(Order::MAX);
        let mut flushes = self.0.flushes.borrow_mut();
        while flushes.front().is_some_and(|(mark, _)| *mark < oldest) {
            flushes.pop_front().expect("looked at just now").1.send(());
        }
    }

    async fn discard_now(self, sectors: Range<u64>) -> Result<(), DeviceError> {
        self.arrive().await;
        self.sleep(self.hit_time()).await;
        let length = (sectors.end - sectors.start) * SECTOR;
        self.0.cache.borrow_mut().discard(sectors.clone());
        self.admit_writers();
        self.answer_flushes();
        self.0.image.borrow_mut().fill(sectors.start * SECTOR, length, 0xdd);
        Ok(())
    }

    pub(super) async fn arrive(&self) {
        self.hang_if_off().await;
        self.0.last_request.set(self.0.world.now());
    }

    /// Checks a request; then it runs as a task of its own, so that it completes even if its future
    /// is dropped.
    fn request<T: 'static, F: Future<Output = Result<T, DeviceError>> + 'static>(
        &self,
        operation: Operation,
        at: u64,
        length: u64,
        work: impl FnOnce(EmulatedDisk) -> F + 'static,
    ) -> LocalFuture<Result<T, DeviceError>> {
        let disk = self.clone();
        Box::pin(async move {
            disks::check(disk.name(), disk.geometry(), operation, at, length)?;
            let world = disk.0.world.clone();
            // The first poll is the caller's: an operation starts when its future is first polled.
            runtime::spawn_after_first_step(&*world, work(disk)).await
        })
    }
}

fn sectors(at: u64, length: u64) -> Range<u64> {
    at / SECTOR..(at + length) / SECTOR
}

impl Disk for EmulatedDisk {
    fn name(&self) -> &str {
        &self.0.model.name
    }
    fn geometry(&self) -> Geometry {
        let discard = self.0.model.mechanics.is_none();
        Geometry {
            size: self.0.size,
            logical_sector: SECTOR as u32,
            discard,
            forced_unit_access: true,
        }
    }
    /// Models of flash and of volumes do not state the size of an atomic write.
    fn physical_sector(&self) -> u32 {
        let model = &self.0.model;
        let least = if model.mechanics.is_none() { 4096 } else { SECTOR as u32 };
        model.physical_sector.get().max(least)
    }
    fn read(&self, at: u64, length: usize) -> LocalFuture<Result<Buffer, DeviceError>> {
        let length = length as u64;
        if length == 0 {
            return Box::pin(async { Ok(Buffer::zeroed(0)) });
        }
        self.request(Operation::Read, at, length, move |disk| disk.read_now(sectors(at, length)))
    }
    fn write(
        &self,
        at: u64,
        parts: Vec<Rc<Buffer>>,
        durability: Durability,
    ) -> LocalFuture<Result<(), DeviceError>> {
        let length = parts.iter().map(|part| part.len() as u64).sum();
        if length == 0 {
            return Box::pin(async { Ok(()) });
        }
        self.request(Operation::Write, at, length, move |disk| {
            disk.write_now(sectors(at, length), parts, durability)
        })
    }
    fn flush(&self) -> LocalFuture<Result<(), DeviceError>> {
        self.request(Operation::Flush, 0, 0, |disk| disk.flush_now())
    }
    fn discard(&self, at: u64, length: u64) -> LocalFuture<Result<(), DeviceError>> {
        self.request(Operation::Discard, at, length, move |disk| {
            disk.discard_now(sectors(at, length))
        })
    }
}
