//! Changes of synchronous files, mounts and descriptors: what a power cut right behind the reply
//! leaves.

use crate::common::{Opened, front_end_over_a_disk, open_volume, plain_options, request};
use device::{Operation, World};
use disks::{CrashPolicy, Fault, MemoryDisk};
use ext4::{Attributes, Caller, Inode, RangeMode, Volume, flags};
use fuse::{FrontEndOptions, VolumeFrontEnd};
use fuse_session::abi::{
    CopyFileRangeIn, FallocateIn, InHeader, IoctlIn, SetattrIn, SetxattrIn, WriteIn, fattr, opcode,
};
use fuse_session::{FileSystem, Reply};
use runtime::VirtualWorld;
use std::rc::Rc;
use units::InodeNumber;
use zerocopy::IntoBytes;

const SETFLAGS: u32 = 0x4008_6602;
const SIZE: u64 = 9_000;

/// A change, as the opcode of its request, its body, and the name for a failure.
type Change = (u32, Vec<u8>, &'static str);

/// Returns every request that changes a file, of this node, and is no write. Those with a handle
/// have this one.
fn changes(node: u64, handle: u64, current_flags: u32) -> Vec<Change> {
    let valid = |valid: u32| SetattrIn { valid, ..Default::default() };
    let set = |arguments: SetattrIn| arguments.as_bytes().to_vec();
    let fallocate = |mode: i32, length: u64| {
        let mode = mode as u32;
        let arguments = FallocateIn { fh: handle, mode, length, ..Default::default() };
        arguments.as_bytes().to_vec()
    };
    const PUNCH: i32 = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    let (name, value) = (b"user.colour\0", b"red");
    let attribute = SetxattrIn { size: value.len() as u32, ..Default::default() };
    let cut = SetattrIn { fh: handle, size: 5_000, ..valid(fattr::SIZE | fattr::FH) };
    let copy = CopyFileRangeIn {
        offset_in: 4_096,
        nodeid_out: node,
        fh_out: handle,
        offset_out: 3 * SIZE,
        length: 500,
        ..Default::default()
    };
    // As the kernel passes it when it has checked the caller.
    let wanted = (current_flags ^ flags::NO_DUMP).to_le_bytes();
    let set_flags = IoctlIn { cmd: SETFLAGS, in_size: 4, ..Default::default() };
    vec![
        (opcode::SETATTR, set(cut), "truncate"),
        (opcode::FALLOCATE, fallocate(0, 2 * SIZE), "allocate"),
        (opcode::FALLOCATE, fallocate(PUNCH, 4_096), "punch"),
        (opcode::COPY_FILE_RANGE_64, copy.as_bytes().to_vec(), "copy"),
        (opcode::SETATTR, set(SetattrIn { mode: 0o600, ..valid(fattr::MODE) }), "chmod"),
        (opcode::SETATTR, set(SetattrIn { gid: 1234, ..valid(fattr::GID) }), "chown"),
        (opcode::SETATTR, set(SetattrIn { mtime: 77, ..valid(fattr::MTIME) }), "utimens"),
        (opcode::SETXATTR, [attribute.as_bytes(), name, value].concat(), "setxattr"),
        (opcode::REMOVEXATTR, name.to_vec(), "removexattr"),
        (opcode::IOCTL, [set_flags.as_bytes(), &wanted].concat(), "chattr"),
    ]
}

/// State that a change can affect.
#[derive(Debug, PartialEq)]
struct Seen {
    attributes: Attributes,
    flags: u32,
    xattrs: Vec<u8>,
}

async fn see(volume: &Rc<Volume>, inode: &Rc<Inode>) -> Seen {
    Seen {
        attributes: volume.getattr(inode),
        flags: volume.flags(inode),
        xattrs: volume.list_xattrs(inode, || true).await.unwrap(),
    }
}

/// Returns what a power cut at this moment leaves of the file.
fn after_power_cut(disk: &MemoryDisk, file: InodeNumber) -> Seen {
    let crashed = disk.crash(CrashPolicy::LoseAll);
    let virtual_world = VirtualWorld::new(1);
    let world: Rc<dyn World> = Rc::new(virtual_world.clone());
    virtual_world.run(async move {
        let disk = MemoryDisk::from_image(world.clone(), crashed);
        let volume = open_volume(&world, &disk).await;
        let seen = see(&volume, &volume.inode(file).await.unwrap()).await;
        volume.close().await.unwrap();
        seen
    })
}

/// Plays all changes on the file, or on the root directory, and returns those that a power cut
/// right behind the reply takes away.
fn lost(
    options: FrontEndOptions,
    handle: u64,
    promised: u32,
    on_directory: bool,
) -> Vec<&'static str> {
    let (sender, receiver) = std::sync::mpsc::channel();
    front_end_over_a_disk(options, move |opened| async move {
        let Opened { front_end, volume, disk, file } = opened;
        let file = if on_directory { InodeNumber(2) } else { file };
        let node = if on_directory { 1 } else { u64::from(file.get()) };
        let inode = volume.inode(file).await.unwrap();
        if !on_directory {
            let bytes = vec![b'x'; SIZE as usize];
            volume.write(&inode, &Caller::ROOT, 0, &bytes, Default::default()).await.unwrap();
        }
        volume.set_flags(&inode, volume.flags(&inode) | promised).await.unwrap();
        volume.sync().await.unwrap();
        for (opcode, body, name) in changes(node, handle, volume.flags(&inode)) {
            let is_of_content = matches!(name, "truncate" | "allocate" | "punch" | "copy");
            if on_directory && is_of_content {
                continue;
            }
            let before = see(&volume, &inode).await;
            let header = InHeader { opcode, nodeid: node, ..Default::default() };
            let reply = front_end.clone().serve(request(header, &body)).await;
            assert_eq!(reply.errno(), 0, "{name}");
            let after = see(&volume, &inode).await;
            assert_ne!(after, before, "{name}");
            if after_power_cut(&disk, file) != after {
                sender.send(name).unwrap();
            }
            volume.sync().await.unwrap();
        }
    });
    receiver.into_iter().collect()
}

const ALL: [&str; 10] = [
    "truncate",
    "allocate",
    "punch",
    "copy",
    "chmod",
    "chown",
    "utimens",
    "setxattr",
    "removexattr",
    "chattr",
];

#[test]
fn changes_of_a_synchronous_file_survive_a_power_cut() {
    assert_eq!(lost(plain_options(), 0, flags::SYNC, false), [""; 0]);
    assert_eq!(lost(plain_options(), 0, 0, false), ALL, "nobody has asked for more");
}

#[test]
fn changes_on_a_synchronous_mount_survive_a_power_cut() {
    let synchronous = || FrontEndOptions { synchronous: true, ..plain_options() };
    assert_eq!(lost(synchronous(), 0, 0, false), [""; 0]);
    assert_eq!(lost(synchronous(), 0, 0, true), [""; 0]);
}

#[test]
fn attributes_of_a_synchronous_directory_survive_a_power_cut() {
    let with = || FrontEndOptions { synchronous_directories: true, ..plain_options() };
    assert_eq!(lost(with(), 0, 0, true), [""; 0]);
    assert_eq!(lost(plain_options(), 0, flags::DIRECTORY_SYNC, true), [""; 0]);
    assert_eq!(lost(plain_options(), 0, flags::SYNC, true), [""; 0]);
    assert_eq!(lost(plain_options(), 0, 0, true), ALL[4..]);
}

#[test]
fn a_synchronous_descriptor_changes_size_and_blocks_durably() {
    for flag in [libc::O_SYNC, libc::O_DSYNC] {
        assert_eq!(lost(plain_options(), flag as u64, 0, false), ALL[4..], "{flag:o}");
    }
}

/// The kernel passes the handle 0 for descriptors that it opened by itself (`noopen`), whatever
/// their flags, and our own for those that made their file.
#[test]
fn a_descriptor_of_unknown_flags_changes_content_durably() {
    let unobserved = || FrontEndOptions { without_open: true, ..plain_options() };
    assert_eq!(lost(unobserved(), 0, 0, false), ALL[4..]);
    assert_eq!(lost(unobserved(), libc::O_RDWR as u64, 0, false), ALL, "made, and not synchronous");
}

/// A file that a truncate left shorter, with its blocks behind the end: the bitmap that they are in
/// could not be read. The disk is well again.
struct CutHalfWay {
    front_end: Rc<VolumeFrontEnd>,
    volume: Rc<Volume>,
    inode: Rc<Inode>,
    disk: MemoryDisk,
}

const CUT: u64 = 4_096;

async fn truncate_request(front_end: &Rc<VolumeFrontEnd>, file: InodeNumber, size: u64) -> Reply {
    let body = SetattrIn { valid: fattr::SIZE, size, ..Default::default() };
    let header =
        InHeader { opcode: opcode::SETATTR, nodeid: u64::from(file.get()), ..Default::default() };
    front_end.clone().serve(request(header, body.as_bytes())).await
}

/// Runs `work` on a file that a truncate has left half-way.
fn cut_half_way<F: Future<Output = ()> + 'static>(work: impl FnOnce(CutHalfWay) -> F + 'static) {
    front_end_over_a_disk(plain_options(), |opened| async move {
        let Opened { volume, disk, file, .. } = opened;
        let inode = volume.inode(file).await.unwrap();
        let bytes = vec![b'x'; SIZE as usize];
        volume.write(&inode, &Caller::ROOT, 0, &bytes, Default::default()).await.unwrap();
        volume.sync().await.unwrap();
        let world = volume.engine().world().clone();
        let disk = MemoryDisk::from_image(world.clone(), disk.crash(CrashPolicy::LoseAll));
        let volume = open_volume(&world, &disk).await;
        let inode = volume.inode(file).await.unwrap();
        let front_end = VolumeFrontEnd::new(volume.clone(), plain_options(), Box::new(|_| {}));
        disk.inject(Fault::forever(Operation::Read));
        let reply = truncate_request(&front_end, file, CUT).await;
        disk.heal();
        assert_eq!((reply.errno(), volume.getattr(&inode).size), (libc::EIO, CUT));
        assert!(reply.has_stale(), "the kernel keeps the size of before");
        work(CutHalfWay { front_end, volume, inode, disk }).await;
    });
}

/// The new size is stored, and the blocks behind it cannot be freed. The kernel believes the size
/// of before, unless it asks again.
#[test]
fn a_truncate_that_fails_half_way_has_the_kernel_ask_for_the_size() {
    cut_half_way(|cut| async move { cut.volume.close().await.unwrap() });
}

/// Returns the requests that make the file longer, of this node.
fn lengthenings(node: u64) -> Vec<Change> {
    let truncate = SetattrIn { valid: fattr::SIZE, size: SIZE, ..Default::default() };
    let write = |write_flags| {
        let body = WriteIn { offset: SIZE - 1, size: 1, write_flags, ..Default::default() };
        [body.as_bytes(), &[0]].concat()
    };
    let fallocate = |mode: i32| {
        let mode = mode as u32;
        FallocateIn { length: SIZE, mode, ..Default::default() }.as_bytes().to_vec()
    };
    let copy =
        CopyFileRangeIn { nodeid_out: node, offset_out: SIZE, length: 1, ..Default::default() };
    vec![
        (opcode::SETATTR, truncate.as_bytes().to_vec(), "truncate"),
        (opcode::WRITE, write(0), "write"),
        (opcode::WRITE, write(fuse_session::abi::write::CACHE), "page"),
        (opcode::FALLOCATE, fallocate(0), "allocate"),
        (opcode::FALLOCATE, fallocate(libc::FALLOC_FL_ZERO_RANGE), "zero"),
        (opcode::COPY_FILE_RANGE_64, copy.as_bytes().to_vec(), "copy"),
    ]
}

#[test]
fn bytes_that_a_failed_truncate_cut_off_stay_away() {
    for (opcode, body, name) in lengthenings(12) {
        let copied = if name == "copy" { SIZE..SIZE + 1 } else { 0..0 };
        cut_half_way(move |cut| async move {
            let CutHalfWay { front_end, volume, inode, disk } = cut;
            let node = u64::from(inode.number.get());
            assert_eq!(node, 12, "the requests name it");
            let header = InHeader { opcode, nodeid: node, ..Default::default() };
            disk.inject(Fault::forever(Operation::Read));
            let refused = front_end.clone().serve(request(header, &body)).await;
            disk.heal();
            let size = volume.getattr(&inode).size;
            assert_eq!((refused.errno(), size), (libc::EIO, CUT), "{name} while none can be freed");
            let reply = front_end.serve(request(header, &body)).await;
            assert_eq!(reply.errno(), 0, "{name}");
            let read = volume.read(&inode, CUT, (2 * SIZE) as usize).await.unwrap().to_vec();
            assert!(read.len() as u64 >= SIZE - CUT, "{name} has not made it longer");
            let stale =
                read.iter().zip(CUT..).find(|(byte, at)| **byte != 0 && !copied.contains(at));
            assert_eq!(stale, None, "{name}");
            volume.close().await.unwrap();
        });
    }
}

/// The next mount would cut off space that was reserved since.
#[test]
fn space_reserved_behind_a_failed_truncate_survives_a_mount() {
    for again in [true, false] {
        cut_half_way(move |cut| async move {
            let CutHalfWay { front_end, volume, inode, disk } = cut;
            if again {
                let reply = truncate_request(&front_end, inode.number, CUT).await;
                assert_eq!(reply.errno(), 0);
            }
            let (mode, length) = (RangeMode::Allocate, 40 * CUT);
            volume.fallocate(&inode, &Caller::ROOT, mode, true, 0, length).await.unwrap();
            let reserved = volume.getattr(&inode).sectors;
            assert_eq!(reserved, length / 512);
            volume.close().await.unwrap();
            let volume = open_volume(volume.engine().world(), &disk).await;
            assert_eq!(volume.open_report().orphans, Default::default());
            let inode = volume.inode(inode.number).await.unwrap();
            assert_eq!(volume.getattr(&inode).sectors, reserved);
            volume.truncate(&inode, length).await.unwrap();
            let content = volume.read(&inode, CUT, length as usize).await.unwrap().to_vec();
            assert!(content.iter().all(|byte| *byte == 0));
            volume.close().await.unwrap();
        });
    }
}

/// The kernel counts the blocks anew behind a fallocate(2) that succeeds, and keeps what it knew
/// behind one that does not.
#[test]
fn an_allocation_that_fails_half_way_has_the_kernel_ask() {
    front_end_over_a_disk(plain_options(), |opened| async move {
        let Opened { front_end, volume, file, .. } = opened;
        let inode = volume.inode(file).await.unwrap();
        let header = InHeader {
            opcode: opcode::FALLOCATE,
            nodeid: u64::from(file.get()),
            ..Default::default()
        };
        let body = FallocateIn { length: 64 << 20, ..Default::default() };
        let reply = front_end.clone().serve(request(header, body.as_bytes())).await;
        let allocated = volume.getattr(&inode).sectors;
        assert!(reply.errno() == libc::ENOSPC && allocated > 10_000, "{allocated} sectors");
        assert!(reply.has_stale(), "the kernel keeps the sectors of before");
        let again = front_end.serve(request(header, body.as_bytes())).await;
        assert!(again.errno() == libc::ENOSPC && !again.has_stale(), "nothing changed");
    });
}
