//! Tests of `ceph` that use it from outside: one program, because linking each costs more than
//! running it.

mod appends;
mod common;
mod failures;
mod files;
mod full;
mod hostile;
mod hosts;
mod killed;
mod order;
mod tokens;
mod traffic;
