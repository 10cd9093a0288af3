//! Below the doors there is one thread and one world: read from the sources.

use super::choices::below;
use super::floors::{FLOORS_BELOW_THE_DOORS, crates_on};
use super::sources::{crates, root};
use std::fs;

/// What asks the machine for the time, or makes threads and what they share.
const WORDS: [&str; 5] =
    ["std::sync::", "std::thread::", "thread::spawn", "SystemTime::now", "Instant::now()"];

/// Where that stands, from `crates/`.
const ALLOWED: [&str; 7] = [
    // The worlds themselves; wakers and the heap must serve all threads that there might be.
    "runtime/src",
    // Which deliberate fault is on, read once.
    "units/src/faults.rs",
    // Whether this machine aligns large buffers, found out once.
    "device/src/buffer.rs",
    // Real stores: one directory, and Ceph in a process of its own.
    "store/src/local",
    "ceph/src/helper",
    "ceph/src/library",
    // Images are made before there is a world.
    "volume_images/src",
];

/// Crates whose business is another world than `device::World`.
const WITHOUT_LINTS: [&str; 4] = ["ceph", "runtime", "store", "volume_images"];

#[test]
fn below_the_doors_only_worlds_and_real_stores_have_clocks_and_threads() {
    let doors = crates_on(6);
    let mut seen = 0;
    for (path, text) in below() {
        let room = path.iter().next().unwrap().to_str().unwrap();
        if doors.iter().any(|door| door == room) {
            continue;
        }
        let code = text.split("#[cfg(test)]\nmod tests").next().unwrap();
        let found = WORDS.iter().find(|word| code.contains(**word));
        seen += usize::from(found.is_some());
        let is_allowed = ALLOWED.iter().any(|allowed| path.starts_with(allowed));
        assert!(found.is_none() || is_allowed, "{}: {found:?}", path.display());
    }
    assert!(seen > 5, "the words are not where they are looked for");
}

/// Clippy finds there whatever asks for the time, for chance or for another thread.
#[test]
fn crates_below_the_doors_have_the_lints_of_a_virtual_world() {
    let lints = fs::read_to_string(root().join("lints/below-the-doors.toml")).unwrap();
    let is_below =
        |name: &String| FLOORS_BELOW_THE_DOORS.iter().any(|floor| crates_on(*floor).contains(name));
    for name in crates().into_iter().filter(is_below) {
        let own = fs::read_to_string(root().join("crates").join(&name).join("clippy.toml")).ok();
        let is_expected = !WITHOUT_LINTS.contains(&name.as_str());
        assert_eq!(own.is_some_and(|text| text == lints), is_expected, "crate {name}");
    }
}
