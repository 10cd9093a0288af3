//! `okeanos`: see the library of the crate.

use std::process::ExitCode;

/// The heap of the daemon, most of whose memory is pages of a block cache.
#[global_allocator]
static HEAP: runtime::Heap = runtime::Heap::new();

fn main() -> ExitCode {
    cli::main()
}
