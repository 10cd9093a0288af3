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
use std::cell::RefCell;
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
    let (parts, writers, setup) = (rig.parts.clone(), history.clone(), setup.clone());
    let ended = rig.run(async move {
        let engine = Rig::open(parts).await;
        run_script(engine.clone(), setup, script, writers).await;
        engine.shutdown().await
    });
    (history, ended)
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
