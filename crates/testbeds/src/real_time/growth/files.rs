//! Growth of the number of files on one volume.
//!
//! The kernel's ext4 makes them, on the same image and without barriers. Ten million through a
//! mount in user space would take longer than the rest of the measurement. The files are empty, ten
//! thousand to a directory.

use super::sparse::{JOURNAL, SparseVolume};
use super::volumes::measure_cold;
use super::{Bench, Sample};
use crate::real_time::rig::RigError;
use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

const VOLUME: u64 = 64 << 30;
const FILES_IN_DIRECTORY: u64 = 10_000;
/// Inodes for directories, and for files created during the measurement.
const INODES_MORE: u64 = 10_000;

pub(super) fn measure(bench: &Bench<'_>) -> Result<Vec<Vec<Sample>>, RigError> {
    let most = bench.options.files.iter().max().copied().unwrap_or(0);
    let mut volume = SparseVolume::make(bench, VOLUME, JOURNAL, Some(most + INODES_MORE))?;
    let mut there = 0;
    let at = |&files: &u64| {
        let what = format!("{files} files");
        (bench.progress)(&format!("{what}: making them"));
        // No inode table is zeroed in the background, which would take space for unused inodes.
        volume.with_kernel("noatime,nobarrier,noinit_itable,commit=60", |top| {
            fill(top, there, files, bench.progress).map_err(RigError::at(&what))
        })?;
        there = files;
        let known = path_of(files.saturating_sub(1));
        bench.repeat(&what, || measure_cold(&mut volume, &known))
    };
    bench.options.files.iter().map(at).collect()
}

fn path_of(number: u64) -> String {
    format!("d{}/{number}", number / FILES_IN_DIRECTORY)
}

/// Makes the files from `first` up to `end`, a directory at a time on each processor.
fn fill(top: &Path, first: u64, end: u64, progress: &dyn Fn(&str)) -> io::Result<()> {
    let next = AtomicU64::new(first / FILES_IN_DIRECTORY);
    let fill_directories = |report: &dyn Fn(u64)| -> io::Result<()> {
        loop {
            let directory = next.fetch_add(1, Ordering::Relaxed);
            let begin = directory * FILES_IN_DIRECTORY;
            if begin >= end {
                return Ok(());
            }
            report(begin);
            fs::create_dir_all(top.join(format!("d{directory}")))?;
            for number in first.max(begin)..end.min(begin + FILES_IN_DIRECTORY) {
                File::create_new(top.join(path_of(number)))?;
            }
        }
    };
    std::thread::scope(|scope| {
        let helpers = std::thread::available_parallelism().map_or(1, usize::from) - 1;
        let helpers: Vec<_> =
            (0..helpers).map(|_| scope.spawn(|| fill_directories(&|_| ()))).collect();
        let own = fill_directories(&|made| {
            progress(&format!("{end} files: making them, {made} are there"))
        });
        let others = helpers.into_iter().map(|helper| helper.join().expect("it does not panic"));
        others.fold(own, io::Result::and)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_filled_up_to_the_number_that_is_wanted() {
        let directory = tempfile::tempdir().unwrap();
        let count = || {
            let directories = fs::read_dir(directory.path()).unwrap();
            directories
                .map(|entry| fs::read_dir(entry.unwrap().path()).unwrap().count())
                .sum::<usize>()
        };
        for (first, end) in [(0, 3), (3, 10_001)] {
            fill(directory.path(), first, end, &|_| ()).unwrap();
            assert_eq!(count() as u64, end);
            assert!(directory.path().join(path_of(end - 1)).exists());
        }
    }
}
