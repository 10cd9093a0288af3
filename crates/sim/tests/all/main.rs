//! Tests of `sim` from outside, as one program, because linking each costs more than
//! running it.

mod common;
mod crash;
mod evictions;
mod faults;
mod hostile;
mod lying;
mod packed;
mod product;
mod replays;
mod scattered;
mod small_worlds;
