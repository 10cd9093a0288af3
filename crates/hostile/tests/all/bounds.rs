//! Bounds on memory and time for every golden image, healthy or hostile. Each is opened (or
//! refused), walked, read to the end, recovered and changed in every mode, in a process with a hard
//! limit.

use hostile::golden;
use std::process::Command;

/// Bytes of the process's address space: its program, the image, and a cache that would hold all of
/// it.
const MEMORY_MAX: u64 = 256 << 20;
/// Time limit for six visits of a few MiB, on a busy machine, too.
const SECONDS_MAX: u64 = 120;

#[test]
fn every_golden_image_is_read_in_bounded_memory_and_time() {
    let names = golden::names();
    assert!(names.len() >= 60, "golden images are missing: {names:?}");
    let visit = |name: &str| {
        let mut command = Command::new("timeout");
        command.args([
            "-k",
            "1",
            &SECONDS_MAX.to_string(),
            "prlimit",
            &format!("--as={MEMORY_MAX}"),
        ]);
        command.arg(env!("CARGO_BIN_EXE_visit-golden")).arg(name).output().unwrap()
    };
    for name in &names {
        let output = visit(name);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{name}: {}: {said}", output.status);
    }
    let output = visit("no-such-image");
    assert!(!output.status.success(), "the visitor does not visit");
}
