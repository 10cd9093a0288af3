//! The tests of `emulated` from outside: one program, because linking each costs more than running
//! it.

mod around_the_cache;
mod common;
mod drive;
mod evictions;
mod measured;
mod read_policies;
mod shingled;
