//! Volumes by mke2fs, the kernel and debugfs; opened in virtual time.

use device::World;
use disks::{Image, MemoryDisk};
use engine::EngineOptions;
use ext4::{Caller, Inode, OpenParts, Volume, VolumeOptions};
use journal::DataMode;
use runtime::VirtualWorld;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;
use std::rc::Rc;
use units::InodeNumber;

pub const ROOT: InodeNumber = InodeNumber(2);
pub const MODES: [DataMode; 5] =
    [DataMode::Writeback, DataMode::Ordered, DataMode::Journal, DataMode::Wasteless, DataMode::Selective];

pub struct Rig {
    directory: tempfile::TempDir,
}

impl Rig {
    /// `arguments` of mke2fs, in one line; `fill` is a shell script that makes the content of the volume in `$PWD`.
    pub fn new(arguments: &str, size: &str, fill: &str) -> Rig {
        let rig = Rig { directory: tempfile::tempdir().unwrap() };
        let source = rig.path("source");
        std::fs::create_dir(&source).unwrap();
        succeed(Command::new("bash").args(["-c", &format!("set -e; {fill}")]).current_dir(&source));
        let mut command = Command::new("mke2fs");
        command.args(["-q", "-F", "-t", "ext4"]).args(arguments.split_whitespace());
        succeed(command.arg("-d").arg(source).arg(rig.image()).arg(size));
        rig
    }
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }
    pub fn image(&self) -> PathBuf {
        self.path("image")
    }
    pub fn read(&self) -> Image {
        Image::read_file(&self.image()).unwrap()
    }
    pub fn debugfs(&self, request: &str) -> String {
        succeed(Command::new("debugfs").args(["-w", "-R", request]).arg(self.image()))
    }
    /// The word behind `label:` in what debugfs tells of a file.
    pub fn told(&self, name: &str, label: &str) -> String {
        let told = self.debugfs(&format!("stat /{name}"));
        let word = told.split_whitespace().skip_while(|word| *word != format!("{label}:")).nth(1);
        word.unwrap_or_else(|| panic!("no {label} in {told}")).to_string()
    }
    /// Panics with what e2fsck says unless the volume is clean.
    pub fn check(&self) {
        succeed(Command::new("timeout").args(["120", "e2fsck", "-fn"]).arg(self.image()));
    }
    /// Runs a script in the image, mounted by the kernel where nobody else sees it.
    pub fn with_kernel(&self, script: &str) -> String {
        let mount_point = self.path("mount");
        std::fs::create_dir_all(&mount_point).unwrap();
        let script = format!(
            "set -e; mount -t ext4 -o loop '{}' '{1}'; (cd '{1}'; {script}\n); umount '{1}'",
            self.image().display(),
            mount_point.display()
        );
        let mut command = Command::new("timeout");
        succeed(command.args(["120", "unshare", "-m", "--propagation", "private", "bash", "-c", &script]))
    }
    /// Path, type, size and checksum of all that the kernel finds.
    pub fn kernels_tree(&self) -> Tree {
        let told = self.with_kernel(
            "find . -mindepth 1 -path ./lost+found -prune -o -printf '%P\t%y\t%l\n' | sort | while IFS=$'\t' read -r path kind target; do
                 case $kind in f) printf '%s\tf%s\n' \"$path\" \"$(od -An -v -tx1 \"$path\" | tr -d ' \\n')\";;
                 l) printf '%s\tl%s\n' \"$path\" \"$target\";; *) printf '%s\t%s\n' \"$path\" $kind;; esac; done",
        );
        let entry = |line: &str| line.split_once('\t').map(|(path, what)| (path.into(), what.into()));
        told.lines().map(|line| entry(line).unwrap()).collect()
    }
    /// Opens the volume, runs `work`, closes it, writes it back, and has it checked.
    pub fn with_volume<T: 'static, F: Future<Output = T> + 'static>(
        &self,
        mode: DataMode,
        work: impl FnOnce(Rc<Volume>) -> F + 'static,
    ) -> T {
        let (image, result) = run_on(self.read(), mode, work);
        image.write_file(&self.image()).unwrap();
        self.check();
        result
    }
}

/// Path to type (`f`, `d`, `l`, ...) and content in hexadecimal digits, or target.
pub type Tree = BTreeMap<String, String>;

/// Opens the volume in virtual time, runs `work`, closes it; what the disk holds then.
pub fn run_on<T: 'static, F: Future<Output = T> + 'static>(
    image: Image,
    mode: DataMode,
    work: impl FnOnce(Rc<Volume>) -> F + 'static,
) -> (Image, T) {
    let virtual_world = VirtualWorld::new(1);
    let world: Rc<dyn World> = Rc::new(virtual_world.clone());
    let disk = MemoryDisk::from_image(world.clone(), image);
    let home = disk.clone();
    let result = virtual_world.run(async move {
        let volume = open(&world, &home, mode).await.unwrap();
        let result = work(volume.clone()).await;
        volume.close().await.unwrap();
        result
    });
    (disk.image(), result)
}

pub async fn open(world: &Rc<dyn World>, disk: &MemoryDisk, data: DataMode) -> ext4::Result<Rc<Volume>> {
    let engine = EngineOptions { data, ..EngineOptions::default() };
    let options = VolumeOptions { engine, ..VolumeOptions::default() };
    let home = Rc::new(disk.clone());
    Volume::open(OpenParts { world: world.clone(), home, journal: None, options }).await
}

pub fn succeed(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}: {}\n{out}{err}", output.status);
    out.into_owned()
}

/// The inode at a path without leading slash.
pub async fn at(volume: &Rc<Volume>, path: &str) -> Rc<Inode> {
    let mut inode = volume.inode(ROOT).await.unwrap();
    for name in path.split('/').filter(|name| !name.is_empty()) {
        inode =
            volume.lookup(&inode, name.as_bytes()).await.unwrap_or_else(|error| panic!("{path}: {error}"));
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

/// As [`Rig::kernels_tree`], by us.
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
                0xa000 => format!("l{}", String::from_utf8(volume.readlink(&inode).await.unwrap()).unwrap()),
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
