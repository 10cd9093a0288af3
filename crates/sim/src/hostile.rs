//! Runs scripts on volumes whose bitmaps lie. After half of each script, inodes and blocks in use
//! are marked free, with counts and checksums that agree. The rest runs with every file in memory.
//! Operations that contradict memory are refused, and the volume reports so from then on; nothing
//! panics or hangs, and no file comes to hold another's content.

use crate::case::{Case, CaseReport, Failure, refused};
use crate::memory_disks::MemoryDisks;
use crate::model::CrashGuarantee;
use crate::setup::Disks;
use crate::stalls;
use crate::writer::{Progress, Writers};
use ::hostile::lie_in_bitmaps;
use device::World;
use ext4::Error;
use format::ext4::superblock::state;
use format::ext4::{SUPERBLOCK_OFFSET, VolumeSuperblock};
use runtime::{Either, SplitMix, VirtualWorld, race};
use std::time::Duration;

/// Limit of virtual time, longer than any script takes.
const PATIENCE: Duration = Duration::from_secs(60);

pub fn run(case: &Case, fresh: &Disks) -> Result<CaseReport, Box<Failure>> {
    let world = VirtualWorld::new(case.seed);
    let outcome = world.run({
        let (world, fresh, case) = (world.clone(), fresh.clone(), case.clone());
        async move { suffer(&world, &fresh, &case).await }
    });
    stalls::note(&world);
    world.end();
    outcome.map_err(|why| {
        Box::new(Failure { case: case.clone(), cut: 0, left: "bitmaps that lie".into(), why })
    })
}

async fn suffer(world: &VirtualWorld, fresh: &Disks, case: &Case) -> Result<CaseReport, String> {
    let healthy = |error: Error| format!("before any lie: {error}");
    let disks = MemoryDisks::of(world, fresh, case);
    let volume = disks.open(world, case).await.map_err(healthy)?;
    let mut writers = Writers::prepare(&volume, world, case).await.map_err(healthy)?;
    writers.leave().await.map_err(healthy)?;
    volume.close().await.map_err(healthy)?;

    let mut images = disks.images();
    lie_in_bitmaps(&mut images.home, &fresh.home, &SplitMix::new(case.seed));
    let disks = MemoryDisks::of(world, &images, case);
    let opened = |error: Error| format!("with bitmaps that lie: {error}");
    let volume = disks.open(world, case).await.map_err(opened)?;
    writers.enter(&volume).await.map_err(opened)?;
    let (progress, outcomes) = (writers.progress.clone(), writers.outcomes.clone());
    let count = progress.borrow().len();
    crate::judge::read_back(&volume, 0..count).await.map_err(opened)?;

    let patience = world.sleep_until(world.now().plus(PATIENCE));
    let Either::Left(ends) = race(writers.run(world), patience).await else {
        return Err("the writers hang".into());
    };
    let errors: Vec<Error> = ends.into_iter().filter_map(Result::err).collect();
    for error in &errors {
        if error.is_read_only() || !matches!(error, Error::Corrupt { .. } | Error::Engine(_)) {
            return Err(format!("a writer got {error} instead of damage or a failure"));
        }
    }
    let (progress, outcomes) = (progress.borrow().clone(), outcomes.borrow().clone());
    let histories = case.histories(&outcomes);
    // Reads of damaged content may be refused, but successful reads are right.
    if let Ok(found) = crate::judge::read_back(&volume, 0..count).await {
        for (writer, (found, history)) in found.iter().zip(&histories).enumerate() {
            let Progress { started, done, .. } = progress[writer];
            let judged = history.judge(found, done, done, started, CrashGuarantee::Version);
            judged.map_err(|verdict| format!("writer {writer}: {verdict}"))?;
        }
    }
    let closed = volume.close().await;
    let met = errors.iter().any(|error| matches!(error, Error::Corrupt { .. }));
    if met && closed.is_ok() && !is_marked(&disks)? {
        return Err(format!("{}: but the superblock calls the volume well", errors[0]));
    }
    Ok(CaseReport {
        scripts: 1,
        hostile: 1,
        met: met.into(),
        refused: refused(&outcomes),
        ..CaseReport::default()
    })
}

fn is_marked(disks: &MemoryDisks) -> Result<bool, String> {
    let mut bytes = vec![0; 1024];
    disks.images().home.read(SUPERBLOCK_OFFSET, &mut bytes);
    let superblock =
        VolumeSuperblock::parse(&bytes).map_err(|error| format!("the superblock: {error}"))?;
    Ok(superblock.state & state::ERROR != 0)
}
