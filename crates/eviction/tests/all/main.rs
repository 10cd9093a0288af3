//! The tests of `eviction` from outside: one program, because linking each costs more than running
//! it.

mod fingerprint;
mod flush_test;
mod lying_drive;
mod small_cache;
