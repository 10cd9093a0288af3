//! Files of a simulated cluster, as a client sees them: one that buffers in memory, or one with a
//! journal on its host.
//!
//! There is one client, so it need not ask the servers for its own writes: reads of those are
//! answered from its memory.

mod disk_watches;

use self::disk_watches::{Meter, Power};
use crate::virtual_time::error::StageError;
use crate::virtual_time::options::{DiskChoice, StageOptions};
use crate::virtual_time::virtual_files::run_tasks;
use device::{Disk, World};
use disks::{Raid0, Watched};
use emulated::{CacheMode, EmulatedDisk};
use engine::DataMode;
use host::{Destage, Durable, Host, HostJournal, HostOptions, HostRecoveryReport};
use runtime::VirtualWorld;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::io;
use std::rc::Rc;
use std::time::Duration;
use store::{
    Cluster, Creator, FileId, Identity, MetadataTimes, Network, NewNode, OpenFile, OpenMode,
    ServerDisks, SimulatedStore, Store, Token,
};
use units::Instant;
use workloads::{Actor, Files, SyncKind};

const NAME: &str = "simulated cluster";
const CLIENT: &str = "client";
const OWNER: Creator = Creator { uid: 0, gid: 0, umask: 0 };
const FILE_MODE: u32 = 0o644;
const PAGE: u64 = 4096;
const PIECE: usize = store::TRANSFER_BYTES_MAX;

/// Buffer of the client for writes.
#[derive(Clone, Copy, Debug)]
pub enum SharedClient {
    /// Kept in memory: every `writeback`, files that are dirty for longer than `expire` go to the
    /// servers.
    Cached { writeback: Duration, expire: Duration },
    /// Nowhere: each write is at the servers when it returns.
    Synchronous,
    /// Kept in a journal of the host: asynchronous writes within `flush`. Every `writeback`, files
    /// that are dirty for longer than `destage` go to the servers; without `destage`, under
    /// pressure alone.
    Journaled { flush: Duration, writeback: Duration, destage: Option<Duration> },
}

#[derive(Clone, Debug)]
pub struct SharedOptions {
    pub client: SharedClient,
    pub servers: u32,
    /// Latency of each link, one way.
    pub latency: Duration,
    pub bytes_per_second: u64,
    /// Interval at which a server's file system writes content to its final address.
    pub home_every: Duration,
    /// Processor time of each write.
    pub processor: Duration,
    /// Processor time of each message at the metadata server.
    pub metadata: MetadataTimes,
    /// Numbers of the model of all disks that are changed.
    pub changes: Vec<emulated::ModelChange>,
    pub seed: u64,
}

/// A cluster and its one client.
pub struct SharedStage {
    world: VirtualWorld,
    cluster: Cluster,
    journals: Vec<Meter>,
    homes: Vec<Meter>,
    files: SharedFiles,
    /// The disk of the client's journal, and the client's power.
    own_journal: Rc<dyn Disk>,
    power: Power,
    begun: Cell<Counted>,
}

/// Counts of a stage up to a time.
#[derive(Clone, Copy, Default)]
struct Counted {
    at: Instant,
    received: u64,
    sent: u64,
    /// Busy times of all data servers' disks together.
    journals: Duration,
    homes: Duration,
}

impl SharedStage {
    pub fn build(options: &SharedOptions) -> Result<SharedStage, StageError> {
        let world = VirtualWorld::new(options.seed);
        let shared: Rc<dyn World> = Rc::new(world.clone());
        let of_paper = StageOptions::of_paper(DataMode::Wasteless).home;
        let choice = DiskChoice { changes: options.changes.clone(), ..of_paper };
        let model = DiskChoice::find_model(&choice)?;
        let drive = |size: u64, cache| -> Rc<dyn Disk> {
            let own = emulated::DriveOptions {
                cache,
                size: Some(size),
                ..emulated::DriveOptions::default()
            };
            Rc::new(EmulatedDisk::new(shared.clone(), model.clone(), own))
        };
        let (mut journals, mut homes) = (Vec::new(), Vec::new());
        let servers: Vec<ServerDisks> = (0..options.servers)
            .map(|_| {
                let watched = |size, meters: &mut Vec<Meter>| {
                    let watch = Meter::of(&world);
                    meters.push(watch.clone());
                    Rc::new(Watched { disk: drive(size, CacheMode::On), watch })
                };
                ServerDisks {
                    journal: watched(256 << 20, &mut journals),
                    home: watched(8 << 30, &mut homes),
                    home_every: options.home_every,
                }
            })
            .collect();
        let network = Network {
            latency: options.latency,
            bytes_per_second: options.bytes_per_second,
            lease: Duration::from_secs(3600),
            metadata: options.metadata,
            ..Network::default()
        };
        let cluster = Cluster::with_homes(shared.clone(), network, &servers, servers.len());
        let identity = Identity(CLIENT.into());
        let store: Rc<dyn Store> = Rc::new(match options.client {
            SharedClient::Journaled { .. } => SimulatedStore::connect(&cluster, identity.clone()),
            _ => SimulatedStore::connect_as_kernel(&cluster, identity.clone()),
        });
        // Two drives in RAID-0 without their write caches, as the paper's host had.
        let own_journal: Rc<dyn Disk> = Raid0::of(
            vec![drive(1 << 30, CacheMode::Off), drive(1 << 30, CacheMode::Off)],
            64 << 10,
        );
        let power = Power::default();
        let (client, processor) = (options.client, options.processor);
        let side = match client {
            SharedClient::Journaled { flush, writeback, destage } => {
                let (store, clock) = (store.clone(), shared.clone());
                let disk = Rc::new(Watched { disk: own_journal.clone(), watch: power.clone() });
                let host = world.run(async move {
                    let journal = HostJournal::format(&*clock, disk, identity, NAME).await?;
                    let options = HostOptions {
                        journal_flush: flush,
                        destage: destage.map_or(Destage::UnderPressure, Destage::After),
                        writeback,
                        ..HostOptions::default()
                    };
                    Host::open(clock, store, &journal, options).await
                });
                Side::Journaled(
                    host.map_err(|error| StageError::Make(io::Error::other(error.to_string())))?,
                )
            }
            client => Side::Cached(Rc::new(Cached {
                world: world.clone(),
                store: store.clone(),
                files: RefCell::default(),
                is_synchronous: matches!(client, SharedClient::Synchronous),
            })),
        };
        if let (SharedClient::Cached { writeback, expire }, Side::Cached(cached)) = (client, &side)
        {
            let cached = cached.clone();
            world.spawn(Box::pin(async move { cached.write_back(writeback, expire).await }));
        }
        let files = SharedFiles(Rc::new(State {
            world: world.clone(),
            cluster: cluster.clone(),
            store,
            side,
            processor,
            names: RefCell::default(),
            sizes: RefCell::default(),
            cold: RefCell::default(),
        }));
        let begun = Cell::default();
        Ok(SharedStage { world, cluster, journals, homes, files, own_journal, power, begun })
    }

    pub fn run<T: 'static, W: Future<Output = T> + 'static>(
        &self,
        workload: impl FnOnce(SharedFiles) -> W,
    ) -> T {
        self.world.run(workload(self.files.clone()))
    }
    pub fn world(&self) -> &VirtualWorld {
        &self.world
    }
    fn counted(&self) -> Counted {
        let traffic = self.cluster.traffic();
        let busy = |meters: &[Meter]| meters.iter().map(Meter::total).sum();
        Counted {
            at: self.world.now(),
            received: traffic.data_bytes,
            sent: traffic.sent_bytes,
            journals: busy(&self.journals),
            homes: busy(&self.homes),
        }
    }
    pub fn restart_counting(&self) {
        self.begun.set(self.counted());
    }
    /// Returns bytes received by one data server.
    pub fn received_bytes(&self) -> u64 {
        (self.counted().received - self.begun.get().received) / self.homes.len() as u64
    }
    /// Returns bytes sent by one data server.
    pub fn sent_bytes(&self) -> u64 {
        (self.counted().sent - self.begun.get().sent) / self.homes.len() as u64
    }
    /// Returns the share of the time in which the disk of a server's journal was busy, and that of
    /// its file system's disk.
    pub fn disk_use(&self) -> (f64, f64) {
        let (before, now) = (self.begun.get(), self.counted());
        let time = now.at.since(before.at).as_secs_f64() * self.homes.len() as f64;
        let share = |busy: Duration| busy.as_secs_f64() / time.max(1e-9);
        (share(now.journals - before.journals), share(now.homes - before.homes))
    }

    /// Crashes the client after `time` of a workload, starts it again, and recovers its journal.
    /// Returns what that took, from the first look at the journal on, and what was found there.
    /// `None`: the workload had ended.
    ///
    /// # Errors
    ///
    /// The journal cannot be recovered.
    pub fn crash_after<T, W: Future<Output = T> + 'static>(
        &self,
        time: Duration,
        workload: impl FnOnce(SharedFiles) -> W,
    ) -> Result<Option<(Duration, HostRecoveryReport)>, StageError> {
        let (world, workload) = (self.world.clone(), workload(self.files.clone()));
        let runs_still = self.world.run(async move {
            let crash = world.sleep_until(world.now().plus(time));
            matches!(runtime::race(workload, crash).await, runtime::Either::Right(()))
        });
        if !runs_still {
            return Ok(None);
        }
        let identity = Identity(CLIENT.into());
        self.power.cut();
        self.cluster.kill(&identity);
        let (world, disk) = (self.world.clone(), self.own_journal.clone());
        let store = SimulatedStore::connect(&self.cluster, identity);
        let recovered = self.world.run(async move {
            let begun = world.now();
            let journal = HostJournal::open(disk).await?;
            let report = host::recover(&world, &store, &journal, false).await?;
            Ok::<_, host::HostError>((world.now().since(begun), report))
        });
        let recovered =
            recovered.map_err(|error| StageError::Make(io::Error::other(error.to_string())))?;
        Ok(Some(recovered))
    }
}

impl Drop for SharedStage {
    /// Breaks a cycle: the world's tasks hold the world.
    fn drop(&mut self) {
        self.world.end();
    }
}

/// Files of the cluster, shared by clones.
#[derive(Clone)]
pub struct SharedFiles(Rc<State>);

struct State {
    world: VirtualWorld,
    cluster: Cluster,
    store: Rc<dyn Store>,
    side: Side,
    processor: Duration,
    names: RefCell<BTreeMap<String, FileId>>,
    sizes: RefCell<BTreeMap<FileId, u64>>,
    /// Unread pages of files that existed before the client.
    cold: RefCell<BTreeMap<FileId, BTreeSet<u64>>>,
}

enum Side {
    Cached(Rc<Cached>),
    Journaled(Rc<Host>),
}

/// A client that keeps what is written in memory.
struct Cached {
    world: VirtualWorld,
    store: Rc<dyn Store>,
    files: RefCell<BTreeMap<FileId, Held>>,
    is_synchronous: bool,
}

#[derive(Clone, Copy)]
struct Held {
    open: OpenFile,
    dirty_since: Option<Instant>,
    dirty_bytes: u64,
}

pub struct SharedFile {
    id: FileId,
    end: u64,
    sync: SyncKind,
}

impl Cached {
    /// Creates a file. Ceph's reply comes with everything that its first write needs.
    async fn create(&self, parent: FileId, name: &[u8]) -> io::Result<FileId> {
        let created = self.store.create(parent, name, FILE_MODE, OWNER).await.map_err(of_store)?;
        let file = created.found.file;
        if let (Some(open), true) = (created.open, created.is_held) {
            self.files.borrow_mut().insert(file, Held { open, dirty_since: None, dirty_bytes: 0 });
        }
        Ok(file)
    }
    async fn write(&self, file: FileId, at: u64, bytes: &[u8]) -> io::Result<()> {
        let held = self.files.borrow().get(&file).copied();
        let open = match held {
            Some(held) => held.open,
            None => {
                let open = self.store.open(file, OpenMode::ReadWrite).await.map_err(of_store)?;
                self.store.take_token(open, Token::ExclusiveWrite).await.map_err(of_store)?;
                let fresh = Held { open, dirty_since: None, dirty_bytes: 0 };
                self.files.borrow_mut().insert(file, fresh);
                open
            }
        };
        self.store.write(open, at, bytes).await.map_err(of_store)?;
        if let Some(held) = self.files.borrow_mut().get_mut(&file) {
            held.dirty_since.get_or_insert(self.world.now());
            held.dirty_bytes += bytes.len() as u64;
        }
        match self.is_synchronous {
            true => self.sync(file).await,
            false => Ok(()),
        }
    }
    async fn sync(&self, file: FileId) -> io::Result<()> {
        let open = match self.files.borrow_mut().get_mut(&file) {
            Some(held) => {
                (held.dirty_since, held.dirty_bytes) = (None, 0);
                held.open
            }
            None => return Ok(()),
        };
        self.store.make_durable(open).await.map_err(of_store)
    }
    async fn drop_file(&self, file: FileId) -> io::Result<()> {
        let Some(held) = self.files.borrow_mut().remove(&file) else { return Ok(()) };
        self.store.close(held.open).await.map_err(of_store)?;
        // Linux's client waits for no server here.
        let returned = self.store.return_token(file);
        self.world.spawn(Box::pin(async move {
            let _ = returned.await;
        }));
        Ok(())
    }
    async fn write_back(self: Rc<Self>, every: Duration, expire: Duration) {
        loop {
            self.world.sleep_until(self.world.now().plus(every)).await;
            let now = self.world.now();
            let is_old =
                |held: &Held| held.dirty_since.is_some_and(|since| now.since(since) >= expire);
            let old: Vec<FileId> = self
                .files
                .borrow()
                .iter()
                .filter(|(_, held)| is_old(held))
                .map(|(file, _)| *file)
                .collect();
            for file in old {
                // The simulated servers do not fail here.
                let _ = self.sync(file).await;
            }
        }
    }
}

fn of_store(error: store::StoreError) -> io::Error {
    io::Error::from_raw_os_error(error.errno())
}
fn of_host(error: host::HostError) -> io::Error {
    io::Error::from_raw_os_error(error.errno())
}

impl SharedFiles {
    /// Returns the bytes of file data that only the client's memory has.
    pub fn volatile_bytes(&self) -> u64 {
        match &self.0.side {
            Side::Cached(cached) => {
                cached.files.borrow().values().map(|held| held.dirty_bytes).sum()
            }
            Side::Journaled(host) => host.statistics().dirty_in_memory,
        }
    }
    /// Makes a file that existed before, with content that neither the client nor the servers have
    /// in memory.
    pub async fn create_cold(&self, path: &str, size: u64) -> io::Result<SharedFile> {
        let mut file = self.create(path, SyncKind::None).await?;
        file.end = size;
        self.0.sizes.borrow_mut().insert(file.id, size);
        self.0.cold.borrow_mut().insert(file.id, (0..size.div_ceil(PAGE)).collect());
        Ok(file)
    }

    fn find(&self, path: &str) -> io::Result<FileId> {
        let found = self.0.names.borrow().get(path).copied();
        found.ok_or(io::ErrorKind::NotFound.into())
    }
    fn parent<'a>(&self, path: &'a str) -> io::Result<(FileId, &'a [u8])> {
        match path.rsplit_once('/') {
            Some((parent, name)) => Ok((self.find(parent)?, name.as_bytes())),
            None => Ok((self.0.store.root(), path.as_bytes())),
        }
    }

    /// Fetches the rest of a partial page, as a kernel's page cache does. A client that keeps bytes
    /// does not.
    async fn fetch_partial_pages(&self, file: FileId, at: u64, end: u64) {
        let edges = [(at / PAGE, at % PAGE != 0), (end / PAGE, end % PAGE != 0)];
        for (page, is_partial) in edges {
            let is_cold =
                self.0.cold.borrow_mut().get_mut(&file).is_some_and(|pages| pages.remove(&page));
            if is_partial && is_cold {
                self.0.cluster.read_cold(file, page * PAGE).await;
            }
        }
        if let Some(pages) = self.0.cold.borrow_mut().get_mut(&file) {
            (at.div_ceil(PAGE)..end / PAGE).for_each(|page| {
                pages.remove(&page);
            });
        }
    }
}

impl Files for SharedFiles {
    type File = SharedFile;

    fn now(&self) -> Instant {
        self.0.world.now()
    }
    async fn sleep_until(&self, at: Instant) {
        self.0.world.sleep_until(at).await;
    }
    async fn create(&self, path: &str, sync: SyncKind) -> io::Result<SharedFile> {
        let (parent, name) = self.parent(path)?;
        let id = match &self.0.side {
            Side::Cached(cached) => cached.create(parent, name).await?,
            Side::Journaled(host) => {
                host.create(parent, name, FILE_MODE, OWNER).await.map_err(of_host)?.file
            }
        };
        self.0.names.borrow_mut().insert(path.into(), id);
        self.0.sizes.borrow_mut().insert(id, 0);
        Ok(SharedFile { id, end: 0, sync })
    }
    async fn open(&self, path: &str, sync: SyncKind) -> io::Result<SharedFile> {
        let id = self.find(path)?;
        if let Side::Journaled(host) = &self.0.side {
            host.open_file(id).await.map_err(of_host)?;
        }
        let end = self.0.sizes.borrow().get(&id).copied().unwrap_or(0);
        Ok(SharedFile { id, end, sync })
    }
    async fn close(&self, file: SharedFile) {
        if let Side::Journaled(host) = &self.0.side {
            // The next sync reports a failure.
            let _ = host.close_file(file.id).await;
        }
    }
    async fn append(&self, file: &mut SharedFile, bytes: &[u8]) -> io::Result<()> {
        self.write_at(file, file.end, bytes).await
    }
    async fn write_at(&self, file: &mut SharedFile, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let state = &*self.0;
        if !state.processor.is_zero() {
            state.world.sleep_until(state.world.now().plus(state.processor)).await;
        }
        let end = offset + bytes.len() as u64;
        let mut at = offset;
        for piece in bytes.chunks(PIECE) {
            match &state.side {
                Side::Cached(cached) => {
                    self.fetch_partial_pages(file.id, at, at + piece.len() as u64).await;
                    cached.write(file.id, at, piece).await?;
                }
                Side::Journaled(host) => {
                    let durable =
                        if file.sync == SyncKind::OSync { Durable::Now } else { Durable::Soon };
                    host.write(file.id, at, piece, durable).await.map_err(of_host)?;
                }
            }
            at += piece.len() as u64;
        }
        file.end = file.end.max(end);
        let size = state.sizes.borrow().get(&file.id).copied().unwrap_or(0);
        state.sizes.borrow_mut().insert(file.id, size.max(end));
        match (file.sync, &state.side) {
            (SyncKind::None, _) | (SyncKind::OSync, Side::Journaled(_)) => Ok(()),
            _ => self.sync(file).await,
        }
    }
    async fn read_at(&self, file: &SharedFile, offset: u64, bytes: &mut [u8]) -> io::Result<usize> {
        let size = self.0.sizes.borrow().get(&file.id).copied().unwrap_or(0);
        let count = size.saturating_sub(offset).min(bytes.len() as u64) as usize;
        bytes[..count].fill(0);
        Ok(count)
    }
    async fn sync(&self, file: &SharedFile) -> io::Result<()> {
        match &self.0.side {
            Side::Cached(cached) => cached.sync(file.id).await,
            Side::Journaled(host) => host.sync_file(file.id).await.map_err(of_host),
        }
    }
    async fn length(&self, path: &str) -> io::Result<u64> {
        Ok(self.0.sizes.borrow().get(&self.find(path)?).copied().unwrap_or(0))
    }
    async fn unlink(&self, path: &str) -> io::Result<()> {
        let (parent, name) = self.parent(path)?;
        let file = self.find(path)?;
        match &self.0.side {
            Side::Cached(cached) => {
                self.0.store.unlink(parent, name).await.map_err(of_store)?;
                cached.drop_file(file).await?;
            }
            Side::Journaled(host) => host.unlink(parent, name).await.map_err(of_host)?,
        }
        self.0.names.borrow_mut().remove(path);
        self.0.sizes.borrow_mut().remove(&file);
        Ok(())
    }
    async fn make_directory(&self, path: &str) -> io::Result<()> {
        let (parent, name) = self.parent(path)?;
        let node = NewNode::Directory { mode: 0o755 };
        let made = match &self.0.side {
            Side::Cached(_) => {
                self.0.store.make(parent, name, node, OWNER).await.map_err(of_store)?
            }
            Side::Journaled(host) => host.make(parent, name, node, OWNER).await.map_err(of_host)?,
        };
        self.0.names.borrow_mut().insert(path.into(), made.file);
        Ok(())
    }
    async fn run_actors<A: Actor<Self>>(
        &self,
        actors: Vec<A>,
        watch: impl FnMut(),
    ) -> io::Result<Vec<A::Output>> {
        run_tasks(&self.0.world, self, None, actors, watch).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn options(client: SharedClient) -> SharedOptions {
        SharedOptions {
            client,
            servers: 3,
            latency: Duration::from_micros(100),
            bytes_per_second: 125_000_000,
            home_every: SECOND,
            processor: Duration::ZERO,
            metadata: MetadataTimes::default(),
            changes: Vec::new(),
            seed: 1,
        }
    }

    #[test]
    fn a_stage_that_is_gone_leaves_nothing_in_memory() {
        let clients = [
            SharedClient::Cached { writeback: SECOND, expire: SECOND },
            SharedClient::Synchronous,
            SharedClient::Journaled {
                flush: SECOND,
                writeback: SECOND / 12,
                destage: Some(SECOND),
            },
        ];
        for client in clients {
            let stage = SharedStage::build(&options(client));
            let stage = stage.unwrap();
            stage
                .run(|files| async move {
                    let mut file = files.create("file", SyncKind::Fsync).await?;
                    files.append(&mut file, &[7; 10_000]).await
                })
                .unwrap();
            let store = Rc::downgrade(&stage.files.0.store);
            drop(stage);
            assert!(store.upgrade().is_none(), "{client:?}");
        }
    }

    #[test]
    fn recovery_destages_the_journal_of_a_crashed_client() {
        let client = SharedClient::Journaled {
            flush: SECOND,
            writeback: 60 * SECOND,
            destage: Some(60 * SECOND),
        };
        let stage = SharedStage::build(&options(client)).unwrap();
        let crashed = stage.crash_after(10 * SECOND, |files| async move {
            let mut file = files.create("file", SyncKind::OSync).await.unwrap();
            loop {
                files.append(&mut file, &[7; 10_000]).await.unwrap();
                files.sleep_until(files.now().plus(SECOND)).await;
            }
        });
        let (time, report) = crashed.unwrap().expect("its work has no end");
        assert!(time > Duration::ZERO && report.files.len() == 1, "{time:?} {report:?}");
        let (content, version) = stage.cluster.content(FileId(report.files[0].file)).unwrap();
        assert_eq!((content.len() as u64, version.size), (100_000, 100_000));
        assert!(content.iter().all(|byte| *byte == 7));
    }
}
