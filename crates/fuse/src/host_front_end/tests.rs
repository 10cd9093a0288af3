//! Validity of a host's replies in the kernel's cache, and place of its appends, over a simulated
//! cluster in virtual time.

use super::HostFrontEnd;
use crate::privilege::KILLED;
use device::World;
use disks::MemoryDisk;
use fuse_session::abi::{
    self, AttrOut, CreateIn, EntryOut, FallocateIn, ForgetIn, FsyncIn, InHeader, MkdirIn, MknodIn,
    OpenOut, ROOT_NODE, ReadIn, ReleaseIn, SetattrIn, SetxattrIn, WriteIn, fattr, opcode,
};
use fuse_session::{FileSystem, Reply, Request};
use host::{Host, HostJournal, HostOptions, recover};
use runtime::{Either, VirtualWorld, join_all, race, spawn_with_result};
use std::cell::Cell;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;
use store::{Cluster, Creator, Identity, Network, NewNode, OpenMode, SimulatedStore, Store, Token};
use zerocopy::{FromBytes, IntoBytes};

const JOURNAL_BYTES: u64 = 16 << 20;

fn front_end_over_a_host(
    directories: Duration,
    test: impl AsyncFnOnce(Rc<HostFrontEnd>, Rc<dyn Store>, Rc<dyn World>) + 'static,
) {
    front_end_under_a_kernel(true, directories, test);
}
fn front_end_under_a_kernel(
    strips_set_group: bool,
    directories: Duration,
    test: impl AsyncFnOnce(Rc<HostFrontEnd>, Rc<dyn Store>, Rc<dyn World>) + 'static,
) {
    let virtual_world = VirtualWorld::new(1);
    let world: Rc<dyn World> = Rc::new(virtual_world.clone());
    virtual_world.run(async move {
        let identity = Identity("host".into());
        let cluster = Cluster::new(world.clone(), Network::default(), Vec::new(), 1);
        let store = Rc::new(SimulatedStore::connect(&cluster, identity.clone()));
        let disk = Rc::new(MemoryDisk::new(world.clone(), JOURNAL_BYTES));
        HostJournal::format(&*world, disk.clone(), identity, "simulated cluster").await.unwrap();
        let journal = HostJournal::open(disk).await.unwrap();
        recover(&*world, &*store, &journal, false).await.unwrap();
        let options = HostOptions { directories, ..HostOptions::default() };
        let host = Host::open(world.clone(), store, &journal, options).await.unwrap();
        let peer = Rc::new(SimulatedStore::connect(&cluster, Identity("peer".into())));
        let report = Box::new(|what: &str| panic!("{what}"));
        test(HostFrontEnd::new(host, strips_set_group, report), peer, world).await;
    });
}

async fn serve(front_end: &Rc<HostFrontEnd>, header: InHeader, arguments: &[u8]) -> Reply {
    let len = (size_of::<InHeader>() + arguments.len()) as u32;
    let header = InHeader { len, unique: 2, ..header };
    let request = Request::from_message(&[header.as_bytes(), arguments].concat()).unwrap();
    front_end.clone().serve(request).await
}
async fn ask(front_end: &Rc<HostFrontEnd>, opcode: u32, nodeid: u64, arguments: &[u8]) -> Vec<u8> {
    let header = InHeader { opcode, nodeid, ..Default::default() };
    let reply = serve(front_end, header, arguments).await;
    assert_eq!(reply.errno(), 0);
    reply.payload()
}
/// Returns the error number of a CREATE of `log` in the root.
async fn create_log(front_end: &Rc<HostFrontEnd>, flags: i32) -> i32 {
    let header = InHeader { opcode: opcode::CREATE, nodeid: ROOT_NODE, ..Default::default() };
    let (mode, flags) = (0o644 | libc::S_IFREG, (libc::O_CREAT | flags) as u32);
    let arguments = CreateIn { mode, flags, ..Default::default() };
    serve(front_end, header, &[arguments.as_bytes(), b"log\0"].concat()).await.errno()
}
fn entry(payload: &[u8]) -> (u64, [Duration; 2]) {
    let entry = EntryOut::read_from_prefix(payload).unwrap().0;
    let name = Duration::new(entry.entry_valid, entry.entry_valid_nsec);
    (entry.nodeid, [name, Duration::new(entry.attr_valid, entry.attr_valid_nsec)])
}

#[test]
fn the_kernel_caches_only_directories_as_the_mount_says() {
    for directories in [Duration::ZERO, Duration::from_millis(1020)] {
        front_end_over_a_host(directories, async move |front_end, _, _| {
            let mode = MkdirIn { mode: 0o755, umask: 0 };
            let made = ask(
                &front_end,
                opcode::MKDIR,
                ROOT_NODE,
                &[mode.as_bytes(), b"directory\0"].concat(),
            )
            .await;
            let (node, kept) = entry(&made);
            assert_eq!(kept, [directories; 2]);
            assert_eq!(
                entry(&ask(&front_end, opcode::LOOKUP, ROOT_NODE, b"directory\0").await),
                (node, kept)
            );
            let getattr = [0u8; 16];
            for node in [ROOT_NODE, node] {
                let reported = ask(&front_end, opcode::GETATTR, node, &getattr).await;
                let reported = AttrOut::read_from_prefix(&reported).unwrap().0;
                assert_eq!(
                    Duration::new(reported.attr_valid, reported.attr_valid_nsec),
                    directories
                );
            }
            let mode = MknodIn { mode: 0o644 | libc::S_IFREG, ..Default::default() };
            let made =
                ask(&front_end, opcode::MKNOD, ROOT_NODE, &[mode.as_bytes(), b"file\0"].concat())
                    .await;
            assert_eq!(entry(&made).1, [Duration::ZERO; 2]);
            assert_eq!(
                entry(&ask(&front_end, opcode::LOOKUP, ROOT_NODE, b"file\0").await).1,
                [Duration::ZERO; 2]
            );
        });
    }
}

#[test]
fn an_append_follows_what_another_host_wrote() {
    front_end_over_a_host(Duration::ZERO, async move |front_end, peer, _| {
        let made = CreateIn { mode: 0o644 | libc::S_IFREG, ..Default::default() };
        let created =
            ask(&front_end, opcode::CREATE, ROOT_NODE, &[made.as_bytes(), b"log\0"].concat()).await;
        let (node, _) = entry(&created);
        let file = peer.lookup(peer.root(), b"log").await.unwrap().file;
        let open = peer.open(file, OpenMode::ReadWrite).await.unwrap();
        peer.take_token(open, Token::ExclusiveWrite).await.unwrap();
        peer.write(open, 0, b"theirs ").await.unwrap();
        peer.return_token(file).await.unwrap();
        // The kernel knows only an empty file.
        let flags = (libc::O_WRONLY | libc::O_APPEND | libc::O_DSYNC) as u32;
        let write = WriteIn { size: 4, flags, ..Default::default() };
        ask(&front_end, opcode::WRITE, node, &[write.as_bytes(), b"ours"].concat()).await;
        assert!(front_end.close().await);
        assert_eq!(peer.read(open, 0, 99).await.unwrap(), b"theirs ours");
    });
}

/// Otherwise a program cannot be killed before the other client returns the file. A signal that
/// does not kill it ends nothing: programs do not expect that of a write to a file.
#[test]
fn a_write_that_waits_ends_when_its_caller_is_killed() {
    front_end_over_a_host(Duration::ZERO, async move |front_end, peer, world| {
        let pause = |seconds| world.sleep_until(world.now().plus(Duration::from_secs(seconds)));
        let node = made_log(&front_end).await;
        let file = peer.lookup(peer.root(), b"log").await.unwrap().file;
        let open = peer.open(file, OpenMode::ReadWrite).await.unwrap();
        // It keeps the token until the servers take it away.
        peer.take_token(open, Token::ExclusiveWrite).await.unwrap();
        let write = |bytes: &'static [u8], pid: u32, write_flags: u32| {
            let (size, flags) = (bytes.len() as u32, libc::O_DSYNC as u32);
            let arguments = WriteIn { size, flags, write_flags, ..Default::default() };
            let header =
                InHeader { opcode: opcode::WRITE, nodeid: node, pid, ..Default::default() };
            let front_end = front_end.clone();
            let arguments = [arguments.as_bytes(), bytes].concat();
            spawn_with_result(&*world, async move {
                serve(&front_end, header, &arguments).await.errno()
            })
        };
        for write_flags in [0, abi::write::KILL_SUIDGID] {
            let killed = write(b"lost", KILLED, write_flags);
            pause(1).await;
            front_end.interrupt(2);
            match race(killed, pause(1)).await {
                Either::Left(errno) => assert_eq!(errno, Some(libc::EINTR)),
                Either::Right(()) => panic!("it waits on behind the signal"),
            }
        }
        // The kernel calls a caller 0 that is in a process namespace not seen here.
        let mut alive = [0, std::process::id()].map(|pid| write(b"here", pid, 0));
        pause(1).await;
        front_end.interrupt(2);
        for write in &mut alive {
            assert!(matches!(race(write, pause(2)).await, Either::Right(())));
        }
        for write in alive {
            assert_eq!(write.await, Some(0));
        }
        assert_eq!(read(&front_end, node, 99, DIRECT).await, b"here");
    });
}

/// Makes `log`, and returns its node.
async fn made_log(front_end: &Rc<HostFrontEnd>) -> u64 {
    let made = CreateIn { mode: 0o644 | libc::S_IFREG, ..Default::default() };
    entry(&ask(front_end, opcode::CREATE, ROOT_NODE, &[made.as_bytes(), b"log\0"].concat()).await).0
}
/// Writes with `flags` of the descriptor and those of the request.
async fn write(front_end: &Rc<HostFrontEnd>, node: u64, at: u64, bytes: &[u8], flags: [u32; 2]) {
    let (size, [flags, write_flags]) = (bytes.len() as u32, flags);
    let write = WriteIn { offset: at, size, flags, write_flags, ..Default::default() };
    ask(front_end, opcode::WRITE, node, &[write.as_bytes(), bytes].concat()).await;
}
/// Reads from the start on: for a descriptor, or for the kernel's cache.
async fn read(front_end: &Rc<HostFrontEnd>, node: u64, size: usize, read_flags: u32) -> Vec<u8> {
    let read = ReadIn { size: size as u32, read_flags, ..Default::default() };
    ask(front_end, opcode::READ, node, read.as_bytes()).await
}
const SYNCHRONOUS: [u32; 2] = [libc::O_DSYNC as u32, abi::write::LOCK_OWNER];
const APPENDED: [u32; 2] = [(libc::O_DSYNC | libc::O_APPEND) as u32, abi::write::LOCK_OWNER];
const BACK: [u32; 2] = [0, abi::write::CACHE];
const DIRECT: u32 = abi::read::LOCK_OWNER;

#[test]
fn an_older_page_undoes_no_write() {
    front_end_over_a_host(Duration::ZERO, async move |front_end, _, _| {
        let node = made_log(&front_end).await;
        write(&front_end, node, 0, &[1; 4096], SYNCHRONOUS).await;
        assert!(front_end.pages.is_empty(), "nothing is mapped");
        let mut page = read(&front_end, node, 8192, 0).await;
        write(&front_end, node, 0, &[2; 8], SYNCHRONOUS).await;
        write(&front_end, node, 0, &[3; 100], APPENDED).await;
        page.resize(8192, 0);
        page[2048] = 4;
        write(&front_end, node, 0, &page[..4196], BACK).await;
        let mut wanted = vec![1; 4096];
        wanted[..8].fill(2);
        wanted[2048] = 4;
        wanted.extend([3; 100]);
        assert!(read(&front_end, node, 8192, DIRECT).await == wanted);
        // Read anew, the page is as new as the file.
        read(&front_end, node, 8192, 0).await;
        write(&front_end, node, 0, &[5; 4196], BACK).await;
        assert!(read(&front_end, node, 8192, DIRECT).await == [5; 4196]);
        let forget = ForgetIn { nlookup: 1 };
        let header = InHeader { opcode: opcode::FORGET, nodeid: node, ..Default::default() };
        serve(&front_end, header, forget.as_bytes()).await;
        assert!(front_end.pages.is_empty());
    });
}

/// The page comes at each moment of the write, which waits for its commit.
#[test]
fn a_page_written_back_beside_a_write_does_not_undo_it() {
    for moment in 0..40 {
        front_end_over_a_host(Duration::ZERO, async move |front_end, _, world| {
            let node = made_log(&front_end).await;
            write(&front_end, node, 0, &[1; 4096], SYNCHRONOUS).await;
            let page = read(&front_end, node, 4096, 0).await;
            let pause = Duration::from_micros(10) * moment;
            let back = async {
                world.sleep_until(world.now().plus(pause)).await;
                write(&front_end, node, 0, &page, BACK).await;
            };
            let both: Vec<Pin<Box<dyn Future<Output = ()> + '_>>> =
                vec![Box::pin(write(&front_end, node, 0, &[2; 8], SYNCHRONOUS)), Box::pin(back)];
            join_all(both).await;
            assert!(read(&front_end, node, 8, DIRECT).await == [2; 8], "after {pause:?}");
        });
    }
}

#[test]
fn an_older_page_fills_no_hole_of_a_host() {
    front_end_over_a_host(Duration::ZERO, async move |front_end, _, _| {
        let node = made_log(&front_end).await;
        let page = fuse_session::page_bytes() as usize;
        write(&front_end, node, 0, &vec![1; 2 * page], SYNCHRONOUS).await;
        let mut old = read(&front_end, node, 2 * page, 0).await;
        let punch = FallocateIn {
            offset: 1000,
            length: 2 * page as u64 - 1000,
            mode: (libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE) as u32,
            ..Default::default()
        };
        ask(&front_end, opcode::FALLOCATE, node, punch.as_bytes()).await;
        // The kernel has zeroed its first page in part.
        old[1000..page].fill(0);
        old[page - 1] = 4;
        write(&front_end, node, 0, &old, BACK).await;
        old[page..].fill(0);
        assert!(read(&front_end, node, 2 * page, DIRECT).await == old);
    });
}

/// Behind success the kernel would take the file for new: it would check no permission, truncate
/// nothing, and never release what is no regular file.
#[test]
fn another_hosts_new_name_is_not_answered_as_created() {
    for is_file in [true, false] {
        front_end_over_a_host(Duration::ZERO, async move |front_end, peer, _| {
            let creator = Creator { uid: 1, gid: 1, umask: 0 };
            let node = match is_file {
                true => NewNode::Regular { mode: 0o600 },
                false => NewNode::Symlink { target: b"target".to_vec() },
            };
            peer.make(peer.root(), b"log", node, creator).await.unwrap();
            let flags = libc::O_WRONLY | libc::O_TRUNC;
            assert_eq!(create_log(&front_end, flags).await, libc::ESTALE);
            assert_eq!(create_log(&front_end, flags | libc::O_EXCL).await, libc::EEXIST);
            assert!(front_end.known.borrow().is_empty());
        });
    }
}

/// The name is another host's, and goes at each moment of the request. A caller who wants to have
/// the file made never gets ENOENT.
#[test]
fn a_create_beside_another_hosts_unlink_never_finds_nothing() {
    let (found, made) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
    for moment in 0..60 {
        let (found, made) = (found.clone(), made.clone());
        front_end_over_a_host(Duration::ZERO, async move |front_end, peer, world| {
            let creator = Creator { uid: 0, gid: 0, umask: 0 };
            let theirs = peer.create(peer.root(), b"log", 0o644, creator).await.unwrap();
            if let Some(open) = theirs.open {
                peer.close(open).await.unwrap();
            }
            let unlink = async {
                world.sleep_until(world.now().plus(Duration::from_micros(50) * moment)).await;
                peer.unlink(peer.root(), b"log").await.unwrap();
            };
            let create = async {
                match create_log(&front_end, 0).await {
                    libc::ESTALE => found.set(found.get() + 1),
                    errno => {
                        assert_eq!(errno, 0);
                        made.set(made.get() + 1);
                    }
                }
            };
            let both: Vec<Pin<Box<dyn Future<Output = ()>>>> =
                vec![Box::pin(unlink), Box::pin(create)];
            let before = made.get();
            join_all(both).await;
            let is_there = peer.lookup(peer.root(), b"log").await.is_ok();
            assert_eq!(is_there, made.get() > before);
        });
    }
    let (found, made) = (found.get(), made.get());
    assert!(found > 0 && made > 0, "{found} found, {made} made: no race");
}

#[test]
fn a_new_file_is_no_executable_of_a_group_that_its_maker_is_not_in() {
    const GROUP: u32 = 7000;
    const USER: u32 = 1000;
    /// A process that does not exist has no capability and is in no group.
    const NOBODY: u32 = i32::MAX as u32;
    for (strips, gid, asked, made) in [
        (false, USER, 0o2775, 0o775),
        (false, USER, 0o2765, 0o2765),
        (false, GROUP, 0o2775, 0o2775),
        (true, USER, 0o2775, 0o2775),
    ] {
        front_end_under_a_kernel(strips, Duration::ZERO, async move |front_end, peer, _| {
            let owner = Creator { uid: 0, gid: GROUP, umask: 0 };
            let directory = NewNode::Directory { mode: 0o2777 };
            let directory = peer.make(peer.root(), b"shared", directory, owner).await.unwrap();
            let found = ask(&front_end, opcode::LOOKUP, ROOT_NODE, b"shared\0").await;
            let nodeid = entry(&found).0;
            let mode = libc::S_IFREG | asked;
            let create = CreateIn { mode, ..Default::default() };
            let mknod = MknodIn { mode, ..Default::default() };
            let requests = [(opcode::CREATE, create.as_bytes()), (opcode::MKNOD, mknod.as_bytes())];
            for (opcode, arguments) in requests {
                let header =
                    InHeader { opcode, nodeid, uid: USER, gid, pid: NOBODY, ..Default::default() };
                let name = format!("new {opcode}");
                let arguments = [arguments, name.as_bytes(), b"\0"].concat();
                assert_eq!(serve(&front_end, header, &arguments).await.errno(), 0);
                let new = peer.lookup(directory.file, name.as_bytes()).await.unwrap().attributes;
                assert_eq!((new.mode & 0o7777, new.gid), (made, GROUP), "{opcode}");
            }
        });
    }
}

#[test]
fn an_access_list_takes_set_group_id_where_the_kernel_says_so() {
    for (flags, left) in [(0, 0o2745), (abi::setxattr::ACL_KILL_SGID, 0o745)] {
        front_end_over_a_host(Duration::ZERO, async move |front_end, peer, _| {
            let node = NewNode::Regular { mode: 0o2745 };
            let creator = Creator { uid: 1, gid: 1, umask: 0 };
            let made = peer.make(peer.root(), b"file", node, creator).await.unwrap();
            let node = entry(&ask(&front_end, opcode::LOOKUP, ROOT_NODE, b"file\0").await).0;
            let (name, value) = (b"system.posix_acl_access\0", b"list");
            let size = value.len() as u32;
            let set = SetxattrIn { size, setxattr_flags: flags, ..Default::default() };
            ask(&front_end, opcode::SETXATTR, node, &[set.as_bytes(), name, value].concat()).await;
            assert_eq!(peer.attributes(made.file).await.unwrap().mode & 0o7777, left);
        });
    }
}

#[test]
fn set_group_id_goes_for_those_outside_the_group() {
    const GROUP: u32 = 7000;
    const NOBODY: u32 = i32::MAX as u32;
    let write = WriteIn { size: 1, write_flags: abi::write::KILL_SUIDGID, ..Default::default() };
    let write = [write.as_bytes(), b"y"].concat();
    let valid = fattr::SIZE | fattr::KILL_SUIDGID;
    let truncate = SetattrIn { valid, size: 0, ..Default::default() };
    let own = SetattrIn { valid: fattr::UID, uid: 5, ..Default::default() };
    let reserve = FallocateIn { length: 4096, ..Default::default() };
    let changes = [
        (opcode::WRITE, write),
        (opcode::SETATTR, truncate.as_bytes().to_vec()),
        (opcode::SETATTR, own.as_bytes().to_vec()),
        (opcode::FALLOCATE, reserve.as_bytes().to_vec()),
    ];
    front_end_over_a_host(Duration::ZERO, async move |front_end, peer, _| {
        for (number, (opcode, arguments)) in changes.iter().enumerate() {
            let modes = [
                (GROUP, 0o2666, 0o2666),
                (1000, 0o2666, 0o666),
                (GROUP, 0o6666, 0o2666),
                (1000, 0o6666, 0o666),
                (GROUP, 0o6777, 0o777),
                (1000, 0o1666, 0o1666),
            ];
            for (gid, mode, left) in modes {
                let name = format!("{number}.{gid}.{mode:o}");
                let creator = Creator { uid: 0, gid: GROUP, umask: 0 };
                let node = NewNode::Regular { mode };
                let made = peer.make(peer.root(), name.as_bytes(), node, creator).await.unwrap();
                let asked = [name.as_bytes(), b"\0"].concat();
                let nodeid = entry(&ask(&front_end, opcode::LOOKUP, ROOT_NODE, &asked).await).0;
                let (opcode, uid, pid) = (*opcode, 1000, NOBODY);
                let header = InHeader { opcode, nodeid, uid, gid, pid, ..Default::default() };
                let errno = serve(&front_end, header, arguments).await.errno();
                assert!(errno == 0 || errno == libc::EOPNOTSUPP, "{opcode}: {errno}");
                let found = peer.attributes(made.file).await.unwrap().mode & 0o7777;
                assert_eq!(found, left, "{opcode}, {mode:o}, group {gid}: {found:o}");
            }
        }
    });
}

#[test]
fn a_directory_is_synced_by_its_descriptor() {
    front_end_over_a_host(Duration::ZERO, async move |front_end, _, _| {
        let opened = ask(&front_end, opcode::OPENDIR, ROOT_NODE, &[0; 8]).await;
        let fh = OpenOut::read_from_prefix(&opened).unwrap().0.fh;
        let sync = FsyncIn { fh, ..Default::default() };
        ask(&front_end, opcode::FSYNCDIR, ROOT_NODE, sync.as_bytes()).await;
        let release = ReleaseIn { fh, ..Default::default() };
        ask(&front_end, opcode::RELEASEDIR, ROOT_NODE, release.as_bytes()).await;
        assert!(front_end.directories.borrow().is_empty());
    });
}
