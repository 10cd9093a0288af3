//! Tests of `okeanos doctor`: a page about this machine and a disk.

use crate::common::{okeanos, said};
use std::ffi::OsStr;

#[test]
fn a_directory_is_measured_and_left_as_it_was() {
    let directory = tempfile::tempdir().unwrap();
    let words = ["doctor".as_ref(), "--json".as_ref(), directory.path().as_os_str()];
    let output = okeanos(&words);
    assert!(output.status.success(), "{}", said(&output));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    for kind in ["read", "write", "flush", "durable_write"] {
        let time = report["disk"]["times"][kind].as_u64();
        assert!(time.is_some_and(|time| time > 0), "{kind}: {report}");
    }
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    assert_eq!(report["machine"]["kernel"], release.trim());
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0, "a scratch file stays");
}

#[test]
fn a_page_for_people_names_what_suits() {
    let directory = tempfile::tempdir().unwrap();
    let output = okeanos(&["doctor".as_ref(), directory.path().as_os_str()]);
    let text = said(&output);
    assert!(output.status.success(), "{text}");
    for part in ["io_uring", "durable write", "What suits:"] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn what_is_no_disk_is_refused_and_not_touched() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "mine").unwrap();
    let output = okeanos(&["doctor".as_ref(), file.path().as_os_str()]);
    assert!(!output.status.success() && said(&output).contains("directory"), "{}", said(&output));
    assert_eq!(std::fs::read(file.path()).unwrap(), b"mine");
    let missing: &OsStr = "/nowhere/at/all".as_ref();
    assert!(!okeanos(&["doctor".as_ref(), missing]).status.success());
}
