//! Tests of `reproduce` from outside: one program, because linking each costs more than running it.

mod announced;
mod manylogs;
mod page;
mod streams;
mod workloads;
