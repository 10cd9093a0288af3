//! One life of a small world: a script on a disk, from the recovery on to the cut.

use super::operation::SmallOperation;
use super::transactions::{BLOCK, Content, HOME_BLOCKS, State, StateHistory, page};
use super::world::{Arm, DELAY, Opener, REST, Rig, SmallWorld, Snapshots};
use device::World;
use disks::{Image, MemoryDisk};
use engine::{BarrierKind, Credits, Engine, EngineError};
use runtime::VirtualWorld;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use units::{BlockRange, HomeBlock, TransactionId};

/// Parameters of a life.
#[derive(Clone)]
pub(super) struct Life<'a> {
    pub small: &'a SmallWorld,
    pub snapshots: Snapshots,
    pub barrier: BarrierKind,
    pub image: &'a Image,
    pub script: &'a [SmallOperation],
    /// Changes of the disk that others overtake.
    pub delayed: &'a [u64],
    /// Content of the disk, and the number of the next transaction.
    pub begun: (State, u32),
}

/// Progress of a life.
pub(super) struct LifeProgress {
    /// The operation in progress; before the first one it is the recovery's turn.
    pub operation: Cell<Option<usize>>,
    pub history: RefCell<StateHistory>,
    /// States up to the last acknowledged one.
    pub acknowledged: Cell<usize>,
}

/// Result of a life.
pub(super) struct LifeResult {
    /// Writes, flushes and discards, and those of the last operation.
    pub changes: u64,
    pub last_changes: u64,
    pub swaps: u64,
    pub history: StateHistory,
}

impl Life<'_> {
    /// Plays the whole script. `look` sees the disk whenever a change starts, and at the end.
    pub fn play(
        &self,
        look: impl Fn(&MemoryDisk, u64, &LifeProgress) + 'static,
    ) -> Result<LifeResult, String> {
        let rig = Rig::new(self.small, self.image, self.snapshots, self.barrier, self.begun.1);
        self.delayed.iter().for_each(|change| rig.disk.delay_change(*change, DELAY));
        let (state, next) = self.begun;
        let progress = Rc::new(LifeProgress {
            operation: Cell::new(None),
            history: RefCell::new(StateHistory::of(state, next)),
            acknowledged: Cell::new(0),
        });
        let look = Rc::new(look);
        rig.disk.on_change({
            let (look, progress) = (look.clone(), progress.clone());
            move |disk, change, _| look(disk, change, &progress)
        });
        let writer = LifeWriter {
            world: rig.world.clone(),
            opener: rig.opener(),
            progress: progress.clone(),
            reads: Cell::new(0),
        };
        let (disk, script) = (rig.disk.clone(), self.script.to_vec());
        let played = rig.world.try_run(async move { writer.play(&disk, &script).await });
        let played = played.map_err(|deadlock| format!("{deadlock:?}: all wait"))?;
        let (last_changes, swaps) = played.map_err(|error| format!("without a crash: {error}"))?;
        look(&rig.disk, rig.disk.changes(), &progress);
        let history = progress.history.borrow().clone();
        Ok(LifeResult { changes: rig.disk.changes(), last_changes, swaps, history })
    }
}

#[derive(Clone)]
struct LifeWriter {
    world: VirtualWorld,
    opener: Opener,
    progress: Rc<LifeProgress>,
    reads: Cell<u64>,
}

impl LifeWriter {
    /// Returns the changes of the last operation, and the swaps.
    async fn play(
        &self,
        disk: &MemoryDisk,
        script: &[SmallOperation],
    ) -> Result<(u64, u64), EngineError> {
        let mut engine = self.opener.open().await?;
        let (mut before, mut swaps) = (disk.changes(), 0);
        for (number, operation) in script.iter().enumerate() {
            self.progress.operation.set(Some(number));
            before = disk.changes();
            match operation {
                SmallOperation::Rest => {
                    self.world.sleep_until(self.world.now().plus(REST)).await;
                }
                SmallOperation::Checkpoint => {
                    engine.checkpoint().await?;
                }
                SmallOperation::Reopen => {
                    swaps += engine.statistics().swaps;
                    engine.shutdown().await?;
                    engine = self.opener.open().await?;
                }
                SmallOperation::Pair => self.pair(&engine).await?,
                SmallOperation::Far | SmallOperation::FarLarge => {
                    self.write(&engine, *operation, Arm::Far).await?;
                }
                SmallOperation::Near
                | SmallOperation::Large
                | SmallOperation::Burst
                | SmallOperation::Keep => {
                    self.write(&engine, *operation, Arm::Near).await?;
                }
            }
            engine.check()?;
        }
        Ok((disk.changes() - before, swaps + engine.statistics().swaps))
    }

    async fn write(
        &self,
        engine: &Rc<Engine>,
        operation: SmallOperation,
        arm: Arm,
    ) -> Result<(), EngineError> {
        let time = self.reads.replace(self.reads.get() + 1);
        engine.read_data(arm.block(time), 1).await?;
        for blocks in operation.transactions() {
            let transaction = self.begin(engine, blocks).await?;
            engine.commit(transaction).await?;
            self.acknowledge();
        }
        Ok(())
    }

    async fn pair(&self, engine: &Rc<Engine>) -> Result<(), EngineError> {
        let time = self.reads.replace(self.reads.get() + 1);
        engine.read_data(Arm::Near.block(time), 1).await?;
        let mut all = SmallOperation::Pair.transactions().into_iter();
        let (first, second) = (all.next().expect("two"), all.next().expect("two"));
        let first = self.begin(engine, first).await?;
        let committed = {
            let engine = engine.clone();
            runtime::spawn_with_result(&self.world as &dyn World, async move {
                engine.commit(first).await
            })
        };
        while engine.running() == first {
            runtime::yield_now().await;
        }
        let second = self.begin(engine, second).await?;
        engine.commit(second).await?;
        committed.await.expect("a commit that ends")?;
        self.acknowledge();
        Ok(())
    }

    async fn begin(
        &self,
        engine: &Rc<Engine>,
        blocks: std::ops::Range<u64>,
    ) -> Result<TransactionId, EngineError> {
        let count = (blocks.end - blocks.start) as u32;
        let mut handle = engine.start(Credits(count)).await?;
        let number = self.progress.history.borrow_mut().begin(blocks.clone());
        for block in blocks {
            let made = handle.create(HomeBlock(block));
            let whole = BlockRange::new(0, BLOCK as u32);
            handle.change(&made, whole, |bytes| bytes.copy_from_slice(&page(block, number)));
        }
        Ok(handle.stop())
    }

    /// Acknowledges all states begun: they are durable.
    fn acknowledge(&self) {
        self.progress.acknowledged.set(self.progress.history.borrow().states.len() - 1);
    }
}

/// Returns the state that a mount finds after a power cut.
pub(super) fn recovered(
    small: &SmallWorld,
    image: &Image,
    snapshots: Snapshots,
    next: u32,
) -> Result<State, String> {
    let rig = Rig::new(small, image, snapshots, BarrierKind::Flush, next);
    let opener = rig.opener();
    let found = rig.world.try_run(async move {
        let opened = opener.open_with_report().await;
        let (engine, report) = opened.map_err(|error| format!("recovery: {error}"))?;
        // Only a torn write is damaged, and no piece is named before it is durable.
        if let Some(why) = report.snapshot_refused {
            return Err(format!("the snapshot is refused: {why}"));
        }
        let mut state = [Content::Stale; HOME_BLOCKS as usize];
        for (block, content) in (0..).zip(&mut state) {
            *content = SmallWorld::read(&engine, block)
                .await
                .map_err(|error| format!("block {block} cannot be read: {error}"))?;
        }
        Ok(state)
    });
    found.unwrap_or_else(|deadlock| Err(format!("recovery: {deadlock:?}: all wait")))
}
