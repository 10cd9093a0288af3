//! Carries out plans of `journal`: only the log is written here, and there is one disk.

use crate::error::HostError;
use crate::record::BLOCK;
use crate::superblock::LOG_START;
use device::{Buffer, Disk, Durability};
use journal::{Address, Plan, Step, Write};
use runtime::join_window;
use std::pin::Pin;
use std::rc::Rc;
use units::LogBlock;

const WRITES_IN_FLIGHT_MAX: usize = 32;
/// Linux takes no more parts in one request (IOV_MAX).
const PARTS_MAX: usize = 1024;

/// Bytes `at..end` of the disk.
struct DiskWrite {
    at: u64,
    end: u64,
    parts: Vec<Rc<Buffer>>,
}

/// Returns where a log block lies, in bytes; `unit` is the length of a log block in bytes.
pub(crate) fn byte_of(at: LogBlock, unit: usize) -> u64 {
    (LOG_START << BLOCK.shift()) + u64::from(at.get()) * unit as u64
}

/// Runs a plan. A phase of a single write is made durable by that write.
pub(crate) async fn run_plan(disk: &dyn Disk, unit: usize, plan: Plan) -> Result<(), HostError> {
    let mut phase: Vec<DiskWrite> = Vec::new();
    for step in plan.steps {
        match step {
            Step::Write(Write { at: Address::Log(at), blocks }) => {
                let mut at = byte_of(at, unit);
                for (_, part) in blocks {
                    let length = part.len() as u64;
                    match phase.last_mut() {
                        Some(last) if last.end == at && last.parts.len() < PARTS_MAX => {
                            last.end += length;
                            last.parts.push(part);
                        }
                        _ => phase.push(DiskWrite { at, end: at + length, parts: vec![part] }),
                    }
                    at += length;
                }
            }
            Step::Write(Write { at, .. }) => {
                unreachable!("{at:?}: a host's transactions write the log alone")
            }
            Step::Barrier(_) => end_phase(disk, std::mem::take(&mut phase)).await?,
        }
    }
    end_phase(disk, phase).await
}

async fn end_phase(disk: &dyn Disk, mut phase: Vec<DiskWrite>) -> Result<(), HostError> {
    match phase.len() {
        0 => {}
        1 => {
            let DiskWrite { at, parts, .. } = phase.remove(0);
            disk.write(at, parts, Durability::Durable).await?;
        }
        _ => {
            let writes = phase.into_iter().map(
                |DiskWrite { at, parts, .. }| -> Pin<Box<dyn Future<Output = _>>> {
                    disk.write(at, parts, Durability::Cached)
                },
            );
            join_window(writes.collect::<Vec<_>>(), WRITES_IN_FLIGHT_MAX).await?;
            disk.flush().await?;
        }
    }
    Ok(())
}
