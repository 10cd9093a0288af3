//! Cost of listings while names are removed: counted in names returned and blocks looked up, so
//! that no clock is needed.

use crate::names::support::{EXT4_1K, LINEAR, ROOT, TestImage, list, make_directory, make_file};
use ext4::{Caller, Inode, RenameMode, Volume};
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;

/// Entries of one request of the kernel.
const CHUNK: usize = 1000;

#[derive(Clone, Copy, Debug)]
enum Order {
    /// Order of creation, so anywhere among the hashes.
    Made,
    /// Order of the listing: `rm -r`.
    Listed,
}

/// One listing that begins anew whenever it has come to its end, or always.
struct Lister {
    cookie: u64,
    always_anew: bool,
}

impl Lister {
    /// Lists the next chunk; returns its number of entries.
    async fn step(&mut self, volume: &Rc<Volume>, directory: &Rc<Inode>) -> u64 {
        let entries = volume.readdir(directory, self.cookie, CHUNK).await.unwrap();
        let next = entries.last().filter(|_| !self.always_anew).map_or(0, |last| last.cookie);
        // Past the dots at once: there the walk begins.
        self.cookie = if next == 0 { 2 } else { next };
        entries.len() as u64
    }
}

/// Names given and blocks looked up for each name that is removed beside two listings, by the
/// removal itself and by both listings.
fn work_per_name(count: u32, order: Order, always_anew: bool) -> u64 {
    TestImage::of_inodes(EXT4_1K, "64M", 20_000).with(1, move |volume, _| async move {
        let root = volume.inode(ROOT).await.unwrap();
        let directory = make_directory(&volume, &root, "directory").await;
        for index in 0..count {
            make_file(&volume, &directory, &format!("a name of some length {index}")).await;
        }
        let listed =
            list(&volume, &directory, CHUNK).await.into_iter().skip(2).map(|entry| entry.name);
        let mut names: Vec<Vec<u8>> = listed.collect();
        assert_eq!(names.len(), count as usize);
        if let Order::Made = order {
            names.sort();
        }
        let mut listers = [(); 2].map(|()| Lister { cookie: 2, always_anew });
        let looked_up = || {
            let cache = volume.engine().statistics().cache;
            cache.hits + cache.misses
        };
        let mut work = 0;
        for name in &names {
            let before = looked_up();
            volume.unlink(&directory, name).await.unwrap();
            for lister in &mut listers {
                work += lister.step(&volume, &directory).await;
            }
            work += looked_up() - before;
        }
        assert_eq!(list(&volume, &directory, CHUNK).await.len(), 2);
        work / u64::from(count)
    })
}

#[test]
fn removing_names_beside_two_listings_costs_no_more_in_a_large_directory() {
    for order in [Order::Made, Order::Listed] {
        for always_anew in [false, true] {
            let (small, large) =
                (work_per_name(1000, order, always_anew), work_per_name(3000, order, always_anew));
            let what = format!(
                "{order:?}, always anew: {always_anew}: {small}, then {large} for each name"
            );
            println!("{what}");
            assert!(large < 200 && large <= small * 4 / 3, "{what}");
        }
    }
}

#[test]
fn a_name_made_where_all_was_empty_is_listed() {
    TestImage::of_inodes(EXT4_1K, "64M", 20_000).with(1, |volume, _| async move {
        let root = volume.inode(ROOT).await.unwrap();
        let directory = make_directory(&volume, &root, "directory").await;
        for index in 0..500 {
            make_file(&volume, &directory, &format!("name {index}")).await;
        }
        for index in 0..500 {
            volume.unlink(&directory, format!("name {index}").as_bytes()).await.unwrap();
            if index % 50 == 0 {
                list(&volume, &directory, CHUNK).await;
                make_file(&volume, &directory, &format!("again {index}")).await;
                let listed = list(&volume, &directory, CHUNK).await;
                assert_eq!(listed.len() as u32, 2 + 500 - (index + 1) + index / 50 + 1);
            }
        }
        let listed = list(&volume, &directory, CHUNK).await;
        assert_eq!(listed.len(), 2 + 10);
    });
}

/// Returns the output, and the number of steps it took: other tasks run between two.
async fn in_steps<T>(work: impl Future<Output = T>) -> (T, u32) {
    let (mut work, mut steps) = (pin!(work), 0);
    let output = poll_fn(|context| {
        steps += 1;
        work.as_mut().poll(context)
    });
    (output.await, steps)
}

/// The blocks are in memory, so that nothing else lets other tasks run.
#[test]
fn walks_over_many_leaves_yield() {
    const NAMES: u32 = 20_000;
    /// Yields of a walk: one for 256 leaves of up to 50 names each.
    const YIELDS: u32 = NAMES / (256 * 50);
    TestImage::of_inodes(EXT4_1K, "64M", 100).with(1, |volume, _| async move {
        let root = volume.inode(ROOT).await.unwrap();
        let file = make_file(&volume, &root, "file").await;
        let mut steps_of = Vec::new();
        for count in [1, NAMES] {
            let directory = make_directory(&volume, &root, "directory").await;
            let name = |number: u32| format!("name {number}").into_bytes();
            for number in 0..count {
                volume.link(&file, &directory, &name(number), &Caller::ROOT).await.unwrap();
            }
            // After a change a chunk is short.
            list(&volume, &directory, CHUNK).await;
            let (listed, listing) =
                in_steps(volume.readdir(&directory, 0, NAMES as usize + 2)).await;
            assert_eq!(listed.unwrap().len(), count as usize + 2);
            for number in 0..count {
                volume.unlink(&directory, &name(number)).await.unwrap();
            }
            let (removed, removal) = in_steps(volume.rmdir(&root, b"directory")).await;
            removed.unwrap();
            steps_of.push((listing, removal));
        }
        let [few, many] = steps_of[..] else { unreachable!("two directories") };
        assert!(many.0 >= few.0 + YIELDS && many.1 >= few.1 + YIELDS, "{few:?}, {many:?}");
    });
}

/// A directory without an index is walked block by block.
#[test]
fn walks_over_blocks_without_an_index_yield() {
    /// Three names of 250 bytes are in a block.
    const NAMES: u32 = 3 * 600;
    const YIELDS: u32 = 600 / 256;
    TestImage::of_inodes(LINEAR, "64M", 100).with(1, |volume, _| async move {
        let root = volume.inode(ROOT).await.unwrap();
        let file = make_file(&volume, &root, "file").await;
        let mut steps_of = Vec::new();
        for count in [1, NAMES] {
            let directory = make_directory(&volume, &root, &format!("of {count}")).await;
            let name = |number: u32| format!("{number:0250}").into_bytes();
            for number in 0..count {
                volume.link(&file, &directory, &name(number), &Caller::ROOT).await.unwrap();
            }
            let (absent, lookup) = in_steps(volume.lookup(&directory, b"absent")).await;
            assert!(absent.is_err());
            let names = count as usize + 2;
            // After a change a chunk is short.
            list(&volume, &directory, CHUNK).await;
            let (listed, listing) = in_steps(volume.readdir(&directory, 0, names)).await;
            assert_eq!(listed.unwrap().len(), names);
            let another = name(count);
            let link = volume.link(&file, &directory, &another, &Caller::ROOT);
            let (linked, insertion) = in_steps(link).await;
            linked.unwrap();
            steps_of.push([lookup, listing, insertion]);
        }
        let [few, many] = steps_of[..] else { unreachable!("two directories") };
        let yields = [0, 1, 2].map(|walk| many[walk].saturating_sub(few[walk]));
        assert!(yields.iter().all(|walk| *walk >= YIELDS), "{few:?}, {many:?}");
    });
}

/// A rename between directories looks whether one lies in the other.
#[test]
fn a_rename_far_below_the_root_yields() {
    const LEVELS: u32 = 1500;
    TestImage::of_inodes(EXT4_1K, "64M", 4000).with(1, |volume, _| async move {
        let root = volume.inode(ROOT).await.unwrap();
        let file = make_file(&volume, &root, "file").await;
        let mut steps_of = Vec::new();
        for levels in [1, LEVELS] {
            let mut ends = Vec::new();
            for side in ["from", "to"] {
                let mut end = make_directory(&volume, &root, &format!("{side} {levels}")).await;
                for _ in 1..levels {
                    end = make_directory(&volume, &end, "below").await;
                }
                ends.push(end);
            }
            volume.link(&file, &ends[0], b"name", &Caller::ROOT).await.unwrap();
            let [from, to] = [0, 1].map(|side| (&ends[side], &b"name"[..]));
            let moving = volume.rename(from, to, &Caller::ROOT, RenameMode::Replace);
            let (moved, steps) = in_steps(moving).await;
            moved.unwrap();
            steps_of.push(steps);
        }
        let [shallow, deep] = steps_of[..] else { unreachable!("two depths") };
        assert!(deep >= shallow + 2 * (LEVELS / 256), "{shallow}, {deep}");
    });
}
