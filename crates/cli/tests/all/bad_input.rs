//! Tests that for any damage of a volume the program prints a line or two and changes none of its
//! bytes.

use crate::common::{okeanos, okeanos_within, said};
use crate::programs;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Bytes of address space that the program may take, whatever the volume contains; its cache is
/// limited to 256 MiB.
const MEMORY_MAX: u64 = 768 << 20;

/// Returns the damaged golden images and those with features that are refused, and the content of
/// their `expect`.
fn images() -> Vec<(String, String)> {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../golden");
    let names = std::fs::read_dir(&golden).unwrap().map(|entry| entry.unwrap().file_name());
    let mut names: Vec<String> = names.map(|name| name.into_string().unwrap()).collect();
    names.retain(|name| name.starts_with("damaged-") || name.starts_with("refused-"));
    names.sort();
    assert!(names.len() >= 15, "golden images are missing: {names:?}");
    let expect = |name: &String| std::fs::read_to_string(golden.join(name).join("expect")).unwrap();
    names.into_iter().map(|name| (name.clone(), expect(&name))).collect()
}

fn unpack(name: &str, directory: &Path) -> PathBuf {
    let packed =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../golden").join(name).join("image.zst");
    let image = directory.join(name);
    let unpacked =
        Command::new("zstd").args(["-q", "-d", "-f"]).arg(packed).arg("-o").arg(&image).output();
    let unpacked = unpacked.expect("the zstd program: make deps installs it");
    assert!(unpacked.status.success(), "zstd: {}", said(&unpacked));
    image
}

/// Checks a refusal: it fails, names the image, and takes two lines at most.
fn is_a_clear_refusal(output: &Output, image: &Path, what: &str) {
    let words = said(output);
    assert_eq!(output.status.code(), Some(1), "{what}: {words}");
    assert!(output.stdout.is_empty(), "{what}: {words}");
    assert!(words.contains(&*image.to_string_lossy()), "{what} does not say where: {words}");
    assert!(words.lines().count() <= 2, "{what} is long-winded: {words}");
    let blamed = ["panicked", "os error 5)", "RUST_BACKTRACE", "src/"];
    assert!(!blamed.iter().any(|word| words.contains(word)), "{what}: {words}");
}

/// Checks that the program neither crashes nor hangs; its report of damage is short.
fn survives(output: &Output, image: &Path, what: &str) {
    if !output.status.success() {
        is_a_clear_refusal(output, image, what);
    }
}

#[test]
fn no_command_changes_a_volume_that_it_refuses_and_each_says_why() {
    let directory = tempfile::tempdir().unwrap();
    let mount_point = directory.path().join("mounted");
    std::fs::create_dir(&mount_point).unwrap();
    for (name, expect) in images() {
        let image = unpack(&name, directory.path());
        let before = std::fs::read(&image).unwrap();
        let run = |words: &[&str], last: &[&OsStr]| {
            let arguments: Vec<&OsStr> =
                words.iter().map(OsStr::new).chain(last.iter().copied()).collect();
            okeanos_within(MEMORY_MAX, &arguments)
        };
        for what in [
            &["super"][..],
            &["groups"],
            &["journal"],
            &["journal", "--all"],
            &["inode", "2"],
            &["dir", "/"],
        ] {
            for json in [&[][..], &["--json"]] {
                let words = [&["inspect", what[0]][..], json, &what[1..]].concat();
                survives(
                    &run(&words, &[image.as_os_str()]),
                    &image,
                    &format!("{words:?} of {name}"),
                );
            }
        }
        let rehearsal = run(&["recover", "--dry-run"], &[image.as_os_str()]);
        survives(&rehearsal, &image, &format!("recover --dry-run of {name}"));
        if let Some(reason) = expect.lines().next().unwrap().strip_prefix("mount: refused: ") {
            let recovered = run(&["recover"], &[image.as_os_str()]);
            survives(&recovered, &image, &format!("recover of {name}"));
            for options in ["data=wasteless", "noloop"] {
                let mounted =
                    run(&["mount", "-o", options], &[image.as_os_str(), mount_point.as_os_str()]);
                is_a_clear_refusal(&mounted, &image, &format!("mount of {name}"));
                let words = said(&mounted);
                assert!(
                    words.contains(reason) || name == "damaged-empty",
                    "{name}: {words}, not {reason}"
                );
                eprintln!("{words}");
            }
        }
        assert!(std::fs::read(&image).unwrap() == before, "{name} was changed");
    }
}

fn run(words: &[&str], image: &Path) -> Output {
    let arguments: Vec<&OsStr> = words.iter().map(OsStr::new).chain([image.as_os_str()]).collect();
    okeanos(&arguments)
}

fn file_in(image: &Path, path: &str) -> Vec<u8> {
    let output =
        Command::new("debugfs").args(["-R", &format!("cat {path}")]).arg(image).output().unwrap();
    output.stdout
}

fn is_sound(image: &Path) {
    let output = Command::new("timeout").args(["60", "e2fsck", "-fn"]).arg(image).output().unwrap();
    assert!(output.status.success(), "e2fsck: {}", said(&output));
}

#[test]
fn a_damaged_log_is_replayed_up_to_the_damage_if_asked() {
    let directory = tempfile::tempdir().unwrap();
    let whole = unpack("dirty-wasteless", directory.path());
    assert!(run(&["recover"], &whole).status.success());
    let whole = file_in(&whole, "/a/log");
    assert_eq!(whole.iter().filter(|byte| **byte == b'\n').count(), 12);
    for damage in [
        "journal-middle",
        "journal-header",
        "journal-middle-plain",
        "journal-header-plain",
        "packed-middle",
    ] {
        let image = unpack(&format!("damaged-{damage}"), directory.path());
        let refused = run(&["recover"], &image);
        is_a_clear_refusal(&refused, &image, damage);
        assert!(said(&refused).contains("--until-damage"), "{damage}: {}", said(&refused));
        let recovered = run(&["recover", "--until-damage", "--json"], &image);
        assert_eq!(recovered.status.code(), Some(4), "{damage}: {}", said(&recovered));
        // Home may be newer than the log that was left.
        let state = Command::new("dumpe2fs").arg("-h").arg(&image).output().unwrap();
        assert!(
            String::from_utf8_lossy(&state.stdout).contains("with errors"),
            "{damage}: e2fsck is not demanded"
        );
        let checked = run(&["check"], &image);
        assert!(
            checked.status.code() == Some(4) && said(&checked).contains("marked"),
            "{}",
            said(&checked)
        );
        // A second run, after one whose report nobody has read, says so as well.
        for words in [&["recover"][..], &["recover", "--dry-run"]] {
            let again = run(words, &image);
            assert!(
                again.status.code() == Some(4) && said(&again).contains("marked"),
                "{damage}: {}",
                said(&again)
            );
        }
        is_sound(&image);
        let found = file_in(&image, "/a/log");
        assert!(
            found.len() < whole.len() && whole.starts_with(&found),
            "{damage}: no beginning of the file"
        );
        assert!(
            damage != "packed-middle" || !found.is_empty(),
            "nothing of what lies before the damage was replayed"
        );
        // The volume is usable again.
        let repaired = Command::new("timeout").args(["60", "e2fsck", "-fy"]).arg(&image).output();
        assert!(repaired.unwrap().status.code().is_some_and(|code| code <= 1), "{damage}");
        let last = run(&["recover"], &image);
        assert!(
            last.status.success() && said(&last).contains("nothing to recover"),
            "{damage}: {}",
            said(&last)
        );
    }
}

#[test]
fn a_loss_has_its_exit_code_though_nothing_can_be_printed() {
    let directory = tempfile::tempdir().unwrap();
    let image = unpack("damaged-packed-middle", directory.path());
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let mut command = Command::new(programs::okeanos());
    let recovered = command.args(["recover", "--until-damage"]).arg(&image).stdout(full).output();
    let recovered = recovered.unwrap();
    assert_eq!(recovered.status.code(), Some(4), "{}", said(&recovered));
    assert!(said(&recovered).contains("standard output"), "{}", said(&recovered));
}

#[test]
fn a_log_that_tune2fs_forgot_is_found_again() {
    let directory = tempfile::tempdir().unwrap();
    let whole = unpack("dirty-wasteless-2", directory.path());
    assert!(run(&["recover"], &whole).status.success());
    let image = unpack("damaged-journal-forgotten", directory.path());
    let printed = said(&run(&["inspect", "journal"], &image));
    assert!(printed.contains("okeanos recover --find-log"), "{printed}");
    for words in [&["recover"][..], &["recover", "--until-damage"], &["recover", "--dry-run"]] {
        let refused = run(words, &image);
        is_a_clear_refusal(&refused, &image, "a forgotten log");
        assert!(said(&refused).contains("--find-log"), "{}", said(&refused));
    }
    let recovered = run(&["recover", "--find-log"], &image);
    assert!(said(&recovered).contains("replayed:"), "{}", said(&recovered));
    is_sound(&image);
    for path in ["/a/log", "/a/numbers", "/a/blocks"] {
        assert!(
            !file_in(&image, path).is_empty() && file_in(&image, path) == file_in(&whole, path),
            "{path}"
        );
    }
    // Without a log, none is invented.
    assert!(said(&run(&["recover", "--find-log"], &whole)).contains("nothing to recover"));
}
