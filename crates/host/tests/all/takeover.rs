//! Hosts that take a file over from dead ones, and die: whichever is recovered first, the file has
//! what the last owner has synced, and what the others had synced is set aside.

use crate::common::*;
use device::{Disk, World};
use disks::{CrashPolicy, Image, MemoryDisk};
use host::{CONFLICT_DIRECTORY, Durable, Host, HostJournal, recover};
use runtime::{Either, RealWorld, race};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;
use store::{Cut, CutKind, FileId, Identity, LocalStore, Moment, Store};

const HOSTS: usize = 3;
const ORDERS: [[usize; HOSTS]; 6] =
    [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
/// Bytes that each host syncs, then overwrites and syncs again.
const SYNCED: [[&[u8]; 2]; HOSTS] =
    [[b"first.", b"first!"], [b"other.", b"other!"], [b"third.", b"third!"]];

fn name_of(host: usize) -> Identity {
    Identity(format!("host-{}", host + 1))
}
/// Gives each host the file in turn, and lets it die.
async fn die_one_after_the_other(stage: &Stage, disks: &mut [MemoryDisk]) -> FileId {
    let mut made = None;
    for host in 0..HOSTS {
        let (world, store) = (stage.world(), stage.connect_as(name_of(host)));
        let begun = begin_host(world, store, disks[host].clone(), under_pressure()).await;
        let running = begun.unwrap().0;
        let file = match made {
            None => make(&running, "file").await,
            Some(file) => file,
        };
        if made.replace(file).is_some() {
            running.open_file(file).await.unwrap();
        }
        for synced in SYNCED[host] {
            running.write(file, 0, synced, Durable::Now).await.unwrap();
        }
        die(stage, &mut disks[host], host);
    }
    made.expect("a file")
}
fn die(stage: &Stage, disk: &mut MemoryDisk, host: usize) {
    stage.cluster.kill(&name_of(host));
    disk.power_off();
    *disk = stage.disk(disk.crash(CrashPolicy::LoseAll));
}

/// Recovers a host, again if it dies at a message. Returns whether it did.
async fn recovered(stage: &Stage, disk: &mut MemoryDisk, host: usize, cut: Option<Cut>) -> bool {
    if let Some(cut) = cut {
        let message = stage.cluster.messages() + cut.message;
        stage.cluster.cut_at(Cut { message, ..cut });
    }
    let begin = || {
        begin_host(stage.world(), stage.connect_as(name_of(host)), disk.clone(), under_pressure())
    };
    let first = match cut {
        None => Some(begin().await),
        Some(_) => match race(stage.cluster.until_dead(&name_of(host)), begin()).await {
            Either::Left(()) => None,
            Either::Right(begun) => Some(begun),
        },
    };
    stage.cluster.cancel_cut();
    let (running, died) = match first {
        Some(begun) => (begun.unwrap().0, false),
        None => {
            die(stage, disk, host);
            let (world, store) = (stage.world(), stage.connect_as(name_of(host)));
            (begin_host(world, store, disk.clone(), under_pressure()).await.unwrap().0, true)
        }
    };
    running.close().await.unwrap();
    died
}

/// Returns whether the recovery of the first host was cut.
fn play(order: [usize; HOSTS], cut: Option<Cut>) -> bool {
    let stage = Stage::new(1);
    let format = |host| stage.formatted_for(name_of(host), "simulated cluster", JOURNAL_BYTES);
    let disks: Vec<MemoryDisk> = (0..HOSTS).map(|host| stage.disk(format(host))).collect();
    let stage = Rc::new(stage);
    let (inner, mut all) = (stage.clone(), disks);
    let (file, was_cut) = stage.world.run(async move {
        let file = die_one_after_the_other(&inner, &mut all).await;
        let mut was_cut = false;
        for (turn, host) in order.into_iter().enumerate() {
            let cut = cut.filter(|_| turn == 0);
            was_cut |= recovered(&inner, &mut all[host], host, cut).await;
        }
        (file, was_cut)
    });
    stage.world.end();
    let content = stage.content(file);
    assert_eq!(
        content,
        SYNCED[2][1],
        "{order:?}, {cut:?}: {:?}",
        String::from_utf8_lossy(&content)
    );
    let aside: BTreeSet<Vec<u8>> = stage.set_aside(file).into_iter().collect();
    let expected = [SYNCED[0][1], SYNCED[1][1]].map(<[u8]>::to_vec);
    assert_eq!(aside, expected.into(), "{order:?}, {cut:?}");
    stage.world.end();
    was_cut
}

#[test]
fn the_last_of_three_dead_owners_wins_in_every_order() {
    for order in ORDERS {
        assert!(!play(order, None));
        for moment in [Moment::Request, Moment::Answer] {
            let cut = |message| Cut { kind: CutKind::Client, message, moment };
            let cuts = (1..100).take_while(|message| play(order, Some(cut(*message)))).count();
            assert!((3..99).contains(&cuts), "{cuts}");
        }
    }
}

/// A host in front of a directory, with its own world: a crash drops its tasks and locks.
struct LocalHost {
    name: Identity,
    image: Image,
}

impl LocalHost {
    fn new(name: Identity, root: &Path) -> LocalHost {
        let world = RealWorld::new().unwrap();
        let shared: Rc<dyn World> = Rc::new(world.clone());
        let disk = MemoryDisk::new(shared.clone(), JOURNAL_BYTES);
        let store = format!("dir:{}", root.display());
        let (inner, identity) = (Rc::new(disk.clone()) as Rc<dyn Disk>, name.clone());
        world.run(async move {
            HostJournal::format(&*shared, inner, identity, &store).await.unwrap();
        });
        world.end();
        LocalHost { name, image: disk.crash(CrashPolicy::LoseAll) }
    }
    /// Recovers, works, and dies or ends.
    fn live<T: 'static>(
        &mut self,
        root: &Path,
        work: impl AsyncFnOnce(Rc<Host>) -> T + 'static,
    ) -> T {
        let world = RealWorld::new().unwrap();
        let shared: Rc<dyn World> = Rc::new(world.clone());
        let disk = MemoryDisk::from_image(shared.clone(), self.image.clone());
        let (inner, name, root) = (disk.clone(), self.name.clone(), root.to_owned());
        let done = world.run(async move {
            let store: Rc<dyn Store> =
                Rc::new(LocalStore::open(shared.clone(), &root, name).unwrap());
            let journal = HostJournal::open(Rc::new(inner) as Rc<dyn Disk>).await.unwrap();
            recover(&*shared, &*store, &journal, false).await.unwrap();
            work(Host::open(shared, store, &journal, under_pressure()).await.unwrap()).await
        });
        world.end();
        self.image = disk.crash(CrashPolicy::LoseAll);
        done
    }
}

#[test]
fn the_last_of_two_dead_owners_wins_in_a_directory() {
    for first in [0, 1] {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        fs::write(root.join("file"), b"").unwrap();
        let file = FileId(fs::metadata(root.join("file")).unwrap().ino());
        let mut hosts = [0, 1].map(|host| LocalHost::new(name_of(host), root));
        for (host, synced) in hosts.iter_mut().zip(SYNCED) {
            host.live(root, async move |host| {
                host.open_file(file).await.unwrap();
                for bytes in synced {
                    host.write(file, 0, bytes, Durable::Now).await.unwrap();
                }
            });
        }
        for host in [first, 1 - first] {
            hosts[host].live(root, async |host| host.close().await.unwrap());
        }
        assert_eq!(fs::read(root.join("file")).unwrap(), SYNCED[1][1], "{first} first");
        let aside = fs::read_dir(root.join(CONFLICT_DIRECTORY)).unwrap();
        let aside = aside.map(|entry| fs::read(entry.unwrap().path()).unwrap());
        assert!(aside.into_iter().any(|bytes| bytes == SYNCED[0][1]), "{first} first");
    }
}

/// A clean end leaves nothing that others would have to reckon with.
#[test]
fn only_hosts_that_died_cost_the_others_a_destage() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    fs::write(root.join("file"), b"").unwrap();
    let file = FileId(fs::metadata(root.join("file")).unwrap().ino());
    let mut hosts = [0, 1].map(|host| LocalHost::new(name_of(host), root));
    let write = async move |host: &Rc<Host>| {
        host.open_file(file).await.unwrap();
        host.write(file, 0, b"synced", Durable::Now).await.unwrap();
        host.statistics().destaged_files
    };
    let [first, second] = &mut hosts;
    assert_eq!(first.live(root, async move |host| write(&host).await), 0);
    assert_eq!(second.live(root, async move |host| write(&host).await), 1);
    let ends = async move |host: Rc<Host>| host.close().await.unwrap();
    second.live(root, ends);
    let written = first.live(root, async move |host| {
        let written = write(&host).await;
        host.close().await.unwrap();
        written
    });
    assert_eq!(written, 0);
}

/// Two hosts that live, and a file that both have closed.
async fn two_hosts(stage: &Stage, disks: Vec<MemoryDisk>) -> (Vec<Rc<Host>>, FileId) {
    let mut hosts = Vec::new();
    for (host, disk) in disks.into_iter().enumerate() {
        let (world, store) = (stage.world(), stage.connect_as(name_of(host)));
        hosts.push(begin_host(world, store, disk, under_pressure()).await.unwrap().0);
    }
    let file = make(&hosts[1], "file").await;
    hosts[1].close_file(file).await.unwrap();
    (hosts, file)
}
fn disks_of_two(stage: &Stage) -> Vec<MemoryDisk> {
    let format = |host| stage.formatted_for(name_of(host), "simulated cluster", JOURNAL_BYTES);
    (0..2).map(|host| stage.disk(format(host))).collect()
}
async fn append_line(host: &Rc<Host>, file: FileId) {
    host.open_file(file).await.unwrap();
    host.append(file, b"line", Durable::Now).await.unwrap();
    host.close_file(file).await.unwrap();
}

#[test]
fn a_file_opened_again_and_again_costs_one_destage() {
    let stage = Stage::new(1);
    let (inner, disks) = (stage.clone(), disks_of_two(&stage));
    stage.world.run(async move {
        let (hosts, file) = two_hosts(&inner, disks).await;
        append_line(&hosts[0], file).await;
        let before = inner.cluster.messages();
        for _ in 0..9 {
            append_line(&hosts[0], file).await;
        }
        assert_eq!(inner.cluster.messages(), before, "all of it is in memory and in the journal");
        assert_eq!(hosts[0].statistics().destaged_files, 1);
        let read = hosts[1].read(file, 0, 100).await.unwrap();
        assert_eq!(read, b"line".repeat(10), "it is given back as ever");
    });
}

/// The file stays known for its token, and the program that opens it next has synced nothing.
#[test]
fn a_closed_file_that_was_set_aside_is_opened_and_written() {
    let stage = Stage::new(1);
    let (inner, disks) = (stage.clone(), disks_of_two(&stage));
    let file = stage.world.run(async move {
        let (hosts, file) = two_hosts(&inner, disks).await;
        append_line(&hosts[0], file).await;
        append_line(&hosts[0], file).await;
        inner.connect_as(name_of(0)).fence(&name_of(0)).await.unwrap();
        append_line(&hosts[1], file).await;
        hosts[0].lookup(hosts[0].root(), b"file").await.unwrap();
        assert_eq!(hosts[0].statistics().set_aside_files, 1);
        append_line(&hosts[0], file).await;
        hosts[0].close().await.unwrap();
        file
    });
    assert_eq!(stage.content(file), b"line".repeat(3));
}

#[test]
fn a_kept_token_is_returned_when_nobody_used_the_file() {
    let stage = Stage::new(1);
    let (inner, disks) = (stage.clone(), disks_of_two(&stage));
    stage.world.run(async move {
        let (hosts, file) = two_hosts(&inner, disks).await;
        append_line(&hosts[0], file).await;
        sleep(&*inner.world(), Duration::from_secs(70)).await;
        append_line(&hosts[1], file).await;
        assert_eq!(hosts[0].statistics().recalls, 0, "it was free");
    });
}

#[test]
fn a_removed_file_does_not_stay_open_for_its_token() {
    let stage = Stage::new(1);
    let (inner, disks) = (stage.clone(), disks_of_two(&stage));
    stage.world.run(async move {
        let (hosts, file) = two_hosts(&inner, disks).await;
        // Once, so that nothing is dirty.
        append_line(&hosts[0], file).await;
        assert_eq!(inner.content(file), b"line");
        hosts[0].unlink(hosts[0].root(), b"file").await.unwrap();
        let (left, _) = inner.cluster.content(file).expect("an inode");
        assert!(left.is_empty(), "the servers keep {} bytes of it", left.len());
    });
}
