//! Small worlds of two hosts with one file, exhaustively: every script of a small alphabet up to a
//! bound, each step cut at every message and journal write, a second life, and a second crash.
//! `docs/CRASH_MODEL.md` states the bounds.
//!
//! Judged: what a sync covered is readable by both hosts afterwards, or is set aside after another
//! host's newer change, and then the later syncs of that descriptor fail. Each append that was
//! answered is there once. No change of attributes, size or name is undone.

mod explore;
mod life;
mod operation;
mod perform;
mod script;
mod shared_store;
mod spec;
mod world;

use explore::explore;
use script::Script;

#[test]
fn what_two_hosts_wrote_and_synced_is_there() {
    let report = explore(&world::CONTENT);
    assert!(report.scripts > 2600 && report.cuts > 800 && report.conflicts > 100, "{report:?}");
}

#[test]
fn no_host_undoes_anothers_change_of_attributes_or_names() {
    let report = explore(&world::ATTRIBUTES);
    assert!(report.scripts > 1000 && report.cuts > 40, "{report:?}");
}

#[test]
fn no_sync_succeeds_after_another_host_took_the_file() {
    let report = explore(&world::LEASE);
    assert!(report.scripts > 1000 && report.conflicts > 20, "{report:?}");
}

#[test]
fn destaging_beside_another_host_loses_nothing() {
    let report = explore(&world::DESTAGE);
    assert!(report.scripts > 400 && report.cuts > 10, "{report:?}");
}

/// Both hosts die. The earlier one's synced bytes are then its conflict.
#[test]
fn what_the_later_dead_host_synced_is_in_the_file() {
    for world in [&world::EARLIER_FIRST, &world::LATER_FIRST] {
        let report = explore(world);
        assert!(report.scripts > 400 && report.cuts > 200 && report.conflicts > 20, "{report:?}");
    }
}

#[test]
fn a_host_that_dies_amid_its_takeover_loses_nothing() {
    for world in [&world::TAKEOVER_EARLIER_FIRST, &world::TAKEOVER_LATER_FIRST] {
        let report = explore(world);
        assert!(report.scripts > 400 && report.cuts > 200 && report.conflicts > 20, "{report:?}");
    }
}

#[test]
fn two_hosts_on_a_directory_undo_nothing() {
    let report = explore(&world::DIRECTORY);
    assert!(report.scripts > 150, "{report:?}");
}

#[test]
fn no_descriptor_and_no_listing_meets_another_file() {
    let report = explore(&world::DIRECTORY_NAMES);
    assert!(report.scripts > 400, "{report:?}");
}

#[test]
fn two_programs_of_a_host_undo_nothing_of_each_other() {
    let report = explore(&world::DIRECTORY_BESIDE);
    assert!(report.scripts > 200, "{report:?}");
}

#[test]
fn bursts_of_every_length_survive() {
    let report = explore(&world::BURSTS);
    assert!(report.scripts > 400, "{report:?}");
}

/// Plays the script of `OKEANOS_HOST_SCRIPT` as well.
#[test]
fn a_printed_script_replays() {
    let given = std::env::var("OKEANOS_HOST_SCRIPT").ok();
    let known = [
        "content: A:write B:append-now A:sync",
        "content: A:write-now B:read cut=2:message-1-answer",
        "content: A:write B:write-now B:crash cut=2:message-4-answer",
        "takeover-later-first: A:write-now A:crash B:write-now cut=3:message-6-request",
        "directory-beside: A:append-now B:append-beside-mode-4",
        "bursts: A:burst-81 A:sync cut=2:journal-A-0",
    ];
    for text in known.into_iter().chain(given.as_deref()) {
        let script: Script = text.parse().unwrap();
        assert_eq!(script.to_string(), text);
        match life::play(&script) {
            Ok(played) => assert!(played.is_some(), "{text}: a step that is not possible"),
            Err(why) => panic!("{text}: {why}"),
        }
    }
}
