//! Tests of `runtime` from outside, except that of its heap.

// Tests may need a newer compiler than the programs do (docs/INSTALL.md).
#![allow(clippy::incompatible_msrv)]

/// Makes two tests of each function: over an io_uring, and over threads and epoll.
macro_rules! over_both {
    ($($name:ident),* $(,)?) => {
        mod ring {
            use super::*;
            $(#[test] fn $name() {
                let _beside = crate::beside_others();
                match runtime::RealWorld::over(IoChoice::Ring) {
                    Ok(_) => super::$name(IoChoice::Ring),
                    Err(error) => eprintln!("NOT TESTED: io_uring: {error}"),
                }
            })*
        }
        mod classic {
            use super::*;
            $(#[test] fn $name() {
                let _beside = crate::beside_others();
                super::$name(IoChoice::Classic)
            })*
        }
    };
}

mod classic;
mod devices;
mod filter;
mod real_world;

use std::sync::{PoisonError, RwLock, RwLockReadGuard};

/// Lock that tests which count the threads of worlds hold exclusively.
static WORLDS: RwLock<()> = RwLock::new(());

fn beside_others() -> RwLockReadGuard<'static, ()> {
    WORLDS.read().unwrap_or_else(PoisonError::into_inner)
}
