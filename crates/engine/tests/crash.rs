//! Small scripts, cut at every write: whatever was acknowledged is there after recovery, nothing half-done.

mod common;

use common::{History, Rig, Script, Setup, check, run_script};
use engine::recover;
use std::cell::RefCell;
use std::rc::Rc;

/// Runs `script` on a fresh volume until change `cut` of its disks; the disks as they then are.
fn run_until(setup: &Setup, script: Script, cut: Option<u64>) -> (Rig, Rc<RefCell<History>>, bool) {
    let rig = Rig::new(setup, script.seed, setup.images());
    if let Some(cut) = cut {
        rig.cut_at(cut);
    }
    let history = Rc::new(RefCell::new(History::default()));
    let (parts, writers, whole) = (rig.parts.clone(), history.clone(), setup.clone());
    let ended = rig.run(async move {
        let engine = Rig::open(parts).await;
        run_script(engine.clone(), whole, script, writers).await;
        engine.shutdown().await
    });
    if let Some(result) = &ended {
        result.as_ref().expect("no disk failed");
    }
    (rig, history, ended.is_some())
}

fn recovered(setup: &Setup, seed: u64, images: Vec<disks::Image>) -> Rig {
    let rig = Rig::new(setup, seed, images);
    let parts = rig.parts.clone();
    rig.run(async move { recover(&parts, false).await }).unwrap().expect("recovery");
    rig
}

fn every_cut(setup: &Setup, script: Script) {
    for cut in 0.. {
        let (rig, history, ended) = run_until(setup, script, Some(cut));
        let context = format!(
            "{:?} {:?} {} script {script:?} cut {cut}",
            setup.mode,
            setup.layout,
            setup.block_size.bytes()
        );
        for tear in 0..3 {
            let seed = cut * 4 + tear;
            let after = recovered(setup, seed, rig.crash(seed));
            check(&after, setup, &history.borrow(), &format!("{context} tear {seed}"));
        }
        if ended {
            eprintln!("{context} ended; changes {} failed {:?}", rig.changes(), history.borrow().failed);
            return;
        }
    }
}

const SCRIPT: Script = Script { writers: 3, handles: 8, sync_one_in: 2, seed: 1 };

#[test]
fn acknowledged_changes_survive_every_cut_in_every_mode() {
    for setup in Setup::all() {
        every_cut(&setup, SCRIPT);
    }
}
