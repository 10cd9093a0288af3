//! All tests of `host` that use it from outside: one program, because linking each costs more than
//! running it.

mod behaviour;
mod commits;
mod common;
mod creation;
mod departures;
mod explorer;
mod full;
mod kept;
mod lease;
mod log_anew;
mod names;
mod reconnect;
mod recovery;
mod sharing;
mod sizes;
