//! The walk over all names, on volumes that debugfs has damaged; and recovery of broken journals.

use crate::image::{TestImage, open as open_volume, play};
use device::{Disk, World};
use ext4::{Access, OpenParts, TreeFindings, TreeReport, VolumeOptions};
use runtime::VirtualWorld;
use std::os::unix::fs::symlink;
use std::rc::Rc;
use units::InodeNumber;

/// Options without checksums: what debugfs and the test write counts as it stands.
const PLAIN: [&str; 6] = ["-t", "ext4", "-b", "1024", "-O", "^metadata_csum,^64bit"];
const SIZE: &str = "16M";
/// Names enough for an index of several leaves of 1 KiB.
const NAMES: usize = 300;

#[derive(Default)]
struct Problems(Vec<String>);

impl TreeFindings for Problems {
    fn problem(&mut self, what: String) {
        self.0.push(what);
    }
}

fn volume() -> TestImage {
    TestImage::filled(&PLAIN, SIZE, |source| {
        std::fs::create_dir_all(source.join("many/below")).unwrap();
        for index in 0..NAMES {
            std::fs::write(source.join(format!("many/with-a-rather-long-name-{index}")), b"x")
                .unwrap();
        }
        std::fs::write(source.join("file"), b"content").unwrap();
        std::fs::write(source.join("other"), b"more").unwrap();
        std::fs::write(source.join("twin-a"), b"first").unwrap();
        std::fs::write(source.join("twin-b"), b"second").unwrap();
        std::fs::hard_link(source.join("file"), source.join("many/below/link")).unwrap();
        symlink("file", source.join("symbolic")).unwrap();
    })
}

/// The walk's findings, and what it counted.
fn check(image: &TestImage) -> (Vec<String>, TreeReport) {
    let options = VolumeOptions { access: Access::ReadOnly, ..VolumeOptions::default() };
    let before = image.read();
    let (after, found) = play(before, 1, options, |volume| async move {
        let mut problems = Problems::default();
        let report = volume.check_tree(&mut problems).await;
        (problems.0, report)
    });
    assert!(after == image.read(), "a check changes nothing");
    found
}

#[test]
fn a_sound_tree_has_no_problems_and_all_its_links() {
    let image = volume();
    // mke2fs makes no index; e2fsck does.
    index(&image);
    let (problems, report) = check(&image);
    assert_eq!(problems, Vec::<String>::new());
    // Root, lost+found, many, below.
    assert_eq!(report.directories, 4);
    assert_eq!(report.indexed[&image.number("many")], NAMES as u64 + 1);
    for name in ["file", "other", "symbolic", "many", "many/below", ""] {
        let links: u32 = image.stat_field(name, "Links").parse().unwrap();
        assert_eq!(report.links[&image.number(name)], links, "{name}");
    }
}

fn index(image: &TestImage) {
    let output = std::process::Command::new("timeout")
        .args(["60", "e2fsck", "-fyD"])
        .arg(image.path())
        .output()
        .unwrap();
    assert!(output.status.code().is_some_and(|code| code < 2), "{output:?}");
}

#[test]
fn every_contradiction_of_a_name_is_found() {
    let inode = |image: &TestImage, name: &str| image.number(name).get();
    type Damage = Box<dyn Fn(&TestImage)>;
    let damage: Vec<(Damage, &str)> = vec![
        (Box::new(|image| drop(image.debugfs_write("clri /file"))), "which is free"),
        (Box::new(|image| drop(image.debugfs_write("sif /other mode 0120644"))), "it says Regular"),
        (
            Box::new(|image| drop(image.debugfs_write("sif /other mode 0644"))),
            "is of no kind of file",
        ),
        (Box::new(|image| drop(image.debugfs_write("link /many /again"))), "has another name, too"),
        (Box::new(|image| rename_in_place(image, b"twin-b", b"twin-a")), "stands there twice"),
        (
            Box::new(move |image| {
                let below = inode(image, "many/below");
                retarget(image, "many/below", b"..", below);
            }),
            "its entry .. leads to",
        ),
        (
            Box::new(move |image| {
                let other = inode(image, "many");
                retarget(image, "many/below", b".", other);
            }),
            "its entry . leads to",
        ),
        (Box::new(lie_in_index), "a lookup"),
        (
            Box::new(|image| drop(image.debugfs_write("sif /many size 1000"))),
            "a directory cannot have",
        ),
    ];
    for (damage, complaint) in damage {
        let image = volume();
        index(&image);
        damage(&image);
        let (problems, _) = check(&image);
        let is_found = problems.iter().any(|found| found.contains(complaint));
        assert!(is_found, "{complaint}: {problems:?}");
    }
}

/// The byte of the image at which the first block of a file stands.
fn first_block(image: &TestImage, name: &str) -> u64 {
    block_of(image, name, 0)
}

fn block_of(image: &TestImage, name: &str, index: u32) -> u64 {
    let output = image.debugfs(&format!("bmap {name} {index}"));
    output.trim().parse::<u64>().unwrap_or_else(|_| panic!("{name}: {output}")) * 1024
}

fn patch(image: &TestImage, at: u64, bytes: &[u8]) {
    let mut disk = image.read();
    disk.write(at, bytes);
    disk.write_file(&image.path()).unwrap();
}

/// Gives an entry of the root directory another name of the same length.
fn rename_in_place(image: &TestImage, name: &[u8], new: &[u8]) {
    let (at, bytes) = (first_block(image, "/"), image.bytes());
    let block = &bytes[at as usize..][..1024];
    let within = block.windows(name.len()).position(|bytes| bytes == name);
    patch(image, at + within.expect("the name is in the block") as u64, new);
}

/// Has one of the first two entries of a directory lead elsewhere.
fn retarget(image: &TestImage, name: &str, entry: &[u8], inode: u32) {
    let at = first_block(image, &format!("/{name}")) + if entry == b".." { 12 } else { 0 };
    patch(image, at, &inode.to_le_bytes());
}

/// The second leaf of the index seems to begin with the highest hash.
fn lie_in_index(image: &TestImage) {
    const SECOND_PLACE: u64 = 32 + 8;
    patch(image, first_block(image, "/many") + SECOND_PLACE, &0xffff_fff0u32.to_le_bytes());
}

#[test]
fn recovery_does_not_call_a_broken_journal_empty() {
    let recovered = |image: &TestImage| {
        let virtual_world = VirtualWorld::new(1);
        let world: Rc<dyn World> = Rc::new(virtual_world.clone());
        let home: Rc<dyn Disk> = Rc::new(image.disk(&world));
        let parts = OpenParts { world, home, journal: None, options: VolumeOptions::default() };
        virtual_world.run(async move { ext4::recover(&parts, true).await })
    };
    let image = volume();
    assert!(recovered(&image).unwrap().clean);
    let journal = first_block(&image, "<8>");
    let sound = image.bytes();
    // Magic, block type, block size, s_start, s_errno.
    for (at, bytes, why) in [
        (0, &[0u8; 4][..], "cannot be used"),
        (4, &9u32.to_be_bytes(), "cannot be used"),
        (12, &77u32.to_be_bytes(), "cannot be used"),
        (28, &5u32.to_be_bytes(), "holds transactions"),
    ] {
        patch(&image, journal + at, bytes);
        let refused = recovered(&image).expect_err("a broken journal").to_string();
        assert!(refused.contains(why) && refused.contains("e2fsck"), "byte {at}: {refused}");
        std::fs::write(image.path(), &sound).unwrap();
    }
    patch(&image, journal + 32, &(-5i32).to_be_bytes());
    assert_eq!(recovered(&image).unwrap().recorded_error, -5);
}

#[test]
fn a_directory_that_leads_into_itself_is_listed_once() {
    let image = volume();
    image.debugfs_write("link /many /many/below/up");
    let (problems, report) = check(&image);
    assert_eq!(report.directories, 4);
    assert_eq!(problems.len(), 1, "{problems:?}");
    let opened = image.in_world(1, async move |world, disk| {
        open_volume(&world, &disk, None, VolumeOptions::default()).await.is_ok()
    });
    assert!(opened && report.links.contains_key(&InodeNumber(2)));
}
