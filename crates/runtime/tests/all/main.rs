//! All tests of `runtime` that use it from outside, except that of its heap.

// Tests may need a newer compiler than the programs do (docs/INSTALL.md).
#![allow(clippy::incompatible_msrv)]

mod classic;
mod filter;
mod real_world;

use std::sync::RwLock;

/// Lock that tests which count the threads of worlds hold exclusively.
static WORLDS: RwLock<()> = RwLock::new(());
