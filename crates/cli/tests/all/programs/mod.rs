//! The two programs, for the tests of both. Cargo has built that of the tests' own crate; the other
//! one is built when a test first needs it, which does nothing where both crates are tested.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Returns the program `okeanos`; another one if OKEANOS_PROGRAM is set: long runs want an
/// optimised one.
pub fn okeanos() -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    if let Some(program) = std::env::var_os("OKEANOS_PROGRAM") {
        return program.into();
    }
    option_env!("CARGO_BIN_EXE_okeanos")
        .map_or_else(|| BUILT.get_or_init(|| built("cli", "okeanos")).clone(), PathBuf::from)
}

/// Returns the program `okeanos-lab`.
pub fn lab() -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    option_env!("CARGO_BIN_EXE_okeanos-lab")
        .map_or_else(|| BUILT.get_or_init(|| built("lab", "okeanos-lab")).clone(), PathBuf::from)
}

/// Builds a program as this test is built: the test lies in `TARGET/PROFILE/deps`.
fn built(package: &str, name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let place = test.ancestors().nth(2).expect("the directory of a profile");
    let profile = match place.file_name().and_then(|name| name.to_str()) {
        Some("debug") | None => "dev",
        Some(profile) => profile,
    };
    let target = place.parent().unwrap_or(Path::new("/"));
    let cargo = std::env::var_os("CARGO").unwrap_or("cargo".into());
    let mut command = Command::new(cargo);
    command.args(["build", "--quiet", "--package", package, "--bin", name]);
    command.args(["--profile", profile, "--target-dir"]).arg(target);
    let status = command.current_dir(env!("CARGO_MANIFEST_DIR")).status().unwrap();
    assert!(status.success(), "{command:?}");
    place.join(name)
}
