//! Growth of the number of writers, each appending small records synchronously to its own file.

use super::GrowthQuantity::{MemoryOfWriters, Syncs, SyncsOfFastCommit};
use super::memory::resident;
use super::sparse::RECORD;
use super::{Bench, Sample};
use crate::real_time::contender::Contender;
use crate::real_time::disk::Disks;
use crate::real_time::rig::{self, RigError};
use crate::real_time::volume::Volume;
use workloads::{Limit, StreamOptions, SyncKind};

const VOLUME: u64 = 1 << 30;

pub(super) fn measure(bench: &Bench<'_>) -> Result<Vec<Vec<Sample>>, RigError> {
    (bench.progress)("making the disk");
    let disks = Disks::new(bench.place, None, 1, VOLUME)?;
    let ours = Contender::Okeanos(Some("wasteless".into()));
    let fast_commit = Contender::Ext4("fast_commit".into());
    let at = |&writers: &u64| {
        bench.repeat(&format!("{writers} writers"), || {
            let (syncs, memory) = play(bench, &disks, &ours, writers)?;
            let mut sample = vec![(Syncs, syncs)];
            match play(bench, &disks, &fast_commit, writers) {
                Ok((syncs, _)) => sample.push((SyncsOfFastCommit, syncs)),
                Err(error) => rig::complain(&format!("{fast_commit} is left out: {error}")),
            }
            sample.extend(memory.map(|bytes| (MemoryOfWriters, bytes)));
            Ok(sample)
        })
    };
    bench.options.writers.iter().map(at).collect()
}

/// Returns syncs per second on a fresh volume, and the daemon's peak memory, if there is a daemon.
fn play(
    bench: &Bench<'_>,
    disks: &Disks,
    contender: &Contender,
    writers: u64,
) -> Result<(f64, Option<f64>), RigError> {
    let programs = &bench.options.programs;
    let disk = disks.fresh(0, programs)?;
    let volume = Volume::new(contender, &programs.okeanos, disk, bench.place.mount_point())?;
    let streams = StreamOptions {
        writers: writers as u32,
        size: RECORD,
        limit: Limit::Time(bench.options.time),
        rate: None,
        sync: SyncKind::OSync,
        prefix: "stream-".into(),
    };
    let report = rig::play_streams(&volume.path(""), &streams, contender)?;
    let memory = volume.daemon().map(resident).transpose()?.map(|memory| memory.peak);
    volume.take_down()?;
    Ok((report.operations_per_second, memory))
}
