//! Comparison of a model with requests that were recorded on a real drive.

mod formats;
mod recorded;
mod report;
mod trace;

pub use recorded::{Recorded, Timing};
pub use report::{Comparison, KindComparison, ServiceTimes, TraceReport};
pub use trace::{BlockTraceError, Trace};

use crate::run::Direction;
use device::{Buffer, DeviceError, Disk, Durability, World};
use runtime::VirtualWorld;
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;
use units::Instant;

/// Replays a trace on a disk of this world (a drive, or several in a RAID-0). Requests come one
/// after another with the trace's gaps, or each at its time. Returns the service time of each in
/// nanoseconds, in the order of the trace.
pub fn run(
    world: &VirtualWorld,
    disk: &Rc<dyn Disk>,
    trace: Rc<Trace>,
) -> Result<Vec<u64>, DeviceError> {
    let (inner, disk) = (world.clone(), disk.clone());
    world.run(async move {
        match trace.timing {
            Timing::Gaps => one_by_one(&inner, &disk, &trace).await,
            Timing::Timestamps => each_at_its_time(&inner, &disk, &trace).await,
        }
    })
}

async fn one_by_one(
    world: &VirtualWorld,
    disk: &Rc<dyn Disk>,
    trace: &Trace,
) -> Result<Vec<u64>, DeviceError> {
    let mut times = Vec::with_capacity(trace.requests.len());
    for (index, recorded) in trace.requests.iter().enumerate() {
        times.push(serve(world, disk, (recorded, index)).await?);
        world.sleep_until(world.now().plus(recorded.time)).await;
    }
    Ok(times)
}

async fn each_at_its_time(
    world: &VirtualWorld,
    disk: &Rc<dyn Disk>,
    trace: &Rc<Trace>,
) -> Result<Vec<u64>, DeviceError> {
    let times = Rc::new(RefCell::new(vec![Ok(0); trace.requests.len()]));
    let start = trace.requests.iter().map(|recorded| recorded.time).min().unwrap_or(Duration::ZERO);
    let mut tasks = Vec::new();
    for index in 0..trace.requests.len() {
        world.sleep_until(Instant(0).plus(trace.requests[index].time - start)).await;
        let (inner, disk, trace, times) =
            (world.clone(), disk.clone(), trace.clone(), times.clone());
        let task = async move {
            let time = serve(&inner, &disk, (&trace.requests[index], index)).await;
            times.borrow_mut()[index] = time;
        };
        tasks.push(runtime::spawn_with_result(world, task));
    }
    for task in tasks {
        task.await;
    }
    times.take().into_iter().collect()
}

/// Serves the request of this index. No two writes have the same bytes, as far as eight bits tell
/// them apart: a disk that saves equal bytes saves none here.
async fn serve(
    world: &VirtualWorld,
    disk: &Rc<dyn Disk>,
    (recorded, index): (&Recorded, usize),
) -> Result<u64, DeviceError> {
    let begin = world.now();
    match recorded.direction() {
        Direction::Read => drop(disk.read(recorded.at, recorded.length as usize).await?),
        Direction::Write => {
            let mut bytes = Buffer::to_fill(recorded.length as usize);
            bytes.fill(1 + (index % 255) as u8);
            disk.write(recorded.at, vec![Rc::new(bytes)], Durability::Cached).await?;
        }
    }
    Ok(world.now().since(begin).as_nanos() as u64)
}
