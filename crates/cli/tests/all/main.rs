//! All tests of `cli` that use it from outside: one program, because linking each costs more than
//! running it.

mod bad_input;
mod blocks;
mod checkpoint;
mod claims;
mod coerce;
mod coherence;
mod common;
mod copying;
mod daemon;
mod daemon_life;
mod details;
mod disk;
mod door_memory;
mod exerciser;
mod exploring;
mod fingerprint;
mod growth;
mod handles;
mod interchange;
mod memory;
mod nbd;
mod operations;
mod options;
mod people;
mod powercut;
mod reproduce;
mod rig;
mod rights;
mod robustness;
mod scattered;
mod security;
mod stress;
mod volumes;
mod whole_volume;
mod workloads;
