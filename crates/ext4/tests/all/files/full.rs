//! Volumes that are full.

use crate::files::image::{EXT4, EXT4_1K, Kind, TestImage, with_volume};
use crate::image::{ROOT, in_mode, play_on};
use disks::Latency;
use engine::{Credits, DataMode};
use ext4::{
    Caller, Existence, Inode, RangeMode, SetXattr, SyncWhat, Volume, WriteFlags, WriteOrigin,
};
use std::rc::Rc;
use std::time::Duration;
use units::{InodeNumber, Refusal};

/// Blocks that are allocated before the volume is full.
const BLOCKS: u64 = 100;

/// Writes to `file` until nothing is left for root either.
async fn fill(volume: &Rc<Volume>, file: &Rc<Inode>) {
    let mut at = 0;
    loop {
        let flags = WriteFlags::default();
        match volume.write(file, &Caller::ROOT, at, &[1; 1 << 16], flags).await {
            Ok(written) => at += written.count as u64,
            Err(error) => return assert_eq!(error.refusal(), Some(Refusal::NoSpace), "{error}"),
        }
    }
}

async fn write(volume: &Rc<Volume>, file: &Rc<Inode>, at: u64, what: &str) {
    let written = volume.write(file, &Caller::ROOT, at, &[9; 1024], WriteFlags::default()).await;
    assert_eq!(written.expect(what).count, 1024, "{what}");
    volume.sync_file(file, SyncWhat::All).await.expect(what);
}

async fn allocate(
    volume: &Rc<Volume>,
    file: &Rc<Inode>,
    mode: RangeMode,
    at: u64,
    length: u64,
) -> ext4::Result<()> {
    volume.fallocate(file, &Caller::ROOT, mode, true, at, length).await.map(drop)
}

/// Allocated space can be written to and freed, although both may split extents.
#[test]
fn preallocated_space_of_a_full_volume_is_usable() {
    for Kind { name, arguments, block, .. } in [EXT4_1K, EXT4] {
        let image = TestImage::filled(&[arguments, &["-m", "0"]].concat(), "24M", |source| {
            ["f0", "f1"].iter().for_each(|file| std::fs::write(source.join(file), b"").unwrap());
        });
        with_volume(&image, 2, move |volume, files| async move {
            let (file, filler) = (&files[0], &files[1]);
            allocate(&volume, file, RangeMode::Allocate, 0, BLOCKS * block).await.unwrap();
            fill(&volume, filler).await;
            let root = volume.inode(ROOT).await.unwrap();
            let refused = volume.mkdir(&root, b"directory", &Caller::ROOT, 0o755).await;
            assert_eq!(refused.err().unwrap().refusal(), Some(Refusal::NoSpace), "{name}");
            assert_eq!(volume.statfs().await.unwrap().blocks_available, 0, "{name}");
            for at in (1..BLOCKS / 2).step_by(2) {
                write(&volume, file, at * block, &format!("{name}: block {at}")).await;
            }
            for at in (1 + BLOCKS / 2..BLOCKS).step_by(2) {
                let punched = allocate(&volume, file, RangeMode::PunchHole, at * block, block);
                punched.await.unwrap_or_else(|error| panic!("{name}: hole at {at}: {error}"));
            }
        });
    }
}

/// Makes a volume without reserved blocks, with empty files `f0`, `f1`, ...
fn unreserved(arguments: &[&str], files: usize) -> TestImage {
    TestImage::filled(&[arguments, &["-m", "0"]].concat(), "24M", |source| {
        (0..files).for_each(|file| std::fs::write(source.join(format!("f{file}")), b"").unwrap());
    })
}

/// Plays `work` on the volume, on a disk that takes its time.
fn play_slowly<F: Future<Output = ()> + 'static>(
    image: &TestImage,
    work: impl FnOnce(Rc<Volume>, runtime::VirtualWorld) -> F + 'static,
) {
    let slow = Some(Latency { least: Duration::from_micros(100), spread: Duration::ZERO });
    let (left, ()) = play_on(image.read(), 1, slow, in_mode(DataMode::Ordered), work);
    left.write_file(&image.path()).unwrap();
    image.check();
}

async fn pause(volume: &Volume, micros: u64) {
    let world = volume.engine().world();
    world.sleep_until(world.now().plus(Duration::from_micros(micros))).await;
}

/// Begins to free a file that the kernel alone refers to: removes its name, and drops the kernel's
/// reference in a task of its own, as it comes by a request of its own.
async fn begin_to_free(
    volume: &Rc<Volume>,
    world: &runtime::VirtualWorld,
    (name, number): (&str, InodeNumber),
) -> runtime::Receiver<ext4::Result<()>> {
    let root = volume.inode(ROOT).await.unwrap();
    volume.remember(&volume.inode(number).await.unwrap());
    volume.unlink(&root, name.as_bytes()).await.unwrap();
    let freeing = volume.clone();
    let freed = runtime::spawn_with_result(world, async move { freeing.forget(number, 1).await });
    pause(volume, 10).await;
    freed
}

#[test]
fn a_write_waits_for_a_removed_files_space() {
    let image = unreserved(EXT4_1K.arguments, 2);
    with_volume(&image, 1, |volume, files| async move { fill(&volume, &files[1]).await });
    let (writer, filler) = (image.inode(0), image.inode(1));
    play_slowly(&image, move |volume, world| async move {
        let file = volume.inode(writer).await.unwrap();
        let freed = begin_to_free(&volume, &world, ("f1", filler)).await;
        write(&volume, &file, 0, "beside the freeing").await;
        freed.await.unwrap().unwrap();
    });
}

#[test]
fn a_new_file_waits_for_a_removed_files_number() {
    let image = unreserved(&[EXT4_1K.arguments, &["-N", "32"]].concat(), 1);
    let make = async |volume: &Rc<Volume>, name: &str| {
        let root = volume.inode(ROOT).await.unwrap();
        volume.mknod(&root, name.as_bytes(), &Caller::ROOT, 0o100_644, 0).await.map(drop)
    };
    with_volume(&image, 1, move |volume, _| async move {
        for number in 0.. {
            if let Err(error) = make(&volume, &format!("other{number}")).await {
                return assert_eq!(error.refusal(), Some(Refusal::NoSpace), "{error}");
            }
        }
    });
    let removed = image.inode(0);
    play_slowly(&image, move |volume, world| async move {
        let freed = begin_to_free(&volume, &world, ("f0", removed)).await;
        make(&volume, "new").await.expect("beside the freeing");
        freed.await.unwrap().unwrap();
    });
}

/// Two writes find enough space before either takes it. What one leaves is too short for the
/// other, and the rest is freed by a commit that has to be waited for. The kernel does not write a
/// page back again that once failed.
#[test]
fn pages_written_back_at_once_wait_for_freed_space() {
    const HOLES: u64 = 16;
    let image = unreserved(EXT4.arguments, 5);
    let numbers: Vec<_> = (0..5).map(|file| image.inode(file)).collect();
    play_slowly(&image, move |volume, world| async move {
        let mut files = Vec::new();
        for number in numbers {
            files.push(volume.inode(number).await.unwrap());
        }
        let length = HOLES * EXT4.block;
        for (file, blocks) in [(&files[3], 100), (&files[4], 20)] {
            let content = vec![1; blocks * EXT4.block as usize];
            volume.write(file, &Caller::ROOT, 0, &content, WriteFlags::default()).await.unwrap();
        }
        for file in &files[..2] {
            volume.truncate(file, length).await.unwrap();
        }
        fill(&volume, &files[2]).await;
        volume.truncate(&files[4], 0).await.unwrap();
        volume.sync().await.unwrap();
        assert_eq!(volume.statfs().await.unwrap().blocks_available, 20);
        volume.truncate(&files[3], 0).await.unwrap();
        // Neither gets a handle while the commit waits for this one.
        let open = volume.engine().start(Credits(0)).await.unwrap();
        let (committing, transaction) = (volume.engine().clone(), open.transaction());
        let commit = async move { committing.commit(transaction).await };
        let commit = runtime::spawn_with_result(&world, commit);
        pause(&volume, 1000).await;
        let mut writes = Vec::new();
        for file in &files[..2] {
            let (volume, file) = (volume.clone(), file.clone());
            let flags = WriteFlags { origin: WriteOrigin::WriteBack, ..Default::default() };
            writes.push(runtime::spawn_with_result(&world, async move {
                let content = vec![2; length as usize];
                volume.write(&file, &Caller::ROOT, 0, &content, flags).await.map(|it| it.count)
            }));
        }
        pause(&volume, 1000).await;
        open.stop();
        for written in writes {
            assert_eq!(written.await.unwrap().unwrap() as u64, length);
        }
        commit.await.unwrap().unwrap();
    });
}

/// The new directory's number is freed again before the next attempt. By then the commit that was
/// to be waited for has ended, and another writer has released its blocks.
#[test]
fn a_new_directory_finds_what_came_free_during_its_attempt() {
    let image = unreserved(EXT4.arguments, 3);
    with_volume(&image, 1, |volume, files| async move {
        let root = volume.inode(ROOT).await.unwrap();
        // In a block of its own, which is read when a file is made.
        let set = SetXattr {
            name: b"user.long",
            value: &[1; 1000],
            existence: Existence::Any,
            clear_set_group: false,
        };
        volume.set_xattr(&root, &Caller::ROOT, set).await.unwrap();
        let content = vec![1; 20 * EXT4.block as usize];
        volume.write(&files[0], &Caller::ROOT, 0, &content, WriteFlags::default()).await.unwrap();
        fill(&volume, &files[1]).await;
    });
    let numbers: Vec<_> = (0..3).map(|file| image.inode(file)).collect();
    play_slowly(&image, move |volume, world| async move {
        let file = volume.inode(numbers[0]).await.unwrap();
        let other = volume.inode(numbers[2]).await.unwrap();
        let freed = volume.truncate(&file, 0).await.unwrap();
        let making = volume.clone();
        let made = runtime::spawn_with_result(&world, async move {
            let root = making.inode(ROOT).await.unwrap();
            making.mkdir(&root, b"directory", &Caller::ROOT, 0o755).await.map(drop)
        });
        let next = InodeNumber(numbers.iter().map(|number| number.get()).max().unwrap() + 1);
        let directory = loop {
            match volume.inode(next).await {
                Ok(directory) => break directory,
                Err(_) => pause(&volume, 10).await,
            }
        };
        let held = directory.lock.write().await;
        pause(&volume, 1000).await;
        volume.engine().commit(freed).await.unwrap();
        write(&volume, &other, 0, "which releases the blocks").await;
        drop((held, directory));
        made.await.unwrap().expect("blocks have come free");
    });
}
