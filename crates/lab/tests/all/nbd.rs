//! Test of `okeanos-lab nbd` with another project's client.

use crate::rig::Rig;
use serde_json::Value;
use std::process::Command;

/// Functions. `serve PROGRAM OPTIONS…`: a server on the socket `s`, printing to `out`, until
/// `stop`. `q COMMANDS…`: a client.
const WORDS: &str = r#"
    P=; trap '[ -z "$P" ] || kill -9 $P 2>/dev/null || true' EXIT
    export_disk() {
        "$@" >out & P=$!
        for i in $(seq 300); do grep -qs listening out && return; sleep 0.1; done; return 1
    }
    stop() { kill -TERM $P; wait $P; P=; }
    q() { timeout 100 qemu-io -f raw "$@" 'nbd+unix:///?socket=s' >q 2>&1 || { cat q; exit 1; }; }
"#;

fn run(script: &str) -> Value {
    // Does nothing, and needs no network, if all are installed.
    let install = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/install-packages.sh");
    assert!(Command::new(install).arg("qemu-utils").status().unwrap().success());
    let out = Rig::new().run(&format!("{WORDS}{script}"));
    // One object, after the lines that the program prints while it serves.
    serde_json::from_str(&out[out.find('{').unwrap()..]).expect(&out)
}

#[test]
fn an_emulated_drive_is_exported_and_reports_what_it_did() {
    let report = run(
        "export_disk $LAB nbd --socket s --model constellation-es3 --size 1G --cache off --json
         q -c 'write -P 7 0 4k' -c 'write -P 7 500M 4k' -c flush -c 'read -P 7 500M 4k'; stop
         cat out",
    );
    assert_eq!(report["drive"]["writes"], 2, "{report}");
    assert!(report["drive"]["cylinders_crossed"].as_u64().unwrap() > 0, "{report}");
}
