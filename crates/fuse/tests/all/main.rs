//! Tests of `fuse` that use it from outside: one program, because linking each costs more than
//! running it.

mod common;
mod flags;
mod forgetting;
mod long_requests;
mod memory_of_a_request;
mod set_group;
mod synchronous;
mod write_back;
