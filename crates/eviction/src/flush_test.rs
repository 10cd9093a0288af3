//! Test for lying drives: compares the cost of flushes and durable writes with the cost of the
//! medium.
//!
//! A rotating drive cannot write scattered sectors to the medium faster than it can position; reads
//! of scattered sectors measure that. A flush after scattered writes that takes almost no time has
//! not waited for the medium. Nor has one that takes as long after few of them as after many. Nor
//! has a durable write that is repeated in the same sector in less than a revolution.

use device::{Buffer, DeviceError, Disk, Durability, World};
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

/// Numbers of scattered writes before the flush, timed with it. Small numbers, too: many fill a
/// liar's cache, and then it must wait for the medium as any drive.
const DIRTY: [u32; 5] = [0, 1, 4, 16, 64];
/// Repetitions whose median is each figure.
const REPEATS: usize = 7;
const READS: usize = 30;
const DURABLE_WRITES: usize = 20;
/// Bytes of a scattered write.
const WRITE: usize = 4096;

/// Positioning for the nearest of many requests takes a good part less than for a random one, but
/// not this little.
const POSITIONING_LEAST: f64 = 0.05;
/// Shortest random read of a rotating medium without a cache.
const TURNING_MS_MIN: f64 = 1.0;

#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    Honest,
    Suspicious,
    CannotTell,
}

/// Result of the test: medians in milliseconds.
#[derive(Clone, Debug, serde::Serialize)]
pub struct FlushTest {
    /// A read of a random sector: the cost of the medium.
    pub random_read_ms: f64,
    /// A scattered write that is not flushed: the cost of the cache.
    pub cached_write_ms: f64,
    /// Numbers of scattered writes, and the time of the writes and a flush.
    pub flush_ms: Vec<(u32, f64)>,
    /// A durable write (FUA) of one sector, repeated.
    pub durable_write_ms: f64,
    pub verdict: Verdict,
    /// Reasons for the verdict, in sentences.
    pub evidence: Vec<String>,
}

/// Writes within `range` alone (bytes), whose content is lost; needs some minutes at most. `watch`
/// is called with each step.
pub async fn flush_test(
    world: &Rc<dyn World>,
    disk: &Rc<dyn Disk>,
    range: Range<u64>,
    watch: &mut dyn FnMut(&str),
) -> Result<FlushTest, DeviceError> {
    let timer = Timer { world, disk, range };
    watch("reading random sectors");
    let mut reads = Vec::new();
    for _ in 0..READS {
        reads.push(timer.timed(disk.read(timer.place(), WRITE)).await?);
    }
    watch("writing to the cache");
    let mut writes = Vec::new();
    for _ in 0..READS {
        // Lets the cache drain.
        timer.rest(Duration::from_millis(200)).await;
        writes.push(timer.timed(timer.write(timer.place(), Durability::Cached)).await?);
    }
    let mut flush_ms = Vec::new();
    for dirty in DIRTY {
        watch(&format!("flushing after {dirty} scattered writes"));
        let mut flushes = Vec::new();
        for _ in 0..REPEATS {
            disk.flush().await?;
            // Time for background work of the drive.
            timer.rest(Duration::from_secs(2)).await;
            let begun = world.now();
            for _ in 0..dirty {
                timer.write(timer.place(), Durability::Cached).await?;
            }
            disk.flush().await?;
            // Includes the writes: a drive that has written some back in the meantime is as honest.
            flushes.push(world.now().since(begun).as_secs_f64() * 1e3);
        }
        flush_ms.push((dirty, median(flushes)));
    }
    watch("writing one sector durably, over and over");
    let at = timer.place();
    let mut durable = Vec::new();
    for _ in 0..DURABLE_WRITES {
        durable.push(timer.timed(timer.write(at, Durability::Durable)).await?);
    }
    Ok(judge(median(reads), median(writes), flush_ms, median(durable)))
}

struct Timer<'a> {
    world: &'a Rc<dyn World>,
    disk: &'a Rc<dyn Disk>,
    range: Range<u64>,
}

impl Timer<'_> {
    fn place(&self) -> u64 {
        let write = WRITE as u64;
        let places = ((self.range.end - self.range.start) / write).max(1);
        self.range.start + self.world.random() % places * write
    }
    async fn rest(&self, time: Duration) {
        self.world.sleep_until(self.world.now().plus(time)).await;
    }
    fn write(
        &self,
        at: u64,
        durability: Durability,
    ) -> device::LocalFuture<Result<(), DeviceError>> {
        self.disk.write(at, vec![Rc::new(Buffer::zeroed(WRITE))], durability)
    }
    /// Runs an operation and returns its milliseconds.
    async fn timed<T>(
        &self,
        operation: impl Future<Output = Result<T, DeviceError>>,
    ) -> Result<f64, DeviceError> {
        let begun = self.world.now();
        operation.await?;
        Ok(self.world.now().since(begun).as_secs_f64() * 1e3)
    }
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).copied().unwrap_or_default()
}

fn judge(
    random_read_ms: f64,
    cached_write_ms: f64,
    flush_ms: Vec<(u32, f64)>,
    durable_write_ms: f64,
) -> FlushTest {
    let mut evidence = Vec::new();
    // The count of writes whose flush is the furthest below what a medium needs.
    let needed = |writes: u32| f64::from(writes) * POSITIONING_LEAST * random_read_ms;
    let dirty: Vec<(u32, f64)> =
        flush_ms.iter().copied().filter(|(writes, _)| *writes > 0).collect();
    let share = |(writes, flush): &(u32, f64)| flush / needed(*writes);
    let (writes, flush) = dirty
        .iter()
        .copied()
        .min_by(|one, other| share(one).total_cmp(&share(other)))
        .expect("several");
    // The greatest number of writes that took hardly longer than the smallest: a liar's cache holds
    // that many.
    let few = dirty[0];
    let same_flush = dirty[1..]
        .iter()
        .rev()
        .copied()
        .find(|(writes, flush)| flush - few.1 < needed(writes - few.0));
    let verdict = if random_read_ms < TURNING_MS_MIN {
        evidence.push(format!(
            "a random read takes {random_read_ms:.3} ms: this is no rotating medium, or a cache in front of one, and times prove nothing"
        ));
        Verdict::CannotTell
    } else if cached_write_ms > random_read_ms / 2.0 {
        evidence.push(format!(
            "a scattered write takes {cached_write_ms:.3} ms, about as long as the medium needs ({random_read_ms:.3} ms a read): \
             nothing is cached that a flush would have to bring home"
        ));
        Verdict::Honest
    } else {
        let fast_flush = flush < needed(writes);
        let fast_durable = durable_write_ms < random_read_ms / 4.0;
        let (verb, least) = (if writes == 1 { "takes" } else { "take" }, needed(writes));
        evidence.push(match fast_flush {
            true => format!(
                "{writes} scattered writes and a flush {verb} {flush:.3} ms; a medium needs {least:.3} ms at the very least"
            ),
            false => format!(
                "no flush was faster than a medium can be: {writes} scattered writes and a flush {verb} {flush:.3} ms"
            ),
        });
        if let (Some(many), false) = (same_flush, fast_flush) {
            evidence.push(format!(
                "a flush takes as long for any amount to write back: {:.3} ms with scattered writes of {} KiB, {:.3} ms with {} KiB",
                few.1,
                few.0 as usize * WRITE / 1024,
                many.1,
                many.0 as usize * WRITE / 1024
            ));
        }
        evidence.push(match fast_durable {
            true => format!(
                "a durable write of one sector, repeated, takes {durable_write_ms:.3} ms: less than a revolution of the platter"
            ),
            false => format!(
                "a durable write of one sector, repeated, takes {durable_write_ms:.3} ms: it waits for the platter"
            ),
        });
        if fast_flush || same_flush.is_some() || fast_durable {
            Verdict::Suspicious
        } else {
            Verdict::Honest
        }
    };
    FlushTest { random_read_ms, cached_write_ms, flush_ms, durable_write_ms, verdict, evidence }
}
