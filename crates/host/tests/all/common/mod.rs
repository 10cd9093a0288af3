//! Hosts in front of a simulated cluster, in virtual time.

pub mod watched_store;

use device::{Disk, World};
use disks::{CrashPolicy, Image, Latency, MemoryDisk};
use host::{
    CONFLICT_DIRECTORY, Destage, Host, HostError, HostJournal, HostOptions, HostRecoveryReport,
    recover,
};
use runtime::VirtualWorld;
use std::rc::Rc;
use std::time::Duration;
use store::{
    Cluster, Creator, FileId, Identity, Network, NewNode, OpenMode, SimulatedStore, Store,
    StoreError, Token,
};

pub const JOURNAL_BYTES: u64 = 16 << 20;
pub const ROOT: Creator = Creator { uid: 0, gid: 0, umask: 0 };

#[derive(Clone)]
pub struct Stage {
    pub world: VirtualWorld,
    pub cluster: Cluster,
}

/// Destages only what the journal has no space for.
pub fn under_pressure() -> HostOptions {
    HostOptions { destage: Destage::UnderPressure, ..HostOptions::default() }
}

/// Writes back and destages within seconds.
pub fn soon() -> HostOptions {
    let (destage, writeback) = (Destage::After(Duration::from_secs(2)), Duration::from_secs(1));
    HostOptions { destage, writeback, ..HostOptions::default() }
}

pub fn identity() -> Identity {
    Identity("host-1".into())
}

impl Stage {
    pub fn new(seed: u64) -> Stage {
        Stage::with(seed, Network::default())
    }
    pub fn with(seed: u64, network: Network) -> Stage {
        let world = VirtualWorld::new(seed);
        let cluster = Cluster::new(Rc::new(world.clone()), network, Vec::new(), 1);
        Stage { world, cluster }
    }
    /// Returns a stage and a journal device that was formatted for its cluster.
    pub fn formatted_disk(seed: u64) -> (Stage, MemoryDisk) {
        let stage = Stage::new(seed);
        let disk = stage.disk(stage.formatted());
        (stage, disk)
    }
    /// Creates three data servers that all keep each byte, each with a journal on its own disk.
    pub fn with_data_servers(seed: u64, network: Network) -> Stage {
        let world = VirtualWorld::new(seed);
        let disks = (0..3).map(|_| -> Rc<dyn Disk> {
            let disk = MemoryDisk::new(Rc::new(world.clone()), 1 << 20);
            disk.set_latency(Latency {
                least: Duration::from_micros(500),
                spread: Duration::from_millis(2),
            });
            Rc::new(disk)
        });
        let cluster = Cluster::new(Rc::new(world.clone()), network, disks.collect(), 3);
        Stage { world, cluster }
    }
    pub fn world(&self) -> Rc<dyn World> {
        Rc::new(self.world.clone())
    }
    pub fn disk(&self, image: Image) -> MemoryDisk {
        MemoryDisk::from_image(self.world(), image)
    }
    /// Returns a journal device that was formatted for this cluster.
    pub fn formatted(&self) -> Image {
        self.formatted_with(JOURNAL_BYTES)
    }
    pub fn formatted_with(&self, bytes: u64) -> Image {
        self.formatted_for(identity(), "simulated cluster", bytes)
    }
    pub fn formatted_for(&self, name: Identity, store: &str, bytes: u64) -> Image {
        let store = store.to_owned();
        let disk = self.disk(Image::new(bytes));
        let (world, inner) = (self.world(), disk.clone());
        let made = self.world.run(async move {
            HostJournal::format(&*world, Rc::new(inner), name, &store).await.map(drop)
        });
        made.unwrap();
        disk.crash(CrashPolicy::LoseAll)
    }
    pub fn connect(&self) -> Rc<dyn Store> {
        self.connect_as(identity())
    }
    pub fn connect_as(&self, name: Identity) -> Rc<dyn Store> {
        Rc::new(SimulatedStore::connect(&self.cluster, name))
    }
    pub fn peer(&self) -> Rc<dyn Store> {
        self.connect_as(Identity("peer".into()))
    }

    /// Recovers and starts the host again.
    pub fn begin(
        &self,
        disk: &MemoryDisk,
        options: HostOptions,
    ) -> impl Future<Output = Result<(Rc<Host>, HostRecoveryReport), HostError>> + 'static {
        begin_host(self.world(), self.connect(), disk.clone(), options)
    }
    /// Recovers, starts the host again and runs `work` with it, until that ends.
    pub fn play<T: 'static>(
        &self,
        disk: &MemoryDisk,
        options: HostOptions,
        work: impl AsyncFnOnce(Rc<Host>, Stage) -> T + 'static,
    ) -> T {
        let (begun, stage) = (self.begin(disk, options), self.clone());
        self.world.run(async move { work(begun.await.unwrap().0, stage).await })
    }
    /// Recovers and starts the host again. Returns the report of its recovery.
    pub fn recovered(&self, disk: &MemoryDisk, options: HostOptions) -> HostRecoveryReport {
        let begun = self.begin(disk, options);
        self.world.run(async move { begun.await.unwrap().1 })
    }
    pub async fn sleep(&self, time: Duration) {
        sleep(&self.world, time).await;
    }
    /// Cuts the power of the host's machine. Returns what its journal disk holds afterwards.
    pub fn crash(&self, disk: &MemoryDisk, policy: CrashPolicy) -> Image {
        self.cluster.kill(&identity());
        self.world.end();
        disk.crash(policy)
    }
    /// Returns every conflict file of a file.
    pub fn set_aside(&self, file: FileId) -> Vec<Vec<u8>> {
        let lookups = Rc::new(SimulatedStore::connect(&self.cluster, Identity("judge".into())));
        let entries = self.world.run(async move {
            let directory =
                match lookups.lookup(lookups.root(), CONFLICT_DIRECTORY.as_bytes()).await {
                    Ok(found) => found.file,
                    Err(_) => return Vec::new(),
                };
            lookups.list(directory, 0).await.unwrap().entries
        });
        let prefix = format!("{}-", file.0);
        let is_of_it =
            |name: &[u8]| name.starts_with(prefix.as_bytes()) && !name.ends_with(b".txt");
        let found = entries.into_iter().filter(|entry| is_of_it(&entry.name));
        found.map(|entry| self.content(entry.file)).collect()
    }
    /// Returns the content that the servers have.
    pub fn content(&self, file: FileId) -> Vec<u8> {
        let (mut data, version) = self.cluster.content(file).expect("a file");
        data.resize(version.size as usize, 0);
        data
    }
}

/// Recovers a host, and starts it.
pub async fn begin_host(
    world: Rc<dyn World>,
    store: Rc<dyn Store>,
    disk: MemoryDisk,
    options: HostOptions,
) -> Result<(Rc<Host>, HostRecoveryReport), HostError> {
    let journal = HostJournal::open(Rc::new(disk) as Rc<dyn Disk>).await?;
    let report = recover(&*world, &*store, &journal, false).await?;
    Ok((Host::open(world, store, &journal, options).await?, report))
}

/// Starts a host with a journal of its own on a fresh disk.
pub async fn fresh_host(
    world: Rc<dyn World>,
    store: Rc<dyn Store>,
    disk: Rc<dyn Disk>,
    options: HostOptions,
) -> Rc<Host> {
    let (name, of) = (store.identity(), store.name());
    HostJournal::format(&*world, disk.clone(), name, of).await.unwrap();
    let journal = HostJournal::open(disk).await.unwrap();
    recover(&*world, &*store, &journal, false).await.unwrap();
    Host::open(world, store, &journal, options).await.unwrap()
}

/// Creates a file that is open, and whose first write needs no request.
pub async fn make(host: &Host, name: &str) -> FileId {
    host.create(host.root(), name.as_bytes(), 0o644, ROOT).await.unwrap().file
}
/// Creates a file and opens it later: its first write asks for the token.
pub async fn make_then_open(host: &Host, name: &str) -> FileId {
    let node = NewNode::Regular { mode: 0o644 };
    let file = host.make(host.root(), name.as_bytes(), node, ROOT).await.unwrap().file;
    host.open_file(file).await.unwrap();
    file
}

/// Writes as an ordinary client does, with the token, and starts again if the connection is lost.
pub async fn peer_writes(peer: &dyn Store, file: FileId, at: u64, bytes: &[u8]) {
    again(peer, || async {
        let open = peer.open(file, OpenMode::ReadWrite).await?;
        peer.take_token(open, Token::ExclusiveWrite).await?;
        peer.write(open, at, bytes).await?;
        peer.return_token(file).await?;
        peer.close(open).await
    })
    .await
}

pub async fn peer_reads(peer: &dyn Store, file: FileId) -> Vec<u8> {
    again(peer, || async {
        let open = peer.open(file, OpenMode::Read).await?;
        peer.take_token(open, Token::SharedRead).await?;
        let bytes = peer.read(open, 0, 1 << 20).await?;
        peer.return_token(file).await?;
        peer.close(open).await?;
        Ok(bytes)
    })
    .await
}

/// Repeats the work until it succeeds on one connection.
pub async fn again<T>(peer: &dyn Store, work: impl AsyncFn() -> Result<T, StoreError>) -> T {
    loop {
        match work().await {
            Err(error) if error.is_lost() => while peer.reconnect().await.is_err() {},
            result => return result.unwrap(),
        }
    }
}

pub async fn sleep(world: &dyn World, time: Duration) {
    world.sleep_until(world.now().plus(time)).await;
}
