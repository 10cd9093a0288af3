//! A small volume without files. It has writers that keep a table of blocks each, a model of what
//! they wrote, and the question asked after every crash.

mod files;
mod rig;
mod writer;

#[allow(unused_imports)]
pub use files::{FILE_BLOCKS, Files};
#[allow(unused_imports)]
pub use rig::{Layout, Rig, STALE, Setup, file_update};
#[allow(unused_imports)]
pub use writer::{History, Script, check, overwrite, run_script, write_byte};

use disks::Image;
use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;

pub type SharedHistory = Rc<RefCell<History>>;

/// Runs `script` on a fresh volume, until change `cut` of its disks if given; whether it came to
/// its end.
#[allow(unused)]
pub fn run_until(setup: &Setup, script: Script, cut: Option<u64>) -> (Rig, SharedHistory, bool) {
    let rig = Rig::new(setup, script.seed, setup.images());
    if let Some(cut) = cut {
        rig.cut_at(cut);
    }
    let (history, ended) = run_on(&rig, setup, script);
    if let Some(result) = &ended {
        result.as_ref().expect("no disk failed");
    }
    (rig, history, ended.is_some())
}

/// Recovers and opens the volume of `rig`, runs `script`, and shuts down; `None` if the power was
/// cut.
pub fn run_on(
    rig: &Rig,
    setup: &Setup,
    script: Script,
) -> (SharedHistory, Option<Result<(), engine::EngineError>>) {
    let history = SharedHistory::default();
    let ended = run_noting(rig, setup, script, &history);
    (history, ended)
}

fn run_noting(
    rig: &Rig,
    setup: &Setup,
    script: Script,
    history: &SharedHistory,
) -> Option<Result<(), engine::EngineError>> {
    let (parts, writers, setup) = (rig.parts.clone(), history.clone(), setup.clone());
    rig.run(async move {
        let engine = Rig::open(parts).await;
        run_script(engine.clone(), setup, script, writers).await;
        engine.shutdown().await
    })
}

/// The state that a power cut leaves.
pub struct Cut {
    /// The change of the disks that has begun last.
    pub number: u64,
    /// Images by the seed of what is lost and torn.
    pub images: Vec<(u64, Vec<Image>)>,
    pub history: History,
}

/// Runs `script` on a fresh volume to its end. Returns what power cuts at its changes leave, by the
/// seeds that `tears` returns for each, and what a cut after its end leaves.
pub fn cuts_of(
    setup: &Setup,
    script: Script,
    tears: impl Fn(u64) -> Range<u64> + 'static,
) -> Vec<Cut> {
    let rig = Rig::new(setup, script.seed, setup.images());
    let (history, cuts) = (SharedHistory::default(), Rc::new(RefCell::new(Vec::new())));
    let (disks, noted, kept) = (rig.disks.clone(), history.clone(), cuts.clone());
    let cut = Rc::new(move |number: u64| {
        let images: Vec<_> =
            tears(number).map(|tear| (tear, Rig::crash_of(&disks, tear))).collect();
        if !images.is_empty() {
            kept.borrow_mut().push(Cut { number, images, history: noted.borrow().clone() });
        }
    });
    let seen = Rc::new(Cell::new(0));
    for disk in &rig.disks {
        let (cut, seen) = (cut.clone(), seen.clone());
        disk.on_change(move |_, _, _| cut(seen.replace(seen.get() + 1)));
    }
    run_noting(&rig, setup, script, &history).expect("power").expect("no disk failed");
    cut(seen.get());
    rig.disks.iter().for_each(disks::MemoryDisk::stop_watching);
    cuts.take()
}

/// A fresh rig on `images`, recovered.
pub fn recovered(setup: &Setup, seed: u64, images: Vec<Image>) -> Result<Rig, String> {
    let rig = Rig::new(setup, seed, images);
    let parts = rig.parts.clone();
    let report = rig.run(async move { engine::recover(&parts, false).await }).expect("power");
    report.map(|_| rig).map_err(|error| error.to_string())
}

/// Recovers from `images` and compares.
pub fn verify(
    setup: &Setup,
    seed: u64,
    images: Vec<Image>,
    history: &History,
) -> Result<(), String> {
    check(&recovered(setup, seed, images)?, setup, history)
}
