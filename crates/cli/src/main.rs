//! `okeanos`: see the library of the crate.

use std::process::ExitCode;

/// Most of the daemon's memory is pages of a block cache.
#[global_allocator]
static HEAP: runtime::Heap = runtime::Heap::new();

fn main() -> ExitCode {
    cli::main()
}
