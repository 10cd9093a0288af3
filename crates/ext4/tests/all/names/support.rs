//! Volumes without files, on disks that take their time, and calls by name.

use crate::image::{check_file, open as open_volume, play_on, with_engine};
use device::World;
use disks::{Image, Latency, MemoryDisk};
use engine::EngineOptions;
use ext4::{Caller, DirectoryEntry, Inode, Volume};
use runtime::VirtualWorld;
use std::rc::Rc;
use std::time::Duration;
use units::Refusal;

pub use crate::image::{ROOT, TestImage};

pub const REGULAR: u16 = 0o100_644;

/// Parameters of a volume to make: a name for messages, and the arguments of mke2fs.
#[derive(Clone, Copy, Debug)]
pub struct Kind(pub &'static str, pub &'static [&'static str]);

pub const EXT4: Kind = Kind("ext4", &["-t", "ext4", "-b", "4096"]);
pub const EXT4_1K: Kind = Kind("ext4 of 1 KiB", &["-t", "ext4", "-b", "1024"]);
pub const EXT3: Kind = Kind("ext3", &["-t", "ext3", "-b", "4096"]);
pub const EXT3_1K: Kind = Kind("ext3 of 1 KiB", &["-t", "ext3", "-b", "1024"]);
pub const LINEAR: Kind = Kind("linear", &["-t", "ext4", "-b", "1024", "-O", "^dir_index"]);
pub const UNCHECKED: Kind =
    Kind("without checksums", &["-t", "ext4", "-b", "1024", "-O", "^metadata_csum"]);
pub const UNTYPED: Kind = Kind("without types", &["-t", "ext3", "-b", "2048", "-O", "^filetype"]);
pub const ALL: [Kind; 7] = [EXT4, EXT4_1K, EXT3, EXT3_1K, LINEAR, UNCHECKED, UNTYPED];

/// Reads take their time, so that tasks meet in the middle of things.
const LATENCY: Latency =
    Latency { least: Duration::from_micros(10), spread: Duration::from_micros(90) };

impl TestImage {
    /// `size` as mke2fs reads it.
    pub fn of_inodes(kind: Kind, size: &str, inodes: u32) -> TestImage {
        TestImage::make(&[&["-N", &inodes.to_string()], kind.1].concat(), size)
    }
    /// Runs `test` on the volume in virtual time, closes it, writes the image back and has it
    /// checked.
    pub fn with<T: 'static, F: Future<Output = T> + 'static>(
        &self,
        seed: u64,
        test: impl FnOnce(Rc<Volume>, VirtualWorld) -> F + 'static,
    ) -> T {
        self.with_other("image", seed, test)
    }
    /// Runs as [`TestImage::with`] does, on another image.
    pub fn with_other<T: 'static, F: Future<Output = T> + 'static>(
        &self,
        name: &str,
        seed: u64,
        test: impl FnOnce(Rc<Volume>, VirtualWorld) -> F + 'static,
    ) -> T {
        let path = self.path_of(name);
        let (image, options) =
            (Image::read_file(&path).unwrap(), with_engine(EngineOptions::default()));
        let (image, result) = play_on(image, seed, Some(LATENCY), options, test);
        image.write_file(&path).unwrap();
        check_file(&path, &format!("seed {seed}"));
        result
    }
}

pub async fn open(world: &Rc<dyn World>, disk: &MemoryDisk) -> ext4::Result<Rc<Volume>> {
    open_with(world, disk, EngineOptions::default()).await
}
pub async fn open_with(
    world: &Rc<dyn World>,
    disk: &MemoryDisk,
    engine: EngineOptions,
) -> ext4::Result<Rc<Volume>> {
    open_volume(world, disk, None, with_engine(engine)).await
}

/// Lists all entries, in chunks of `count`; `.` and `..` included.
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

/// Asserts that the operation is refused for that reason.
#[track_caller]
pub fn assert_refused<T>(result: ext4::Result<T>, refusal: Refusal) {
    match result {
        Ok(_) => panic!("done instead of refused: {refusal}"),
        Err(error) => assert_eq!(error.refusal(), Some(refusal), "{error}"),
    }
}
