//! The life after a power cut: the volume that was recovered continues, with writers of its own,
//! and is cut again. Content that the previous recovery has shown and that was synced must stay; so
//! must everything acknowledged in the later life.

use crate::case::{Case, CaseReport};
use crate::earlier_life;
use crate::judge::{Violation, guarantee, read_back, read_error};
use crate::lying_disk::LyingDisk;
use crate::memory_disks::MemoryDisks;
use crate::model::{Found, History, Outcome};
use crate::run_table::spoiled;
use crate::setup::Disks;
use crate::stalls;
use crate::writer::{Progress, Writers, check_memory};
use disks::{Atomicity, CrashPolicy};
use ext4::{Error, Volume};
use runtime::{SplitMix, VirtualWorld};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use units::Refusal;

/// State of the disks at the cut of a life.
pub struct CutState {
    /// Writers of the life before it.
    before: usize,
    /// The write, flush or discard at which it was cut, counted from its own first.
    cut: u64,
    images: Vec<(&'static str, Disks)>,
    progress: Vec<Progress>,
    outcomes: Vec<Vec<Outcome>>,
}

/// Number of changes within which a cut comes: a later one would miss most lives. With scattered
/// logs they rest, and logs are swapped then.
const CHANGES_MAX: u64 = 40;
const SCATTERED_CHANGES_MAX: u64 = 120;

/// Continues from the state that a recovery has found, to the end of the scripts. The cut is taken
/// during that. `None`: the volume is so full that it has no space for another life.
pub async fn go_on(
    volume: &Rc<Volume>,
    world: &VirtualWorld,
    disks: &MemoryDisks,
    case: &Case,
    before: usize,
) -> Result<Option<CutState>, Error> {
    volume.sync().await?;
    let writers = match Writers::prepare_from(before, volume, world, case).await {
        Err(Error::Refused(Refusal::NoSpace)) if case.setup.is_tight() => return Ok(None),
        prepared => prepared?,
    };
    let rng = SplitMix::new(case.seed ^ case.life.wrapping_mul(0x9e37_79b9));
    let most = if case.setup.logs.is_some() { SCATTERED_CHANGES_MAX } else { CHANGES_MAX };
    // About one change in four is a flush, which on disks that lie is many writes.
    let a_flush = case.lying_disk.as_ref().map_or(1, LyingDisk::writes_a_flush);
    let cut = rng.below(most / 4 * (3 + a_flush));
    let (progress, outcomes) = (writers.progress.clone(), writers.outcomes.clone());
    let taken = Rc::new(RefCell::new(None));
    let take = {
        let (disks, progress, taken) = (disks.clone(), progress.clone(), taken.clone());
        move || {
            let images = images(&disks, rng.next() | 1);
            *taken.borrow_mut() = Some((images, progress.borrow().clone()));
        }
    };
    let take = Rc::new(take);
    disks.on_change({
        let (take, volume, changes) = (take.clone(), volume.clone(), Rc::new(Cell::new(0)));
        move |_, _| {
            check_memory(&volume);
            if changes.replace(changes.get() + 1) == cut {
                take();
            }
        }
    });
    for ended in writers.run(world).await {
        ended?;
    }
    if taken.borrow().is_none() {
        take();
    }
    let (images, progress) = taken.take().expect("just taken");
    Ok(Some(CutState { before, cut, images, progress, outcomes: outcomes.take() }))
}

/// Returns two of the images that a cut may leave: by turns nothing or everything that was
/// volatile, and torn.
fn images(disks: &MemoryDisks, seed: u64) -> Vec<(&'static str, Disks)> {
    let whole = match seed & 2 {
        0 => ("only what is durable", disks.crash(CrashPolicy::LoseAll)),
        _ => ("everything", disks.crash(CrashPolicy::KeepAll)),
    };
    let torn = CrashPolicy::Random { seed, atomicity: Atomicity::Unit(512) };
    vec![whole, ("torn", disks.crash(torn))]
}

/// Recovers the image of a life, and judges both lives. `found`: content that the recovery before
/// it has shown.
pub fn judge(
    case: &Case,
    left: CutState,
    found: &[Found],
    report: &mut CaseReport,
) -> Result<(), Violation> {
    report.lives += 1;
    let CutState { before, cut, images, progress, outcomes } = left;
    let histories = case.histories_from(before, &outcomes);
    for (number, (name, disks)) in (case.life..).zip(images) {
        let (name, disks) = spoiled(name.to_owned(), disks, None, number);
        judge_image(case, &disks, found, &histories, &progress).map_err(|why| {
            let life = case.life;
            Violation::from(format!("after life {life}, cut again at {cut} ({name}): {why}"))
        })?;
        report.later_images += 1;
        report.images += 1;
    }
    Ok(())
}

fn judge_image(
    case: &Case,
    disks: &Disks,
    found: &[Found],
    histories: &[History],
    progress: &[Progress],
) -> Result<(), String> {
    let world = VirtualWorld::new(case.seed ^ case.life);
    let memory = MemoryDisks::of(&world, disks, case);
    let (earlier_lives, this_life) = world.run({
        let (world, memory, case) = (world.clone(), memory.clone(), case.clone());
        let (before, writers) = (found.len(), histories.len());
        async move {
            let volume =
                memory.open(&world, &case).await.map_err(|error| format!("recovery: {error}"))?;
            if case.has_earlier_files() {
                earlier_life::check(&volume).await?;
            }
            let earlier = read_back(&volume, 0..before).await.map_err(read_error)?;
            let this = read_back(&volume, before..before + writers).await.map_err(read_error)?;
            volume.close().await.map_err(|error| format!("closing what was recovered: {error}"))?;
            Ok::<_, String>((earlier, this))
        }
    })?;
    stalls::note(&world);
    world.end();
    for (writer, (now, then)) in earlier_lives.iter().zip(found).enumerate() {
        if let Some(what) = difference(now, then) {
            return Err(format!("writer {writer} of the life before: {what}"));
        }
    }
    for (writer, (found, history)) in this_life.iter().zip(histories).enumerate() {
        let Progress { started, acknowledged, data_acknowledged, .. } = progress[writer];
        let judged =
            history.judge(found, acknowledged, data_acknowledged, started, guarantee(case));
        judged.map_err(|verdict| format!("writer {writer} of life {}: {verdict}", case.life))?;
    }
    Ok(())
}

/// Returns the first entry that has changed.
fn difference(now: &Found, then: &Found) -> Option<String> {
    let names = then.keys().chain(now.keys());
    let changed = names.into_iter().find(|name| now.get(*name) != then.get(*name))?;
    Some(match (now.get(changed), then.get(changed)) {
        (None, _) => format!("{changed} is lost"),
        (_, None) => format!("{changed} is there again"),
        _ => format!("{changed} is not what it was"),
    })
}
