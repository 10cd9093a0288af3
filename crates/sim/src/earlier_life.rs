//! An earlier life of a volume, whose files must stay whatever happens after the next mount.
//!
//! 1. With scattered logs a power cut has ended it. The next mount continues with the content of
//!    its logs, and everything after that happens beside files that lie in them.
//! 2. Otherwise it kept no barriers and was unmounted, and what it wrote is in the disk's cache.

use crate::case::Case;
use crate::memory_disks::MemoryDisks;
use crate::run_table::with_memory;
use crate::setup::Disks;
use crate::stalls;
use disks::CrashPolicy;
use engine::BarrierKind;
use ext4::{Caller, Error, Volume, WriteFlags};
use runtime::VirtualWorld;
use std::rc::Rc;
use units::InodeNumber;
use units::Refusal;

const FILES: u8 = 6;
/// Bytes of a file: some whole blocks, and a part of one.
const LENGTH: usize = 3 * 4096 + 100;
const CHANGED: std::ops::Range<usize> = 5000..5070;
/// The file that is removed.
const REMOVED: u8 = 2;

fn name(number: u8) -> Vec<u8> {
    format!("earlier-{number}").into_bytes()
}
/// Returns content without zeros, so that each block may be logged whole.
fn content(number: u8) -> Vec<u8> {
    (0..LENGTH).map(|at| 1 | (at / 7) as u8 ^ number.wrapping_mul(36)).collect()
}
/// Returns the bytes that overwrite a part of each file.
fn changed(number: u8) -> Vec<u8> {
    vec![b'a' + number; CHANGED.len()]
}

/// Returns `fresh` disks after a life that a power cut has ended.
pub fn cut(case: &Case, fresh: &Disks) -> Result<Disks, Error> {
    let world = VirtualWorld::new(case.seed);
    let disks = MemoryDisks::of(&world, &with_memory(case, fresh), case);
    live(case, &world, &disks, async |volume| volume.sync().await)?;
    Ok(disks.crash(CrashPolicy::LoseAll))
}

/// Returns `fresh` disks after a life without barriers that an unmount has ended.
pub fn unflushed(case: &Case, fresh: &Disks) -> Result<MemoryDisks, Error> {
    let world = VirtualWorld::new(case.seed);
    let disks = MemoryDisks::of(&world, fresh, case);
    let case = Case { barrier: BarrierKind::None, ..case.clone() };
    live(&case, &world, &disks, async |volume| volume.close().await)?;
    Ok(disks)
}

/// Makes and changes the files in a life of their own.
fn live(
    case: &Case,
    world: &VirtualWorld,
    disks: &MemoryDisks,
    end: impl AsyncFnOnce(Rc<Volume>) -> Result<(), Error> + 'static,
) -> Result<(), Error> {
    let lived = world.run({
        let (world, disks, case) = (world.clone(), disks.clone(), case.clone());
        async move {
            let volume = disks.open(&world, &case).await?;
            let root = volume.inode(InodeNumber(2)).await?;
            let mut files = Vec::new();
            for number in 0..FILES {
                let made =
                    volume.mknod(&root, &name(number), &Caller::ROOT, 0o100_644, 0).await?.value;
                let flags = WriteFlags::default();
                volume.write(&made, &Caller::ROOT, 0, &content(number), flags).await?;
                volume.sync().await?;
                files.push(made);
            }
            for (number, file) in (0..).zip(&files) {
                let (at, flags) = (CHANGED.start as u64, WriteFlags::default());
                volume.write(file, &Caller::ROOT, at, &changed(number), flags).await?;
            }
            volume.unlink(&root, &name(REMOVED)).await?;
            drop(files);
            end(volume).await
        }
    });
    stalls::note(world);
    world.end();
    lived
}

/// Checks that its files are unchanged.
pub async fn check(volume: &Rc<Volume>) -> Result<(), String> {
    let root = volume.inode(InodeNumber(2)).await.map_err(|error| error.to_string())?;
    for number in 0..FILES {
        let found = volume.lookup(&root, &name(number)).await;
        if number == REMOVED {
            match found {
                Err(Error::Refused(Refusal::NotFound)) => continue,
                _ => return Err("a file that an earlier life removed is there".to_owned()),
            }
        }
        let found = found.map_err(|error| format!("of an earlier life: {error}"))?;
        let read =
            volume.read(&found, 0, LENGTH).await.map_err(|error| error.to_string())?.to_vec();
        let mut expected = content(number);
        expected[CHANGED].copy_from_slice(&changed(number));
        if read != expected {
            let at = read.iter().zip(&expected).position(|(is, was)| is != was);
            return Err(format!(
                "file {number} of an earlier life is not what it was, from byte {at:?} on"
            ));
        }
    }
    Ok(())
}
