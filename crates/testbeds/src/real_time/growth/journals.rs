//! Journals of more and more bytes, and logs as full as they get before write-back frees them.

use super::GrowthQuantity::{MemoryOfFullLog, MemoryOfRecovery, Mount, Recovery};
use super::sparse::SparseVolume;
use super::{Bench, Sample};
use crate::real_time::rig::RigError;
use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

const VOLUME: u64 = 32 << 30;
/// Bytes of the overwritten file: it fits into memory, so that memory forces no write-back.
const FILE_MAX: u64 = 64 << 20;
const WRITE_MAX: u64 = 1 << 20;

pub(super) fn measure(bench: &Bench<'_>) -> Result<Vec<Vec<Sample>>, RigError> {
    let at = |&journal: &u64| {
        let what = format!("a journal of {} MiB", journal >> 20);
        (bench.progress)(&format!("{what}: making it"));
        let mut volume = SparseVolume::make(bench, VOLUME, journal, None)?;
        bench.repeat(&what, || {
            // Nothing is written back before the log or memory is short.
            let mount = volume.mount(",checkpoint=manual")?;
            fill_log(&volume.path("overwritten"), journal).map_err(RigError::at(&what))?;
            let full = volume.memory()?.now;
            volume.kill()?;
            let recovery = volume.mount("")?;
            let peak = volume.memory()?.peak;
            volume.unmount()?;
            Ok(vec![
                (Mount, mount),
                (MemoryOfFullLog, full),
                (Recovery, recovery),
                (MemoryOfRecovery, peak),
            ])
        })
    };
    bench.options.journals.iter().map(at).collect()
}

/// Logs half of the journal in synchronous overwrites: from five eighths on write-back would free
/// it.
fn fill_log(path: &Path, journal: u64) -> io::Result<()> {
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .custom_flags(libc::O_SYNC)
        .open(path)?;
    let (piece, length) = (WRITE_MAX.min(journal / 64), FILE_MAX.min(journal / 4));
    let mut content = vec![0; piece as usize];
    for number in 0..journal / 2 / piece {
        content.fill(number as u8);
        file.write_all_at(&content, number * piece % length)?;
    }
    Ok(())
}
