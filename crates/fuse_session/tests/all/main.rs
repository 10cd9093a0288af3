//! Tests of `fuse_session` that use it from outside: one program, because linking each costs more
//! than running it.

mod common;
mod example;
mod session;
mod stopping;
