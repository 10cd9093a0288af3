use super::rig::file_update;
use super::rig::{Rig, STALE, Setup};
use device::Buffer;
use engine::{Base, Contents, Credits, Engine, EngineError, FileRun, FileUpdate, Handle};
use journal::DataMode;
use runtime::SplitMix;
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;
use units::{BlockRange, Owner, TransactionId};

const SLOTS: usize = 4;
const POOL: u64 = 8;
/// Bytes of a writer's table: version, then home block and kind of each slot.
const TABLE: u32 = 8 + SLOTS as u32 * 8;

#[derive(Clone, Copy, Debug)]
pub struct Script {
    pub writers: u64,
    pub handles: usize,
    /// Number of handles of which one is synced.
    pub sync_one_in: u64,
    pub seed: u64,
}

/// A block that a writer's table names.
#[derive(Clone, PartialEq, Eq)]
struct Slot {
    home: u64,
    /// The version that allocated it: a block may come back for another use.
    born: usize,
    metadata: bool,
    content: Vec<u8>,
}

/// Content of a writer's blocks after one of its handles.
type Version = [Option<Slot>; SLOTS];

/// History of all writes, and what was promised.
#[derive(Clone, Default)]
pub struct History {
    /// Versions by writer; version `k` is the state after its handle number `k`, version 0 that
    /// before any.
    versions: Vec<Vec<Version>>,
    acknowledged: Vec<usize>,
    /// Writes of data by writer, each with the version that it was for. It may be written home
    /// before its handle ends, also if that writes or frees the block once more.
    written: Vec<Vec<(usize, Slot)>>,
    pub failed: Vec<EngineError>,
}

impl History {
    /// Whether every writer has had a change acknowledged.
    pub fn all_begun(&self) -> bool {
        !self.acknowledged.is_empty() && self.acknowledged.iter().all(|version| *version > 0)
    }
}

fn table_blocks(writer: u64) -> [u64; 2] {
    [2 * writer, 2 * writer + 1]
}
fn pool(setup: &Setup, script: &Script, writer: u64) -> std::ops::Range<u64> {
    let from = 2 * script.writers + writer * POOL;
    assert!(from + POOL <= setup.home_blocks);
    from..from + POOL
}

/// Runs all writers side by side to their end. Whatever happens, `history` is right at every
/// moment.
pub async fn run_script(
    engine: Rc<Engine>,
    setup: Setup,
    script: Script,
    history: Rc<RefCell<History>>,
) {
    *history.borrow_mut() = History {
        versions: vec![vec![Version::default()]; script.writers as usize],
        acknowledged: vec![0; script.writers as usize],
        written: vec![Vec::new(); script.writers as usize],
        failed: Vec::new(),
    };
    let writers = (0..script.writers).map(|number| -> device::LocalFuture<()> {
        let writer = Writer {
            engine: engine.clone(),
            setup: setup.clone(),
            script,
            number,
            rng: SplitMix::new(script.seed ^ number << 32),
            free: pool(&setup, &script, number).collect(),
            freed: Vec::new(),
            history: history.clone(),
        };
        Box::pin(writer.run())
    });
    runtime::join_all(writers.collect()).await;
}

struct Writer {
    engine: Rc<Engine>,
    setup: Setup,
    script: Script,
    number: u64,
    rng: SplitMix,
    free: Vec<u64>,
    /// Freed blocks, not to be used again before their transaction is committed.
    freed: Vec<(u64, TransactionId)>,
    history: Rc<RefCell<History>>,
}

impl Writer {
    async fn run(mut self) {
        for version in 1..=self.script.handles {
            if let Err(error) = self.one(version).await {
                self.history.borrow_mut().failed.push(error);
                return;
            }
        }
    }

    fn chance(&self, one_in: u64) -> bool {
        self.rng.next() % one_in == 0
    }

    async fn one(&mut self, version: usize) -> Result<(), EngineError> {
        let mut state = self.history.borrow().versions[self.number as usize][version - 1].clone();
        // Two table blocks and two blocks of slots.
        let mut handle = self.engine.start(Credits(4)).await?;
        for _ in 0..1 + self.rng.next() % 2 {
            let slot = (self.rng.next() % SLOTS as u64) as usize;
            match &mut state[slot] {
                Some(old) if self.chance(5) => {
                    handle.forget(self.setup.address(old.home), 1, Contents::Data);
                    self.freed.push((old.home, handle.transaction()));
                    state[slot] = None;
                }
                Some(old) if old.metadata => {
                    let block = self.engine.metadata(self.setup.address(old.home)).await?;
                    let at = (self.rng.next() % 1000) as u32;
                    handle.change(&block, BlockRange::new(at, at + 8), |bytes| {
                        bytes[at as usize..at as usize + 8].fill(version as u8)
                    });
                    old.content[at as usize..at as usize + 8].fill(version as u8);
                }
                found => self.write_slot(&mut handle, found, version).await?,
            }
        }
        self.write_tables(&mut handle, &state, version).await?;
        self.history.borrow_mut().versions[self.number as usize].push(state);
        let transaction = handle.stop();
        if self.chance(self.script.sync_one_in) {
            self.sync(transaction, version).await?;
        } else if self.chance(4) {
            let pause = Duration::from_micros(self.rng.next() % 3000);
            let world = self.engine.world();
            world.sleep_until(world.now().plus(pause)).await;
        }
        Ok(())
    }

    async fn sync(&self, transaction: TransactionId, version: usize) -> Result<(), EngineError> {
        if self.chance(2) || self.setup.mode == DataMode::Writeback {
            self.engine.sync_owner(Owner(self.number + 1), transaction).await?;
        } else {
            self.engine.commit(transaction).await?;
        }
        self.history.borrow_mut().acknowledged[self.number as usize] = version;
        Ok(())
    }

    fn allocate(&mut self) -> Option<u64> {
        let committed = self.engine.committed();
        let reusable = self.freed.iter().position(|(_, by)| committed.is_at_or_after(*by));
        // Reused blocks first: they are the dangerous ones.
        reusable.map(|index| self.freed.remove(index).0).or_else(|| self.free.pop())
    }

    async fn write_slot(
        &mut self,
        handle: &mut Handle,
        slot: &mut Option<Slot>,
        version: usize,
    ) -> Result<(), EngineError> {
        let size = self.setup.block_size.bytes();
        let fresh = slot.is_none();
        if fresh {
            let Some(home) = self.allocate() else { return Ok(()) };
            let metadata = self.chance(3);
            *slot = Some(Slot { home, born: version, metadata, content: vec![0; size] });
            if metadata {
                handle.create(self.setup.address(home));
                return Ok(());
            }
        }
        let Some(slot) = slot else { return Ok(()) };
        let length = match self.rng.next() % 4 {
            0 => size as u64,
            _ => 1 + self.rng.next() % 300,
        };
        let start = self.rng.next() % (size as u64 - length + 1);
        let bytes: Vec<u8> =
            (0..length).map(|at| (version as u64 * 31 + at * 7) as u8 % 200).collect();
        slot.content[start as usize..(start + length) as usize].copy_from_slice(&bytes);
        self.history.borrow_mut().written[self.number as usize].push((version, slot.clone()));
        let (owner, home) = (Owner(self.number + 1), self.setup.address(slot.home));
        if length == size as u64 && self.chance(2) {
            let memory = self.chance(2).then(|| Rc::new(Buffer::copy_of(&bytes)));
            let memory = memory.as_ref();
            let run = FileRun {
                owner,
                home,
                bytes: &bytes,
                memory,
                request: length,
                sequential: true,
                in_place: false,
            };
            if handle.file_run_past_cache(&run)? {
                return Ok(());
            }
        }
        handle
            .write_file_data(FileUpdate {
                owner,
                base: if fresh { Base::Zero } else { Base::Home },
                request: length,
                ..file_update(home.get(), start as u32, &bytes)
            })
            .await
            .map(|_| ())
    }

    async fn write_tables(
        &self,
        handle: &mut Handle,
        state: &Version,
        version: usize,
    ) -> Result<(), EngineError> {
        let table = serialize(state, version);
        for at in table_blocks(self.number) {
            let block = match version {
                1 => handle.create(self.setup.address(at)),
                _ => self.engine.metadata(self.setup.address(at)).await?,
            };
            let range = BlockRange::new(0, TABLE);
            handle.change(&block, range, |bytes| bytes[range.as_usize()].copy_from_slice(&table));
        }
        Ok(())
    }
}

fn serialize(state: &Version, version: usize) -> Vec<u8> {
    let mut table = (version as u64).to_le_bytes().to_vec();
    for slot in state {
        let word = slot.as_ref().map_or(0, |slot| slot.home << 1 | u64::from(slot.metadata));
        table.extend(word.to_le_bytes());
    }
    table
}

/// Checks that a recovered volume has everything acknowledged, nothing partially applied, and no
/// stale byte.
pub fn check(rig: &Rig, setup: &Setup, history: &History) -> Result<(), String> {
    for (writer, versions) in history.versions.iter().enumerate() {
        let acknowledged = history.acknowledged[writer];
        let version = recovered_version(rig, writer, versions)?;
        if version < acknowledged {
            return Err(format!(
                "writer {writer}: version {version}, but {acknowledged} was acknowledged"
            ));
        }
        for slot in versions[version].iter().flatten() {
            // Data that bypasses the log may be newer than the tables; only in `writeback` mode,
            // and if it was not synced, may it be anything.
            let from = match setup.mode {
                _ if is_exact(setup.mode, slot) => version..version + 1,
                DataMode::Writeback if content_of(&versions[acknowledged], slot).is_none() => {
                    continue;
                }
                DataMode::Writeback => acknowledged..versions.len(),
                _ => version..versions.len(),
            };
            let later = history.written[writer].iter().filter(|(by, _)| *by > from.start);
            let later =
                later.filter(|(_, later)| is_same(later, slot) && !is_exact(setup.mode, slot));
            let later: Vec<_> = later.map(|(_, later)| &later.content[..]).collect();
            let candidates = versions[from]
                .iter()
                .map_while(|state| content_of(state, slot))
                .chain(later)
                .collect();
            check_slot(rig, slot, candidates).map_err(|why| {
                format!("writer {writer}, version {version} (acknowledged {acknowledged}): {why}")
            })?;
        }
    }
    Ok(())
}

fn recovered_version(rig: &Rig, writer: usize, versions: &[Version]) -> Result<usize, String> {
    let [a, b] = table_blocks(writer as u64).map(|at| rig.home_block(at));
    if a[..] != b[..] {
        return Err(format!("writer {writer}: its two tables differ"));
    }
    if a.iter().all(|byte| *byte == STALE) {
        return Ok(0);
    }
    let version = u64::from_le_bytes(a[..8].try_into().expect("eight bytes")) as usize;
    let expected = versions.get(version).map(|state| serialize(state, version));
    if version == 0 || expected.is_none_or(|expected| a[..TABLE as usize] != expected) {
        return Err(format!(
            "writer {writer}: its table is none that it ever wrote (version {version})"
        ));
    }
    Ok(version)
}

fn check_slot(rig: &Rig, slot: &Slot, candidates: Vec<&[u8]>) -> Result<(), String> {
    let found = rig.home_block(slot.home);
    for (at, byte) in found.iter().enumerate() {
        if !candidates.iter().any(|content| content[at] == *byte) {
            let expected: Vec<_> = candidates.iter().map(|content| content[at]).collect();
            let kind = if slot.metadata { "metadata" } else { "data" };
            return Err(format!(
                "block {} ({kind}) byte {at} is {byte:#x}, expected one of {expected:x?}",
                slot.home
            ));
        }
    }
    Ok(())
}

/// Whether a recovered block must be exactly as of the recovered version.
fn is_exact(mode: DataMode, slot: &Slot) -> bool {
    slot.metadata || matches!(mode, DataMode::Journal | DataMode::Wasteless)
}

fn content_of<'a>(state: &'a Version, slot: &Slot) -> Option<&'a [u8]> {
    state.iter().flatten().find(|other| is_same(other, slot)).map(|found| &found.content[..])
}
fn is_same(a: &Slot, b: &Slot) -> bool {
    a.home == b.home && a.born == b.born
}

/// A handle that writes the first byte of a data block, and zeros behind it.
pub async fn write_byte(engine: &Rc<Engine>, owner: u64, home: u64, byte: u8) -> TransactionId {
    write_bytes(engine, owner, home, &[byte], Base::Zero).await
}

/// A handle that overwrites a whole data block in place.
pub async fn overwrite(engine: &Rc<Engine>, owner: u64, home: u64, byte: u8) -> TransactionId {
    let bytes = vec![byte; engine.block_size().bytes()];
    write_bytes(engine, owner, home, &bytes, Base::Home).await
}

async fn write_bytes(
    engine: &Rc<Engine>,
    owner: u64,
    home: u64,
    bytes: &[u8],
    base: Base,
) -> TransactionId {
    let mut handle = engine.start(Credits(0)).await.unwrap();
    let update = FileUpdate {
        owner: Owner(owner),
        base,
        request: if base == Base::Zero { 1 } else { 1 << 20 },
        in_place: base == Base::Home,
        ..file_update(home, 0, bytes)
    };
    handle.write_file_data(update).await.unwrap();
    handle.stop()
}
