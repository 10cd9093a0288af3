//! Volumes that a script fills, and what the kernel finds on them.

use crate::image::{in_mode, open as open_volume, play};
use device::World;
use disks::{Image, MemoryDisk};
use ext4::{Caller, Inode, Volume};
use journal::DataMode;
use std::collections::BTreeMap;
use std::process::Command;
use std::rc::Rc;

pub use crate::image::{MODES, ROOT, TestImage, succeed};

impl TestImage {
    /// `arguments` of mke2fs, in one line; `fill` is a shell script that makes the content of the
    /// volume in `$PWD`.
    pub fn scripted(arguments: &str, size: &str, fill: &str) -> TestImage {
        let arguments: Vec<_> =
            ["-t", "ext4"].into_iter().chain(arguments.split_whitespace()).collect();
        TestImage::filled(&arguments, size, |source| {
            succeed(
                Command::new("bash").args(["-c", &format!("set -e; {fill}")]).current_dir(source),
            );
        })
    }
    /// Path, type, size and checksum of all that the kernel finds.
    pub fn kernels_tree(&self) -> Tree {
        let output = self.with_kernel(
            "find . -mindepth 1 -path ./lost+found -prune -o -printf '%P\t%y\t%l\n' | sort | while IFS=$'\t' read -r path kind target; do
                 case $kind in f) printf '%s\tf%s\n' \"$path\" \"$(od -An -v -tx1 \"$path\" | tr -d ' \\n')\";;
                 l) printf '%s\tl%s\n' \"$path\" \"$target\";; *) printf '%s\t%s\n' \"$path\" $kind;; esac; done",
        );
        let entry =
            |line: &str| line.split_once('\t').map(|(path, what)| (path.into(), what.into()));
        output.lines().map(|line| entry(line).unwrap()).collect()
    }
    pub fn with_volume<T: 'static, F: Future<Output = T> + 'static>(
        &self,
        mode: DataMode,
        work: impl FnOnce(Rc<Volume>) -> F + 'static,
    ) -> T {
        self.play(1, in_mode(mode), work)
    }
}

/// Path to type (`f`, `d`, `l`, ...) and content in hexadecimal digits, or target.
pub type Tree = BTreeMap<String, String>;

pub fn run_on<T: 'static, F: Future<Output = T> + 'static>(
    image: Image,
    mode: DataMode,
    work: impl FnOnce(Rc<Volume>) -> F + 'static,
) -> (Image, T) {
    play(image, 1, in_mode(mode), work)
}

pub async fn open(
    world: &Rc<dyn World>,
    disk: &MemoryDisk,
    data: DataMode,
) -> ext4::Result<Rc<Volume>> {
    open_volume(world, disk, None, in_mode(data)).await
}

/// The inode at a path without leading slash.
pub async fn at(volume: &Rc<Volume>, path: &str) -> Rc<Inode> {
    let mut inode = volume.inode(ROOT).await.unwrap();
    for name in path.split('/').filter(|name| !name.is_empty()) {
        inode = volume
            .lookup(&inode, name.as_bytes())
            .await
            .unwrap_or_else(|error| panic!("{path}: {error}"));
    }
    inode
}

pub async fn content(volume: &Rc<Volume>, inode: &Rc<Inode>) -> Vec<u8> {
    let size = volume.getattr(inode).size as usize;
    volume.read(inode, 0, size + 10).await.unwrap().to_vec()
}

/// The names but `.` and `..`, in the order of the listing, `count` at a time.
pub async fn names(volume: &Rc<Volume>, directory: &Rc<Inode>, count: usize) -> Vec<String> {
    let (mut all, mut cookie) = (Vec::new(), 0);
    loop {
        let entries = volume.readdir(directory, cookie, count).await.unwrap();
        let Some(last) = entries.last() else { return all };
        cookie = last.cookie;
        let names = entries.iter().map(|entry| String::from_utf8_lossy(&entry.name).into_owned());
        all.extend(names.filter(|name| name != "." && name != ".."));
    }
}

/// The tree of [`TestImage::kernels_tree`], read by Okeanos.
pub async fn tree(volume: &Rc<Volume>) -> Tree {
    let mut found = Tree::new();
    let mut next = vec![(String::new(), volume.inode(ROOT).await.unwrap())];
    while let Some((path, directory)) = next.pop() {
        for name in names(volume, &directory, 7).await {
            if path.is_empty() && name == "lost+found" {
                continue;
            }
            let inode = volume.lookup(&directory, name.as_bytes()).await.unwrap();
            let path = if path.is_empty() { name } else { format!("{path}/{name}") };
            let what = match inode.kind() {
                0x8000 => {
                    let content = content(volume, &inode).await;
                    content.iter().fold("f".to_string(), |text, byte| text + &format!("{byte:02x}"))
                }
                0xa000 => format!(
                    "l{}",
                    String::from_utf8(volume.readlink(&inode).await.unwrap()).unwrap()
                ),
                0x4000 => {
                    next.push((path.clone(), inode));
                    "d".into()
                }
                _ => "p".into(),
            };
            assert!(found.insert(path, what).is_none());
        }
    }
    found
}

pub async fn write(volume: &Rc<Volume>, inode: &Rc<Inode>, offset: u64, bytes: &[u8]) {
    let flags = ext4::WriteFlags::default();
    let written = volume.write(inode, &Caller::ROOT, offset, bytes, flags).await.unwrap();
    assert_eq!(written.count, bytes.len());
}

pub async fn make_file(volume: &Rc<Volume>, directory: &Rc<Inode>, name: &str) -> Rc<Inode> {
    volume.mknod(directory, name.as_bytes(), &Caller::ROOT, 0o100_644, 0).await.unwrap().value
}
