//! The tests of `disks` from outside: one program, because linking each costs more than running it.

mod file;
mod memory;
