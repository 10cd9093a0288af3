//! Tasks on one thread, in virtual time (seeded, deterministic) or in real time. In real time an
//! io_uring carries out their requests to the kernel or, where it is refused, a few threads and
//! epoll. Unsafe code is in `ring`, `heap`, `step_clock` and `standard_error` alone.
#![deny(unsafe_code)]

mod channel;
#[allow(unsafe_code)]
mod heap;
mod polling;
mod real_world;
#[allow(unsafe_code)]
mod ring;
#[allow(unsafe_code)]
pub mod standard_error;
#[allow(unsafe_code)]
mod step_clock;
pub mod sync;
mod tasks;
mod timers;
mod virtual_world;

pub use channel::{
    Either, Receiver, Sender, WalkPace, join_all, join_window, oneshot, race,
    spawn_after_first_step, spawn_with_result, yield_now,
};
pub use heap::Heap;
pub use polling::POLL_DEFAULT;
pub use real_world::RealWorld;
pub use ring::{
    File, IoChoice, NoRing, PollStream, Ring, RingRefusal, RingStatistics, Signal, Signals, Slice,
    block_signals, command,
};
pub use units::SplitMix;
pub use virtual_world::{Deadlock, VirtualWorld};
