//! Attributes and the rules of POSIX for them.

use crate::files::image::{EXT4, TestImage, with_volume};
use ext4::{Caller, FileRange, KillPrivileges, RangeMode, SetAttributes, SetTime, WriteFlags};
use units::Refusal;
use units::Timestamp;

const USER: Caller<'static> = Caller { uid: 1000, gid: 1000, ..Caller::ROOT };

#[test]
fn writes_by_others_clear_set_id_bits_on_request() {
    let image = TestImage::of_files(EXT4, "16M", 1);
    with_volume(&image, 1, |volume, inodes| async move {
        let file = &inodes[0];
        let chmod = |mode| SetAttributes { mode: Some(mode), ..Default::default() };
        use KillPrivileges::{ByMember, ByStranger};
        for (kill_privileges, mode, after) in [
            (ByMember, 0o6755, 0o755),
            (ByMember, 0o2644, 0o2644),
            (ByMember, 0o4711, 0o711),
            (ByStranger, 0o6755, 0o755),
            (ByStranger, 0o2644, 0o644),
            (ByStranger, 0o6744, 0o744),
        ] {
            volume.setattr(file, &USER, chmod(mode)).await.unwrap();
            assert_eq!(volume.getattr(file).mode, 0o100000 | mode);
            volume.write(file, &USER, 0, b"x", WriteFlags::default()).await.unwrap();
            assert_eq!(volume.getattr(file).mode, 0o100000 | mode, "not requested");
            let flags = WriteFlags { kill_privileges, ..Default::default() };
            volume.write(file, &USER, 0, b"x", flags).await.unwrap();
            assert_eq!(volume.getattr(file).mode, 0o100000 | after);
            volume.setattr(file, &USER, chmod(mode)).await.unwrap();
            let shorter = SetAttributes { size: Some(0), kill_privileges, ..Default::default() };
            assert_eq!(volume.setattr(file, &USER, shorter).await.unwrap().mode, 0o100000 | after);
            volume.setattr(file, &USER, chmod(mode)).await.unwrap();
            let range =
                FileRange { mode: RangeMode::Allocate, keep_size: true, offset: 0, length: 1 };
            volume.fallocate_range(file, &USER, range, kill_privileges).await.unwrap();
            assert_eq!(volume.getattr(file).mode, 0o100000 | after);
        }
    });
}

#[test]
fn a_new_owner_gets_no_set_id_program() {
    let image = TestImage::of_files(EXT4, "16M", 1);
    with_volume(&image, 1, |volume, inodes| async move {
        let file = &inodes[0];
        let mode = SetAttributes { mode: Some(0o6755), ..Default::default() };
        volume.setattr(file, &Caller::ROOT, mode).await.unwrap();
        let chown = SetAttributes { uid: Some(70_000), gid: Some(80_000), ..Default::default() };
        let after = volume.setattr(file, &Caller::ROOT, chown).await.unwrap();
        assert_eq!((after.uid, after.gid, after.mode & 0o7777), (70_000, 80_000, 0o755));
        let outside =
            SetAttributes { mode: Some(0o2755), clear_set_group: true, ..Default::default() };
        assert_eq!(volume.setattr(file, &USER, outside).await.unwrap().mode & 0o7777, 0o755);
    });
}

#[test]
fn times_are_kept_as_given_across_a_mount() {
    // The last second that keeps its nanoseconds: the one behind it is where the kernel clamps.
    let late = Timestamp { seconds: 15_032_385_534, nanoseconds: 999_999_999 };
    let early = Timestamp { seconds: -1, nanoseconds: 5 };
    let image = TestImage::of_files(EXT4, "16M", 1);
    with_volume(&image, 1, move |volume, inodes| async move {
        let times = SetAttributes {
            accessed: Some(SetTime::At(late)),
            modified: Some(SetTime::At(early)),
            ..Default::default()
        };
        let after = volume.setattr(&inodes[0], &USER, times).await.unwrap();
        assert_eq!((after.accessed, after.modified, after.changed), (late, early, volume.now()));
    });
    with_volume(&image, 2, move |volume, inodes| async move {
        let found = volume.getattr(&inodes[0]);
        assert_eq!((found.accessed, found.modified), (late, early));
        volume.write(&inodes[0], &USER, 0, b"x", WriteFlags::default()).await.unwrap();
        assert_eq!(volume.getattr(&inodes[0]).modified, volume.now());
        assert!(volume.getattr(&inodes[0]).version > found.version);
    });
}

#[test]
fn immutable_and_append_only_files_are_respected() {
    let image = TestImage::of_files(EXT4, "16M", 2);
    with_volume(&image, 1, |volume, inodes| async move {
        inodes[0].fields.borrow_mut().flags |= format::ext4::inode::flags::IMMUTABLE;
        inodes[1].fields.borrow_mut().flags |= format::ext4::inode::flags::APPEND;
        let flags = WriteFlags::default();
        let refused = |result: ext4::Result<_>| {
            assert_eq!(result.unwrap_err().refusal(), Some(Refusal::NotPermitted))
        };
        refused(volume.write(&inodes[0], &USER, 0, b"x", flags).await.map(|_| ()));
        refused(volume.truncate(&inodes[0], 0).await.map(|_| ()));
        volume.write(&inodes[1], &USER, 0, b"abc", flags).await.unwrap();
        volume.write(&inodes[1], &USER, 3, b"def", flags).await.unwrap();
        refused(volume.write(&inodes[1], &USER, 5, b"x", flags).await.map(|_| ()));
        refused(volume.truncate(&inodes[1], 3).await.map(|_| ()));
        for inode in &inodes {
            inode.fields.borrow_mut().flags &= format::ext4::inode::flags::EXTENTS;
        }
    });
}

#[test]
fn appends_go_to_the_end_and_ignore_the_offset() {
    let image = TestImage::of_files(EXT4, "16M", 1);
    with_volume(&image, 1, |volume, inodes| async move {
        let flags = WriteFlags { append: true, ..Default::default() };
        for part in [&b"one"[..], b"two", b"three"] {
            volume.write(&inodes[0], &USER, 0, part, flags).await.unwrap();
        }
        assert_eq!(volume.read(&inodes[0], 0, 100).await.unwrap().to_vec(), b"onetwothree");
    });
    assert_eq!(image.dump(0), b"onetwothree");
}
