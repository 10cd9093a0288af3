//! Files of which durability is enough: by attribute and by name, on volumes of mke2fs.

use crate::image::{TestImage, in_mode};
use ext4::{Caller, Existence, Inode, SetXattr, Volume, WriteFlags};
use journal::DataMode;
use std::rc::Rc;
use units::InodeNumber;

const DIRECTORY: u16 = 0o40_755;
const FILE: u16 = 0o100_644;

/// Opens a fresh volume with `durable_only=`, in a mode that logs no data, runs `work`, and has
/// e2fsck look at what is left.
fn with_volume<F: Future<Output = ()> + 'static>(
    patterns: &str,
    work: impl FnOnce(Rc<Volume>) -> F + 'static,
) {
    let mut options = in_mode(DataMode::Ordered);
    options.durable_only = Some(patterns.parse().unwrap());
    options.engine.durable_only = true;
    TestImage::make(&["-t", "ext4"], "32M").play(1, options, work);
}

async fn make(volume: &Rc<Volume>, parent: &Rc<Inode>, name: &str, mode: u16) -> Rc<Inode> {
    let name = name.as_bytes();
    match mode {
        DIRECTORY => volume.mkdir(parent, name, &Caller::ROOT, 0o755).await.unwrap().value,
        _ => volume.mknod(parent, name, &Caller::ROOT, mode, 0).await.unwrap().value,
    }
}

/// Whether a large write to `inode` is logged: as blocks of data that were not written home.
async fn is_logged(volume: &Rc<Volume>, inode: &Rc<Inode>) -> bool {
    is_logged_at(0, volume, inode).await
}

async fn is_logged_at(offset: u64, volume: &Rc<Volume>, inode: &Rc<Inode>) -> bool {
    let data = |volume: &Volume| volume.engine().statistics().home_written["data"].blocks;
    let before = data(volume);
    volume
        .write(inode, &Caller::ROOT, offset, &[7; 64 << 10], WriteFlags::default())
        .await
        .unwrap();
    volume.sync().await.unwrap();
    assert_eq!(volume.read(inode, offset, 5).await.unwrap().to_vec(), [7; 5]);
    data(volume) == before
}

async fn set(volume: &Rc<Volume>, inode: &Rc<Inode>, value: &[u8]) {
    let name = b"user.okeanos.durability";
    let set = SetXattr { name, value, existence: Existence::Any, clear_set_group: false };
    volume.set_xattr(inode, &Caller::ROOT, set).await.unwrap();
}

#[test]
fn the_attribute_counts_for_a_file_and_for_all_beneath_a_directory() {
    with_volume("nothing", |volume| async move {
        let root = volume.inode(InodeNumber(2)).await.unwrap();
        let plain = make(&volume, &root, "plain", FILE).await;
        assert!(!is_logged(&volume, &plain).await);
        set(&volume, &plain, b"only").await;
        assert!(is_logged(&volume, &plain).await);

        let above = make(&volume, &root, "above", DIRECTORY).await;
        let early = make(&volume, &above, "early", FILE).await;
        set(&volume, &above, b"only").await;
        let beneath = make(&volume, &above, "beneath", DIRECTORY).await;
        let file = make(&volume, &beneath, "file", FILE).await;
        assert!(is_logged(&volume, &file).await);
        assert!(!is_logged(&volume, &early).await, "it has not been found there since");
        let found = volume.lookup(&above, b"early").await.unwrap();
        assert!(is_logged(&volume, &found).await);

        let other = make(&volume, &root, "other", FILE).await;
        set(&volume, &other, b"of course").await;
        assert!(!is_logged(&volume, &other).await);
    });
}

#[test]
fn names_count_for_files_and_for_all_beneath_directories() {
    with_volume("*.wal:*/journal/*", |volume| async move {
        let root = volume.inode(InodeNumber(2)).await.unwrap();
        let journal = make(&volume, &root, "journal", DIRECTORY).await;
        let beneath = make(&volume, &journal, "beneath", DIRECTORY).await;
        for (parent, name, logged) in [
            (&root, "a.wal", true),
            (&root, "a.wall", false),
            (&beneath, "file", true),
            (&root, "file", false),
        ] {
            let file = make(&volume, parent, name, FILE).await;
            assert_eq!(is_logged(&volume, &file).await, logged, "{name}");
        }
    });
}

/// Content that is deleted or truncated before the end is never written home.
#[test]
fn what_is_deleted_or_cut_off_is_not_written_home() {
    with_volume("*.wal", |volume| async move {
        let root = volume.inode(InodeNumber(2)).await.unwrap();
        let data = |volume: &Volume| volume.engine().statistics().home_written["data"].blocks;
        let before = data(&volume);
        for name in ["a.wal", "b.wal"] {
            let file = make(&volume, &root, name, FILE).await;
            assert!(is_logged(&volume, &file).await);
        }
        let cut = volume.lookup(&root, b"a.wal").await.unwrap();
        let to_nothing = ext4::SetAttributes { size: Some(0), ..Default::default() };
        volume.setattr(&cut, &Caller::ROOT, to_nothing).await.unwrap();
        volume.unlink(&root, b"b.wal").await.unwrap();
        volume.sync().await.unwrap();
        volume.engine().checkpoint().await.unwrap();
        assert_eq!(data(&volume), before);
    });
}

/// Requests the setting by an ioctl, as a program does.
#[test]
fn a_request_counts_until_the_last_descriptor_is_closed() {
    with_volume("nothing", |volume| async move {
        let root = volume.inode(InodeNumber(2)).await.unwrap();
        let file = make(&volume, &root, "file", FILE).await;
        volume.opened(&file);
        volume.opened(&file);
        volume.request_durability(&file, true).await.unwrap();
        // What is logged of a block decides for its next updates, too: so each write has its own.
        let part = |number: u64| number * (64 << 10);
        assert!(is_logged_at(part(0), &volume, &file).await);
        volume.request_durability(&file, false).await.unwrap();
        assert!(!is_logged_at(part(1), &volume, &file).await);
        volume.request_durability(&file, true).await.unwrap();
        volume.closed(file.number).await.unwrap();
        assert!(is_logged_at(part(2), &volume, &file).await);
        volume.closed(file.number).await.unwrap();
        assert!(!is_logged_at(part(3), &volume, &file).await);
        let refused = volume.request_durability(&root, true).await;
        assert!(
            matches!(refused, Err(ext4::Error::Refused(units::Refusal::Invalid))),
            "{refused:?}"
        );
    });
}
