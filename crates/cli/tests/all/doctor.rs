//! Tests of `okeanos doctor`: a page about this machine and a disk.

use crate::common::{okeanos, said};
use crate::rig::Rig;
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
    for part in ["io_uring", "transport=auto", "durable write", "What suits:", "Limits here:"] {
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

#[test]
fn a_device_is_read_and_left_as_it_was() {
    Rig::new().run(
        r#"head -c 8M /dev/urandom >image; before=$(sha256sum <image)
           DEVICE=$(losetup --find --show --sector-size 4096 image)
           trap 'losetup --detach $DEVICE' EXIT
           $O doctor --json $DEVICE >report; $O doctor $DEVICE >printed
           [ "$before" = "$(sha256sum <image)" ]
           cat >check.py <<'END'
import json, sys
disk = json.load(open("report"))["disk"]
assert disk["target"] == sys.argv[1] and disk["is_device"] and disk["durable_by_itself"], disk
assert disk["logical_sector"] == disk["physical_sector"] == 4096, disk
assert disk["times"]["read"] > 0, disk
assert not any(disk["times"][kind] for kind in ("write", "flush", "durable_write")), disk
END
           python3 check.py $DEVICE; grep -q 'sectors *4096 bytes, physical 4096' printed
           grep -q 'Name a directory on the device' printed"#,
    );
}
