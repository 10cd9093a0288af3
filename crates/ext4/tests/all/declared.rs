//! Changes of metadata blocks declare hardly more than they change: packed records log what was
//! declared.

use crate::files::model::ModelFile;
use crate::names::random;
use crate::names::support::{
    EXT3_1K, EXT4, EXT4_1K, Kind, LINEAR, ROOT, TestImage, UNCHECKED, make_file, open_with,
};
use engine::{DataMode, Declared, EngineOptions, RecordFormat};
use ext4::{Caller, Existence, SetXattr, Volume};
use runtime::VirtualWorld;
use std::collections::BTreeMap;
use std::rc::Rc;

const VALUES_OUTSIDE: Kind =
    Kind("with values outside", &["-t", "ext4", "-b", "1024", "-I", "256", "-O", "ea_inode"]);
const KINDS: [Kind; 6] = [EXT4, EXT4_1K, EXT3_1K, LINEAR, UNCHECKED, VALUES_OUTSIDE];

/// Declared changes by line of code.
type Lines = BTreeMap<String, Declared>;

async fn attributes(volume: &Rc<Volume>) {
    let root = volume.inode(ROOT).await.unwrap();
    // The last is refused where no value may lie outside.
    for (number, length) in [3, 40, 700, 3, 5000].into_iter().enumerate() {
        for file in 0..4 {
            let inode = volume.lookup(&root, format!("attributes-{file}").as_bytes()).await;
            let inode = match inode {
                Ok(inode) => inode,
                Err(_) => make_file(volume, &root, &format!("attributes-{file}")).await,
            };
            let value = vec![number as u8 + 1; length];
            for name in ["user.one", "user.two"] {
                let set = SetXattr {
                    name: name.as_bytes(),
                    value: &value,
                    existence: Existence::Any,
                    clear_set_group: false,
                };
                let _refused = volume.set_xattr(&inode, &Caller::ROOT, set).await;
            }
            volume.sync().await.unwrap();
        }
    }
}

/// Files that grow, are cut and have holes, of many extents.
async fn content(volume: &Rc<Volume>, world: &VirtualWorld) {
    let root = volume.inode(ROOT).await.unwrap();
    let block = volume.block_size().bytes() as u64;
    for number in 0..2 {
        let inode = make_file(volume, &root, &format!("content-{number}")).await;
        let extents = volume.has(format::ext4::feature::EXTENTS);
        let mut file = ModelFile { inode, content: Vec::new(), extents, size_max: 400 * block };
        for step in 0..400 {
            file.step(volume, world, block).await;
            if step % 20 == 0 {
                volume.sync().await.unwrap();
            }
        }
    }
    for label in ["one", "another"] {
        volume.set_label(label.as_bytes()).await.unwrap();
    }
    // Orphans for a moment.
    for number in 0..20 {
        let name = format!("open-{number}");
        let inode = make_file(volume, &root, &name).await;
        volume.opened(&inode);
        volume.unlink(&root, name.as_bytes()).await.unwrap();
        volume.sync().await.unwrap();
        volume.closed(inode.number).await.unwrap();
    }
}

fn lines_of(kind: Kind) -> Lines {
    let image = TestImage::of_inodes(kind, "24M", 6000);
    let (virtual_world, world, disk) = image.world(1);
    let (home, for_tasks) = (disk.clone(), virtual_world.clone());
    let lines = virtual_world.run(async move {
        let records = Some(RecordFormat::Packed);
        let options =
            EngineOptions { data: DataMode::Wasteless, records, ..EngineOptions::default() };
        let volume = open_with(&world, &home, options).await.unwrap();
        random::run(volume.clone(), for_tasks.clone(), 150).await;
        content(&volume, &for_tasks).await;
        attributes(&volume).await;
        let declared = volume.engine().declared();
        volume.close().await.unwrap();
        declared
            .into_iter()
            .map(|(line, declared)| (format!("{}:{}", line.file(), line.line()), declared))
            .collect()
    });
    disk.write_image(&image.path()).unwrap();
    image.check();
    lines
}

/// The first change of the superblock in a mount logs all of it. What the mount wrote home past the
/// log is not in the block in memory.
const WHOLE_ONCE: &str = "crates/ext4/src/volume/superblock.rs";

/// A range may begin and end with bytes that happen to stay as they were: numbers are stored in
/// whole fields.
fn is_wide(line: &Declared) -> bool {
    line.declared_bytes > 2 * line.changed_bytes + 4 * line.calls
}

#[test]
fn changes_of_metadata_declare_hardly_more_than_they_change() {
    let mut all = Lines::new();
    for (line, more) in KINDS.into_iter().flat_map(lines_of) {
        let sum = all.entry(line).or_default();
        sum.calls += more.calls;
        sum.declared_bytes += more.declared_bytes;
        sum.changed_bytes += more.changed_bytes;
    }
    for (line, Declared { calls, declared_bytes, changed_bytes }) in &all {
        println!("{line}: {calls} calls, {declared_bytes} bytes declared, {changed_bytes} changed");
    }
    let sum = |of: fn(&Declared) -> u64| all.values().map(of).sum::<u64>();
    let (declared, changed) = (sum(|line| line.declared_bytes), sum(|line| line.changed_bytes));
    println!("{declared} bytes declared, {changed} changed");
    let is_once = |place: &str, line: &Declared| {
        place.starts_with(WHOLE_ONCE) && line.calls == KINDS.len() as u64
    };
    let wide = all.iter().filter(|(place, line)| is_wide(line) && !is_once(place, line));
    let wide: Vec<_> = wide.collect();
    assert!(wide.is_empty(), "these declare far more than they change: {wide:#?}");
    assert!(declared < changed * 5 / 4, "{declared} bytes declared, {changed} changed");
    assert!(all.len() > 15, "only {} lines change metadata", all.len());
}
