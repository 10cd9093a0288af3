//! Multiple mount protection: before anything is written, the MMP block is watched for other users
//! of the volume. While the volume is in use, its owner increments the block. The block is written
//! past the journal.

use crate::{Error, Result};
use device::{Buffer, Disk, Durability, World};
use engine::{Engine, EngineError};
use format::ext4::mmp::{LENGTH, MmpBlock, MmpError, Use};
use format::ext4::{VolumeSuperblock, feature};
use runtime::race;
use runtime::sync::{Event, RwLock};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;
use units::{HomeBlock, Instant};

/// Bounds of the intervals, in seconds (kernel: `EXT4_MMP_...`).
const CHECK_INTERVAL_MIN: u16 = 5;
const CHECK_INTERVAL_MAX: u16 = 300;
/// Age beyond which an answer says nothing about a volume of others.
const WATCH_AGE_MAX: Duration = Duration::from_secs(CHECK_INTERVAL_MIN as u64);
/// Seconds at most beyond twice the interval, after which an owner that stopped counting is
/// believed gone.
const PATIENCE_MAX: u16 = 60;

/// The claim of this process, which is renewed until [`Protection::end`].
pub(crate) struct Protection {
    block: MmpOnDisk,
    sequence: Cell<u32>,
    /// Sequence last written, whether it arrived or not.
    tried: Cell<u32>,
    interval: Duration,
    /// Time during which no other computer, having seen the last count, believes the owner gone.
    sure_for: Duration,
    /// Last time at which the block was known to be ours: before it was read.
    known_at: Cell<Moment>,
    /// Lock held while the block is read and written.
    in_use: Rc<RwLock>,
    /// The engine that a foreign claim stops.
    engine: RefCell<Option<Rc<Engine>>>,
    lost: RefCell<Option<String>>,
    /// Whether this claim has ended. Writes that follow are checked all the same.
    over: Cell<bool>,
    /// Whether others may have taken the volume at once.
    released: Cell<bool>,
    beating: Cell<bool>,
    changed: Event,
}

/// A time by both clocks, of which the second runs while the computer sleeps.
type Moment = (Instant, i64);

/// The block as it was read, not before `asked`.
struct Reading {
    bytes: Buffer,
    asked: Moment,
}

struct MmpOnDisk {
    world: Rc<dyn World>,
    disk: Rc<dyn Disk>,
    /// Bytes.
    at: u64,
    length: usize,
    seed: Option<u32>,
}

impl MmpOnDisk {
    fn of(
        world: &Rc<dyn World>,
        disk: &Rc<dyn Disk>,
        superblock: &VolumeSuperblock,
    ) -> Result<MmpOnDisk> {
        let (at, length) = (superblock.mmp_block, superblock.block_size.bytes());
        if at <= u64::from(superblock.first_data_block)
            || at >= superblock.blocks
            || length < LENGTH
        {
            return Err(corrupt(HomeBlock(at), "it lies outside the volume"));
        }
        let checksums = superblock.features.has(feature::METADATA_CSUM);
        Ok(MmpOnDisk {
            world: world.clone(),
            disk: disk.clone(),
            at: at << superblock.block_size.shift(),
            length,
            seed: checksums.then_some(superblock.checksum_seed),
        })
    }

    fn now(&self) -> Moment {
        (self.world.now(), self.world.wall_clock().seconds)
    }

    /// Whether `age` has passed since then, by either clock.
    fn is_older(&self, (at, seconds): Moment, age: Duration) -> bool {
        let (now, wall_clock) = self.now();
        now.since(at) >= age || wall_clock.saturating_sub(seconds) >= age.as_secs() as i64
    }

    /// Reads the block: again if the answer is older than `age`. The process may have been stopped
    /// with the answer on its ring, while another computer took the volume.
    async fn read(&self, age: Duration) -> Result<Reading> {
        loop {
            let asked = self.now();
            let bytes = self.disk.read(self.at, self.length).await.map_err(EngineError::from)?;
            if !self.is_older(asked, age) || units::fault!("mmp-read-before-gap") {
                return Ok(Reading { bytes, asked });
            }
        }
    }

    fn parse(&self, reading: &Reading) -> Result<MmpBlock> {
        self.parse_as(reading, self.seed)
    }
    fn parse_as(&self, reading: &Reading, seed: Option<u32>) -> Result<MmpBlock> {
        let block = MmpBlock::parse(&reading.bytes, seed);
        block.map_err(|error| corrupt(HomeBlock(self.at / self.length as u64), &error.to_string()))
    }

    async fn write(&self, mut bytes: Buffer, block: &MmpBlock) -> Result<()> {
        block.serialize(&mut bytes, self.seed);
        let written = self.disk.write(self.at, vec![Rc::new(bytes)], Durability::Durable).await;
        Ok(written.map_err(EngineError::from)?)
    }

    /// The block, once the volume is known to be unused: at once if it says so, else after having
    /// watched it for a while.
    async fn watch(&self, superblock: &VolumeSuperblock) -> Result<(Buffer, MmpBlock, Duration)> {
        let reading = self.read(WATCH_AGE_MAX).await?;
        let first = self.parse(&reading)?;
        let patience = patience(superblock.mmp_update_interval.max(first.check_interval));
        match first.used_by {
            Use::Nobody => return Ok((reading.bytes, first, patience)),
            Use::Checked => {
                let how = "if no e2fsck is running, run e2fsck, or tune2fs -f -E clear_mmp";
                return Err(in_use(&first, how));
            }
            Use::Counted(_) => {}
        }
        self.world.sleep_until(self.world.now().plus(patience)).await;
        let reading = self.read(WATCH_AGE_MAX).await?;
        let now = self.parse(&reading)?;
        match now.used_by == first.used_by {
            true => Ok((reading.bytes, now, patience)),
            false => Err(in_use(&now, "unmount it there first")),
        }
    }

    /// The block if its checksum is wrong, once it has not changed for as long as any owner may
    /// take: a power cut amid a write leaves it so, since sequence and checksum are in different
    /// sectors. What it says about its owner's interval is not relied on.
    async fn watch_torn(
        &self,
        superblock: &VolumeSuperblock,
    ) -> Result<Option<(Buffer, MmpBlock, Duration)>> {
        let first = self.read(WATCH_AGE_MAX).await?;
        if MmpBlock::parse(&first.bytes, self.seed) != Err(MmpError::Checksum) {
            return Ok(None);
        }
        let block = self.parse_as(&first, None)?;
        if block.used_by != Use::Checked {
            self.world.sleep_until(self.world.now().plus(patience(CHECK_INTERVAL_MAX))).await;
            let now = self.read(WATCH_AGE_MAX).await?;
            if *first.bytes == *now.bytes {
                return Ok(Some((now.bytes, block, patience(superblock.mmp_update_interval))));
            }
        }
        Err(in_use(&block, "unmount it there first, or run e2fsck"))
    }
}

/// Returns how long a block whose owner counts within `interval` seconds is watched.
fn patience(interval: u16) -> Duration {
    let interval = interval.clamp(CHECK_INTERVAL_MIN, CHECK_INTERVAL_MAX);
    Duration::from_secs((interval * 2 + 1).min(interval + PATIENCE_MAX).into())
}

/// Fails if another computer or program uses the volume, as far as its MMP block shows. Writes
/// nothing.
pub async fn check_unused(world: &Rc<dyn World>, disk: &Rc<dyn Disk>) -> Result<()> {
    let superblock = super::superblock::read(&**disk).await?;
    if superblock.features.has(feature::MMP) {
        MmpOnDisk::of(world, disk, &superblock)?.watch(&superblock).await?;
    }
    Ok(())
}

impl Protection {
    /// Claims the volume as the kernel does, which takes twice the check interval and more; `None`
    /// without the feature.
    pub async fn begin(
        world: &Rc<dyn World>,
        disk: &Rc<dyn Disk>,
        superblock: &VolumeSuperblock,
        node: &str,
    ) -> Result<Option<Rc<Protection>>> {
        if !superblock.features.has(feature::MMP) {
            return Ok(None);
        }
        let block = MmpOnDisk::of(world, disk, superblock)?;
        let (bytes, mut content, patience) = match block.watch_torn(superblock).await? {
            Some(torn) => torn,
            None => block.watch(superblock).await?,
        };
        let sequence = Use::at_random(world.random());
        content.used_by = Use::Counted(sequence);
        content.seconds = world.wall_clock().seconds as u64;
        content.node = if node.is_empty() { b"okeanos".to_vec() } else { node.into() };
        content.device = disk.name().as_bytes().to_vec();
        let update = superblock.mmp_update_interval.max(1);
        content.check_interval =
            update.saturating_mul(2).clamp(CHECK_INTERVAL_MIN, CHECK_INTERVAL_MAX);
        block.write(bytes, &content).await?;
        // Another computer may have seen it unused at the same time: the last writer has it.
        world.sleep_until(world.now().plus(patience)).await;
        // Others wait for more than twice as long before they take it.
        let sure_for = Duration::from_secs(content.check_interval.into());
        let reading = block.read(sure_for).await?;
        let now = block.parse(&reading)?;
        if now.used_by != content.used_by {
            return Err(in_use(&now, "unmount it there first"));
        }
        let protection = Rc::new(Protection {
            block,
            sequence: Cell::new(sequence),
            tried: Cell::new(sequence),
            interval: Duration::from_secs(update.into()),
            sure_for,
            known_at: Cell::new(reading.asked),
            in_use: Rc::default(),
            engine: RefCell::default(),
            lost: RefCell::default(),
            over: Cell::new(false),
            released: Cell::new(false),
            beating: Cell::new(true),
            changed: Event::default(),
        });
        world.spawn(Box::pin(protection.clone().beat()));
        Ok(Some(protection))
    }

    /// Sets the engine that a foreign claim stops. An error if there was one already.
    pub fn guard(&self, engine: &Rc<Engine>) -> Result<()> {
        *self.engine.borrow_mut() = Some(engine.clone());
        match &*self.lost.borrow() {
            Some(cause) => Err(Error::InUse(cause.clone())),
            None => Ok(()),
        }
    }

    /// Whether there is an engine, which notes its failure.
    pub fn guards(&self) -> bool {
        self.engine.borrow().is_some()
    }

    async fn beat(self: Rc<Self>) {
        let world = self.block.world.clone();
        world.name_task("multiple mount protection");
        while !self.over.get() && self.lost.borrow().is_none() {
            let due = world.now().plus(self.interval);
            race(self.changed.until(|| self.over.get().then_some(())), world.sleep_until(due))
                .await;
            let guard = self.in_use.write().await;
            if self.over.get() || self.lost.borrow().is_some() {
                break;
            }
            // A block that cannot be read now is tried again; others see that it does not change.
            // So is a write, but a disk whose durable write has failed takes no commit any more.
            if let Err(error @ Error::InUse(_)) =
                self.count(Use::Counted(Use::next(self.sequence.get()))).await
            {
                self.lose(error.to_string());
            }
            drop(guard);
        }
        self.beating.set(false);
        self.changed.notify();
    }

    fn lose(&self, cause: String) {
        if let Some(engine) = &*self.engine.borrow() {
            engine.stop_writing(&EngineError::Stopped { cause: cause.clone() });
        }
        *self.lost.borrow_mut() = Some(cause);
    }

    /// Whether the block must be looked at before anything else is written: the last look is
    /// `sure_for` ago, so that others may have taken the volume, or they have taken it, or may. An
    /// engine that has failed writes a note of that, which may come after the end of the claim.
    pub fn is_doubtful(&self) -> bool {
        if units::fault!("mmp-gap-ignored")
            || self.over.get() && units::fault!("mmp-ended-unchecked")
        {
            return false;
        }
        self.released.get()
            || self.lost.borrow().is_some()
            || self.block.is_older(self.known_at.get(), self.sure_for)
    }

    /// Reads the block, and increments it if it is still ours. An error if it is not, or cannot be
    /// read: nothing may be written then.
    pub async fn make_sure(&self) -> Result<()> {
        let _guard = self.in_use.write().await;
        if let Some(cause) = &*self.lost.borrow() {
            return Err(Error::InUse(cause.clone()));
        }
        if self.released.get() {
            return Err(Error::InUse("the claim on the volume was given up".into()));
        }
        // The previous holder of the lock may have looked.
        if !self.is_doubtful() {
            return Ok(());
        }
        let counted = self.count(Use::Counted(Use::next(self.sequence.get()))).await;
        if let Err(error @ Error::InUse(_)) = &counted {
            self.lose(error.to_string());
        }
        counted
    }

    /// Writes the next sequence, if the block is still ours. The caller holds the lock.
    async fn count(&self, next: Use) -> Result<()> {
        let reading = self.block.read(self.sure_for).await?;
        let mut content = self.block.parse(&reading)?;
        if ![&self.sequence, &self.tried]
            .iter()
            .any(|ours| content.used_by == Use::Counted(ours.get()))
        {
            return Err(in_use(&content, "it was mounted twice; run e2fsck"));
        }
        content.used_by = next;
        content.seconds = self.block.world.wall_clock().seconds as u64;
        if let Use::Counted(sequence) = next {
            self.tried.set(sequence);
        }
        self.block.write(reading.bytes, &content).await?;
        self.sequence.set(self.tried.get());
        self.known_at.set(reading.asked);
        Ok(())
    }

    /// Stops counting. `clean`: the volume may be used by others at once; without it they wait.
    pub async fn end(&self, clean: bool) -> Result<()> {
        if self.over.replace(true) {
            return Ok(());
        }
        self.changed.notify();
        self.changed.until(|| (!self.beating.get()).then_some(())).await;
        if clean && self.lost.borrow().is_none() {
            let _guard = self.in_use.write().await;
            self.released.set(true);
            self.count(Use::Nobody).await?;
        }
        Ok(())
    }
}

fn corrupt(at: HomeBlock, why: &str) -> Error {
    Error::corrupt_block("the block of multiple mount protection", at, why)
}

fn in_use(by: &MmpBlock, what_to_do: &str) -> Error {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (node, device) = (text(&by.node), text(&by.device));
    Error::InUse(format!(
        "the volume is in use on {node} ({device}), as its MMP block says: {what_to_do}"
    ))
}
