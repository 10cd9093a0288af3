//! Power cuts during changes of names. Committed changes are there, those in progress are there or
//! not, none is partially applied, and e2fsck finds no error.

use crate::image::micros;
use crate::names::model::{Model, SHARED, TreeState, walk};
use crate::names::random::Task;
use crate::names::support::*;
use device::World;
use disks::{Atomicity, CrashPolicy, MemoryDisk};
use engine::EngineOptions;
use journal::DataMode;
use runtime::VirtualWorld;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

const STEPS: usize = 120;

/// The states that the names went through.
#[derive(Default)]
struct History {
    states: RefCell<Vec<TreeState>>,
    /// The state whose commit was last reported done.
    acknowledged: Cell<usize>,
    /// Writes of the disk when the first state was committed.
    started: Cell<u64>,
}

/// Runs one task of random operations; the same seed does the same up to the cut.
fn run(
    image: &TestImage,
    seed: u64,
    mode: DataMode,
    cut: Option<u64>,
) -> (Rc<History>, MemoryDisk) {
    let (world, shared, disk) = image.world(seed);
    disk.set_latency(micros(10, 90));
    cut.into_iter().for_each(|cut| disk.cut_at(cut));
    let history = Rc::new(History::default());
    let (at_end, home) = (history.clone(), disk.clone());
    let for_task = world.clone();
    world.run(async move {
        let options = EngineOptions { data: mode, ..EngineOptions::default() };
        let script = async {
            let volume = open_with(&shared, &home, options).await.unwrap();
            script(volume, for_task, history.clone(), &home).await;
        };
        runtime::race(script, home.power_lost()).await;
    });
    (at_end, disk)
}

async fn script(
    volume: Rc<ext4::Volume>,
    world: VirtualWorld,
    history: Rc<History>,
    disk: &MemoryDisk,
) {
    let root = volume.inode(ROOT).await.unwrap();
    let mut directories = [ROOT; SHARED];
    for (index, number) in directories.iter_mut().enumerate() {
        *number = make_directory(&volume, &root, &format!("shared-{index}")).await.number;
    }
    let last = Rc::new(Cell::new(volume.engine().committed()));
    let (noted, in_history) = (last.clone(), history.clone());
    let changed = move |model: &Model, transaction| {
        noted.set(transaction);
        in_history.states.borrow_mut().push(record(model));
    };
    let model = Model::new(directories);
    history.states.borrow_mut().push(record(&model));
    volume.sync().await.unwrap();
    history.started.set(disk.changes());
    let mut task = Task { volume, world, model, number: 0, changed: Rc::new(changed) };
    for _ in 0..STEPS {
        task.step().await;
        if task.world.random() % 10 == 0 {
            // Time for periodic commits, write-back and checkpoints.
            let later = task.world.now().plus(Duration::from_secs(4));
            task.world.sleep_until(later).await;
        }
        if task.world.random() % 2 == 0 {
            let state = history.states.borrow().len() - 1;
            task.volume.engine().commit(last.get()).await.unwrap();
            history.acknowledged.set(state);
        }
    }
}

fn record(model: &Model) -> TreeState {
    let mut state = TreeState::new();
    for index in 0..SHARED {
        model.record(index, &format!("/shared-{index}"), &mut state);
    }
    state
}

#[test]
fn every_state_of_the_names_after_a_power_cut_is_one_that_was() {
    let modes = [DataMode::Ordered, DataMode::Wasteless, DataMode::Journal];
    for (number, kind) in [EXT4_1K, EXT3_1K, EXT4].into_iter().enumerate() {
        let image = TestImage::of_inodes(kind, "24M", 1000);
        let seed = number as u64 + 1;
        let (whole, disk) = run(&image, seed, modes[number], None);
        let (first, end) = (whole.started.get(), disk.changes());
        assert!(end > first + 20, "only {} writes", end - first);
        let reference = whole.states.borrow();
        for cut in (first..end).step_by(((end - first) / 24).max(1) as usize) {
            println!("seed {seed} on {}, cut at write {cut} of {first}..{end}", kind.0);
            let (history, disk) = run(&image, seed, modes[number], Some(cut));
            let (from, to) = (history.acknowledged.get(), history.states.borrow().len());
            let after =
                disk.crash(CrashPolicy::Random { seed: cut, atomicity: Atomicity::Unit(1024) });
            after.write_file(&image.path_of("crashed")).unwrap();
            let recovered =
                image.with_other("crashed", seed, |volume, _| async move { walk(&volume).await });
            let mut names = recovered.clone();
            names.retain(|path, _| path.matches('/').count() > 1);
            // The change in progress at the cut is the next one of the run without a cut.
            let possible = &reference[from..=to.min(reference.len() - 1)];
            assert!(possible.contains(&names), "after {from}..{to}: {names:#?}");
        }
    }
}
