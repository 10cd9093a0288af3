//! Hosts in front of a simulated cluster, in virtual time.

use device::{Disk, World};
use disks::{CrashPolicy, Image, MemoryDisk};
use host::{Host, HostError, HostJournal, HostOptions, HostRecoveryReport, recover};
use runtime::VirtualWorld;
use std::rc::Rc;
use std::time::Duration;
use store::{Cluster, Creator, FileId, Identity, Network, NewNode, OpenMode, SimulatedStore, Store, Token};

pub const JOURNAL_BYTES: u64 = 16 << 20;
pub const ROOT: Creator = Creator { uid: 0, gid: 0 };

pub struct Stage {
    pub world: VirtualWorld,
    pub cluster: Cluster,
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
    pub fn world(&self) -> Rc<dyn World> {
        Rc::new(self.world.clone())
    }
    pub fn disk(&self, image: Image) -> MemoryDisk {
        MemoryDisk::from_image(self.world(), image)
    }
    /// A journal device that was formatted for this cluster.
    pub fn formatted(&self) -> Image {
        self.formatted_with(JOURNAL_BYTES)
    }
    pub fn formatted_with(&self, bytes: u64) -> Image {
        let disk = self.disk(Image::new(bytes));
        let (world, inner) = (self.world(), disk.clone());
        let made = self.world.run(async move {
            HostJournal::format(&*world, Rc::new(inner), identity(), "simulated cluster").await.map(drop)
        });
        made.unwrap();
        disk.crash(CrashPolicy::LoseAll)
    }
    pub fn connect(&self) -> Rc<dyn Store> {
        Rc::new(SimulatedStore::connect(&self.cluster, identity()))
    }
    pub fn peer(&self) -> Rc<dyn Store> {
        Rc::new(SimulatedStore::connect(&self.cluster, Identity("peer".into())))
    }

    /// The next life: recovery, and the host.
    pub fn begin(
        &self,
        disk: &MemoryDisk,
        options: HostOptions,
    ) -> impl Future<Output = Result<(Rc<Host>, HostRecoveryReport), HostError>> + 'static {
        let (world, store, disk) = (self.world(), self.connect(), disk.clone());
        async move {
            let journal = HostJournal::open(Rc::new(disk) as Rc<dyn Disk>).await?;
            let report = recover(&*world, &*store, &journal, false).await?;
            Ok((Host::open(world, store, &journal, options).await?, report))
        }
    }
    /// The host's machine loses its power: what its journal disk holds afterwards.
    pub fn crash(&self, disk: &MemoryDisk, policy: CrashPolicy) -> Image {
        self.cluster.kill(&identity());
        self.world.end();
        disk.crash(policy)
    }
    /// As the servers have it.
    pub fn content(&self, file: FileId) -> Vec<u8> {
        let (mut data, version) = self.cluster.content(file).expect("a file");
        data.resize(version.size as usize, 0);
        data
    }
}

/// A new file that is open, and whose first write needs no question.
pub async fn make(host: &Host, name: &str) -> FileId {
    host.create(host.root(), name.as_bytes(), 0o644, ROOT).await.unwrap().file
}
/// One that is opened later: its first write asks for the token.
pub async fn make_then_open(host: &Host, name: &str) -> FileId {
    let node = NewNode::Regular { mode: 0o644 };
    let file = host.make(host.root(), name.as_bytes(), node, ROOT).await.unwrap().file;
    host.open_file(file).await.unwrap();
    file
}

/// A peer writes, as an ordinary client does: with the token.
pub async fn peer_writes(peer: &dyn Store, file: FileId, at: u64, bytes: &[u8]) {
    let open = peer.open(file, OpenMode::ReadWrite).await.unwrap();
    peer.take_token(open, Token::ExclusiveWrite).await.unwrap();
    peer.write(open, at, bytes).await.unwrap();
    peer.return_token(file).await.unwrap();
    peer.close(open).await.unwrap();
}

pub async fn peer_reads(peer: &dyn Store, file: FileId) -> Vec<u8> {
    let open = peer.open(file, OpenMode::Read).await.unwrap();
    peer.take_token(open, Token::SharedRead).await.unwrap();
    let bytes = peer.read(open, 0, 1 << 20).await.unwrap();
    peer.return_token(file).await.unwrap();
    peer.close(open).await.unwrap();
    bytes
}

pub async fn sleep(world: &dyn World, time: Duration) {
    world.sleep_until(world.now().plus(time)).await;
}
