//! The stages of one operation of a memory disk: check, log, (fault or latency), execution,
//! completion.

use super::cache::SECTOR;
use super::fault::{self, Effect};
use super::lying::MEDIUM;
use super::{Latency, Logged, MemoryDisk};
use crate::check::check;
use device::{Buffer, DeviceError, Disk, Durability, Geometry, LocalFuture, Operation};
use std::future::Future;
use std::rc::Rc;
use std::time::Duration;

impl MemoryDisk {
    /// Counts and logs an operation; for changes calls the hook and perhaps cuts the power. The
    /// caller continues with [`MemoryDisk::work`] at once, which takes the delay of a change from
    /// here.
    fn see(&self, logged: Logged) {
        let state = &self.0;
        let mut statistics = state.statistics.get();
        statistics.add(&logged);
        state.statistics.set(statistics);
        if let Some(log) = state.log.borrow_mut().as_mut() {
            log.push(logged);
        }
        if logged.operation == Operation::Read {
            return;
        }
        let number = state.changes.get();
        state.changes.set(number + 1);
        state.delay.set(state.delays.borrow_mut().remove(&number).unwrap_or_default());
        if state.cut_at.get() == Some(number) {
            self.power_off();
        }
        let hook = state.hook.borrow().clone();
        if let Some(hook) = hook {
            hook(self, number, &logged);
        }
    }

    /// Waits for the operation's time. Never returns without power.
    async fn work(&self) {
        let Latency { least, spread } = self.0.latency.get();
        let more = self.0.world.random() % (spread.as_nanos() as u64 + 1);
        let delay = self.0.delay.take();
        let at = self.0.world.now().plus(least + Duration::from_nanos(more) + delay);
        self.0.world.sleep_until(at).await;
        if self.is_off() {
            std::future::pending::<()>().await;
        }
    }

    async fn wait_for_medium(&self, lines: u32) {
        if lines > 0 {
            self.0.world.sleep_until(self.0.world.now().plus(MEDIUM * lines)).await;
        }
        self.hang_if_off().await;
    }

    async fn hang_if_off(&self) {
        if self.is_off() {
            std::future::pending::<()>().await;
        }
    }

    /// Waits as long as the operation takes; an injected fault is the error's errno.
    async fn perform(&self, logged: &Logged) -> Result<(), DeviceError> {
        let effect = fault::take(&mut self.0.faults.borrow_mut(), logged);
        self.work().await;
        match effect {
            None => Ok(()),
            Some(Effect::Hang) => std::future::pending().await,
            Some(Effect::Fail(code)) => Err(DeviceError::Failed {
                disk: self.0.name.clone(),
                operation: logged.operation,
                at: logged.at,
                length: logged.length,
                code,
            }),
        }
    }

    async fn read_now(self, logged: Logged) -> Result<Buffer, DeviceError> {
        self.hang_if_off().await;
        self.see(logged);
        self.perform(&logged).await?;
        let misses = {
            let cache = self.0.cache.borrow();
            cache.lies() && !cache.holds(logged.at, logged.length)
        };
        self.wait_for_medium(misses.into()).await;
        Ok(self.0.cache.borrow_mut().read(logged.at, logged.length as usize))
    }

    async fn write_now(self, logged: Logged, parts: Vec<Rc<Buffer>>) -> Result<(), DeviceError> {
        self.hang_if_off().await;
        let write = self.0.cache.borrow_mut().start(logged.at, &parts);
        self.see(logged);
        let result = self.perform(&logged).await;
        let destaged = {
            let mut cache = self.0.cache.borrow_mut();
            match (&result, logged.durability) {
                (Ok(()), Durability::Durable) if !cache.lies() => {
                    cache.complete_durable(write);
                    0
                }
                (Ok(()), _) => cache.complete(write),
                // It is unknown how far a failed write got.
                (Err(_), _) => cache.complete_some(write, |_| self.0.world.random() % 2 == 0),
            }
        };
        self.wait_for_medium(destaged).await;
        result
    }

    async fn flush_now(self, logged: Logged) -> Result<(), DeviceError> {
        self.hang_if_off().await;
        let mark = self.0.cache.borrow().start_flush();
        self.see(logged);
        let result = self.perform(&logged).await;
        let mut cache = self.0.cache.borrow_mut();
        match result {
            Ok(()) => cache.complete_flush(mark),
            Err(_) => cache.fail_flush(mark, || self.0.world.random() % 2 == 0),
        }
        result
    }

    async fn discard_now(self, logged: Logged) -> Result<(), DeviceError> {
        self.hang_if_off().await;
        self.see(logged);
        self.perform(&logged).await?;
        self.0.cache.borrow_mut().discard(logged.at, logged.length);
        Ok(())
    }

    /// Checks a request and runs its work as a task of its own, so that it completes even if its
    /// future is dropped.
    fn request<T: 'static, F: Future<Output = Result<T, DeviceError>> + 'static>(
        &self,
        logged: Logged,
        work: impl FnOnce(MemoryDisk) -> F + 'static,
    ) -> LocalFuture<Result<T, DeviceError>> {
        let disk = self.clone();
        Box::pin(async move {
            check(&disk.0.name, disk.geometry(), logged.operation, logged.at, logged.length)?;
            let world = disk.0.world.clone();
            // The first poll is the caller's: an operation starts when its future is first polled.
            runtime::spawn_after_first_step(&*world, work(disk)).await
        })
    }
}

impl Disk for MemoryDisk {
    fn name(&self) -> &str {
        &self.0.name
    }
    fn geometry(&self) -> Geometry {
        Geometry {
            size: self.0.size,
            logical_sector: SECTOR as u32,
            discard: true,
            forced_unit_access: self.0.forced_unit_access.get(),
        }
    }
    fn physical_sector(&self) -> u32 {
        self.0.physical_sector.get()
    }
    fn read(&self, at: u64, length: usize) -> LocalFuture<Result<Buffer, DeviceError>> {
        let logged = Logged::new(Operation::Read, at, length as u64);
        self.request(logged, move |disk| disk.read_now(logged))
    }
    fn write(
        &self,
        at: u64,
        parts: Vec<Rc<Buffer>>,
        durability: Durability,
    ) -> LocalFuture<Result<(), DeviceError>> {
        let length = parts.iter().map(|part| part.len() as u64).sum();
        let logged = Logged { durability, ..Logged::new(Operation::Write, at, length) };
        self.request(logged, move |disk| disk.write_now(logged, parts))
    }
    fn flush(&self) -> LocalFuture<Result<(), DeviceError>> {
        let logged = Logged::new(Operation::Flush, 0, 0);
        self.request(logged, move |disk| disk.flush_now(logged))
    }
    fn discard(&self, at: u64, length: u64) -> LocalFuture<Result<(), DeviceError>> {
        let logged = Logged::new(Operation::Discard, at, length);
        self.request(logged, move |disk| disk.discard_now(logged))
    }
}
