//! Tests of file handles, as an NFS server keeps them: `name_to_handle_at` and `open_by_handle_at`.

use crate::common::{Volume, c_path};
use std::fs::{self, File};
use std::io::{Error, Read, Result};
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// `struct file_handle`: FUSE keeps node (high half, low half) and generation in twelve bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct Handle {
    bytes: u32,
    kind: i32,
    node_high: u32,
    node_low: u32,
    generation: u32,
    rest: [u32; 29],
}

fn handle_of(path: &Path) -> Handle {
    let mut handle =
        Handle { bytes: 128, kind: 0, node_high: 0, node_low: 0, generation: 0, rest: [0; 29] };
    let (path, mut mount) = (c_path(path), 0i32);
    // SAFETY: the path ends with a zero byte, and the handle has the space that its header states.
    let result = unsafe {
        let (handle, mount) = (&raw mut handle, &raw mut mount);
        libc::syscall(libc::SYS_name_to_handle_at, libc::AT_FDCWD, path.as_ptr(), handle, mount, 0)
    };
    assert_eq!(result, 0, "{}", Error::last_os_error());
    handle
}

fn open(root: &Path, mut handle: Handle) -> Result<File> {
    let mount = File::open(root)?;
    // SAFETY: the handle is as long as its header states; a returned descriptor is new.
    unsafe {
        match libc::syscall(
            libc::SYS_open_by_handle_at,
            mount.as_raw_fd(),
            &raw mut handle,
            libc::O_RDONLY,
        ) {
            -1 => Err(Error::last_os_error()),
            descriptor => Ok(File::from_raw_fd(descriptor as i32)),
        }
    }
}

fn content(root: &Path, handle: Handle) -> Result<String> {
    let mut text = String::new();
    open(root, handle)?.read_to_string(&mut text)?;
    Ok(text)
}

fn is_stale<T>(result: Result<T>) -> bool {
    result.is_err_and(|error| error.raw_os_error() == Some(libc::ESTALE))
}

/// Returns the volume's state according to the superblock.
fn state_of(volume: &Volume) -> String {
    let output = Command::new("dumpe2fs").arg("-h").arg(volume.image()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = text.lines().find_map(|line| line.strip_prefix("Filesystem state:")).unwrap();
    line.trim().to_owned()
}

#[test]
fn a_handle_opens_its_file_after_the_inode_left_memory() {
    let volume = Volume::mounted(&["-t", "ext4"], "");
    fs::create_dir_all(volume.at("a/b")).unwrap();
    fs::write(volume.at("top"), "top").unwrap();
    fs::write(volume.at("a/b/deep"), "deep").unwrap();
    let handles = ["top", "a/b/deep", "a/b", ""].map(|name| handle_of(&volume.at(name)));
    // After a mount the kernel has none of them cached.
    volume.umount();
    volume.mount("");
    let [top, deep, directory, root] = handles;
    assert_eq!(content(&volume.root(), top).unwrap(), "top");
    assert_eq!(content(&volume.root(), deep).unwrap(), "deep");
    let directory = open(&volume.root(), directory).unwrap();
    let place = fs::read_link(format!("/proc/self/fd/{}", directory.as_raw_fd())).unwrap();
    assert_eq!(place, volume.at("a/b"), "its parents are found by their numbers, too");
    assert_eq!(open(&volume.root(), root).unwrap().metadata().unwrap().ino(), 2);
    drop(directory);
    volume.umount_and_check();
}

#[test]
fn the_handle_of_a_removed_file_is_stale_also_when_another_got_its_inode() {
    let volume = Volume::mounted(&["-t", "ext4"], "");
    let path: PathBuf = volume.at("file");
    fs::write(&path, "old").unwrap();
    let (handle, number) = (handle_of(&path), fs::metadata(&path).unwrap().ino());
    fs::remove_file(&path).unwrap();
    assert!(is_stale(content(&volume.root(), handle)));
    fs::write(&path, "new").unwrap();
    assert_eq!(fs::metadata(&path).unwrap().ino(), number, "or this tests nothing");
    assert!(is_stale(content(&volume.root(), handle)));
    volume.umount();
    volume.mount("");
    assert!(is_stale(content(&volume.root(), handle)));
    assert_eq!(content(&volume.root(), handle_of(&path)).unwrap(), "new");
    volume.umount_and_check();
}

#[test]
fn a_handle_that_somebody_made_up_is_stale_and_damages_nothing() {
    for arguments in [&["-t", "ext4"][..], &["-t", "ext3", "-O", "^metadata_csum"]] {
        let volume = Volume::mounted(arguments, "");
        fs::write(volume.at("file"), "content").unwrap();
        let real = handle_of(&volume.at("file"));
        let nodes = (0..40).chain([1000, 16_000, 16_384, 16_385, 1 << 31, u32::MAX]);
        for node_low in nodes.filter(|node| *node != real.node_low) {
            for node_high in [0, 1, u32::MAX] {
                // A guess of the generation of the root or of lost+found (zero) is a real handle.
                let forged = Handle { node_low, node_high, generation: 0x1234_5678, ..real };
                let opened = open(&volume.root(), forged);
                assert!(is_stale(opened), "node {node_high}:{node_low}");
            }
        }
        assert_eq!(content(&volume.root(), real).unwrap(), "content");
        volume.umount();
        assert_eq!(state_of(&volume), "clean");
        volume.check();
    }
}
