//! Tests of `engine` from outside, as one program, because linking each costs more
//! than running it.

mod behaviour;
mod common;
mod crash;
mod durable_only;
mod faults;
mod frees;
mod gaps;
mod home;
mod in_place;
mod lazy_data;
mod lives;
mod log_unit;
mod mapping;
mod memory;
mod overlap;
mod owners;
mod past_cache;
mod restart;
mod run_table;
mod snapshot;
mod space;
mod stalls;
mod swap;
mod time;
mod torn;
mod unreadable;
