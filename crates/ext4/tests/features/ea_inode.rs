//! `ea_inode`: attributes' values in inodes of their own.

use crate::support::*;
use ext4::{Caller, Existence, SetXattr, Volume, errno};
use std::rc::Rc;

/// `a` and `b` share the value of `user.big`; the attributes of `d1` and `d2` fill a block that the kernel may share.
const KERNEL: &str = "python3 - <<'P'
import os
for name in ('a', 'b', 'c', 'd1', 'd2', 'gone'): open(name, 'w').close()
os.mkdir('directory')
for name in ('a', 'b', 'directory'): os.setxattr(name, 'user.big', b'v' * 10000)
os.setxattr('c', 'user.many', bytes(range(256)) * 200)
os.setxattr('c', 'user.small', b's')
os.setxattr('c', b'user.\\xc3\\xa4', b'w' * 5000)
for name in ('d1', 'd2'):
    os.setxattr(name, 'user.fill', b'f' * 500)
    os.setxattr(name, 'user.big', b'x' * 20000)
    os.setxattr(name, 'user.more', b'm' * 150)
for index in range(20): os.setxattr('gone', 'user.%d' % index, bytes([index]) * 6000)
P
";

async fn get(volume: &Rc<Volume>, path: &str, name: &str) -> Result<Vec<u8>, i32> {
    volume.get_xattr(&at(volume, path).await, name.as_bytes()).await.map_err(|error| error.errno())
}
async fn remove(volume: &Rc<Volume>, path: &str, name: &str) {
    volume.remove_xattr(&at(volume, path).await, &Caller::ROOT, name.as_bytes()).await.unwrap();
}

#[test]
fn values_in_inodes_of_their_own_are_read_and_removed() {
    for kind in [
        "-O ea_inode -b 1024",
        "-O ea_inode,^metadata_csum -b 4096",
        "-O ea_inode,inline_data -I 512 -b 2048",
    ] {
        let rig = Rig::new(kind, "16M", ":");
        rig.with_kernel(KERNEL);
        rig.check();
        rig.with_volume(MODES[3], |volume| async move {
            let free = volume.statfs().await.unwrap();
            for path in ["a", "b", "directory"] {
                assert_eq!(get(&volume, path, "user.big").await.unwrap(), vec![b'v'; 10000]);
            }
            assert_eq!(get(&volume, "c", "user.many").await.unwrap().len(), 51200);
            assert_eq!(get(&volume, "c", "user.ä").await.unwrap(), vec![b'w'; 5000]);
            assert_eq!(get(&volume, "d2", "user.big").await.unwrap(), vec![b'x'; 20000]);
            // One reference of three goes, then an owner; the value stays for the last.
            remove(&volume, "a", "user.big").await;
            assert_eq!(get(&volume, "a", "user.big").await, Err(errno::ENODATA));
            let root = volume.inode(ROOT).await.unwrap();
            volume.unlink(&root, b"b").await.unwrap();
            assert_eq!(get(&volume, "directory", "user.big").await.unwrap(), vec![b'v'; 10000]);
            // A value that becomes small leaves its inode; one beside it changes.
            let c = at(&volume, "c").await;
            for (name, value) in [("user.many", &b"few"[..]), ("user.small", b"other")] {
                let (name, existence) = (name.as_bytes(), Existence::Old);
                let set = SetXattr { name, value, existence, clear_set_group: false };
                volume.set_xattr(&c, &Caller::ROOT, set).await.unwrap();
            }
            assert_eq!(get(&volume, "c", "user.many").await.unwrap(), b"few");
            assert_eq!(get(&volume, "c", "user.ä").await.unwrap(), vec![b'w'; 5000]);
            // Shared or not, the neighbour keeps its own.
            remove(&volume, "d1", "user.more").await;
            remove(&volume, "d2", "user.big").await;
            assert_eq!(get(&volume, "d1", "user.big").await.unwrap(), vec![b'x'; 20000]);
            volume.unlink(&root, b"gone").await.unwrap();
            volume.sync().await.unwrap();
            let now = volume.statfs().await.unwrap();
            assert!(now.inodes_free >= free.inodes_free + 22, "{} of {}", now.inodes_free, free.inodes_free);
            assert!(now.blocks_free > free.blocks_free);
            // New big values stay in the attribute block or are refused.
            let set = SetXattr {
                name: b"user.huge",
                value: &[7; 30000],
                existence: Existence::New,
                clear_set_group: false,
            };
            let refused = volume.set_xattr(&c, &Caller::ROOT, set).await;
            assert_eq!(refused.unwrap_err().errno(), errno::ENOSPC);
        });
        let told = rig.with_kernel(
            "getfattr -d -m user -e hex a c d1 d2 directory 2>/dev/null | cut -c1-60 | grep -v '^$'",
        );
        assert_eq!(told.lines().filter(|line| line.starts_with("user.")).count(), 8, "{told}");
    }
}

#[test]
fn a_damaged_value_is_told_and_nothing_else_suffers() {
    let rig = Rig::new("-O ea_inode -b 1024", "16M", ":");
    rig.with_kernel(KERNEL);
    let number = rig.debugfs("inode_dump /a");
    assert!(!number.is_empty());
    // The first inode with a value: its content, its length, its flag, its links.
    let first =
        (12..60).find(|number| rig.debugfs(&format!("stat <{number}>")).contains("Flags: 0x280000")).unwrap();
    let healthy = rig.read();
    for request in [
        "set_inode_field <N> atime 5",
        "set_inode_field <N> size 9999",
        "set_inode_field <N> flags 0x80000",
        "set_inode_field <N> links_count 0",
        "set_inode_field <N> version 0",
    ] {
        healthy.write_file(&rig.image()).unwrap();
        rig.debugfs(&request.replace('N', &first.to_string()));
        run_on(rig.read(), MODES[1], move |volume| async move {
            let owners = ["a", "b", "directory"];
            let mut told = 0;
            for path in owners {
                told += u32::from(get(&volume, path, "user.big").await == Err(errno::EUCLEAN));
                let removed = volume.remove_xattr(&at(&volume, path).await, &Caller::ROOT, b"user.big").await;
                told += u32::from(removed.is_err_and(|error| error.errno() == errno::EUCLEAN));
            }
            assert!(told > 0, "{request}");
            let root = volume.inode(ROOT).await.unwrap();
            write(&volume, &at(&volume, "a").await, 0, b"text").await;
            volume.unlink(&root, b"a").await.unwrap();
            volume.unlink(&root, b"b").await.unwrap();
        });
    }
}
