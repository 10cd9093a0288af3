//! Crashes of the host, of a server and of the network at every message of small scripts; crashes
//! of the host also at every write of its journal.
//!
//! After each crash, what was promised is at the store or set aside. What was never written is
//! nowhere, and a file has a state that it had. Where the store writes content back by itself,
//! unpromised bytes may be there in part. Recovery is cut, too, and begun again. A front end's
//! kernel caches nothing when a peer may change the file.
//!
//! Each recovered host goes on: it writes, syncs, and crashes a second time. The store may be full
//! at the first crash, and at the recovery.
//!
//! A peer may be cut off, too, and begins again. If the host is cut off, the peer has the file
//! after the lease, and may see a state before the promised one. If it writes, the host's bytes are
//! set aside, and nothing overwrites the peer's.

use crate::common::*;
use device::World;
use disks::{CrashPolicy, Image, MemoryDisk};
use host::{Durable, FileFate, Host, HostError};
use runtime::{Either, race};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::OnceLock;
use std::time::Duration;
use store::{
    AttributeChange, Cut, CutKind, FileAttributes, FileId, Moment, Network, OpenMode, Store, Token,
};
use units::Instant;

#[derive(Clone, Copy, Debug)]
enum Step {
    /// File, offset, length; the byte is the step's number.
    Write(usize, usize, usize, Durable),
    Sync(usize),
    /// Truncates to this length.
    Cut(usize, u64),
    PeerReads(usize),
    /// Writes one byte at the beginning of the file.
    PeerWrites(usize),
    /// Writes the byte while a front end's kernel keeps looking the file up.
    PeerWritesUnderLookups(usize),
    /// Adds another name.
    Link(usize),
    /// Removes the first name of a closed file.
    Unlink(usize),
    /// Milliseconds.
    Wait(u64),
    /// Destages everything. The last step.
    Close,
}
use Durable::{Now, Soon};
use Step::*;

const SCRIPTS: [&[Step]; 8] = [
    &[Write(0, 0, 100, Now), Write(0, 50, 100, Soon), Write(0, 5000, 10, Now), Sync(0)],
    &[Write(0, 0, 9000, Soon), Sync(0), Cut(0, 10), Write(0, 20, 5, Now), Write(1, 0, 5, Now)],
    &[
        Write(0, 0, 50, Now),
        PeerReads(0),
        Write(0, 10, 50, Now),
        PeerWrites(0),
        Write(0, 30, 9, Now),
        Sync(0),
    ],
    &[
        Write(0, 0, 50, Soon),
        Write(1, 0, 70, Now),
        Wait(3000),
        Write(0, 40, 20, Now),
        Wait(3000),
        PeerWrites(1),
    ],
    &[
        Write(0, 0, 40, Now),
        Link(0),
        Write(0, 20, 40, Now),
        Unlink(0),
        Write(0, 50, 40, Soon),
        Sync(0),
    ],
    &[
        Write(0, 0, 50, Now),
        Write(1, 0, 70, Now),
        Write(0, 30, 40, Soon),
        Write(1, 10, 9, Soon),
        Close,
    ],
    &[
        Write(0, 0, 50, Now),
        PeerWritesUnderLookups(0),
        Write(0, 10, 50, Soon),
        PeerWritesUnderLookups(0),
    ],
    &[
        Write(0, 0, 50, Now),
        Write(0, 40, 40, Soon),
        PeerReads(0),
        Write(0, 70, 20, Now),
        Write(0, 10, 9, Soon),
        PeerWrites(0),
    ],
];

/// A destage of the first file fails, and is tried again; the second goes on.
const REFUSED: &[Step] = &[
    Write(0, 0, 50, Now),
    Write(1, 0, 70, Now),
    Wait(3000),
    Write(1, 40, 20, Now),
    Wait(6000),
    Write(1, 50, 30, Soon),
    Sync(1),
];

/// The states of a file, and the one promised last.
#[derive(Clone, Default)]
struct Model {
    states: Vec<Vec<u8>>,
    promised: usize,
    /// The byte that a peer wrote last at the beginning of the file.
    peers: Option<u8>,
    /// The state promised before that.
    before_peer: usize,
    /// Whether it was promised again after a peer wrote last.
    is_promised_behind_peer: bool,
    /// Whether a front end's kernel cached its attributes when a peer came.
    was_cached: bool,
}

type Models = Rc<RefCell<[Model; 2]>>;

/// A front end's kernel with one file: the attributes it may answer with, and until when.
#[derive(Clone, Default)]
struct Kernel(Rc<Cell<Option<(FileAttributes, Instant)>>>, Rc<Cell<u64>>);

impl Kernel {
    fn of(host: &Host) -> Kernel {
        let kernel = Kernel::default();
        let seen = kernel.clone();
        host.on_forget(Box::new(move |_| {
            seen.0.set(None);
            seen.1.set(seen.1.get() + 1);
        }));
        kernel
    }
    async fn look_up(&self, host: &Host, world: &dyn World, file: FileId) {
        let mut lookups = 0;
        loop {
            let asked = self.1.get();
            if let Ok((attributes, time)) = host.attributes_to_cache(file).await {
                if asked == self.1.get() && !time.is_zero() {
                    self.0.set(Some((attributes, world.now().plus(time))));
                }
            }
            // Often while the peer gets the file at once, but not through a whole lease.
            lookups += 1;
            sleep(world, Duration::from_micros(if lookups < 300 { 30 } else { 5000 })).await;
        }
    }
    fn cached(&self, world: &dyn World) -> Option<FileAttributes> {
        self.0.get().filter(|(_, until)| *until >= world.now()).map(|(attributes, _)| attributes)
    }
}

impl Model {
    /// Returns whether each byte is one that it had since it was promised, or was not written yet.
    fn has_parts(&self, content: &[u8]) -> bool {
        let states = &self.states[self.promised..];
        let promised = &states[0];
        let sizes = states.iter().map(Vec::len);
        let is_known = |(at, byte): (usize, &u8)| {
            let is_hole = *byte == 0 && at >= promised.len();
            is_hole || states.iter().any(|state| state.get(at) == Some(byte))
        };
        (sizes.clone().min().unwrap()..=sizes.max().unwrap()).contains(&content.len())
            && content.iter().enumerate().all(is_known)
    }
    /// Returns whether nothing promised is lost, and the peer's byte is there. Each other byte is
    /// at the store or set aside, and one that the file had since the last promise before the peer
    /// came.
    fn is_set_aside(&self, content: &[u8], aside: &[Vec<u8>]) -> bool {
        let states = &self.states[self.before_peer..];
        // Bytes of the store may also lie beyond the end of a later state.
        let is_of_a_state =
            |byte: Option<&u8>, at| states.iter().any(|state| state.get(at) == byte);
        let is_aside = |at| {
            aside.iter().any(|place| place.get(at).is_some() && is_of_a_state(place.get(at), at))
        };
        let is_cached = |at| is_of_a_state(content.get(at), at) || is_aside(at);
        content.first() == self.peers.as_ref() && (1..states[0].len()).all(is_cached)
    }
    /// Returns whether each byte is one that it ever had.
    fn had_parts(&self, content: &[u8]) -> bool {
        let is_known = |(at, byte): (usize, &u8)| {
            *byte == 0 || self.states.iter().any(|state| state.get(at) == Some(byte))
        };
        content.iter().enumerate().all(is_known)
    }
    fn change_by_peer(&mut self, byte: u8) {
        (self.peers, self.before_peer) = (Some(byte), self.promised);
        self.is_promised_behind_peer = false;
        self.change(|state| put(state, 0, &[byte]));
    }
    fn promise(&mut self) {
        self.promised = self.states.len() - 1;
        self.is_promised_behind_peer = self.peers.is_some();
    }
    fn change(&mut self, change: impl FnOnce(&mut Vec<u8>)) {
        let mut state = self.states.last().cloned().unwrap_or_default();
        change(&mut state);
        self.states.push(state);
    }
}

fn put(state: &mut Vec<u8>, at: usize, bytes: &[u8]) {
    state.resize(state.len().max(at + bytes.len()), 0);
    state[at..at + bytes.len()].copy_from_slice(bytes);
}

async fn play(
    host: Rc<Host>,
    peer: Rc<dyn Store>,
    world: Rc<dyn device::World>,
    files: [FileId; 2],
    script: &'static [Step],
    models: Models,
    keeps_connection: bool,
) -> Result<(), host::HostError> {
    let kernel = Kernel::of(&host);
    for (number, step) in (1u8..).zip(script) {
        match *step {
            Write(file, at, length, durable) => {
                let bytes = vec![number; length];
                models.borrow_mut()[file].change(|state| put(state, at, &bytes));
                host.write(files[file], at as u64, &bytes, durable).await?;
                let model = &mut models.borrow_mut()[file];
                if durable == Now {
                    model.promise();
                }
            }
            Sync(file) => {
                host.sync_file(files[file]).await?;
                models.borrow_mut()[file].promise();
            }
            Cut(file, size) => {
                models.borrow_mut()[file].change(|state| state.resize(size as usize, 0));
                let change = AttributeChange { size: Some(size), ..AttributeChange::default() };
                host.set_attributes(files[file], change).await?;
            }
            PeerReads(file) => {
                let seen = peer_reads(&*peer, files[file]).await;
                let model = &mut models.borrow_mut()[file];
                let is_last = seen == *model.states.last().unwrap();
                assert!(
                    is_last || !keeps_connection,
                    "a peer reads what was written last, not {seen:?}"
                );
                assert!(model.had_parts(&seen), "a peer reads what was never written: {seen:?}");
                if is_last {
                    model.promised = model.states.len() - 1;
                }
            }
            PeerWrites(file) => {
                models.borrow_mut()[file].change_by_peer(200 + number);
                peer_writes(&*peer, files[file], 0, &[200 + number]).await;
                let model = &mut models.borrow_mut()[file];
                model.promised = model.states.len() - 1;
            }
            PeerWritesUnderLookups(file) => {
                models.borrow_mut()[file].change_by_peer(200 + number);
                // With a token, so that there is something to cache.
                host.read(files[file], 0, 1).await?;
                let writes = async || {
                    sleep(&*world, Duration::from_micros(200)).await;
                    models.borrow_mut()[file].was_cached |= kernel.cached(&*world).is_some();
                    let open = peer.open(files[file], OpenMode::ReadWrite).await?;
                    peer.take_token(open, Token::ExclusiveWrite).await?;
                    assert_eq!(
                        kernel.cached(&*world),
                        None,
                        "kept before the write: a peer has the token"
                    );
                    peer.write(open, 0, &[200 + number]).await?;
                    assert_eq!(
                        kernel.cached(&*world),
                        None,
                        "kept after the write: a peer has the token"
                    );
                    peer.return_token(files[file]).await?;
                    peer.close(open).await
                };
                race(again(&*peer, writes), kernel.look_up(&host, &*world, files[file])).await;
                let model = &mut models.borrow_mut()[file];
                model.promised = model.states.len() - 1;
            }
            Link(file) => {
                host.link(files[file], host.root(), b"another name").await.map(drop)?;
            }
            Unlink(file) => {
                host.close_file(files[file]).await?;
                host.unlink(host.root(), if file == 0 { b"a" } else { b"b" }).await?;
                host.open_file(files[file]).await?;
            }
            Wait(time) => sleep(&*world, Duration::from_millis(time)).await,
            Close => {
                host.close().await?;
                models
                    .borrow_mut()
                    .iter_mut()
                    .for_each(|model| model.promised = model.states.len() - 1);
            }
        }
    }
    Ok(())
}

#[derive(Clone, Copy, Debug)]
enum CutAt {
    Message(Cut),
    JournalWrite(u64),
}

/// A run; if nothing is cut, with its numbers of messages and journal writes.
struct Run {
    stage: Stage,
    files: [FileId; 2],
    models: Models,
    disk: MemoryDisk,
    messages: std::ops::Range<u64>,
    journal_writes: std::ops::Range<u64>,
    content_messages: u64,
    metadata_messages: u64,
    finished: bool,
    /// Whether the store writes content back only on request.
    keeps: bool,
    /// Whether the host, or a peer, lost its connection and lived on.
    is_cut_off: bool,
}

/// The store in front of which the host runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Backend {
    /// A store that holds everything back.
    Holding,
    /// A store that the scripts outgrow: it writes back content and sizes by itself.
    Outgrown,
    /// A store with three data servers with journals on disks: concurrent messages arrive in any
    /// order.
    ThreeServers,
    /// A store that holds everything back, without space for the first file until a recovery has
    /// failed.
    Full,
}
use Backend::*;

impl Backend {
    fn stage(self, seed: u64) -> Stage {
        let notice = Duration::from_micros(seed % 3 * 60);
        let (buffer_bytes, object_bytes) = (4096, 8192);
        let outgrown = Network { buffer_bytes, object_bytes, notice, ..Network::default() };
        match self {
            Holding | Full => Stage::new(seed),
            Outgrown => Stage::with(seed, outgrown),
            ThreeServers => Stage::with_data_servers(seed, outgrown),
        }
    }
}

fn run(script: &'static [Step], seed: u64, backend: Backend, cut: Option<CutAt>) -> Run {
    let stage = backend.stage(seed + (round() << 32));
    let keeps = matches!(backend, Holding | Full);
    let disk = stage.disk(stage.formatted());
    let (host, files) = stage.play(&disk, soon(), async move |host, _| {
        let files = [make_then_open(&host, "a").await, make(&host, "b").await];
        (host, files)
    });
    let models: Models = Rc::default();
    models.borrow_mut().iter_mut().for_each(|model| model.states.push(Vec::new()));
    if backend == Full {
        stage.cluster.fill(Some(files[0]));
    }
    let (message, write) = (stage.cluster.messages(), disk.changes());
    let (content, metadata) = messages_by_server(&stage);
    let keeps_connection = !matches!(cut, Some(CutAt::Message(Cut { kind: CutKind::Network, .. })));
    match cut {
        Some(CutAt::Message(cut)) => stage.cluster.cut_at(cut),
        Some(CutAt::JournalWrite(at)) => disk.cut_at(at),
        None => {}
    }
    let played =
        play(host, stage.peer(), stage.world(), files, script, models.clone(), keeps_connection);
    let (cluster, power) = (stage.cluster.clone(), disk.clone());
    let finished = stage.world.run(async move {
        let dies = race(cluster.until_client_cut(), power.power_lost());
        match race(played, dies).await {
            runtime::Either::Left(result) => result.is_ok(),
            runtime::Either::Right(_) => false,
        }
    });
    let (messages, journal_writes) =
        (message + 1..stage.cluster.messages() + 1, write..disk.changes());
    let (all_content, all_metadata) = messages_by_server(&stage);
    let (content_messages, metadata_messages) = (all_content - content, all_metadata - metadata);
    Run {
        stage,
        files,
        models,
        disk,
        messages,
        journal_writes,
        content_messages,
        metadata_messages,
        finished,
        keeps,
        is_cut_off: !keeps_connection,
    }
}

/// Returns the messages of the data servers and of the metadata server.
fn messages_by_server(stage: &Stage) -> (u64, u64) {
    let traffic = stage.cluster.traffic();
    (traffic.content_messages, traffic.messages - traffic.content_messages)
}

impl Run {
    /// Crashes the host's machine, and lets a peer read before it recovers. Returns how many files
    /// have zeros that were never written.
    fn peer_reads_first(&self, what: &str) -> usize {
        let Run { stage, files, models, .. } = self;
        stage.cluster.kill(&identity());
        stage.world.end();
        let models = models.borrow();
        let zeros = files.iter().zip(models.iter()).filter(|(file, model)| {
            let (peer, file) = (stage.peer(), **file);
            let seen = stage.world.run(async move { peer_reads(&*peer, file).await });
            assert!(
                model.had_parts(&seen),
                "{what}: a peer reads what was never written: {seen:?}"
            );
            let had = |(at, byte): (usize, &u8)| {
                model.states.iter().any(|state| state.get(at) == Some(byte))
            };
            !seen.iter().enumerate().all(had)
        });
        zeros.count()
    }

    /// Crashes the host's machine, and recovers; with `cut_recovery` the recovery crashes at this
    /// message of its own, and is begun again.
    fn recover(
        self,
        policy: CrashPolicy,
        cut_recovery: Option<u64>,
        peer_between: bool,
        what: &str,
    ) -> Recovered {
        let Run { stage, files, models, disk, keeps, is_cut_off, .. } = self;
        let mut image = stage.crash(&disk, policy);
        stage.cluster.heal();
        stage.cluster.cancel_cut();
        if peer_between {
            let peer = stage.peer();
            let file = files[0];
            stage.world.run(async move { peer_writes(&*peer, file, 0, &[99]).await });
            models.borrow_mut()[0].change_by_peer(99);
        }
        let mut was_cut = false;
        if let Some(message) = cut_recovery {
            (image, was_cut) = recover_partly(&stage, image, policy, (message, files[1]));
        }
        if stage.cluster.is_full() {
            image = recover_without_space(&stage, image, policy, what);
        }
        let disk = stage.disk(image);
        let begun = stage.begin(&disk, soon());
        let (host, report) =
            stage.world.run(begun).unwrap_or_else(|error| panic!("{what}: {error}"));
        let mut set_aside = 0;
        for (file, model) in files.iter().zip(models.borrow().iter()) {
            let content = stage.content(*file);
            let outcome =
                report.files.iter().find(|found| found.file == file.0).map(|found| &found.outcome);
            let aside = stage.set_aside(*file);
            let is_by_peer = peer_between && *file == files[0];
            if is_by_peer || !aside.is_empty() && is_cut_off && model.peers.is_some() {
                // Nothing overwrites a change of a peer; promised bytes that are not there yet are
                // set aside. What was promised after the change is there.
                assert!(
                    is_by_peer || !model.is_promised_behind_peer,
                    "{what}: {file:?} was synced behind a peer's write, and set aside: {aside:?}"
                );
                assert!(
                    model.is_set_aside(&content, &aside),
                    "{what}: {file:?} is {content:?}, and set aside {aside:?}: {outcome:?}"
                );
                set_aside += usize::from(!aside.is_empty());
                continue;
            }
            assert!(
                aside.is_empty() && !matches!(outcome, Some(FileFate::SetAside { .. })),
                "{what}: {file:?} was set aside, and nobody else wrote it: {outcome:?}"
            );
            let reached = match keeps {
                true => model.states[model.promised..].contains(&content),
                false => model.has_parts(&content),
            };
            assert!(
                reached,
                "{what}: {file:?} has {} bytes and is no state since the promised one",
                content.len()
            );
        }
        live_and_die_again(&stage, &disk, host, files, policy, what);
        Recovered { set_aside, was_cut }
    }
}

struct Recovered {
    /// Number of files of which something was set aside.
    set_aside: usize,
    /// Whether the recovery came to the message at which it was to crash.
    was_cut: bool,
}

/// Recovers `run` until its recovery has crashed at each of its messages. Returns the number of
/// crashes.
fn cut_everywhere(run: impl Fn() -> Run, what: &str) -> u64 {
    for message in 1..100 {
        let what = format!("{what}, recovery cut at its message {message}");
        if !run().recover(CrashPolicy::LoseAll, Some(message), false, &what).was_cut {
            return message - 1;
        }
    }
    panic!("{what}: its recovery does not end");
}

/// Checks that each case's recovery has crashed, and all of them so often.
fn assert_crashed(cuts: &[u64], least: u64) {
    let is_enough = cuts.iter().all(|cuts| *cuts > 1) && cuts.iter().sum::<u64>() > least;
    assert!(is_enough, "{cuts:?} crashes of recoveries");
}

/// Recovers as far as a message, and crashes. A peer reads the file all the time in every other
/// case. Returns whether it came to that message.
fn recover_partly(
    stage: &Stage,
    image: Image,
    policy: CrashPolicy,
    (message, file): (u64, FileId),
) -> (Image, bool) {
    let (disk, dead) = (stage.disk(image), stage.cluster.until_dead(&identity()));
    let (begun, peer, clock) = (stage.begin(&disk, soon()), stage.peer(), stage.world());
    stage.cluster.kill_at(&identity(), message);
    let was_cut = stage.world.run(async move {
        let reads = async {
            if message % 2 == 0 {
                std::future::pending::<()>().await;
            }
            loop {
                peer_reads(&*peer, file).await;
                sleep(&*clock, Duration::from_micros(300)).await;
            }
        };
        let ends = race(dead, sleep(&*clock, Duration::from_secs(60)));
        matches!(race(race(begun, reads), ends).await, Either::Right(Either::Left(())))
    });
    (stage.crash(&disk, policy), was_cut)
}

/// Recovers once while there may be no space, and crashes; then frees space.
fn recover_without_space(stage: &Stage, image: Image, policy: CrashPolicy, what: &str) -> Image {
    let disk = stage.disk(image);
    let begun = stage.begin(&disk, soon());
    let refused = stage.world.run(async move { begun.await.err() });
    let is_refused = matches!(refused, Some(HostError::NotReplayed { .. }));
    assert!(refused.is_none() || is_refused, "{what}: {refused:?}");
    let image = stage.crash(&disk, policy);
    stage.cluster.free_space();
    image
}

/// Lets the recovered host go on and crash with something synced; the next recovery has that.
fn live_and_die_again(
    stage: &Stage,
    disk: &MemoryDisk,
    host: Rc<Host>,
    files: [FileId; 2],
    policy: CrashPolicy,
    what: &str,
) {
    const AGAIN: &[u8] = b"synced in the second life";
    let expected = files.map(|file| {
        let mut content = stage.content(file);
        put(&mut content, 2, AGAIN);
        content
    });
    stage.world.run(async move {
        for file in files {
            host.write(file, 2, &AGAIN[..9], Durable::Soon).await.unwrap();
            host.write(file, 11, &AGAIN[9..], Durable::Now).await.unwrap();
        }
    });
    let disk = stage.disk(stage.crash(disk, policy));
    let begun = stage.begin(&disk, soon());
    let (host, report) =
        stage.world.run(begun).unwrap_or_else(|error| panic!("{what}, second crash: {error}"));
    for (file, expected) in files.iter().zip(&expected) {
        assert_eq!(&stage.content(*file), expected, "{what}, second crash: {report:?}");
    }
    stage.world.run(async move {
        host.write(files[1], 0, b"on", Durable::Now).await.unwrap();
        host.close().await.unwrap();
    });
    assert_eq!(&stage.content(files[1])[..2], b"on", "{what}");
    stage.world.end();
    PLAYED.set(PLAYED.get() + 1);
}

thread_local! {
    /// Runs of this test that have crashed twice.
    static PLAYED: Cell<u64> = const { Cell::new(0) };
}

/// Returns what the seeds of this process begin with: `SEED`, or the number behind those that were
/// recorded.
fn round() -> u64 {
    static ROUND: OnceLock<u64> = OnceLock::new();
    *ROUND.get_or_init(|| match std::env::var("SEED") {
        Ok(seed) => seed.parse().expect("a number"),
        Err(_) => disks::explored::next_seed("hosts"),
    })
}

/// Records what a test has played, unless it fails.
struct Recorded;

impl Recorded {
    fn begin() -> Recorded {
        println!("SEED={}", round());
        Recorded
    }
}

impl Drop for Recorded {
    fn drop(&mut self) {
        let played = PLAYED.take();
        if !std::thread::panicking() {
            let counts = [("images", 2 * played), ("second lives", played)];
            disks::explored::record("hosts", round(), &counts);
        }
    }
}

fn policies(seed: u64) -> [CrashPolicy; 3] {
    let seed = seed + (round() << 32);
    let random = CrashPolicy::Random { seed, atomicity: disks::Atomicity::Unit(512) };
    [CrashPolicy::LoseAll, CrashPolicy::KeepAll, random]
}

fn cases() -> Vec<(usize, &'static [Step], Backend)> {
    let numbered = SCRIPTS.iter().copied().enumerate();
    let all = [Holding, Outgrown, ThreeServers];
    numbered.flat_map(|(number, script)| all.map(|backend| (number, script, backend))).collect()
}

#[test]
fn what_was_promised_survives_a_crash_of_the_host_at_every_message() {
    let _recorded = Recorded::begin();
    for (number, script, backend) in cases() {
        let all = run(script, 1, backend, None);
        assert!(all.finished);
        let has_looks = script.iter().any(|step| matches!(step, PeerWritesUnderLookups(0)));
        assert_eq!(all.models.borrow()[0].was_cached, has_looks);
        for message in all.messages.clone() {
            for moment in [Moment::Request, Moment::Answer] {
                let cut = Cut { kind: CutKind::Client, message, moment };
                for (policy, peer) in policies(message).into_iter().zip([false, true, false]) {
                    let what =
                        format!("script {number} at {backend:?}, {cut:?}, {policy:?}, peer {peer}");
                    run(script, 1, backend, Some(CutAt::Message(cut)))
                        .recover(policy, None, peer, &what);
                }
            }
        }
    }
}

#[test]
fn a_full_store_costs_nothing_promised_wherever_the_host_dies() {
    let _recorded = Recorded::begin();
    let all = run(REFUSED, 8, Full, None);
    assert!(all.finished, "who writes another file goes on");
    for message in all.messages.clone() {
        let cut = Cut { kind: CutKind::Client, message, moment: Moment::Answer };
        for policy in policies(message) {
            let what = format!("full store, {cut:?}, {policy:?}");
            run(REFUSED, 8, Full, Some(CutAt::Message(cut))).recover(policy, None, false, &what);
        }
    }
    for write in all.journal_writes.clone() {
        let what = format!("full store, journal write {write}");
        run(REFUSED, 8, Full, Some(CutAt::JournalWrite(write))).recover(
            CrashPolicy::LoseAll,
            None,
            false,
            &what,
        );
    }
    let cuts = cut_everywhere(|| run(REFUSED, 8, Full, None), "full store");
    assert!(cuts > 10, "{cuts} crashes of the recovery");
}

/// Ceph's clients answer a recall with the size, and then send the content. Where content is
/// written back unasked, a later piece may be there without an earlier one. Nothing else leaves
/// zeros.
#[test]
fn only_a_recall_leaves_zeros_to_a_peers_read() {
    let _recorded = Recorded::begin();
    let mut zeros = 0;
    for (number, script, backend) in cases() {
        let has_recalls = script
            .iter()
            .any(|step| matches!(step, PeerReads(_) | PeerWrites(_) | PeerWritesUnderLookups(_)));
        for message in run(script, 7, backend, None).messages {
            let cut = Cut { kind: CutKind::Client, message, moment: Moment::Answer };
            let what = format!("script {number} at {backend:?}, {cut:?}, read before the recovery");
            let run = run(script, 7, backend, Some(CutAt::Message(cut)));
            let found = run.peer_reads_first(&what);
            assert!(
                found == 0 || has_recalls || backend != Holding,
                "{what}: zeros that were never written"
            );
            zeros += if backend == Holding { found } else { 0 };
            run.recover(CrashPolicy::LoseAll, None, false, &what);
        }
    }
    assert!(zeros > 0, "the simulated clients answer a recall as Ceph's do");
}

#[test]
fn promises_survive_a_crash_of_the_host_at_every_write_of_its_journal() {
    let _recorded = Recorded::begin();
    for (number, script, backend) in cases() {
        let all = run(script, 2, backend, None);
        for write in all.journal_writes.clone() {
            for policy in policies(write) {
                let what =
                    format!("script {number} at {backend:?}, journal write {write}, {policy:?}");
                run(script, 2, backend, Some(CutAt::JournalWrite(write)))
                    .recover(policy, None, false, &what);
            }
        }
    }
}

#[test]
fn a_crash_during_recovery_is_harmless_at_every_message() {
    let _recorded = Recorded::begin();
    let mut cuts = Vec::new();
    for (number, script, backend) in cases() {
        let what = format!("script {number} at {backend:?}");
        cuts.push(cut_everywhere(|| run(script, 3, backend, None), &what));
    }
    assert_crashed(&cuts, 150);
}

#[test]
fn a_crash_during_the_recovery_of_a_crash_at_any_message_is_harmless() {
    let _recorded = Recorded::begin();
    let script = SCRIPTS[1];
    let mut cuts = Vec::new();
    for backend in [Holding, Outgrown, ThreeServers] {
        for message in run(script, 6, backend, None).messages {
            let cut = Cut { kind: CutKind::Client, message, moment: Moment::Answer };
            let first = || run(script, 6, backend, Some(CutAt::Message(cut)));
            cuts.push(cut_everywhere(first, &format!("{backend:?}, {cut:?}")));
        }
    }
    assert_crashed(&cuts, 90);
}

#[test]
fn a_server_that_crashes_at_any_message_costs_only_time() {
    let _recorded = Recorded::begin();
    let mut asked = (0, 0);
    for (number, script, backend) in cases() {
        let all = run(script, 4, backend, None);
        asked = (asked.0 + all.content_messages, asked.1 + all.metadata_messages);
        for message in all.messages.clone() {
            for moment in [Moment::Request, Moment::Answer] {
                let cut = Cut { kind: CutKind::Server, message, moment };
                let cut = run(script, 4, backend, Some(CutAt::Message(cut)));
                assert!(
                    cut.finished,
                    "script {number} at {backend:?}, message {message}, {moment:?}"
                );
                let what =
                    format!("script {number} at {backend:?}, server at {message}, {moment:?}");
                cut.recover(CrashPolicy::LoseAll, None, false, &what);
            }
        }
    }
    assert!(
        asked.0 > 20 && asked.1 > 20,
        "data servers {} times, the metadata server {} times",
        asked.0,
        asked.1
    );
}

#[test]
fn a_network_outage_beyond_the_lease_loses_nothing_promised() {
    let _recorded = Recorded::begin();
    let mut set_aside = 0;
    for (number, script, backend) in cases() {
        let all = run(script, 5, backend, None);
        for message in all.messages.clone() {
            for moment in [Moment::Request, Moment::Answer] {
                let cut = Cut { kind: CutKind::Network, message, moment };
                let cut = run(script, 5, backend, Some(CutAt::Message(cut)));
                // A change of names or size, and an unmount, may end with the connection; so may
                // what was set aside.
                let may_end = |step: &Step| {
                    matches!(
                        step,
                        Cut(..)
                            | Link(_)
                            | Unlink(_)
                            | Close
                            | PeerWrites(_)
                            | PeerWritesUnderLookups(_)
                    )
                };
                assert!(
                    cut.finished || script.iter().any(may_end),
                    "script {number} at {backend:?}, message {message}, {moment:?}: the host \
                     reconnects"
                );
                let what =
                    format!("script {number} at {backend:?}, network at {message}, {moment:?}");
                set_aside += cut.recover(CrashPolicy::LoseAll, None, false, &what).set_aside;
            }
        }
    }
    assert!(
        set_aside > 10,
        "peers wrote {set_aside} times while the host was cut off with something that was synced"
    );
}
