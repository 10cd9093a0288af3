//! Tests of `store` that use it from outside: one program, because linking each costs more than
//! running it.

mod contract;
mod exchanged;
mod leases;
mod names;
mod own_directory;
mod sharing;
mod simulated;
