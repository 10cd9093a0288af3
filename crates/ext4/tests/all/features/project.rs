//! `project`: numbers of projects, inherited by what is made below.

use crate::features::support::*;
use ext4::{Caller, RenameMode, flags};
use units::Refusal;

#[test]
fn project_numbers_are_kept_inherited_and_guard_their_directories() {
    let image = TestImage::scripted(
        "-O project -b 1024",
        "16M",
        "mkdir ours theirs none; touch ours/old outside",
    );
    // As chattr does. Kernels without quota mount no such volume.
    for (directory, project) in [("ours", 7), ("theirs", 8)] {
        image.debugfs_write(&format!("set_inode_field {directory} projid {project}"));
        image.debugfs_write(&format!(
            "set_inode_field {directory} flags {:#x}",
            flags::EXTENTS | flags::PROJECT_INHERIT
        ));
    }
    image.debugfs_write("set_inode_field ours/old projid 7");
    image.check();
    image.with_volume(MODES[3], |volume| async move {
        let (ours, theirs, none) =
            (at(&volume, "ours").await, at(&volume, "theirs").await, at(&volume, "none").await);
        assert_eq!((volume.project(&ours), volume.project(&none)), (7, 0));
        let file = make_file(&volume, &ours, "new").await;
        let below = volume.mkdir(&ours, b"below", &Caller::ROOT, 0o755).await.unwrap().value;
        assert_eq!((volume.project(&file), volume.project(&below)), (7, 7));
        assert!(below.has_flag(flags::PROJECT_INHERIT) && !file.has_flag(flags::PROJECT_INHERIT));
        let plain = make_file(&volume, &none, "plain").await;
        assert_eq!(volume.project(&plain), 0);
        // Into a directory that inherits comes only what is of its project.
        let root = volume.inode(ROOT).await.unwrap();
        let outside = at(&volume, "outside").await;
        let link = volume.link(&outside, &ours, b"link", &Caller::ROOT).await;
        assert_eq!(link.err().and_then(|error| error.refusal()), Some(Refusal::OtherDevice));
        for (from, to, mode) in [
            ((&root, &b"outside"[..]), (&ours, &b"moved"[..]), RenameMode::Replace),
            ((&ours, b"new"), (&theirs, b"moved"), RenameMode::Replace),
            ((&ours, b"new"), (&none, b"plain"), RenameMode::Exchange),
        ] {
            let renamed = volume.rename(from, to, &Caller::ROOT, mode).await;
            assert_eq!(renamed.err().and_then(|error| error.refusal()), Some(Refusal::OtherDevice));
        }
        volume
            .rename((&ours, b"new"), (&below, b"new"), &Caller::ROOT, RenameMode::Replace)
            .await
            .unwrap();
        volume
            .rename((&ours, b"old"), (&none, b"old"), &Caller::ROOT, RenameMode::Replace)
            .await
            .unwrap();
        // As chattr does it.
        volume.set_flags_and_project(&outside, volume.flags(&outside), Some(7)).await.unwrap();
        volume.link(&outside, &ours, b"link", &Caller::ROOT).await.unwrap();
        let wanted = volume.flags(&none) | flags::PROJECT_INHERIT;
        volume.set_flags_and_project(&none, wanted, Some(9)).await.unwrap();
        let refused =
            volume.set_flags(&outside, volume.flags(&outside) | flags::PROJECT_INHERIT).await;
        assert_eq!(refused.err().and_then(|error| error.refusal()), Some(Refusal::Unsupported));
    });
    let numbers =
        [("ours", "7"), ("ours/below", "7"), ("none", "9"), ("outside", "7"), ("none/old", "7")];
    for (name, project) in numbers {
        assert_eq!(image.stat_field(name, "Project"), project, "{name}");
    }
}

#[test]
fn volumes_without_the_feature_take_no_project() {
    let image = TestImage::scripted("-b 1024", "16M", "touch file");
    image.with_volume(MODES[3], |volume| async move {
        let file = at(&volume, "file").await;
        volume.set_flags_and_project(&file, volume.flags(&file), Some(0)).await.unwrap();
        let refused = volume.set_flags_and_project(&file, volume.flags(&file), Some(1)).await;
        assert_eq!(refused.err().and_then(|error| error.refusal()), Some(Refusal::Unsupported));
    });
}
