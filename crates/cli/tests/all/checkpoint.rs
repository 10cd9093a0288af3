//! Tests of `checkpoint=` and `okeanos checkpoint`: when the log of a mounted volume is written
//! back, and the reports of it.

use crate::rig::{DETACHED, Rig};
use serde_json::Value;

/// Overwrites the same blocks repeatedly, each time durably, and some that are neighbours.
const OVERWRITES: &str = r#"for at in $(seq 20); do
    dd if=/dev/zero of=$M/file bs=4096 count=4 oflag=dsync conv=notrunc status=none; done"#;

fn json(rig: &Rig, script: &str) -> Value {
    let said = rig.run(script);
    serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: {said}"))
}

#[test]
fn a_checkpoint_by_hand_empties_the_log_and_reports_savings() {
    let rig = Rig::new();
    for log in ["circular", "scattered"] {
        rig.run("rm -f image; $O mkfs --scattered-logs=log-size=2M,group-size=16M image 64M -- -q");
        let said = rig.run(&format!(
            "serve log={log},data=journal,checkpoint=manual,writeback=1s,expire=1s image
             {OVERWRITES}; sleep 4; $O stats --json $M >before
             $O checkpoint --json $M >report
             echo more >$M/more; sync $M/more; $O checkpoint $M; $O checkpoint $M
             $O stats --json $M >after; kill_daemon; umount -l $M; settle image"
        ));
        assert!(
            said.contains("blocks of")
                && said.contains("merged with their neighbours")
                && said.contains("The log held nothing that was not home."),
            "{said}"
        );
        let [before, report, after] =
            ["before", "report", "after"].map(|name| json(&rig, &format!("cat {name}")));
        // Far older than a second, and still in the log alone.
        assert_eq!(before["engine"]["home_writes"], 0, "{log}: {before}");
        let number = |name: &str| report[name].as_u64().unwrap();
        assert!(number("blocks_logged") >= 80 && number("blocks_written") < 60, "{log}: {report}");
        assert!(number("writes") < number("writes_logged"), "{log}: {report}");
        assert!(report["blocks_skipped"].as_f64().unwrap() > 25.0, "{log}: {report}");
        assert_eq!(after["engine"]["cache"]["dirty_blocks"], 0, "{log}: {after}");
        let dry = json(&rig, "$O recover --dry-run --json image");
        assert_eq!(dry["transactions"], 0, "{log}: {dry}");
        rig.run("$O recover image");
        rig.check("");
    }
}

/// A client of the control socket begins a checkpoint of many scattered blocks. While it runs a
/// file is written, and another client asks.
#[test]
fn a_checkpoint_writes_back_what_changed_during_another() {
    let rig = Rig::new();
    rig.run(
        r#"$O mkfs --journal-size 96M image 256M -- -q
           serve data=journal,checkpoint=manual,noloop image
           python3 -c '
import json, os, socket, subprocess, sys
program, mount = sys.argv[1:]
file = os.open(mount + "/file", os.O_RDWR | os.O_CREAT)
for block in range(5000): os.pwrite(file, b"x" * 4096, block * 8192)
os.fsync(file)
device = os.stat(mount).st_dev
daemon = socket.socket(socket.AF_UNIX)
daemon.connect("/run/okeanos/%d-%d.sock" % (os.major(device), os.minor(device)))
def ask(what):
    daemon.sendall(json.dumps({"ask": what}).encode() + b"\n")
    return json.loads(daemon.makefile().readline())
assert ask("checkpoint")["is_under_way"]
open(mount + "/late", "w").write("late")
assert ask("checkpointing")["is_under_way"], "the first checkpoint ended too soon for this test"
subprocess.run([program, "checkpoint", mount], check=True)' $O $M
           kill_daemon; umount $M; debugfs -R 'cat /late' image 2>said | grep -q late
           $O recover image"#,
    );
    rig.check("");
}

/// Waits until everything is home, and fails if that takes far too long.
const UNTIL_HOME: &str = r#"for i in $(seq 600); do
    $O stats --json $M | grep -q '"dirty_blocks": 0' && break; sleep 0.1; done
    $O stats --json $M | grep -q '"dirty_blocks": 0'"#;

#[test]
fn checkpoints_begin_at_the_times_of_the_option() {
    let rig = Rig::new();
    rig.run("$O mkfs image 64M -- -q");
    let hour = rig.run("date +%H").trim().parse::<u32>().unwrap();
    let now = format!("off-hours:{hour}-{}", (hour + 2) % 24);
    for times in ["periodic:1", "idle:1", &now] {
        rig.run(&format!(
            "$O mount -o data=journal,checkpoint={times},writeback=1s,expire=1h image $M
             {OVERWRITES}; {UNTIL_HOME}; $O umount $M; {DETACHED}"
        ));
    }
    let other = format!("off-hours:{}-{}", (hour + 5) % 24, (hour + 7) % 24);
    let stats = json(
        &rig,
        &format!(
            "$O mount -o data=journal,checkpoint={other},writeback=1s,expire=1s image $M
             {OVERWRITES}; sleep 4; $O stats --json $M; $O umount $M; {DETACHED}"
        ),
    );
    assert_eq!(stats["engine"]["home_writes"], 0, "{stats}");
    rig.check("");
}

#[test]
fn what_is_no_time_or_no_mount_is_refused_with_what_to_do() {
    let rig = Rig::new();
    rig.run("$O mkfs image 16M -- -q");
    for times in ["", "sometimes", "periodic", "idle:0", "off-hours:25-3", "off-hours:3-3"] {
        let said = rig.run(&format!("refuses $O mount -o checkpoint={times} image $M 2>&1"));
        assert!(said.contains("checkpoint"), "{times}: {said}");
    }
    let said = rig.run("refuses $O checkpoint $M 2>&1");
    assert!(said.contains("no okeanos volume"), "{said}");
    let said = rig.run(&format!(
        "$O mount -o ro image $M; $O checkpoint --json $M
         refuses $O mount -o remount,checkpoint=manual image $M 2>&1
         $O umount $M; {DETACHED}"
    ));
    assert!(said.contains("\"blocks_written\": 0") && said.contains("checkpoint"), "{said}");
}
