//! All tests of `reproduce` that use it from outside: one program, because linking each costs more than running it.

mod streams;
mod workloads;
