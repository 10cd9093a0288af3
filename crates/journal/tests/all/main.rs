//! Tests of `journal` that use it from outside: one program, because linking each costs more
//! than running it.

mod crash;
mod doubles;
mod e2fsprogs;
mod gaps;
mod packed;
mod plans;
mod product;
mod recovery;
mod simulation;
