//! One life of a small world: a script on a disk, from the recovery on to the cut.

use super::operation::{BITMAP, SmallOperation};
use super::transactions::{BLOCK, Content, HOME_BLOCKS, REUSED, State, StateHistory, page};
use super::world::{Arm, DELAY, Opener, REST, Rig, SmallWorld, Snapshots};
use device::World;
use disks::{Image, MemoryDisk};
use engine::{BarrierKind, Base, Contents, Credits, Engine, EngineError, FileUpdate, Handle};
use runtime::VirtualWorld;
use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;
use units::{BlockRange, HomeBlock, Owner};

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
                SmallOperation::Make | SmallOperation::Free | SmallOperation::Data => {
                    self.reuse(&engine, *operation).await?;
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
            let transaction = self.begin(engine, operation, blocks).await?.stop();
            engine.commit(transaction).await?;
            self.acknowledge();
        }
        Ok(())
    }

    /// Allocates or frees block [`REUSED`], if that is possible now.
    async fn reuse(
        &self,
        engine: &Rc<Engine>,
        operation: SmallOperation,
    ) -> Result<(), EngineError> {
        let reused = self.progress.history.borrow().last()[REUSED as usize];
        if !operation.is_possible(reused) {
            return Ok(());
        }
        let mut handle = self.begin(engine, operation, BITMAP..BITMAP + 1).await?;
        let content = self.progress.history.borrow().last()[REUSED as usize];
        match content {
            Content::Data(_) => {
                let update = FileUpdate {
                    owner: Owner(1),
                    home: HomeBlock(REUSED),
                    range: whole(),
                    bytes: &page(REUSED, content),
                    base: Base::Zero,
                    request: BLOCK as u64,
                    sequential: false,
                    in_place: false,
                    durable_only: false,
                };
                handle.write_file_data(update).await?;
            }
            Content::Free => handle.forget(HomeBlock(REUSED), 1, Contents::Metadata),
            _ => create(&mut handle, REUSED, content),
        }
        engine.commit(handle.stop()).await?;
        self.acknowledge();
        Ok(())
    }

    async fn pair(&self, engine: &Rc<Engine>) -> Result<(), EngineError> {
        let time = self.reads.replace(self.reads.get() + 1);
        engine.read_data(Arm::Near.block(time), 1).await?;
        let mut all = SmallOperation::Pair.transactions().into_iter();
        let (first, second) = (all.next().expect("two"), all.next().expect("two"));
        let first = self.begin(engine, SmallOperation::Pair, first).await?.stop();
        let committed = {
            let engine = engine.clone();
            runtime::spawn_with_result(&self.world as &dyn World, async move {
                engine.commit(first).await
            })
        };
        while engine.running() == first {
            runtime::yield_now().await;
        }
        let second = self.begin(engine, SmallOperation::Pair, second).await?.stop();
        engine.commit(second).await?;
        committed.await.expect("a commit that ends")?;
        self.acknowledge();
        Ok(())
    }

    /// Begins the next transaction, and writes these blocks in it.
    async fn begin(
        &self,
        engine: &Rc<Engine>,
        operation: SmallOperation,
        blocks: Range<u64>,
    ) -> Result<Handle, EngineError> {
        let mut credits = Credits((blocks.end - blocks.start) as u32);
        if operation.reuse(0).is_some() {
            credits = credits + Credits(1) + engine.credits_revokes();
        }
        let mut handle = engine.start(credits).await?;
        let mut history = self.progress.history.borrow_mut();
        let reused = operation.reuse(history.next);
        let number = history.begin(blocks.clone(), reused);
        drop(history);
        blocks.for_each(|block| create(&mut handle, block, Content::Version(number)));
        Ok(handle)
    }

    /// Acknowledges all states begun: they are durable.
    fn acknowledge(&self) {
        self.progress.acknowledged.set(self.progress.history.borrow().states.len() - 1);
    }
}

/// Writes a whole block of metadata.
fn create(handle: &mut Handle, block: u64, content: Content) {
    let made = handle.create(HomeBlock(block));
    handle.change(&made, whole(), |bytes| bytes.copy_from_slice(&page(block, content)));
}

fn whole() -> BlockRange {
    BlockRange::new(0, BLOCK as u32)
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
