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
mod daemon_rights;
mod details;
mod doctor;
mod door_memory;
mod exerciser;
mod fingerprint;
mod handles;
mod interchange;
mod memory;
mod nbd;
mod operations;
mod options;
mod people;
mod powercut;
mod programs;
mod rig;
mod rights;
mod robustness;
mod scattered;
mod security;
mod set_id;
mod stress;
mod volumes;
mod whole_volume;
mod without_ring;
