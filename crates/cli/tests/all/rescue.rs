//! Commands for volumes that a crash or damage has left: what they report, and what they never
//! spend on a hostile one.

use crate::common::failing_disk::FailingDisk;
use crate::common::{Volume, gone, okeanos, said, signal};
use crate::rig::Rig;
use std::ffi::OsStr;
use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::process::Command;

/// `code COMMAND...`: its exit code; what it prints is in `printed`.
const CODE: &str = r#"code() { local status=0; "$@" >printed 2>&1 || status=$?; echo $status; }"#;

/// Sets the feature `quota`, for which a volume can only be read.
const WITH_QUOTA: &str = r#"python3 -c '
f = open("image", "r+b"); f.seek(1024 + 0x64); old = f.read(4)
f.seek(1024 + 0x64); f.write((int.from_bytes(old, "little") | 0x100).to_bytes(4, "little"))'"#;

#[test]
fn a_volume_that_can_only_be_read_is_recovered() {
    Rig::new().run(&format!(
        r#"{CODE}
           $O mkfs image 64M -- -q -O ^metadata_csum; serve data=ordered,noloop image; echo mine >$M/file; sync $M/file
           kill_daemon; umount $M; {WITH_QUOTA}
           [ $(code $O recover image) = 0 ] && grep -q ' replayed: ' printed || {{ cat printed; exit 1; }}
           [ $(code $O recover image) = 0 ]; debugfs -R 'cat /file' image 2>said | grep -q mine"#
    ));
}

/// The replay succeeds, and the volume cannot be opened.
#[test]
fn a_replay_is_reported_whatever_follows_it() {
    Rig::new().run(&format!(
        r#"{CODE}
           $O mkfs image 512M -- -q -b 1024 -O ^metadata_csum,^uninit_bg,^64bit; serve data=ordered,noloop image
           echo mine >$M/file; sync $M/file; kill_daemon; umount $M
           # The inode table of a group, whose descriptor the log does not hold, lies in the superblock.
           printf '\1\0\0\0' | dd of=image bs=1 seek=$((2048 + 40 * 32 + 8)) conv=notrunc status=none; copy image again
           [ $(code $O recover image) = 1 ] && grep -q ' replayed: ' printed && grep -q damaged printed || {{ cat printed; exit 1; }}
           # A loss has its exit code all the same.
           copy again lossy; debugfs -w -R 'ssv state 2' lossy 2>said
           [ $(code $O recover lossy) = 4 ]
           grep -q 'is marked' printed && grep -q damaged printed || {{ cat printed; exit 1; }}
           # What is printed as JSON is printed alone.
           refuses $O recover --json again >json 2>said; python3 -m json.tool json >parsed; grep -q damaged said"#
    ));
}

/// A volume without a journal that was not unmounted is nobody's to trust.
#[test]
fn of_a_volume_without_a_journal_no_recovery_is_promised() {
    Rig::new().run(&format!(
        r#"{CODE}
           $O mkfs image 64M -- -q -O ^has_journal; $O mount image $M 2>printed; grep -q 'has no journal' printed; $O umount $M; settle image
           [ $(code $O recover image) = 0 ] && [ $(code $O check image) = 0 ] || {{ cat printed; exit 1; }}
           serve defaults image 2>printed; dd if=/dev/zero of=$M/file bs=1k count=9 oflag=sync status=none; kill_daemon
           refuses $O stats $M 2>printed; refuses grep -q 'is safe' printed; grep -q "e2fsck -f $PWD/image" printed
           $O umount $M 2>printed; refuses grep -q recovers printed; grep -q 'e2fsck -f' printed; settle image
           [ $(code $O recover image) = 1 ] && grep -q 'nothing can be replayed' printed && grep -q 'e2fsck -f' printed || {{ cat printed; exit 1; }}
           [ $(code $O check image) = 4 ] && grep -q 'was not unmounted' printed || {{ cat printed; exit 1; }}"#
    ));
}

#[test]
fn a_damaged_journal_superblock_names_what_is_at_stake() {
    Rig::new().run(&format!(
        r#"{CODE}
           $O mkfs image 64M -- -q; serve data=wasteless,noloop image; echo mine >$M/file; sync $M/file; kill_daemon; umount $M
           at=$(debugfs -R 'bmap <8> 0' image 2>said)
           size=$(dumpe2fs -h image 2>said | sed -n 's/^Block size: *//p'); printf XXXX | dd of=image bs=1 seek=$((at * size)) conv=notrunc status=none
           for command in "recover image" "recover --until-damage image" "mount image $M"; do
               [ $(code $O $command) = 1 ] && grep -q 'journal superblock' printed && grep -q 'deletes a journal' printed || {{ cat printed; exit 1; }}
           done"#
    ));
}

#[test]
fn a_volume_read_past_its_live_journal_is_not_called_sound() {
    Rig::new().run(&format!(
        r#"{CODE}
           $O mkfs image 64M -- -q; serve data=wasteless,noloop image; echo mine >$M/file
           sync $M/file; kill_daemon; umount $M
           $O mount -o ro,noload image $M; [ $(code $O check $M) = 8 ] || {{ cat printed; exit 1; }}
           grep -q 'journal is not replayed' printed
           $O list | grep "$M" | grep -q 'journal not replayed  '
           $O umount $M; settle image
           $O recover image; $O mount -o ro,norecovery image $M
           [ $(code $O check $M) = 0 ] || {{ cat printed; exit 1; }}
           $O umount $M"#
    ));
}

#[test]
fn check_finds_a_volume_that_a_mount_wants_checked() {
    Rig::new().run(&format!(
        r#"{CODE}
           $O mkfs clean 64M -- -q -b 4096; copy clean image
           at=$(debugfs -R 'bmap <8> 0' image 2>said)
           python3 -c '
import sys
f = open("image", "r+b"); at = int(sys.argv[1]) * 4096; f.seek(at); raw = bytearray(f.read(1024))
raw[0x20:0x24] = (-5 & 0xffffffff).to_bytes(4, "big"); raw[0xfc:0x100] = bytes(4); crc = 0xffffffff
for byte in raw:
    crc ^= byte
    for bit in range(8): crc = crc >> 1 ^ (0x82f63b78 if crc & 1 else 0)
if raw[0x50]: raw[0xfc:0x100] = crc.to_bytes(4, "big")
f.seek(at); f.write(raw)' $at
           for words in '' --without-e2fsck; do
               [ $(code $O check $words image) = 4 ] || {{ cat printed; exit 1; }}
               [ $(grep -c 'journal records an error' printed) = 1 ]
               refuses grep -q 'nothing is wrong' printed
           done
           [ $(code $O recover image) = 4 ]; timeout 60 e2fsck -fy image >fsck || [ $? = 1 ]
           [ $(code $O check image) = 0 ]
           debugfs -w -R 'ssv state 0' clean 2>said
           for words in '' --without-e2fsck; do
               [ $(code $O check $words clean) = 4 ] && grep -q 'marked for a check' printed ||
                   {{ cat printed; exit 1; }}
           done
           timeout 60 e2fsck -fy clean >fsck || [ $? = 1 ]; [ $(code $O check clean) = 0 ]"#
    ));
}

#[test]
fn what_is_no_volume_says_what_it_is_and_what_to_try() {
    Rig::new().run(&format!(
        r#"{CODE}
           truncate -s 16M swap empty journal v log; mkswap swap >made 2>&1; mke2fs -q -F -O journal_dev log; $O blocks format v >made; mkdir store
           $O host mount --store dir:$PWD/store --journal journal --format $M; $O umount $M
           says() {{ local text=$1; shift; code $O "$@" >status; grep -q -- "$text" printed && refuses grep -qE 'ext2/ext3|e2fsck: ' printed || {{ echo "$*"; cat printed; exit 1; }}; }}
           for command in recover check "inspect super"; do
               says 'type swap' $command swap; says 'e2fsck -b 32768' $command empty; says 'okeanos host mount' $command journal
           done
           for command in recover check; do says 'external journal' $command log; done
           says 'okeanos blocks attach' inspect super v; says 'external journal' mount log $M
           for command in attach detach drain grow inspect; do
               code $O blocks $command journal >status; grep -q 'journal of a host' printed; refuses grep -q 'blocks format' printed
               code $O blocks $command swap >status; grep -q 'swap' printed; refuses grep -q 'blocks format' printed
           done"#
    ));
}

#[test]
fn the_length_of_a_cut_image_is_named() {
    Rig::new().run(&format!(
        r#"{CODE}
           $O mkfs image 64M -- -q; truncate -s 40M image; [ $(code $O check image) = 8 ]; grep -q "truncate -s $((64 << 20)) image" printed"#
    ));
}

#[test]
fn a_foreign_journal_says_nothing_of_the_volume() {
    Rig::new().run(&format!(
        r#"{CODE}
           $O mkfs --journal-device log --journal-size 8M ext 64M -- -q >made
           $O mkfs --journal-device other --journal-size 8M other-ext 64M -- -q >>made
           $O mkfs image 64M -- -q >>made
           for named in 'other ext' 'log image' 'image ext'; do
               [ $(code $O check --journal-device $named) = 8 ] && grep -q 'own journal' printed || {{ cat printed; exit 1; }}
               refuses grep -q 'repair it' printed
           done
           for named in 'other ext' 'log image' 'log nowhere'; do
               [ $(code $O inspect journal --journal-device $named) = 1 ] ||
                   {{ cat printed; exit 1; }}
           done
           [ $(code $O inspect journal --journal-device log ext) = 0 ]
           [ $(code $O check --journal-device log ext) = 0 ]"#
    ));
}

#[test]
fn remedies_of_a_check_can_be_followed() {
    Rig::new().run(&format!(
        r#"{CODE}
           $O mkfs --journal-device log --journal-size 8M ext 64M -- -q >made
           serve data=ordered,noloop,journal_dev=log ext; echo mine >$M/file; sync $M/file; kill_daemon; umount $M
           [ $(code $O check --journal-device log ext) = 8 ]; grep -q 'okeanos recover --journal-device log ext' printed
           $O recover --journal-device log ext; [ $(code $O check --journal-device log ext) = 0 ]
           $O mkfs image 64M -- -q >made; L=$(losetup -f --show image); trap 'umount -q other; losetup -d $L' EXIT
           mkdir other; mount $L other; [ $(code $O check $L) = 8 ]; grep -q 'unmount it first' printed; refuses grep -q 'okeanos list' printed
           $O mkfs whole 64M -- -q >made; $O mount whole $M; mkdir $M/below; mount -t tmpfs none $M/below
           [ $(code $O check $M) = 0 ]; grep -q '^Not looked at: .*other mounts cover' printed; umount $M/below; $O umount $M"#
    ));
}

/// A pipe that nobody writes to, in place of a disk.
#[test]
fn no_command_waits_at_a_pipe() {
    Rig::new().run(
        r#"mkfifo pipe; truncate -s 64M image
           for command in check recover 'inspect super' 'blocks format' 'blocks inspect' mkfs fingerprint "mount -o ro"; do
               status=0; timeout 20 $O $command pipe $([ "${command%% *}" != mount ] || echo $M) >printed 2>&1 || status=$?
               [ $status != 0 ] && [ $status != 124 ] || { echo "$command: $status" >&2; cat printed >&2; exit 1; }
           done"#,
    );
}

#[test]
fn one_file_in_both_roles_is_named_as_such() {
    Rig::new().run(
        r#"$O mkfs image 64M -- -q >made; truncate -s 64M v; $O blocks format v >made
           for command in 'recover --journal-device image image' 'blocks drain --log v v' 'blocks grow --log v v' 'blocks inspect --log v v'; do
               refuses $O $command 2>printed; grep -q 'given twice' printed || { cat printed; exit 1; }
           done"#,
    );
}

#[test]
fn json_of_stats_escapes_control_characters() {
    Rig::new().run(
        r#"name=$'im\xc2\x85age'; $O mkfs "$name" 64M -- -q >made; $O mount "$name" $M
           for how in --json '--json --watch=1s --count=1'; do
               $O stats $how $M >printed; grep -q 'im\\u0085age' printed || { cat printed; exit 1; }
           done
           $O umount $M; settle "$name""#,
    );
}

/// Functions that write inodes of a volume with blocks of 4 KiB, and without checksums.
const HOSTILE: &str = r#"
import struct
f = open("image", "r+b")
def at(place, length): f.seek(place); return f.read(length)
def put(place, data): f.seek(place); f.write(data)
table, = struct.unpack("<I", at(4096 + 8, 4))
def header(entries, depth, room=340): return struct.pack("<HHHHI", 0xf30a, entries, room, depth, 0)
def extent(first, home, count=32768): return struct.pack("<IHHI", first, count, 0, home)
def index(first, child): return struct.pack("<IIHH", first, child, 0, 0)
def inode(number, mode, blocks, root):
    size = min(blocks * 4096, (1 << 32) - 1)
    raw = bytearray(struct.pack("<HHIIIIIHHII", mode, 0, size, 0, 0, 0, 0, 0, 1, 0, 0x80000) + bytes(4))
    put(table * 4096 + (number - 1) * 256, bytes(raw) + root.ljust(60, b"\0"))
"#;

/// Leaves of one directory's tree hold the same file blocks again and again, or all of its blocks
/// are one.
#[test]
fn a_hostile_tree_takes_no_memory_without_end() {
    let deep = r#"
first = 4000
for node in range(4):
    children = [first + 4 + node * 16 + n for n in range(16)]
    put((first + node) * 4096, header(16, 1) + b"".join(index(n, child) for n, child in enumerate(children)))
    for child in children:
        put(child * 4096, header(32, 0) + b"".join(extent(n << 15, 16) for n in range(32)))
inode(2, 0o40755, 1 << 20, header(4, 2, 4) + b"".join(index(n, first + n) for n in range(4)))
"#;
    let same = r#"
first = 4000
for node in range(4):
    put((first + node) * 4096, header(340, 0) + b"".join(extent(node * 340 + n, 6000, 1) for n in range(340)))
put(6000 * 4096, b"".join(struct.pack("<IHBB4s", 12, 12, 3, 1, b"abc") for n in range(341)) + bytes(4))
inode(2, 0o40755, 1360, header(4, 1, 4) + b"".join(index(n * 340, first + n) for n in range(4)))
"#;
    for tree in [deep, same] {
        // As large as the blocks of the tree would be together.
        Rig::new().run(&format!(
            r#"mke2fs -q -F -t ext4 -b 4096 -I 256 -N 32768 -O ^metadata_csum,^uninit_bg,^64bit,^resize_inode,^has_journal,^flex_bg image 256G
               python3 -c '{HOSTILE}{tree}'
               for command in 'check --without-e2fsck' 'inspect dir /'; do
                   status=0; (ulimit -v 768000; exec timeout 60 $O $command image >printed 2>&1) || status=$?
                   [ $status -ge 1 ] && [ $status -le 12 ] && grep -q 'twice\|something else' printed || {{ echo "$command: $status" >&2; head -c 1000 printed >&2; exit 1; }}
               done"#
        ));
    }
}

/// Each inode has all blocks of the volume.
#[test]
fn inodes_that_share_all_blocks_delay_no_check() {
    let shared = r#"
put(20000 * 4096, header(32, 0) + b"".join(extent(n << 15, n << 15) for n in range(32)))
root = header(1, 1, 4) + index(0, 20000)
for group in range(32):
    _, inodes, table = struct.unpack("<III", at(4096 + 32 * group, 12))
    for number in range(12 if group == 0 else 1, 1025): inode(number, 0o100600, 1 << 20, root)
    put(inodes * 4096, b"\xff" * 4096)
"#;
    Rig::new().run(&format!(
        r#"mke2fs -q -F -t ext4 -b 4096 -I 256 -N 32768 -O ^metadata_csum,^uninit_bg,^64bit,^resize_inode,^has_journal,^flex_bg image 4G
           python3 -c '{HOSTILE}{shared}'
           status=0; timeout 60 $O check --without-e2fsck --json image >printed 2>&1 || status=$?
           [ $status = 4 ] || {{ echo $status >&2; head -c 1000 printed >&2; exit 1; }}"#
    ));
}

/// Runs the command on the disk, and returns its exit code and what it printed.
fn code_of(arguments: &[&str], disk: &FailingDisk) -> (Option<i32>, String) {
    let path = disk.path();
    let mut all: Vec<&OsStr> = arguments.iter().map(OsStr::new).collect();
    all.push(path.as_os_str());
    let output = okeanos(&all);
    (output.status.code(), said(&output))
}

/// A sector of a file cannot be read, and the log holds a part of it.
#[test]
fn recover_names_the_file_that_it_leaves_out() {
    const BLOCK: u64 = 4096;
    let volume = Volume::mounted(&["-t", "ext4", "-b", "4096"], "data=wasteless,noloop");
    fs::create_dir(volume.at("logs")).unwrap();
    for name in ["logs/harmed", "sound"] {
        fs::write(volume.at(name), [b'a'; BLOCK as usize]).unwrap();
    }
    volume.umount();
    let mut debugfs = Command::new("debugfs");
    let listed = debugfs.args(["-R", "blocks /logs/harmed"]).arg(volume.image()).output().unwrap();
    let block: u64 = String::from_utf8(listed.stdout).unwrap().trim().parse().unwrap();
    volume.mount("data=wasteless,noloop,checkpoint=manual");
    for name in ["logs/harmed", "sound"] {
        let file = OpenOptions::new().write(true).open(volume.at(name)).unwrap();
        file.write_all_at(b"new", BLOCK / 2).unwrap();
        file.sync_all().unwrap();
    }
    let daemon = volume.daemon();
    signal(daemon, libc::SIGKILL);
    gone(daemon);
    volume.umount();
    let port = volume.directory.path().join("port");
    fs::create_dir(&port).unwrap();
    let disk = FailingDisk::new(&volume.image(), &port);
    disk.make_unreadable(block * BLOCK..(block + 1) * BLOCK);
    let (code, printed) = code_of(&["recover"], &disk);
    assert!(code == Some(1) && printed.contains("--skip-unreadable"), "{code:?} {printed}");
    let (code, printed) = code_of(&["recover", "--skip-unreadable"], &disk);
    let left_out = format!("Block {block} cannot be read and was left out: /logs/harmed (inode ");
    assert!(code == Some(4) && printed.contains(&left_out), "{code:?} {printed}");
    let (code, printed) = code_of(&["check"], &disk);
    assert_eq!(code, Some(4), "{printed}");
    drop(disk);
    volume.mount("noloop");
    let sound = fs::read(volume.at("sound")).unwrap();
    assert_eq!(&sound[BLOCK as usize / 2..][..3], b"new");
    volume.umount();
}
