//! Tests of `host` that use it from outside: one program, because linking each costs more than
//! running it.

mod behaviour;
mod beside;
mod commits;
mod common;
mod creation;
mod departures;
mod directory;
mod explorer;
mod foreign_changes;
mod full;
mod kernel_cache;
mod lease;
mod lost_answers;
mod names;
mod past_the_journal;
mod reconnect;
mod recovery;
mod relog;
mod sharing;
mod sizes;
mod small_world;
mod stuck;
mod takeover;
mod unsynced;
mod waiting;
