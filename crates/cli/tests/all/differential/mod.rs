//! Bounded exhaustive exploration of system calls beside the kernel: a volume and the kernel's
//! ext4, a host in front of a directory and the directory itself, two hosts and two processes.
//! Whatever differs is known (docs/POSIX.md), or the test fails with the shortest script. `DEPTH`
//! in the environment is the number of calls of the longest scripts of the first test of each kind;
//! the others are one shorter.

mod alphabet;
mod explore;
mod known;
mod player;
mod state;
mod worlds;

use alphabet::{CALLS, SHARED_CALLS};
use explore::{Exploration, Explorer, KnownDifference, Step};
use known::{OF_HOSTS, OF_TWO_HOSTS, OF_VOLUMES};
use std::io::Write;
use worlds::{Hosts, Kernel, Misplayed, Mounted, Plain, World};

fn depth() -> usize {
    std::env::var("DEPTH").map_or(2, |text| text.parse().expect("DEPTH is a number"))
}

fn steps(actors: usize) -> Vec<Step> {
    let of = |actor| CALLS.iter().map(move |call| Step { actor, call });
    (0..actors).flat_map(of).collect()
}

/// Bounds of the exploration.
struct Bounds {
    name: String,
    alphabet: Vec<Step>,
    known: &'static [KnownDifference],
    depth: usize,
}

/// Explores, and prints what was explored.
fn explore(bounds: Bounds, here: &mut dyn World, there: &mut dyn World) -> Exploration {
    let Bounds { name, alphabet, known, depth } = bounds;
    let calls = alphabet.len();
    let begun = std::time::Instant::now();
    let mut explorer = Explorer::new(here, there, alphabet, known);
    explorer.explore(depth);
    let found = explorer.found;
    let known: Vec<String> =
        found.known.iter().map(|(row, count)| format!("{count} of \"{row}\"")).collect();
    let (scripts, states, differ) = (found.scripts, found.states, found.differences.len());
    // Not by a macro: the output of those is shown only when a test fails.
    let _ = writeln!(
        std::io::stderr(),
        "{name}: {calls} calls, depth {depth}: {scripts} scripts, {states} states, \
         {differ} differ, known: {}; {:.1} s",
        if known.is_empty() { "none".into() } else { known.join(", ") },
        begun.elapsed().as_secs_f64(),
    );
    let counts = [("scripts", scripts as u64), ("states", states as u64)];
    disks::explored::record(&format!("system calls, {name}"), depth as u64, &counts);
    found
}

/// Fails if anything differs that is not known, or something known does not.
fn agree(bounds: Bounds, here: &mut dyn World, there: &mut dyn World) {
    let (name, known, depth) = (bounds.name.clone(), bounds.known, bounds.depth);
    let found = explore(bounds, here, there);
    assert!(found.differences.is_empty(), "{name} differs:\n{}", found.differences.join("\n"));
    // All need a descriptor that the first call opens.
    let gone = known.iter().find(|known| depth > 1 && !found.known.contains_key(known.row));
    assert!(gone.is_none(), "{name}: differs no more: {}", gone.map_or("", |known| known.row));
}

fn volume_beside_the_kernel(arguments: &[&str], options: &'static str, depth: usize) {
    // Each volume takes a namespace of its own, with copies of the mounts so far. The daemon's
    // mount must be in one alone.
    let mut there = Kernel::mount(arguments);
    let volume = crate::common::Volume::new(arguments);
    volume.mount(options);
    let mut here = Mounted { volume, options };
    let bounds = Bounds { name: options.into(), alphabet: steps(1), known: OF_VOLUMES, depth };
    agree(bounds, &mut here, &mut there);
    here.volume.umount_and_check();
}

#[test]
fn the_default_mode_answers_as_the_kernels_ext4() {
    volume_beside_the_kernel(&["-t", "ext4"], "data=selective", depth());
}
#[test]
fn wasteless_answers_as_the_kernels_ext4() {
    volume_beside_the_kernel(&["-t", "ext4", "-b", "4096"], "data=wasteless", depth() - 1);
}
#[test]
fn journal_answers_as_the_kernels_ext4() {
    volume_beside_the_kernel(&["-t", "ext4", "-b", "2048"], "data=journal", depth() - 1);
}
#[test]
fn adaptive_answers_as_the_kernels_ext4() {
    volume_beside_the_kernel(&["-t", "ext4"], "data=adaptive", depth() - 1);
}
#[test]
fn ordered_answers_as_the_kernels_ext4() {
    volume_beside_the_kernel(&["-t", "ext4"], "data=ordered", depth() - 1);
}
#[test]
fn writeback_answers_as_the_kernels_ext4() {
    volume_beside_the_kernel(&["-t", "ext4", "-b", "4096"], "data=writeback,noloop", depth() - 1);
}

fn hosts_beside_processes(hosts: usize, alphabet: Vec<Step>, known: &'static [KnownDifference]) {
    let mut here = Hosts::mount(hosts);
    let mut there = Plain { directory: tempfile::tempdir().unwrap(), actors: hosts };
    let name = format!("{hosts} before a directory");
    agree(Bounds { name, alphabet, known, depth: depth() }, &mut here, &mut there);
}

#[test]
fn a_host_answers_as_the_directory_behind_it() {
    hosts_beside_processes(1, steps(1), OF_HOSTS);
}

#[test]
fn two_hosts_answer_as_two_processes() {
    let shared = |step: &Step| SHARED_CALLS.contains(&step.call.text);
    let alphabet: Vec<Step> = steps(2).into_iter().filter(shared).collect();
    assert_eq!(alphabet.len(), 2 * SHARED_CALLS.len(), "a shared call that does not exist");
    hosts_beside_processes(2, alphabet, OF_TWO_HOSTS);
}

#[test]
fn a_planted_difference_is_found_by_its_shortest_script() {
    let mut here = Misplayed(Plain { directory: tempfile::tempdir().unwrap(), actors: 1 });
    let mut there = Plain { directory: tempfile::tempdir().unwrap(), actors: 1 };
    let bounds = Bounds { name: "a mistake".into(), alphabet: steps(1), known: &[], depth: 1 };
    let found = explore(bounds, &mut here, &mut there);
    let scripts: Vec<&str> = found.differences.iter().filter_map(|it| it.lines().next()).collect();
    let longer = ["open b, create", "open b, create exclusively", "rename a b", "link a b"];
    assert!(longer.iter().all(|call| scripts.iter().any(|it| it.ends_with(call))), "{scripts:?}");
    assert!(scripts.iter().all(|it| it.contains(" b")), "{scripts:?}");
}

#[test]
fn known_differences_stand_on_the_page() {
    let page = include_str!("../../../../../docs/POSIX.md");
    for known in OF_VOLUMES.iter().chain(OF_HOSTS).chain(OF_TWO_HOSTS) {
        assert!(page.contains(known.row), "docs/POSIX.md has no row: {}", known.row);
    }
}
