//! All tests of `runtime` that use it from outside, but for that of its heap.

mod classic;
mod filter;
mod real_world;

use std::sync::RwLock;

/// Tests that count the threads of worlds hold it alone.
static WORLDS: RwLock<()> = RwLock::new(());
