//! All tests of `fuse` that use it from outside: one program, because linking each costs more than running it.

mod common;
mod flags;
mod forgetting;
mod session;
mod stopping;
