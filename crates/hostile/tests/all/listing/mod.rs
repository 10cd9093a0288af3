//! Content of a volume, one line a file, listed by Okeanos and by the kernel.

use ext4::{Error, Inode, Volume};
use format::ext4::checksum::crc32c;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::process::{Command, Stdio};
use std::rc::Rc;
use units::InodeNumber;

/// Directories with more names are listed as a number and a checksum.
const NAMES_MAX: usize = 60;
const DEPTH_MAX: usize = 12;

struct Entry {
    mode: u32,
    uid: u32,
    gid: u32,
    links: u64,
    size: u64,
    device: u32,
    attributes: BTreeMap<Vec<u8>, Vec<u8>>,
}

fn line(path: &str, entry: &Entry, content: &str) -> String {
    let Entry { mode, uid, gid, links, size, device, attributes } = entry;
    let mut line = format!("{path} {mode:o} {uid}:{gid} links {links} size {size}{content}");
    if *device != 0 {
        line += &format!(" device {device:#x}");
    }
    for (name, value) in attributes {
        line += &format!(" {}={:08x}", String::from_utf8_lossy(name), crc32c(!0, value));
    }
    line
}

fn of_content(content: &[u8]) -> String {
    format!(" content {:08x}", crc32c(!0, content))
}
fn of_link(target: &[u8]) -> String {
    format!(" -> {}", String::from_utf8_lossy(target))
}
fn of_many(names: &BTreeSet<Vec<u8>>) -> String {
    let all = names.iter().flat_map(|name| [name, &b"\n"[..]].concat()).collect::<Vec<_>>();
    format!(" {} names {:08x}", names.len(), crc32c(!0, &all))
}

pub async fn by_okeanos(volume: &Rc<Volume>) -> Vec<String> {
    let mut lines = Vec::new();
    let mut next = vec![("/".to_string(), InodeNumber(2), 0)];
    while let Some((path, number, depth)) = next.pop() {
        let inode = match volume.inode(number).await {
            Ok(inode) => one_by_okeanos(volume, &inode, &path).await,
            Err(error) => Err(error),
        };
        match inode {
            Ok((line, children)) => {
                lines.push(line);
                if depth < DEPTH_MAX {
                    let below = |name: &[u8]| {
                        format!("{}/{}", path.trim_end_matches('/'), String::from_utf8_lossy(name))
                    };
                    next.extend(
                        children.iter().map(|(name, number)| (below(name), *number, depth + 1)),
                    );
                }
            }
            Err(error) => lines.push(format!("{path} error: {error}")),
        }
    }
    lines.sort();
    lines
}

type Children = Vec<(Vec<u8>, InodeNumber)>;

async fn one_by_okeanos(
    volume: &Rc<Volume>,
    inode: &Rc<Inode>,
    path: &str,
) -> Result<(String, Children), Error> {
    let mut attributes = BTreeMap::new();
    let names = volume.list_xattrs(inode, || true).await?;
    for name in names.split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        attributes.insert(name.to_vec(), volume.get_xattr(inode, name).await?);
    }
    let found = volume.getattr(inode);
    let entry = Entry {
        mode: found.mode.into(),
        uid: found.uid,
        gid: found.gid,
        links: found.links.into(),
        size: found.size,
        device: found.device,
        attributes,
    };
    let (content, children) = match found.mode & 0o170_000 {
        0o040_000 => {
            let children = children(volume, inode).await?;
            if children.len() > NAMES_MAX {
                (of_many(&children.into_iter().map(|(name, _)| name).collect()), Vec::new())
            } else {
                (String::new(), children)
            }
        }
        0o100_000 => {
            (of_content(&volume.read(inode, 0, found.size as usize).await?.to_vec()), Vec::new())
        }
        0o120_000 => (of_link(&volume.readlink(inode).await?), Vec::new()),
        _ => (String::new(), Vec::new()),
    };
    Ok((line(path, &entry, &content), children))
}

async fn children(volume: &Rc<Volume>, inode: &Rc<Inode>) -> Result<Children, Error> {
    let (mut children, mut cookie) = (Children::new(), 0);
    loop {
        let entries = volume.readdir(inode, cookie, 200).await?;
        let Some(last) = entries.last() else { return Ok(children) };
        cookie = last.cookie;
        let real = entries.into_iter().filter(|entry| entry.name != b"." && entry.name != b"..");
        children.extend(real.map(|entry| (entry.name, entry.inode)));
    }
}

/// Lists by the kernel, which replays and writes the image. `Err`: why it does not mount it.
pub fn by_kernel(image: &Path) -> Result<Vec<String>, String> {
    let directory = tempfile::tempdir().unwrap();
    // Another process may take the free loop device at the same moment: then try again.
    for attempt in 0.. {
        let mut mount = Command::new("mount");
        let mounted = mount.args(["-o", "loop"]).arg(image).arg(directory.path()).output().unwrap();
        let words = String::from_utf8_lossy(&mounted.stderr).into_owned();
        match mounted.status.success() {
            true => break,
            false if words.contains("loop device") && attempt < 20 => {
                std::thread::sleep(std::time::Duration::from_millis(200));
            }
            // The wording depends on the mount program's version.
            false => return Err("mount fails".into()),
        }
    }
    let mut lines = Vec::new();
    walk(directory.path(), "/", &mut lines);
    unmount(directory.path());
    lines.sort();
    Ok(lines)
}

/// A process that another thread has just forked has this process's files open, too, until it
/// executes its program.
fn unmount(directory: &Path) {
    for _ in 0..100 {
        let unmounted =
            Command::new("umount").arg(directory).stdin(Stdio::null()).status().unwrap();
        if unmounted.success() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    panic!("{} stays busy", directory.display());
}

fn walk(root: &Path, path: &str, lines: &mut Vec<String>) {
    let at = root.join(path.trim_start_matches('/'));
    let found = std::fs::symlink_metadata(&at).unwrap();
    let kind = found.file_type();
    let attributes = attributes(&at);
    let device =
        if kind.is_char_device() || kind.is_block_device() { found.rdev() as u32 } else { 0 };
    let entry = Entry {
        mode: found.mode(),
        uid: found.uid(),
        gid: found.gid(),
        links: found.nlink(),
        size: found.size(),
        device,
        attributes,
    };
    let mut children = BTreeSet::new();
    let content = if kind.is_dir() {
        let entries = std::fs::read_dir(&at).unwrap();
        children.extend(entries.map(|entry| entry.unwrap().file_name().as_bytes().to_vec()));
        if children.len() > NAMES_MAX {
            of_many(&std::mem::take(&mut children))
        } else {
            String::new()
        }
    } else if kind.is_file() {
        of_content(&std::fs::read(&at).unwrap())
    } else if kind.is_symlink() {
        of_link(std::fs::read_link(&at).unwrap().as_os_str().as_bytes())
    } else {
        String::new()
    };
    lines.push(line(path, &entry, &content));
    for name in children {
        let name = String::from_utf8(name).unwrap();
        walk(root, &format!("{}/{name}", path.trim_end_matches('/')), lines);
    }
}

fn attributes(path: &Path) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let path = CString::new(path.as_os_str().as_bytes()).unwrap();
    let mut names = vec![0u8; 65536];
    // SAFETY: the path ends with a zero byte; the buffer has the length given.
    let length = unsafe { libc::llistxattr(path.as_ptr(), names.as_mut_ptr().cast(), names.len()) };
    names.truncate(usize::try_from(length).unwrap_or_default());
    let mut found = BTreeMap::new();
    for name in names.split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        let mut value = vec![0u8; 65536];
        let c_name = CString::new(name).unwrap();
        // SAFETY: both strings end with a zero byte; the buffer has the length given.
        let length = unsafe {
            libc::lgetxattr(path.as_ptr(), c_name.as_ptr(), value.as_mut_ptr().cast(), value.len())
        };
        value.truncate(usize::try_from(length).expect("a value"));
        found.insert(OsStr::from_bytes(name).as_bytes().to_vec(), value);
    }
    found
}

/// Moves this thread, and the processes it starts, to a private mount namespace.
pub fn private_mounts() {
    // SAFETY: neither call touches memory of ours beyond the strings given, which end with zero
    // bytes.
    unsafe {
        assert_eq!(libc::geteuid(), 0, "these tests mount file systems: run them as root");
        assert_eq!(
            libc::unshare(libc::CLONE_NEWNS),
            0,
            "unshare: {}",
            std::io::Error::last_os_error()
        );
        let flags = libc::MS_REC | libc::MS_PRIVATE;
        let result =
            libc::mount(c"none".as_ptr(), c"/".as_ptr(), std::ptr::null(), flags, std::ptr::null());
        assert_eq!(result, 0, "private mounts: {}", std::io::Error::last_os_error());
    }
}
