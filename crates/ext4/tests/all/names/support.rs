//! Images by mke2fs, volumes on them in virtual time, and what e2fsprogs says about them afterwards.

use device::World;
use disks::{Latency, MemoryDisk};
use engine::EngineOptions;
use ext4::{Caller, DirectoryEntry, Inode, OpenParts, Volume, VolumeOptions};
use runtime::VirtualWorld;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::rc::Rc;
use std::time::Duration;
use tempfile::TempDir;
use units::InodeNumber;

pub const ROOT: InodeNumber = InodeNumber(2);
pub const REGULAR: u16 = 0o100_644;

/// How to make a volume: a name for messages, and the arguments of mke2fs.
#[derive(Clone, Copy, Debug)]
pub struct Kind(pub &'static str, pub &'static [&'static str]);

pub const EXT4: Kind = Kind("ext4", &["-t", "ext4", "-b", "4096"]);
pub const EXT4_1K: Kind = Kind("ext4 of 1 KiB", &["-t", "ext4", "-b", "1024"]);
pub const EXT3: Kind = Kind("ext3", &["-t", "ext3", "-b", "4096"]);
pub const EXT3_1K: Kind = Kind("ext3 of 1 KiB", &["-t", "ext3", "-b", "1024"]);
pub const LINEAR: Kind = Kind("linear", &["-t", "ext4", "-b", "1024", "-O", "^dir_index"]);
pub const UNCHECKED: Kind = Kind("without checksums", &["-t", "ext4", "-b", "1024", "-O", "^metadata_csum"]);
pub const UNTYPED: Kind = Kind("without types", &["-t", "ext3", "-b", "2048", "-O", "^filetype"]);
pub const ALL: [Kind; 7] = [EXT4, EXT4_1K, EXT3, EXT3_1K, LINEAR, UNCHECKED, UNTYPED];

pub struct TestImage {
    directory: TempDir,
}

impl TestImage {
    /// `size` as mke2fs reads it.
    pub fn make(kind: Kind, size: &str, inodes: u32) -> TestImage {
        let image = TestImage { directory: tempfile::tempdir().unwrap() };
        let mut command = Command::new("mke2fs");
        command.args(["-q", "-F", "-N", &inodes.to_string()]).args(kind.1).arg(image.path()).arg(size);
        succeed(command.output().unwrap(), "mke2fs");
        image
    }
    pub fn path(&self) -> PathBuf {
        self.path_of("image")
    }
    /// Another image that lives as long as this one.
    pub fn path_of(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }
    pub fn debugfs(&self, request: &str) -> String {
        let output = Command::new("debugfs").arg("-R").arg(request).arg(self.path()).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
    /// One command that changes the volume.
    pub fn debugfs_write(&self, request: &str) {
        let mut command = Command::new("debugfs");
        succeed(command.args(["-w", "-R", request]).arg(self.path()).output().unwrap(), request);
    }
    /// Panics with what e2fsck says unless the volume is clean.
    pub fn check(&self) {
        self.check_other("image");
    }
    fn check_other(&self, name: &str) {
        let mut command = Command::new("timeout");
        let output = command.args(["300", "e2fsck", "-fn"]).arg(self.path_of(name)).output().unwrap();
        succeed(output, "e2fsck -fn");
    }

    /// Runs `test` on the volume in virtual time, closes it, writes the image back and has it checked.
    pub fn with<T: 'static, F: Future<Output = T> + 'static>(
        &self,
        seed: u64,
        test: impl FnOnce(Rc<Volume>, VirtualWorld) -> F + 'static,
    ) -> T {
        self.with_other("image", seed, test)
    }
    /// As [`TestImage::with`], on another image.
    pub fn with_other<T: 'static, F: Future<Output = T> + 'static>(
        &self,
        name: &str,
        seed: u64,
        test: impl FnOnce(Rc<Volume>, VirtualWorld) -> F + 'static,
    ) -> T {
        let virtual_world = VirtualWorld::new(seed);
        let world: Rc<dyn World> = Rc::new(virtual_world.clone());
        let disk = MemoryDisk::read_image(world.clone(), &self.path_of(name)).unwrap();
        // Reads take their time, so that tasks meet in the middle of things.
        disk.set_latency(Latency { least: Duration::from_micros(10), spread: Duration::from_micros(90) });
        let home = disk.clone();
        let for_test = virtual_world.clone();
        let result = virtual_world.run(async move {
            let volume = open(&world, &home).await.unwrap();
            let result = test(volume.clone(), for_test).await;
            volume.close().await.unwrap();
            result
        });
        disk.write_image(&self.path_of(name)).unwrap();
        self.check_other(name);
        result
    }
}

pub fn succeed(output: Output, what: &str) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{what}: {}{}", text(&output.stdout), text(&output.stderr));
    text(&output.stdout)
}

pub async fn open(world: &Rc<dyn World>, disk: &MemoryDisk) -> ext4::Result<Rc<Volume>> {
    open_with(world, disk, EngineOptions::default()).await
}
pub async fn open_with(
    world: &Rc<dyn World>,
    disk: &MemoryDisk,
    engine: EngineOptions,
) -> ext4::Result<Rc<Volume>> {
    let options = VolumeOptions { mount_point: "/test".into(), engine, ..VolumeOptions::default() };
    let home = Rc::new(disk.clone());
    Volume::open(OpenParts { world: world.clone(), home, journal: None, options }).await
}

/// All entries, read in chunks of `count`; `.` and `..` included.
pub async fn list(volume: &Rc<Volume>, directory: &Rc<Inode>, count: usize) -> Vec<DirectoryEntry> {
    let (mut all, mut cookie) = (Vec::new(), 0);
    loop {
        let entries = volume.readdir(directory, cookie, count).await.unwrap();
        let Some(last) = entries.last() else { return all };
        cookie = last.cookie;
        all.extend(entries);
    }
}

/// The names but `.` and `..`, sorted.
pub async fn names(volume: &Rc<Volume>, directory: &Rc<Inode>) -> Vec<Vec<u8>> {
    let entries = list(volume, directory, 100).await.into_iter().map(|entry| entry.name);
    let mut names: Vec<Vec<u8>> = entries.filter(|name| name != b"." && name != b"..").collect();
    names.sort();
    names
}

pub async fn make_file(volume: &Rc<Volume>, directory: &Rc<Inode>, name: &str) -> Rc<Inode> {
    volume.mknod(directory, name.as_bytes(), &Caller::ROOT, REGULAR, 0).await.unwrap().value
}

pub async fn make_directory(volume: &Rc<Volume>, directory: &Rc<Inode>, name: &str) -> Rc<Inode> {
    volume.mkdir(directory, name.as_bytes(), &Caller::ROOT, 0o755).await.unwrap().value
}

/// Asserts that the operation is refused with that errno.
#[track_caller]
pub fn assert_refused<T>(result: ext4::Result<T>, errno: i32) {
    match result {
        Ok(_) => panic!("done instead of refused with {errno}"),
        Err(error) => assert_eq!(error.errno(), errno, "{error}"),
    }
}
