//! Tasks on one thread, in virtual time (seeded, deterministic) or in real time over one io_uring.

pub mod sync;
mod tasks;
mod virtual_world;

pub use virtual_world::VirtualWorld;
