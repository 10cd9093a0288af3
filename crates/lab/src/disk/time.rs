//! `okeanos-lab disk time`: times requests on a copy of a served disk.
//!
//! The first line of the input is the disk, each other one requests; each is answered by a line.

use super::{DriveArguments, find};
use crate::error::CliError;
use crate::text::output::print_as_it_is;
use cli::disk::served::{ServedDisk, TimeTaken, TimedModel, TimedRequests};
use device::{Buffer, DeviceError, Durability, LocalFuture, World};
use emulated::{CacheMode, DriveOptions, EmulatedDisk, Model};
use runtime::{VirtualWorld, join_window};
use serde::{Deserialize, Serialize};
use std::io::BufRead;
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

/// Maximum number of requests at once: as in write-back and recovery.
const REQUESTS_AT_ONCE: usize = 16;

/// A copy of the served disk.
struct LikeServed {
    drives: DriveArguments,
    model: Model,
    options: DriveOptions,
}

pub fn run() -> Result<(), CliError> {
    let mut lines = std::io::stdin().lock().lines();
    let Some(first) = lines.next() else { return Ok(()) };
    let disk = LikeServed::new(parse(first)?)?;
    answer(&TimedModel { name: disk.model.name.clone() })?;
    for line in lines {
        let requests: TimedRequests = parse(line)?;
        let nanoseconds = disk.time_of(requests).map(|time| time.as_nanos() as u64);
        answer(&TimeTaken { nanoseconds })?;
    }
    Ok(())
}

fn parse<T: for<'de> Deserialize<'de>>(line: std::io::Result<String>) -> Result<T, CliError> {
    let line = line.map_err(|error| CliError::system("standard input", error))?;
    serde_json::from_str(&line).map_err(|error| CliError::new(error.to_string()))
}

fn answer(answer: &impl Serialize) -> Result<(), CliError> {
    let text = serde_json::to_string(answer).map_err(|error| CliError::new(error.to_string()))?;
    print_as_it_is(&format_args!("{text}\n"))
}

impl LikeServed {
    fn new(served: ServedDisk) -> Result<LikeServed, CliError> {
        let ServedDisk { model: name, drives, chunk, caches, size } = served;
        let cache = if caches { CacheMode::On } else { CacheMode::Off };
        let model = find(&name)?;
        let options = DriveOptions { cache, size, ..DriveOptions::default() };
        Ok(LikeServed { drives: DriveArguments { model: name, drives, chunk }, model, options })
    }

    /// Reads all, then writes and flushes all, with no other requests beside.
    fn time_of(&self, TimedRequests { reads, writes }: TimedRequests) -> Option<Duration> {
        let world = VirtualWorld::new(1);
        let in_world: Rc<dyn World> = Rc::new(world.clone());
        let (drives, disk) = self.drives.disk(&in_world, &self.model, self.options);
        drives.iter().for_each(EmulatedDisk::forget_content);
        let took = world.run(async move {
            let length = |range: &Range<u64>| range.end.saturating_sub(range.start) as usize;
            let read = reads.into_iter().map(|range| -> LocalFuture<Result<(), DeviceError>> {
                let reading = disk.read(range.start, length(&range));
                Box::pin(async move { reading.await.map(drop) })
            });
            join_window(read, REQUESTS_AT_ONCE).await.ok()?;
            let write = writes.into_iter().map(|range| {
                let zeros = vec![Rc::new(Buffer::zeroed(length(&range)))];
                disk.write(range.start, zeros, Durability::Cached)
            });
            join_window(write, REQUESTS_AT_ONCE).await.ok()?;
            disk.flush().await.ok()?;
            Some(Duration::from_nanos(in_world.now().0))
        });
        world.end();
        took
    }
}
