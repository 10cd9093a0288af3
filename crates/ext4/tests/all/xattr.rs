//! Extended attributes and access control lists against a model, e2fsprogs, and the kernel.

use crate::image::{TestImage, open, play};
use device::Operation;
use disks::{Fault, Image};
use ext4::{Caller, Existence, Inode, SetXattr, Volume, VolumeOptions, WriteFlags};
use format::ext4::acl::{Acl, AclEntry, AclTag};
use std::collections::BTreeMap;
use std::rc::Rc;
use units::{InodeNumber, Refusal, SplitMix};

const EXISTS: Option<Refusal> = Some(Refusal::Exists);
const NO_SPACE: Option<Refusal> = Some(Refusal::NoSpace);
const NO_DATA: Option<Refusal> = Some(Refusal::NoAttribute);

/// An image with empty files `f0` to `f3` and a directory `d`.
fn image_with_files(arguments: &[&str]) -> TestImage {
    TestImage::filled(&[&["-t", "ext4"], arguments].concat(), "32M", |source| {
        std::fs::create_dir(source.join("d")).unwrap();
        (0..4).for_each(|index| std::fs::write(source.join(format!("f{index}")), "").unwrap());
    })
}

fn with_volume<F: Future<Output = ()> + 'static>(
    image: &TestImage,
    work: impl FnOnce(Rc<Volume>) -> F + 'static,
) {
    image.play(1, VolumeOptions::default(), work);
}

fn run_on<F: Future<Output = ()> + 'static>(
    image: Image,
    work: impl FnOnce(Rc<Volume>) -> F + 'static,
) -> Image {
    play(image, 1, VolumeOptions::default(), work).0
}

async fn set(
    volume: &Rc<Volume>,
    inode: &Rc<Inode>,
    name: &str,
    value: &[u8],
) -> Result<(), Option<Refusal>> {
    set_if(volume, inode, name, value, Existence::Any).await
}
async fn set_if(
    volume: &Rc<Volume>,
    inode: &Rc<Inode>,
    name: &str,
    value: &[u8],
    existence: Existence,
) -> Result<(), Option<Refusal>> {
    let set = SetXattr { name: name.as_bytes(), value, existence, clear_set_group: false };
    volume.set_xattr(inode, &Caller::ROOT, set).await.map(drop).map_err(|error| error.refusal())
}
async fn get(
    volume: &Rc<Volume>,
    inode: &Rc<Inode>,
    name: &str,
) -> Result<Vec<u8>, Option<Refusal>> {
    volume.get_xattr(inode, name.as_bytes()).await.map_err(|error| error.refusal())
}
async fn list(volume: &Rc<Volume>, inode: &Rc<Inode>, sees_trusted: bool) -> Vec<String> {
    let names = volume.list_xattrs(inode, || sees_trusted).await.unwrap();
    let names = names.split(|byte| *byte == 0).filter(|name| !name.is_empty());
    let mut names: Vec<String> =
        names.map(|name| String::from_utf8(name.to_vec()).unwrap()).collect();
    names.sort();
    names
}

fn bytes(random: &SplitMix, length: u64) -> Vec<u8> {
    (0..length).map(|_| random.below(256) as u8).collect()
}

type Model = BTreeMap<String, Vec<u8>>;

async fn random_steps(volume: &Rc<Volume>, inodes: &[Rc<Inode>], seed: u64) -> Vec<Model> {
    let random = SplitMix::new(seed);
    let mut models = vec![Model::new(); inodes.len()];
    for step in 0..300 {
        let at = format!("seed {seed}, step {step}");
        let which = random.below(inodes.len() as u64) as usize;
        let (inode, model) = (&inodes[which], &mut models[which]);
        let prefix = ["user", "trusted", "security"][random.below(3) as usize];
        let name = format!("{prefix}.{}", "n".repeat(random.below(6) as usize + 1));
        if random.below(3) == 0 {
            let removed = volume.remove_xattr(inode, name.as_bytes()).await;
            let expected = if model.remove(&name).is_some() { Ok(()) } else { Err(NO_DATA) };
            assert_eq!(
                removed.map(drop).map_err(|error| error.refusal()),
                expected,
                "{at}: remove {name}"
            );
        } else {
            let limit = [5, 60, 700, 5000][random.below(4) as usize];
            let length = random.below(limit);
            let value = bytes(&random, length);
            let existence =
                [Existence::Any, Existence::New, Existence::Old][random.below(3) as usize];
            let result = set_if(volume, inode, &name, &value, existence).await;
            match (existence, model.contains_key(&name)) {
                (Existence::New, true) => assert_eq!(result, Err(EXISTS), "{at}"),
                (Existence::Old, false) => assert_eq!(result, Err(NO_DATA), "{at}"),
                _ if result == Err(NO_SPACE) => {
                    assert!(length > 20 || model.len() > 2, "{at}: {length} bytes")
                }
                _ => {
                    assert_eq!(result, Ok(()), "{at}");
                    model.insert(name, value);
                }
            }
        }
        assert_eq!(
            list(volume, inode, true).await,
            model.keys().cloned().collect::<Vec<_>>(),
            "{at}"
        );
        for (name, value) in model {
            assert_eq!(get(volume, inode, name).await.as_ref(), Ok(&*value), "{at}: {name}");
        }
    }
    models
}

const VOLUMES: [&[&str]; 5] = [
    &["-b", "4096", "-I", "256"],
    &["-b", "1024", "-I", "256"],
    &["-b", "4096", "-I", "128"],
    &["-b", "1024", "-I", "128"],
    &["-b", "2048", "-I", "512", "-O", "^metadata_csum"],
];

#[test]
fn random_changes_agree_with_a_model_and_with_e2fsprogs() {
    for (seed, mke2fs) in (1..).zip(VOLUMES) {
        let image = image_with_files(mke2fs);
        let numbers = ["f0", "f1", "f2", "d"].map(|name| image.number(name));
        let models = Rc::new(std::cell::RefCell::new(Vec::new()));
        let final_models = models.clone();
        with_volume(&image, move |volume| async move {
            let mut inodes = Vec::new();
            for number in numbers {
                inodes.push(volume.inode(number).await.unwrap());
            }
            *final_models.borrow_mut() = random_steps(&volume, &inodes, seed).await;
        });
        for (number, model) in numbers.iter().zip(models.borrow().iter()) {
            let listed = image.debugfs(&format!("ea_list <{}>", number.get()));
            let mut names: Vec<&str> = listed
                .lines()
                .filter_map(|line| line.trim().split_once(" ("))
                .map(|(name, _)| name)
                .collect();
            names.sort();
            assert_eq!(names, model.keys().collect::<Vec<_>>(), "{mke2fs:?}: {listed}");
            for (name, value) in model {
                let out = image.path_of("value");
                image.debugfs(&format!("ea_get -f {} <{}> {name}", out.display(), number.get()));
                assert_eq!(&std::fs::read(out).unwrap(), value, "{mke2fs:?}: {name}");
            }
        }
    }
}

#[test]
fn what_the_kernel_wrote_is_read_and_the_kernel_reads_what_we_wrote() {
    for mke2fs in VOLUMES {
        let image = image_with_files(mke2fs);
        image.with_kernel(
            "setfattr -n user.small -v value f0; setfattr -n trusted.t -v secret f0
             setfattr -n user.large -v $(head -c 800 /dev/zero | tr '\\0' x) f0
             setfattr -n user.empty d; setfacl -m u:1234:rw f1; setfacl -d -m g:77:rx d",
        );
        let [f0, f1, d] = ["f0", "f1", "d"].map(|name| image.number(name));
        with_volume(&image, move |volume| async move {
            let inode = volume.inode(f0).await.unwrap();
            assert_eq!(get(&volume, &inode, "user.small").await.unwrap(), b"value");
            assert_eq!(get(&volume, &inode, "user.large").await.unwrap(), vec![b'x'; 800]);
            assert_eq!(list(&volume, &inode, false).await, ["user.large", "user.small"]);
            assert_eq!(list(&volume, &inode, true).await.len(), 3);
            let d = volume.inode(d).await.unwrap();
            assert_eq!(get(&volume, &d, "user.empty").await.unwrap(), b"");
            let default = get(&volume, &d, "system.posix_acl_default").await.unwrap();
            let default = Acl::from_call(&default).unwrap().unwrap();
            assert!(
                default.entries().contains(&AclEntry { tag: AclTag::Group(77), permissions: 5 })
            );
            let inode = volume.inode(f1).await.unwrap();
            let access = get(&volume, &inode, "system.posix_acl_access").await.unwrap();
            let access = Acl::from_call(&access).unwrap().unwrap();
            assert!(
                access.entries().contains(&AclEntry { tag: AclTag::User(1234), permissions: 6 })
            );
            set(&volume, &inode, "user.ours", &[b'o'; 700]).await.unwrap();
        });
        let output = image
            .with_kernel("getfattr --only-values -n user.ours f1; getfacl -n f1; stat -c %b f1");
        assert!(output.contains(&"o".repeat(700)) && output.contains("user:1234:rw-"), "{output}");
    }
}

#[test]
fn blocks_shared_by_the_kernel_are_copied_before_a_change() {
    let image = image_with_files(&["-b", "4096", "-I", "128"]);
    image.with_kernel(
        "for f in f0 f1 f2; do setfattr -n user.a -v same $f; setfattr -n user.b -v same $f; sync -f .; done",
    );
    let numbers = ["f0", "f1", "f2"].map(|name| image.number(name));
    let block_of = |number: InodeNumber| {
        let output = image.debugfs(&format!("stat <{}>", number.get()));
        output.split_once("File ACL: ").unwrap().1.split_whitespace().next().unwrap().to_owned()
    };
    assert_eq!(block_of(numbers[0]), block_of(numbers[1]), "the kernel shares equal blocks");
    with_volume(&image, move |volume| async move {
        let first = volume.inode(numbers[0]).await.unwrap();
        set(&volume, &first, "user.a", b"other").await.unwrap();
        let second = volume.inode(numbers[1]).await.unwrap();
        assert_eq!(get(&volume, &second, "user.a").await.unwrap(), b"same");
        for name in ["user.a", "user.b"] {
            volume.remove_xattr(&second, name.as_bytes()).await.unwrap();
        }
        let third = volume.inode(numbers[2]).await.unwrap();
        assert_eq!(get(&volume, &third, "user.b").await.unwrap(), b"same");
    });
    assert_ne!(block_of(numbers[0]), block_of(numbers[2]));
    assert_eq!(block_of(numbers[1]), "0");
    let output = image
        .with_kernel("getfattr --only-values -n user.a f0; getfattr --only-values -n user.a f2");
    assert_eq!(output, "othersame");
}

#[test]
fn attributes_given_up_free_their_block() {
    let image = image_with_files(&["-b", "1024", "-I", "128"]);
    let number = image.number("f0");
    with_volume(&image, move |volume| async move {
        let inode = volume.inode(number).await.unwrap();
        let free = volume.statfs().await.unwrap().blocks_free;
        set(&volume, &inode, "user.a", b"value").await.unwrap();
        assert_eq!(inode.fields.borrow().sectors, 2);
        assert_eq!(volume.statfs().await.unwrap().blocks_free, free - 1);
        let mut handle = volume.engine().start(volume.credits_drop_xattrs()).await.unwrap();
        volume.drop_xattrs(&mut handle, &inode).await.unwrap();
        volume.store(&mut handle, &inode).await.unwrap();
        handle.stop();
        assert_eq!(inode.fields.borrow().sectors, 0);
        assert_eq!(volume.statfs().await.unwrap().blocks_free, free);
    });
}

fn acl(entries: &[(AclTag, u16)]) -> Acl {
    Acl::new(entries.iter().map(|&(tag, permissions)| AclEntry { tag, permissions }).collect())
        .unwrap()
}

#[test]
fn an_access_list_and_the_mode_say_the_same() {
    use AclTag::*;
    const ACCESS: &str = "system.posix_acl_access";
    for mke2fs in VOLUMES {
        let image = image_with_files(mke2fs);
        let [f0, d] = ["f0", "d"].map(|name| image.number(name));
        with_volume(&image, move |volume| async move {
            let inode = volume.inode(f0).await.unwrap();
            let mode = |inode: &Inode| inode.fields.borrow().mode & 0o7777;
            let minimal = acl(&[(Owner, 6), (OwningGroup, 4), (Other, 0)]);
            set(&volume, &inode, ACCESS, &minimal.to_call()).await.unwrap();
            assert_eq!(mode(&inode), 0o640);
            assert_eq!(get(&volume, &inode, ACCESS).await, Err(NO_DATA), "the mode says all of it");
            let full = acl(&[(Owner, 6), (User(99), 7), (OwningGroup, 4), (Mask, 5), (Other, 1)]);
            set(&volume, &inode, ACCESS, &full.to_call()).await.unwrap();
            assert_eq!(mode(&inode), 0o651);
            inode.fields.borrow_mut().mode = 0o100_720;
            let mut handle = volume.engine().start(volume.credits_xattr()).await.unwrap();
            volume.chmod_acl(&mut handle, &inode).await.unwrap();
            handle.stop();
            let now =
                Acl::from_call(&get(&volume, &inode, ACCESS).await.unwrap()).unwrap().unwrap();
            assert_eq!(
                now,
                acl(&[(Owner, 7), (User(99), 7), (OwningGroup, 4), (Mask, 2), (Other, 0)])
            );
            let d = volume.inode(d).await.unwrap();
            set(&volume, &d, "system.posix_acl_default", &full.to_call()).await.unwrap();
            inherit(&volume, &d).await;
        });
        let output = image.with_kernel("getfacl -n -c --absolute-names f0 d/made d");
        assert!(output.contains("#effective:-w-"), "{output}");
        assert!(output.contains("default:user:99:rwx"), "{output}");
    }
}

/// A new file of mode 0666 with umask 077: the default list decides, the umask does not count. Its
/// labels are there from the start.
async fn inherit(volume: &Rc<Volume>, directory: &Rc<Inode>) {
    use AclTag::*;
    const LABEL: (&str, &[u8]) = ("security.selinux", b"system_u:object_r:etc_t:s0\0");
    let labels = [(LABEL.0.as_bytes(), LABEL.1)];
    let caller = Caller { umask: 0o077, labels: &labels, ..Caller::ROOT };
    let made = volume.mknod(directory, b"made", &caller, 0o100_666, 0).await.unwrap().value;
    assert_eq!(made.fields.borrow().mode, 0o100_640);
    let access = get(volume, &made, "system.posix_acl_access").await.unwrap();
    let expected = acl(&[(Owner, 6), (User(99), 7), (OwningGroup, 4), (Mask, 4), (Other, 0)]);
    assert_eq!(Acl::from_call(&access).unwrap().unwrap(), expected);
    assert_eq!(get(volume, &made, "system.posix_acl_default").await, Err(NO_DATA));
    let others = [
        volume.mkdir(directory, b"directory", &caller, 0o777).await.unwrap().value,
        volume.symlink(directory, b"link", &caller, b"made").await.unwrap().value,
        volume.tmpfile(directory, &caller, 0o666).await.unwrap().value,
    ];
    for inode in others.iter().chain([&made]) {
        assert_eq!(get(volume, inode, LABEL.0).await.unwrap(), LABEL.1);
    }
}

#[test]
fn a_file_whose_label_finds_no_room_is_not_made() {
    for options in VOLUMES {
        let image = image_with_files(options);
        with_volume(&image, move |volume| async move {
            let root = volume.inode(InodeNumber(2)).await.unwrap();
            let free = volume.statfs().await.unwrap();
            let labels = [(&b"security.selinux"[..], &[b'x'; 5000][..])];
            let caller = Caller { labels: &labels, ..Caller::ROOT };
            let made = volume.mknod(&root, b"made", &caller, 0o100_600, 0).await;
            assert_eq!(made.err().and_then(|error| error.refusal()), NO_SPACE);
            let found = volume.lookup(&root, b"made").await;
            assert_eq!(found.err().and_then(|error| error.refusal()), Some(Refusal::NotFound));
            assert_eq!(volume.statfs().await.unwrap().inodes_free, free.inodes_free);
        });
    }
}

#[test]
fn the_rules_of_names_types_and_callers_are_kept() {
    const DENIED: Option<Refusal> = Some(Refusal::AccessDenied);
    const INVALID: Option<Refusal> = Some(Refusal::Invalid);
    const UNSUPPORTED: Option<Refusal> = Some(Refusal::Unsupported);
    let image = image_with_files(VOLUMES[0]);
    let number = image.number("f0");
    with_volume(&image, move |volume| async move {
        let inode = volume.inode(number).await.unwrap();
        let list =
            acl(&[(AclTag::Owner, 6), (AclTag::OwningGroup, 4), (AclTag::Other, 0)]).to_call();
        assert_eq!(set(&volume, &inode, "system.posix_acl_default", &list).await, Err(DENIED));
        assert_eq!(set(&volume, &inode, "system.posix_acl_access", &list[..9]).await, Err(INVALID));
        assert_eq!(set(&volume, &inode, "unheard.of", b"").await, Err(UNSUPPORTED));
        assert_eq!(set(&volume, &inode, "user.big", &[0; 5000]).await, Err(NO_SPACE));
        for (name, refused) in [("user.there", EXISTS), ("user.not_there", NO_DATA)] {
            set(&volume, &inode, "user.there", b"").await.unwrap();
            let both = set_if(&volume, &inode, name, b"x", Existence::NewAndOld).await;
            assert_eq!(both, Err(refused), "{name}");
        }
        set(&volume, &inode, "security.capability", b"some").await.unwrap();
        let mut handle = volume.engine().start(volume.credits_xattr()).await.unwrap();
        volume.clear_capabilities(&mut handle, &inode).await.unwrap();
        handle.stop();
        assert_eq!(get(&volume, &inode, "security.capability").await, Err(NO_DATA));
    });
}

/// The list changes the mode, and wants a block: no bitmap can be read.
#[test]
fn an_access_list_that_fails_leaves_the_mode() {
    let image = image_with_files(&["-b", "4096", "-I", "128"]);
    let number = image.number("f0");
    let (virtual_world, world, disk) = image.world(1);
    virtual_world.run(async move {
        let volume = open(&world, &disk, None, VolumeOptions::default()).await.unwrap();
        let inode = volume.inode(number).await.unwrap();
        let list = [(AclTag::Owner, 7), (AclTag::User(1234), 7), (AclTag::OwningGroup, 7)];
        let list = acl(&[&list[..], &[(AclTag::Mask, 7), (AclTag::Other, 7)]].concat()).to_call();
        let name = "system.posix_acl_access";
        let before = volume.getattr(&inode);
        disk.inject(Fault::forever(Operation::Read));
        assert_eq!(set(&volume, &inode, name, &list).await, Err(None));
        assert_eq!(volume.getattr(&inode), before);
        disk.heal();
        set(&volume, &inode, name, &list).await.unwrap();
        assert_eq!(volume.getattr(&inode).mode & 0o777, 0o777);
        volume.close().await.unwrap();
    });
    virtual_world.end();
}

#[test]
fn capabilities_stored_after_a_write_go_with_the_next() {
    for options in VOLUMES {
        let image = image_with_files(options);
        let number = image.number("f0");
        with_volume(&image, move |volume| async move {
            let inode = volume.inode(number).await.unwrap();
            let caller = Caller::ROOT;
            let write = || volume.write(&inode, &caller, 0, b"content", WriteFlags::default());
            // Each of these writes finds none, and may remember that.
            for other in [false, true] {
                if other {
                    set(&volume, &inode, "user.other", b"stays").await.unwrap();
                }
                write().await.unwrap();
                set(&volume, &inode, "security.capability", b"some").await.unwrap();
                write().await.unwrap();
                assert_eq!(get(&volume, &inode, "security.capability").await, Err(NO_DATA));
            }
        });
    }
}

#[test]
fn damaged_attributes_are_errors_and_never_panics() {
    // A journal would hold copies.
    let image = image_with_files(&["-b", "1024", "-I", "256", "-O", "^metadata_csum,^has_journal"]);
    let number = image.number("f0");
    with_volume(&image, move |volume| async move {
        let inode = volume.inode(number).await.unwrap();
        for name in ["user.a", "user.bb", "trusted.c"] {
            set(&volume, &inode, name, &[7; 30]).await.unwrap();
        }
        set(&volume, &inode, "user.large", &[9; 600]).await.unwrap();
        assert_ne!(inode.fields.borrow().xattr_block.get(), 0);
    });
    let healthy = std::fs::read(image.path()).unwrap();
    let magic = 0xea02_0000u32.to_le_bytes();
    let places: Vec<usize> =
        (0..healthy.len()).step_by(4).filter(|at| healthy[*at..*at + 4] == magic).collect();
    assert_eq!(places.len(), 2, "one area, one block");
    let seed = 11;
    let random = SplitMix::new(seed);
    let healthy = Image::of_bytes(&healthy);
    for round in 0..200 {
        let mut damaged = healthy.clone();
        let place = places[random.below(2) as usize];
        for _ in 0..=random.below(3) {
            let value = [0, 0xff, random.below(256) as u8][random.below(3) as usize];
            damaged.write(place as u64 + random.below(100), &[value]);
        }
        println!("seed {seed}, round {round}");
        run_on(damaged, move |volume| async move {
            let Ok(inode) = volume.inode(number).await else { return };
            let _ = volume.list_xattrs(&inode, || true).await;
            let _ = get(&volume, &inode, "user.large").await;
            let _ = set(&volume, &inode, "user.bb", &[1; 50]).await;
            let _ = volume.remove_xattr(&inode, b"user.large").await;
        });
    }
}

#[test]
fn a_wrong_checksum_is_noticed() {
    let image = image_with_files(&["-b", "1024", "-I", "128", "-O", "^has_journal"]);
    let number = image.number("f0");
    with_volume(&image, move |volume| async move {
        let inode = volume.inode(number).await.unwrap();
        set(&volume, &inode, "user.a", b"value").await.unwrap();
    });
    let mut bytes = std::fs::read(image.path()).unwrap();
    let magic = 0xea02_0000u32.to_le_bytes();
    let block = (0..bytes.len()).step_by(1024).find(|at| bytes[*at..*at + 4] == magic).unwrap();
    bytes[block + 1020] ^= 1;
    std::fs::write(image.path(), bytes).unwrap();
    run_on(image.read(), move |volume| async move {
        let inode = volume.inode(number).await.unwrap();
        let got = volume.get_xattr(&inode, b"user.a").await;
        assert!(matches!(got, Err(ext4::Error::Corrupt { .. })), "{got:?}");
        assert_eq!(set(&volume, &inode, "user.b", b"").await, Err(None), "damage, no refusal");
    });
}

#[test]
fn a_whiteout_inherits_the_default_list_of_its_directory() {
    let image = image_with_files(&["-b", "4096"]);
    with_volume(&image, |volume| async move {
        use AclTag::*;
        let root = volume.inode(InodeNumber(2)).await.unwrap();
        let d = volume.mkdir(&root, b"listed", &Caller::ROOT, 0o755).await.unwrap().value;
        let full = acl(&[(Owner, 6), (User(99), 7), (OwningGroup, 4), (Mask, 5), (Other, 1)]);
        set(&volume, &d, "system.posix_acl_default", &full.to_call()).await.unwrap();
        volume.mknod(&d, b"old", &Caller::ROOT, 0o100_644, 0).await.unwrap();
        let mode = ext4::RenameMode::Whiteout;
        volume.rename((&d, b"old"), (&d, b"new"), &Caller::ROOT, mode).await.unwrap();
        let whiteout = volume.lookup(&d, b"old").await.unwrap();
        let access = get(&volume, &whiteout, "system.posix_acl_access").await.unwrap();
        let expected = acl(&[(Owner, 0), (User(99), 7), (OwningGroup, 4), (Mask, 0), (Other, 0)]);
        assert_eq!(Acl::from_call(&access).unwrap(), Some(expected));
    });
    image.check();
}

#[test]
fn setting_the_value_that_is_there_changes_nothing() {
    let image = image_with_files(&["-b", "4096"]);
    with_volume(&image, |volume| async move {
        let root = volume.inode(InodeNumber(2)).await.unwrap();
        let file = volume.mknod(&root, b"f", &Caller::ROOT, 0o100_644, 0).await.unwrap().value;
        set(&volume, &file, "user.a", b"one").await.unwrap();
        file.fields.borrow_mut().changed.seconds = 7;
        set(&volume, &file, "user.a", b"one").await.unwrap();
        assert_eq!(volume.getattr(&file).changed.seconds, 7);
        set(&volume, &file, "user.a", b"two").await.unwrap();
        assert_ne!(volume.getattr(&file).changed.seconds, 7);
    });
}
