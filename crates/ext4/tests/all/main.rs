//! The tests of `ext4` from outside: one program, because linking each costs more than running it.

mod declared;
mod durable_only;
mod features;
mod files;
mod image;
mod names;
mod volume;
mod xattr;
